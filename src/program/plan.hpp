// The end of every --plan: memory of each rank and host, seconds by phase, whether it fits, and
// what would make it fit.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/parallel.hpp"
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
/// for want of memory. Returns the rates that the seconds were taken from. Collective.
template <class B>
Rates conclude_plan(Run& run, const Context<B>& context, const Work& work, const PlanNeeds& needs);

/// What the ranks of a context work on.
template <class B>
Machine machine_of(const Context<B>& context) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  return {context.size(), device, thread_count(), context.control.local_size(),
          device && context.size() > 1 && !may_use_peer_memory(context.control)};
}

/// One significant digit, all that a plan knows: "0.03", "400".
std::string about(double seconds);

}  // namespace terrace
