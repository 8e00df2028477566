// What every solver gets first: who we are, and the two lanes.
#pragma once
#include "distrib/binding.hpp"
#include "distrib/communicator.hpp"
#include "distrib/session.hpp"

namespace terrace {

template <class B>
struct Context {
  Control control;
  Communicator<B> comm;
  Stream<B> ahead{Priority::high};  ///< pivots, panels and all communication
  Stream<B> bulk{};                 ///< updates
  DeviceBinding device{};           ///< Cuda only

  [[nodiscard]] int rank() const { return control.rank(); }
  [[nodiscard]] int size() const { return control.size(); }
};

/// Collective. Binds the device for Cuda.
template <class B>
Context<B> make_context(const Control& control, const DeviceWish& wish = {});

}  // namespace terrace
