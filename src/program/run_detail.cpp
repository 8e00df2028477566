// The part of --report that tells the ranks apart.
#include <fmt/core.h>

#include <cmath>

#include "distrib/imagined.hpp"
#include "distrib/topology.hpp"
#include "distrib/traffic.hpp"
#include "io/volume.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/timeline.hpp"
#include "src/frame/stages.hpp"
#include "src/program/run.hpp"

namespace terrace {

namespace {

nlohmann::json stage_seconds(const StageSeconds& s) {
  return {{"panel", s.panel}, {"share", s.share},   {"widen", s.widen}, {"update", s.update},
          {"guard", s.guard}, {"hidden", s.hidden}, {"loop", s.loop},   {"panels", s.panels}};
}

/// [lane, what, from, to], tenths of milliseconds.
nlohmann::json spans_of(const std::vector<Span>& spans) {
  const auto tidy = [](double seconds) { return std::round(seconds * 1e4) / 1e4; };
  nlohmann::json all = nlohmann::json::array();
  for (const Span& s : spans) all.push_back({s.lane, s.what, tidy(s.from), tidy(s.to)});
  return all;
}

/// The largest of the ranks' values by their mean; 1 where there is nothing.
double imbalance(const nlohmann::json& ranks, const char* group, const std::string& name) {
  double sum = 0, most = 0;
  for (const auto& rank : ranks) {
    const double value = rank[group].value(name, 0.0);
    sum += value;
    most = std::max(most, value);
  }
  return sum > 0 ? most * double(ranks.size()) / sum : 1.0;
}

}  // namespace

void Run::note_device(const DeviceBinding& device) {
  own_device_ = {{"ordinal", device.ordinal},
                 {"name", device.name},
                 {"uuid", device.uuid},
                 {"pci", device.pci}};
}

void Run::detail_ranks() {
  if (!wants_report() || is_imagined(control)) return;
  const Traffic moved = traffic();
  const io::Volume volume = io::volume();
  const StageSeconds stages = recorded_stages();
  nlohmann::json mine = {{"rank", control.rank()},
                         {"host", host_name()},
                         {"cores", to_list(allowed_units())},
                         {"threads", thread_count()},
                         {"device", own_device_},
                         {"seconds", own_seconds_},
                         {"bytes",
                          {{"sent", moved.sent},
                           {"received", moved.received},
                           {"read", volume.read},
                           {"written", volume.written}}}};
  const bool staged = control.reduce(stages.loop, Reduce::max) > 0;
  if (staged) mine["stages"] = stage_seconds(stages);
  const std::vector<Span> spans = timeline();
  mine["timeline"] = spans_of(spans);
  report["seconds"]["overlapped"] = control.reduce(overlapped_seconds(spans), Reduce::max);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : control.gather_all(mine.dump()))
    all.push_back(nlohmann::json::parse(text));
  nlohmann::json factors = nlohmann::json::object();
  for (const auto& [phase, seconds] : own_seconds_)
    factors[phase] = imbalance(all, "seconds", phase);
  if (staged)
    for (const char* stage : {"panel", "share", "widen", "update", "guard"})
      factors[stage] = imbalance(all, "stages", stage);
  report["ranks_detail"] = all;
  report["imbalance"] = factors;
}

}  // namespace terrace
