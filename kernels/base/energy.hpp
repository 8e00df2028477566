// Energy counters of devices and processors, and the clock that a device runs at.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace {

/// A counter of energy since some moment in the past: differences count. The counters advance in
/// steps (NVML: 20 to 100 ms; RAPL: 1 ms), so a difference over less time means little by itself.
class EnergyCounter {
 public:
  EnergyCounter() = default;
  /// The board of the NVIDIA device with this uuid (32 hexadecimal digits, as DeviceInfo has it),
  /// by NVML's nvmlDeviceGetTotalEnergyConsumption (Volta and later). The library is opened at run
  /// time.
  static EnergyCounter device(const std::string& uuid, const char* library = "libnvidia-ml.so.1");
  /// The processor packages of this host, by the kernel's RAPL folders; memory not included.
  static EnergyCounter host(const std::string& folder = "/sys/class/powercap");

  [[nodiscard]] bool available() const { return bool(read_); }
  /// Why it is not available.
  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// A counter that ran over its end is followed when it is read at least once a round.
  [[nodiscard]] double joules() const { return read_ ? read_() : 0; }

 private:
  std::function<double()> read_;
  std::string reason_ = "there is no counter";
};

/// What a device's multiprocessors were clocked at between begin() and end(), looked at every 5 ms
/// by a thread; NVML, as above.
class ClockWatch {
 public:
  struct Clocks {
    double mean = 0, lowest = 0;  ///< MHz; 0: never looked at
    double power_capped = 0;      ///< fraction of the time that the power limit held it down
    double too_hot = 0;           ///< the same for temperatures
  };
  explicit ClockWatch(const std::string& uuid, const char* library = "libnvidia-ml.so.1");
  ~ClockWatch();
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;
  [[nodiscard]] bool available() const { return available_; }
  void begin();
  Clocks end();

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool available_ = false;
};

}  // namespace terrace
