#include "src/bench/energy.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "kernels/base/clock.hpp"

namespace terrace {

namespace {
constexpr double least_seconds = 3;
}  // namespace

template <class B>
EnergyMeter::EnergyMeter(const Context<B>& context)
    : EnergyMeter(
          context.control, std::is_same_v<B, Cpu> ? host_name() : context.device.uuid,
          [&] {
            return std::is_same_v<B, Cpu> ? EnergyCounter::host()
                                          : EnergyCounter::device(context.device.uuid);
          },
          std::is_same_v<B, Cpu> ? "RAPL" : "NVML") {}

EnergyMeter::EnergyMeter(const Control& control, const std::string& place,
                         const std::function<EnergyCounter()>& open, std::string name)
    : control_(&control), name_(std::move(name)) {
  const auto places = control_->gather_all(place);
  counts_ = std::find(places.begin(), places.end(), place) - places.begin() == control_->rank();
  devices_ = control_->reduce(Index(counts_), Reduce::sum);
  if (counts_) counter_ = open();
  // The first reason of all ranks.
  for (const std::string& text :
       control_->gather_all(counts_ && !counter_.available() ? counter_.reason() : ""))
    if (reason_.empty()) reason_ = text;
  available_ = reason_.empty();
  if (!available_) return;
  control_->barrier();
  start();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  stop();
  idle_watts_ = control_->reduce(counts_ ? joules_ / seconds_ : 0.0, Reduce::sum);
}

void EnergyMeter::start() {
  if (!available_ || !counts_) return;
  begin_joules_ = counter_.joules();
  begin_ = clock_seconds();
}

void EnergyMeter::stop() {
  if (!available_ || !counts_) return;
  joules_ += counter_.joules() - begin_joules_;
  seconds_ += clock_seconds() - begin_;
}

nlohmann::json EnergyMeter::report(const std::function<double()>& measure) {
  joules_ = seconds_ = 0;
  double total = 0;
  Index solves = 0;
  while (total < least_seconds && solves < 100000) {
    total += control_->reduce(measure(), Reduce::max);
    ++solves;
  }
  const double joules = control_->reduce(joules_, Reduce::sum) / double(solves);
  const double seconds = control_->reduce(seconds_, Reduce::max) / double(solves);
  return {{"joules_per_solve", joules}, {"watts", seconds > 0 ? joules / seconds : 0.0},
          {"solves", solves},           {"seconds_per_solve", seconds},
          {"idle_watts", idle_watts_},  {"joules_above_idle", joules - idle_watts_ * seconds},
          {"devices", devices_},        {"counter", name_}};
}

#define TERRACE_INSTANTIATE(B) template EnergyMeter::EnergyMeter(const Context<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
