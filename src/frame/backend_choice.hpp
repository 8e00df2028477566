// CPU or GPU, where the user leaves it open.
#pragma once
#include <string>

#include "distrib/control.hpp"

namespace terrace {

/// What a command tells --backend auto about its work. Small work is done sooner by the CPU.
struct BackendHint {
  double size = 0;        ///< cube root of the multiply-adds
  double least_size = 0;  ///< smallest that goes to the GPU
};
struct BackendChoice {
  std::string name;    ///< "cpu" or "cuda"
  std::string reason;  ///< why auto left a GPU aside, or empty
};
/// What "auto" means where a device is seen by every rank, or is not.
BackendChoice choose_backend(bool device_everywhere, const BackendHint& hint);
/// Which backend --backend names on this machine; agreed over the ranks. The hint counts for "auto"
/// only.
BackendChoice resolve_backend(const Control& control, const std::string& option,
                              const BackendHint& hint = {});

}  // namespace terrace
