// What the parts of `terrace bench dense` share.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/dense/rivals.hpp"
#include "src/bench/bench.hpp"
#include "src/dense/check.hpp"
#include "src/dense/elimination.hpp"

namespace terrace::dense {

struct DenseBenchOptions : BenchOptions {
  std::string pivoting = "auto";
  std::vector<Index> grid, threads;  ///< of --method textbook
  bool solve = false;                ///< --solve: systems, not inverses
  Index right = 1;                   ///< --rhs
  int moduli = accurate_moduli;      ///< of --precision emulated
};

/// Columns [first, first + columns) of the random matrix on the host, as a file would deliver them:
/// element (i, j) is random_uniform(seed, i, first + j).
RowReader generator(Index first, Index columns, Word seed);

/// The devices' clocks of a run, with StageTimes' report.
template <class B>
nlohmann::json stages_and_clocks(Run& run, Context<B>& context, Index n,
                                 const std::function<void(const StageTimes<B>&)>& work);

/// A rival's line, after ours (`what`): it runs and is checked on rank 0 alone, the others wait.
template <class B>
struct DenseRival {
  std::string name;
  Index size = 0;  ///< numbers of its result
  std::function<RivalRun(View<double, B> result)> solve;
  std::function<double(Context<B>& alone, View<double, B> result)> ratio;  ///< LAPACK's
};
template <class B>
void bench_rival(Run& run, Context<B>& context, const DenseBenchOptions& options, BenchRun what,
                 const DenseRival<B>& rival);

/// --solve: a line for order n of ours and of every rival.
template <class B>
void bench_solution(Run& run, Context<B>& context, const DenseBenchOptions& options, Index n,
                    double bound);

}  // namespace terrace::dense
