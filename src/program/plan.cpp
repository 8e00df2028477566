#include "src/program/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/imagined.hpp"
#include "kernels/base/size_text.hpp"
#include "src/program/machines.hpp"
#include "src/program/profile.hpp"
#include "src/program/schedule.hpp"

namespace terrace {

namespace {

/// What a rank may take, if all others take as much: the least over the ranks.
template <class B>
RankMemory free_memory(const Context<B>& c) {
  RankMemory free;
  free.host = host_room().share(c.control.local_size());
  if constexpr (std::is_same_v<B, Cuda>) free.device = c.device.free_bytes;
  return {c.control.reduce(free.host, Reduce::min), c.control.reduce(free.device, Reduce::min)};
}

bool within(const RankMemory& need, const RankMemory& free) {
  return need.host <= free.host && need.device <= free.device;
}

/// The least number of ranks above `ranks` whose shares fit, or 0.
int enough_ranks(const PlanNeeds& needs, int ranks, const RankMemory& free) {
  constexpr int most = 1 << 16;
  int high = ranks;
  while (high < most && !within(needs.memory(high), free)) high *= 2;
  if (high >= most) return 0;
  int low = high / 2;  // does not fit
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (within(needs.memory(middle), free) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::string about(double seconds) {
  if (!(seconds > 0)) return "0";
  const double digit = std::pow(10.0, std::floor(std::log10(seconds)));
  const double rounded = digit * std::round(seconds / digit);
  return rounded < 1 ? fmt::format("{:.1g}", rounded) : fmt::format("{:.0f}", rounded);
}

namespace {

/// Seconds by phase, and what the solve's parts would take each alone.
void say_seconds(Run& run, nlohmann::json& plan, const Work& work, const KnownRates& known) {
  const Rates& rates = known.rates;
  const Seconds s = predict(work, rates);
  const StepSums sums = sums_of(work.steps, rates);
  plan["seconds"] = {{"start", s.start}, {"read", s.read},   {"solve", s.solve},
                     {"check", s.check}, {"write", s.write}, {"total", s.total()}};
  plan["solve_parts"] = {{"first_use", s.first},
                         {"beside_elimination", seconds_of(work.solve, rates)},
                         {"elimination", s.solve - s.first - seconds_of(work.solve, rates)},
                         {"steps", work.steps.count},
                         {"choose", sums.choose},
                         {"share", sums.share},
                         {"update_next", sums.next},
                         {"update_rest", sums.rest},
                         {"chain", seconds_of(work.chain, rates)},
                         {"updates", seconds_of(work.updates, rates)}};
  plan["model"] = work.model;
  plan["profile"] = {{"source", known.source}, {"file", profile_path()}, {"note", known.note}};
  run.say(fmt::format("seconds    about {}: start {}, read {}, solve {}, check {}, write {}",
                      about(s.total()), about(s.start), about(s.read), about(s.solve),
                      about(s.check), about(s.write)));
  if (!work.iteration.empty()) {
    plan["seconds"]["iteration"] = s.iteration;
    plan["iterations_assumed"] = work.iterations;
    run.say(fmt::format("           about {} per iteration; {:.0f} iterations are assumed",
                        about(s.iteration), work.iterations));
  }
  run.say("rates      " + known.source + (known.note.empty() ? "" : "; " + known.note));
}

/// For ranks that are not there: which, and on what.
void say_machine(Run& run, nlohmann::json& plan, const Control& control) {
  if (!is_imagined(control)) return;
  const int ranks = control.size(), each = control.local_size();
  const KnownGpu* const gpu = run.options.gpu.empty() ? nullptr : find_gpu(run.options.gpu);
  if (gpu) plan["machine"] = describe(*gpu);
  run.say(fmt::format("machine    {} rank{}{}, {} per host", ranks, ranks == 1 ? "" : "s",
                      gpu ? ", each with an " + gpu->device.info.name : " like this one", each));
}

}  // namespace

template <class B>
Rates conclude_plan(Run& run, const Context<B>& c, const Work& work, const PlanNeeds& needs) {
  const Control& control = c.control;
  nlohmann::json& plan = run.report["result"]["plan"];
  if (!plan.is_object()) plan = nlohmann::json::object();
  say_machine(run, plan, control);
  const RankMemory mine = needs.memory(c.size());
  const int most = int(control.reduce(Index(control.local_size()), Reduce::max));
  const auto json = [](Index host, Index device) {
    return nlohmann::json{{"host_bytes", host}, {"device_bytes", device}};
  };
  plan["memory_per_rank"] = json(mine.host, mine.device);
  plan["memory_per_host"] = json(most * mine.host, most * mine.device);
  plan["ranks_per_host"] = most;
  const auto both = [](Index host, Index device) {
    return device > 0 ? size_text(device) + " on the GPU and " + size_text(host) + " on the host"
                      : size_text(host);
  };
  run.say(fmt::format("memory     {} per rank, {} per host ({} rank{} on it)",
                      both(mine.host, mine.device), both(most * mine.host, most * mine.device),
                      most, most == 1 ? "" : "s"));
  const KnownRates known = known_rates(c);
  say_seconds(run, plan, work, known);
  // Does it fit?
  const std::string shortage = memory_shortage(control, mine.host, mine.device);
  plan["fits"] = shortage.empty();
  plan["advice"] = nlohmann::json::array();
  if (shortage.empty()) {
    run.say("fits       yes");
    return known.rates;
  }
  const RankMemory free = free_memory(c);
  std::vector<std::string> advice;
  if (needs.any_ranks) {
    const int ranks = enough_ranks(needs, c.size(), free);
    plan["ranks_needed"] = ranks;
    if (ranks > 0) {
      if constexpr (std::is_same_v<B, Cuda>)
        advice.push_back(fmt::format("on {} ranks, each with a GPU like these", ranks));
      else if (process_memory_is_limited())
        advice.push_back(fmt::format("on {} ranks", ranks));
      else
        advice.push_back(
            fmt::format("on {} ranks on {} hosts like these", ranks, ceil_div(ranks, most)));
    }
  }
  for (const Alternative& other : needs.alternatives) {
    const std::optional<RankMemory> memory = other.memory();
    if (memory && memory_shortage(control, memory->host, memory->device).empty())
      advice.push_back(other.words);
  }
  plan["advice"] = advice;
  std::string what = shortage.substr(0, shortage.find(';'));
  for (const std::string& one : advice) what += (&one == &advice.front() ? "; fits " : " | ") + one;
  if (advice.empty()) what += "; nothing that terrace has makes it fit: a smaller problem";
  run.say("does not fit: " + what);
  return known.rates;
}

#define TERRACE_INSTANTIATE(B) \
  template Rates conclude_plan(Run&, const Context<B>&, const Work&, const PlanNeeds&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
