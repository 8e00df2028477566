#include "kernels/base/energy.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace terrace {

namespace {

// --- NVML ----------------------------------------------------------------------------------------

// The few functions of nvml.h that are used; 0 is NVML_SUCCESS.
using NvmlDevice = void*;
using NvmlInit = int (*)();
using NvmlByUuid = int (*)(const char*, NvmlDevice*);
using NvmlEnergy = int (*)(NvmlDevice, unsigned long long*);
using NvmlClock = int (*)(NvmlDevice, int, unsigned*);
using NvmlReasons = int (*)(NvmlDevice, unsigned long long*);
constexpr int nvml_clock_sm = 1;
constexpr unsigned long long nvml_power_capped = 0x4, nvml_too_hot = 0x20 | 0x40;

/// The library and one device in it.
struct Nvml {
  void* library = nullptr;
  NvmlInit shutdown = nullptr;
  NvmlEnergy energy = nullptr;
  NvmlDevice device = nullptr;

  /// True when it has started and knows the device; otherwise `reason` says why not.
  bool open(const std::string& uuid, const char* name, std::string& reason);
  ~Nvml() {
    if (shutdown) shutdown();
    if (library) dlclose(library);
  }
  template <class F>
  bool find(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(library, name));
    return function != nullptr;
  }
};

/// GPU-8-4-4-4-12, as NVML writes a uuid.
std::string nvml_uuid(const std::string& digits) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) text += '-';
    text += digits[i];
  }
  return text;
}

bool Nvml::open(const std::string& uuid, const char* name, std::string& reason) {
  library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  NvmlInit init = nullptr;
  NvmlByUuid by_uuid = nullptr;
  if (!library) {
    reason = std::string(name) + " is not here";
    return false;
  }
  if (!find(init, "nvmlInit_v2") || !find(by_uuid, "nvmlDeviceGetHandleByUUID") || init() != 0) {
    reason = "NVML does not start";
    return false;
  }
  find(shutdown, "nvmlShutdown");
  if (by_uuid(nvml_uuid(uuid).c_str(), &device) == 0) return true;
  reason = "NVML does not know the device " + nvml_uuid(uuid);
  return false;
}

// --- RAPL ----------------------------------------------------------------------------------------

struct Package {
  std::filesystem::path folder;
  double range = 0;  ///< microjoules after which the counter begins again; 0: not known
  double last = 0, sum = 0;
};

bool read_number(const std::filesystem::path& file, double& value) {
  std::ifstream in(file);
  return bool(in >> value);
}

}  // namespace

EnergyCounter EnergyCounter::device(const std::string& uuid, const char* library) {
  EnergyCounter counter;
  const auto nvml = std::make_shared<Nvml>();
  if (!nvml->open(uuid, library, counter.reason_)) return counter;
  unsigned long long first = 0;
  if (!nvml->find(nvml->energy, "nvmlDeviceGetTotalEnergyConsumption") ||
      nvml->energy(nvml->device, &first) != 0)
    counter.reason_ = "the device has no energy counter";
  else
    counter.read_ = [nvml] {
      unsigned long long millijoules = 0;
      nvml->energy(nvml->device, &millijoules);
      return 1e-3 * double(millijoules);
    };
  return counter;
}

struct ClockWatch::State {
  Nvml nvml;
  NvmlClock clock = nullptr;
  NvmlReasons reasons = nullptr;
  std::thread thread;
  std::atomic<bool> stop{false};
  double count = 0, sum = 0, lowest = 0, capped = 0, hot = 0;

  void look() {
    unsigned megahertz = 0;
    unsigned long long why = 0;
    if (clock(nvml.device, nvml_clock_sm, &megahertz) != 0) return;
    if (reasons) reasons(nvml.device, &why);
    lowest = count == 0 ? megahertz : std::min<double>(lowest, megahertz);
    ++count;
    sum += megahertz;
    if (why & nvml_power_capped) ++capped;
    if (why & nvml_too_hot) ++hot;
  }
};

ClockWatch::ClockWatch(const std::string& uuid, const char* library)
    : state_(std::make_unique<State>()) {
  std::string reason;
  available_ = state_->nvml.open(uuid, library, reason) &&
               state_->nvml.find(state_->clock, "nvmlDeviceGetClockInfo");
  if (available_) state_->nvml.find(state_->reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
}
ClockWatch::~ClockWatch() { (void)end(); }

void ClockWatch::begin() {
  (void)end();
  if (!available_) return;
  State* const s = state_.get();
  s->stop = false;
  s->count = s->sum = s->lowest = s->capped = s->hot = 0;
  s->thread = std::thread([s] {
    do {
      s->look();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } while (!s->stop);
  });
}

ClockWatch::Clocks ClockWatch::end() {
  State& s = *state_;
  if (!s.thread.joinable()) return {};
  s.stop = true;
  s.thread.join();
  if (s.count == 0) return {};
  return {s.sum / s.count, s.lowest, s.capped / s.count, s.hot / s.count};
}

EnergyCounter EnergyCounter::host(const std::string& folder) {
  EnergyCounter counter;
  const auto packages = std::make_shared<std::vector<Package>>();
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    // intel-rapl:0 is a package, intel-rapl:0:0 a part of it; AMD's processors have the same names.
    const std::string name = entry.path().filename().string();
    std::string kind;
    if (name.rfind("intel-rapl:", 0) != 0 || std::count(name.begin(), name.end(), ':') != 1 ||
        !(std::ifstream(entry.path() / "name") >> kind) || kind.rfind("package", 0) != 0)
      continue;
    Package package{entry.path()};
    if (!read_number(package.folder / "energy_uj", package.last)) {
      counter.reason_ = (package.folder / "energy_uj").string() + " is not readable";
      return counter;
    }
    read_number(package.folder / "max_energy_range_uj", package.range);
    packages->push_back(package);
  }
  if (packages->empty()) {
    counter.reason_ = folder + " has no processor packages";
    return counter;
  }
  counter.read_ = [packages] {
    double sum = 0;
    for (Package& package : *packages) {
      double now = package.last;
      read_number(package.folder / "energy_uj", now);
      package.sum += now - package.last + (now < package.last ? package.range : 0);
      package.last = now;
      sum += 1e-6 * package.sum;
    }
    return sum;
  };
  return counter;
}

}  // namespace terrace
