// The end of every --plan: memory of each rank and host, seconds by phase, whether it fits, and
// what would make it fit.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/program/predict.hpp"
#include "src/program/run.hpp"

namespace terrace {

/// Bytes of one rank: on its host (with those of the CPU backend), and on its device.
struct RankMemory {
  Index host = 0, device = 0;
};

/// What else could be asked for: the words that say so, and its memory; nothing where it is not
/// possible.
struct Alternative {
  std::string words;
  std::function<std::optional<RankMemory>()> memory;
};

struct PlanNeeds {
  std::function<RankMemory(int ranks)> memory;  ///< of the rank with most
  bool any_ranks = true;                        ///< false: the method runs on one rank only
  std::vector<Alternative> alternatives;
};

/// Says and reports (result.plan) memory, seconds and advice; agrees over the ranks, never throws
/// for want of memory. Collective.
template <class B>
void conclude_plan(Run& run, const Context<B>& context, const Work& work, const PlanNeeds& needs);

/// The name of a machine in profiles: "NVIDIA H200, 2 ranks", "..., 8 ranks on 2 hosts".
template <class B>
std::string machine_name(const Context<B>& context, int ranks);

}  // namespace terrace
