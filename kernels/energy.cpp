#include "kernels/energy.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace terrace {

namespace {

// --- NVML ----------------------------------------------------------------------------------------

// The few functions of nvml.h that are used; 0 is NVML_SUCCESS.
using NvmlDevice = void*;
using NvmlInit = int (*)();
using NvmlByUuid = int (*)(const char*, NvmlDevice*);
using NvmlEnergy = int (*)(NvmlDevice, unsigned long long*);

struct Nvml {
  void* library = nullptr;
  NvmlInit shutdown = nullptr;
  NvmlEnergy energy = nullptr;
  NvmlDevice device = nullptr;

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
  nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  NvmlInit init = nullptr;
  NvmlByUuid by_uuid = nullptr;
  if (!nvml->library) {
    counter.reason_ = std::string(library) + " is not here";
  } else if (!nvml->find(init, "nvmlInit_v2") ||
             !nvml->find(by_uuid, "nvmlDeviceGetHandleByUUID") ||
             !nvml->find(nvml->energy, "nvmlDeviceGetTotalEnergyConsumption") || init() != 0) {
    counter.reason_ = "NVML does not start";
  } else {
    nvml->find(nvml->shutdown, "nvmlShutdown");
    unsigned long long first = 0;
    if (by_uuid(nvml_uuid(uuid).c_str(), &nvml->device) != 0)
      counter.reason_ = "NVML does not know the device " + nvml_uuid(uuid);
    else if (nvml->energy(nvml->device, &first) != 0)
      counter.reason_ = "the device has no energy counter";
    else
      counter.read_ = [nvml] {
        unsigned long long millijoules = 0;
        nvml->energy(nvml->device, &millijoules);
        return 1e-3 * double(millijoules);
      };
  }
  return counter;
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
