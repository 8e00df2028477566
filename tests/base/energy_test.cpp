#include "kernels/base/energy.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/bits.hpp"

using namespace terrace;
using namespace terrace::gf2;

namespace {

namespace fs = std::filesystem;

/// A powercap folder with the files of the kernel's driver.
struct Powercap {
  fs::path folder = fs::temp_directory_path() / ("terrace_rapl_" + std::to_string(getpid()));
  Powercap() { fs::create_directories(folder); }
  ~Powercap() { fs::remove_all(folder); }
  void set(const std::string& zone, const std::string& file, const std::string& text) const {
    fs::create_directories(folder / zone);
    std::ofstream(folder / zone / file) << text << '\n';
  }
};

}  // namespace

TEST_CASE("energy of the host is the sum of its packages, over the end of their counters") {
  const Powercap rapl;
  REQUIRE(!EnergyCounter::host(rapl.folder.string()).available());
  rapl.set("intel-rapl:0", "name", "package-0");
  rapl.set("intel-rapl:0", "energy_uj", "1000000");
  rapl.set("intel-rapl:0", "max_energy_range_uj", "262143328850");
  rapl.set("intel-rapl:0:0", "name", "core");  // a part of the package
  rapl.set("intel-rapl:0:0", "energy_uj", "500000");
  rapl.set("intel-rapl:1", "name", "package-1");
  rapl.set("intel-rapl:1", "energy_uj", "262143000000");
  rapl.set("intel-rapl:1", "max_energy_range_uj", "262143328850");
  rapl.set("intel-rapl:2", "name", "psys");  // the whole machine
  rapl.set("intel-rapl:2", "energy_uj", "7");
  const auto counter = EnergyCounter::host(rapl.folder.string());
  REQUIRE(counter.available());
  const double before = counter.joules();
  rapl.set("intel-rapl:0", "energy_uj", "3500000");
  rapl.set("intel-rapl:0:0", "energy_uj", "9500000");
  rapl.set("intel-rapl:1", "energy_uj", "671150");
  REQUIRE(counter.joules() - before == Approx(2.5 + 1.0));
}

TEST_CASE("energy of the host says what is missing") {
  const Powercap rapl;
  rapl.set("intel-rapl:0", "name", "package-0");
  const auto counter = EnergyCounter::host(rapl.folder.string());
  REQUIRE(!counter.available());
  REQUIRE(counter.reason().find("energy_uj") != std::string::npos);
  REQUIRE(!EnergyCounter::host("/no/such/folder").available());
}

TEST_CASE("energy of a device comes from NVML by its uuid") {
  const auto counter = EnergyCounter::device("0123456789abcdef0123456789abcdef", TERRACE_FAKE_NVML);
  REQUIRE(counter.available());
  const double before = counter.joules();
  REQUIRE(counter.joules() - before == Approx(0.25));
}

TEST_CASE("energy of a device says what is missing") {
  const auto other = EnergyCounter::device("ffffffffffffffffffffffffffffffff", TERRACE_FAKE_NVML);
  REQUIRE(!other.available());
  REQUIRE(other.reason().find("GPU-ffffffff-ffff-ffff-ffff-ffffffffffff") != std::string::npos);
  const auto none = EnergyCounter::device("00", "libno-such-nvml.so.1");
  REQUIRE(!none.available());
  REQUIRE(none.reason().find("libno-such-nvml.so.1") != std::string::npos);
}

TEST_CASE("clocks of a device are looked at while something runs") {
  ClockWatch watch("0123456789abcdef0123456789abcdef", TERRACE_FAKE_NVML);
  REQUIRE(watch.available());
  REQUIRE(watch.end().mean == 0);
  watch.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const ClockWatch::Clocks seen = watch.end();
  REQUIRE(seen.lowest == 1480);
  REQUIRE(seen.mean > 1480);
  REQUIRE(seen.mean < 1980);
  REQUIRE(seen.power_capped > 0);
  REQUIRE(seen.power_capped < 1);
  REQUIRE(seen.too_hot == 0);
  ClockWatch none("00", "libno-such-nvml.so.1");
  REQUIRE(!none.available());
  none.begin();
  REQUIRE(none.end().lowest == 0);
}

TEST_CASE("energy of this machine's device grows", "[gpu]") {
  test::on<Cuda>([](auto& context) {
    const auto counter = EnergyCounter::device(context.device.uuid);
    if (!counter.available()) {
      WARN("skipped: " << counter.reason());
      return;
    }
    const double before = counter.joules();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    REQUIRE(counter.joules() > before);
  });
}
