// Energy counters of devices and processors.
#pragma once
#include <functional>
#include <string>

#include "kernels/backend.hpp"

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

}  // namespace terrace
