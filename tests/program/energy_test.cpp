#include "src/bench/energy.hpp"
#include "src/bench/median.hpp"

#include <cmath>

#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {
EnergyCounter fake() {  // advances by 250 mJ a reading
  return EnergyCounter::device("0123456789abcdef0123456789abcdef", TERRACE_FAKE_NVML);
}
}  // namespace

TEST_CASE("joules of solves are added over the devices, each counted once") {
  // Ranks 0 and 1 share a device.
  const Index devices = std::max(1, world().size() - 1);
  EnergyMeter meter(world(), std::to_string(std::max(1, world().rank())), fake, "fake");
  REQUIRE_ALL(meter.available());
  int calls = 0;
  const auto e = meter.report([&] {
    ++calls;
    meter.start();
    meter.stop();
    return 0.7;
  });
  CHECK_ALL(calls == 5);  // the first to reach 3 s
  CHECK_ALL(e["solves"] == 5);
  CHECK_ALL(e["devices"] == devices);
  CHECK_ALL(e["joules_per_solve"].get<double>() == Approx(0.25 * double(devices)));
  CHECK_ALL(e["idle_watts"].get<double>() == Approx(0.25 * double(devices)).epsilon(0.2));
  CHECK_ALL(e["joules_above_idle"].get<double>() == Approx(0.25 * double(devices)).epsilon(0.01));
}

TEST_CASE("one device without a counter and nothing is measured, with its reason") {
  const int last = world().size() - 1;
  const EnergyMeter meter(
      world(), std::to_string(world().rank()),
      [&] { return world().rank() == last ? EnergyCounter::host("/no/such/folder") : fake(); },
      "fake");
  CHECK_ALL(!meter.available());
  CHECK_ALL(meter.reason().find("/no/such/folder") != std::string::npos);
}

TEST_CASE("A median of an even number of runs is the mean of the middle two") {
  CHECK(std::isnan(median({})));
  CHECK(median({7}) == 7);
  CHECK(median({4, 1}) == 2.5);
  CHECK(median({9, 1, 4}) == 4);
  CHECK(median({8, 2, 4, 7}) == 5.5);
}
