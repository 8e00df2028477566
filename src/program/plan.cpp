#include "src/program/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernels/base/parallel.hpp"
#include "kernels/base/size_text.hpp"
#include "src/gf2/plan.hpp"
#include "src/program/profile.hpp"

namespace terrace {

namespace {

/// What a rank may take, if all others take as much: the least over the ranks.
template <class B>
RankMemory free_memory(const Context<B>& c) {
  RankMemory free;
  if (process_memory_is_limited())  // beside the buffers of OpenBLAS, see memory_shortage()
    free.host = available_host_bytes() - thread_count() * (Index(129) << 20);
  else
    free.host = available_host_bytes() / c.control.local_size();
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

struct Rates {
  nlohmann::json of_model = nlohmann::json::object();
  std::string source, note;
};

/// From the profile of this machine with as many ranks; else with fewer; else built in.
template <class B>
Rates find_rates(const Context<B>& c, const std::string& model) {
  const auto load = [&](int ranks) {
    const nlohmann::json models = load_profile(c.control, machine_name(c, ranks), "models");
    return models.contains(model) ? models[model] : nlohmann::json::object();
  };
  std::vector<int> tries{c.size()};
  for (int ranks = 1 << 12; ranks > 0; ranks /= 2)
    if (ranks < c.size() && tries.size() < 8) tries.push_back(ranks);
  if (tries.back() != 1) tries.push_back(1);
  Rates found;
  for (const int ranks : tries) {
    found.of_model = load(ranks);
    if (found.of_model.empty()) continue;
    found.source = machine_name(c, ranks);
    // Dense and GF(2): built-in rates that were held beside an H200's runs.
    const bool hopper = found.source.find("H200") != std::string::npos ||
                        found.source.find("H100") != std::string::npos;
    if (std::is_same_v<B, Cuda> && hopper &&
        (model.rfind("dense", 0) == 0 || model.rfind("gf2", 0) == 0)) {
      const nlohmann::json trusted = trusted_rates(found.of_model, model);
      if (trusted != found.of_model)
        found.note =
            "the profile's solves were short: those of an H200 as built in; "
            "terrace bench --profile --seconds 300 measures longer ones";
      found.of_model = trusted;
    }
    if (ranks != c.size())
      found.note +=
          (found.note.empty() ? "" : "; ") + fmt::format(
                                                 "the profile was measured with {} rank{}: what {} "
                                                 "ranks say to each other is not in it; "
                                                 "mpirun -n {} terrace bench --profile measures it",
                                                 ranks, ranks == 1 ? "" : "s", c.size(), c.size());
    return found;
  }
  constexpr bool device = std::is_same_v<B, Cuda>;
  found.of_model = built_in_rates(model, device, thread_count());
  found.source = device ? "built in, of an H200"
                        : fmt::format("built in, of a CPU core, times {} threads", thread_count());
  found.note = "no profile of this machine: terrace bench --profile measures one";
  return found;
}

}  // namespace

template <class B>
std::string machine_name(const Context<B>& c, int ranks) {
  const auto names = c.control.gather_all(host_name());
  const auto hosts = std::set<std::string>(names.begin(), names.end()).size();
  std::string name = fmt::format("{}, {} rank{}", device_model(c), ranks, ranks == 1 ? "" : "s");
  if (hosts > 1 && ranks == c.size()) name += fmt::format(" on {} hosts", hosts);
  return name;
}

template <class B>
void conclude_plan(Run& run, const Context<B>& c, const Work& work, const PlanNeeds& needs) {
  const Control& control = c.control;
  nlohmann::json& plan = run.report["result"]["plan"];
  if (!plan.is_object()) plan = nlohmann::json::object();
  // Memory.
  const RankMemory mine = needs.memory(c.size());
  const auto hosts = control.gather_all(host_name());
  std::map<std::string, int> ranks_of;
  for (const std::string& host : hosts) ++ranks_of[host];
  int most = 0;
  for (const auto& [host, ranks] : ranks_of) most = std::max(most, ranks);
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
  run.say(fmt::format("memory     {} a rank, {} a host ({} rank{} on it)",
                      both(mine.host, mine.device), both(most * mine.host, most * mine.device),
                      most, most == 1 ? "" : "s"));
  // Seconds.
  const Rates rates = find_rates(c, work.model);
  const Seconds s = predict(work, rates.of_model);
  plan["seconds"] = {{"start", s.start}, {"read", s.read},   {"solve", s.solve},
                     {"check", s.check}, {"write", s.write}, {"total", s.total()}};
  plan["model"] = work.model;
  plan["profile"] = {{"source", rates.source}, {"file", profile_path()}, {"note", rates.note}};
  if (rates.of_model.empty()) {
    plan["seconds"] = nullptr;
    run.say("seconds    unknown: nothing was measured for " + work.model +
            "; terrace bench --profile measures it");
  } else {
    run.say(
        fmt::format("seconds    about {:.3g}: start {:.3g}, read {:.3g}, solve {:.3g}, check "
                    "{:.3g}, write {:.3g} (rates: {})",
                    s.total(), s.start, s.read, s.solve, s.check, s.write, rates.source));
    if (!work.iteration.empty()) {
      plan["seconds"]["iteration"] = s.iteration;
      plan["iterations_assumed"] = work.iterations;
      run.say(fmt::format("           {:.3g} an iteration; {:.0f} iterations are assumed",
                          s.iteration, work.iterations));
    }
    if (!rates.note.empty()) run.say("           " + rates.note);
  }
  // Does it fit?
  const std::string shortage = memory_shortage(control, mine.host, mine.device);
  plan["fits"] = shortage.empty();
  plan["advice"] = nlohmann::json::array();
  if (shortage.empty()) {
    run.say("fits       yes");
    return;
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
}

#define TERRACE_INSTANTIATE(B)                               \
  template std::string machine_name(const Context<B>&, int); \
  template void conclude_plan(Run&, const Context<B>&, const Work&, const PlanNeeds&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
