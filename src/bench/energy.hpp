// Joules of a bench's solves: counters read around each solve alone.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "distrib/context.hpp"
#include "kernels/base/energy.hpp"

namespace terrace {

class EnergyMeter {
 public:
  /// Measures nothing.
  EnergyMeter() = default;
  /// The ranks' devices or hosts, each counted once, and what they take in a second of doing
  /// nothing. Collective.
  template <class B>
  explicit EnergyMeter(const Context<B>& context);
  /// The same for a counter that open() gives the first of the ranks with an equal `place`.
  EnergyMeter(const Control& control, const std::string& place,
              const std::function<EnergyCounter()>& open, std::string name);

  /// False, with a reason, when some device has no counter; the same on all ranks.
  [[nodiscard]] bool available() const { return available_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }

  /// Around a solve.
  void start();
  void stop();

  /// Repeats `measure` (seconds of one solve, which calls start() and stop()) until 3 s of solves
  /// were seen. Collective. All devices together, whole boards or processor packages:
  ///   joules_per_solve, watts, solves, seconds_per_solve, devices, counter
  ///   idle_watts          measured before, for a second
  ///   joules_above_idle   a solve's, less idle_watts times its seconds
  /// The counters advance in steps: solves far shorter than these take a part of what lies between
  /// them (the matrix is made anew) for their own.
  nlohmann::json report(const std::function<double()>& measure);

 private:
  const Control* control_ = nullptr;
  EnergyCounter counter_;
  std::string name_, reason_;
  bool available_ = false, counts_ = false;  ///< counts_: first of the ranks on its device
  Index devices_ = 0;
  double idle_watts_ = 0;
  double joules_ = 0, seconds_ = 0, begin_joules_ = 0, begin_ = 0;
};

}  // namespace terrace
