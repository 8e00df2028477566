// What the benchmarks of band systems share.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/problems.hpp"
#include "src/band/hybrid.hpp"
#include "src/band/parts.hpp"
#include "src/bench/bench.hpp"

namespace terrace::band {

struct BandBench : BenchOptions {
  std::vector<Index> half_bandwidth, right_hand_sides{1};
  Index parts = 0;
  std::vector<Index> widths;                        ///< --widths: each in turn, instead of --block
  std::vector<std::string> diagonal, substitution;  ///< places, each in turn
  [[nodiscard]] bool has_places() const { return !diagonal.empty() || !substitution.empty(); }
  [[nodiscard]] Index most_rhs() const {
    return *std::max_element(right_hand_sides.begin(), right_hand_sides.end());
  }
};

/// Seconds of `work`, all ranks starting together; `work` ends with its device idle.
inline double timed(const Control& control, const std::function<void()>& work) {
  control.barrier();
  return seconds_of(work);
}

template <class B>
void generate_tiles(Context<B>& c, BandTiles<B>& a, Word seed) {
  const BandShape& s = a.shape;
  for (const Range& columns : BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank()))
    band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, columns.first, columns.count,
                      s.half_bandwidth + 1, s.column(), a.tile(columns.first / s.width));
  c.ahead.synchronize();
}

template <class B>
BandProblem<B> generated(Index n, Index m, Word seed) {
  return {n, m, [=](Context<B>& c, Range columns, Index height, Index ld, View<double, B> to) {
            band_generate_spd(c.ahead, seed, n, m, columns.first, columns.count, height, ld, to);
          }};
}

struct BandRates {
  double dgemm = 0, memory = 0;  ///< of one rank
};

inline BenchRun factor_bench(const Control& control, const BandPlan& plan, BandRates rates) {
  const BandShape& s = plan.shape;
  BenchRun bench;
  bench.sizes = {{"n", s.n},
                 {"half_bandwidth", s.half_bandwidth},
                 {"phase", "factor"},
                 {"block", s.width},
                 {"method", to_string(plan.method)}};
  if (!plan.begin.empty()) bench.sizes["parts"] = plan.parts();
  bench.who = "terrace";
  bench.work = band_factor_flops(s.n, s.half_bandwidth) * 1e-9;
  bench.unit = "GFLOP/s";
  bench.bound_name = "DGEMM";
  bench.bound = rates.dgemm * control.size();
  return bench;
}

inline BenchRun solve_bench(const Control& control, const BandPlan& plan, BandRates rates,
                            Index nrhs) {
  const BandShape& s = plan.shape;
  BenchRun bench = factor_bench(control, plan, rates);
  bench.sizes["phase"] = "solve";
  bench.sizes["right_hand_sides"] = nrhs;
  bench.sizes.erase("block");
  if (nrhs < 16) {  // the factor is read twice: memory bounds it
    bench.work = 16e-9 * double(s.n) * double(s.half_bandwidth + 1);
    bench.unit = "GB/s";
    bench.bound_name = "memory read";
    bench.bound = rates.memory * control.size();
  } else {
    bench.work = band_solve_flops(s.n, s.half_bandwidth, nrhs) * 1e-9;
  }
  return bench;
}

[[noreturn]] inline void generated_failed() {
  fail_together(Exit::internal, "the generated matrix failed; bench band");
}
/// As timed(); `factor` says whether it found the generated matrix definite, as it is.
inline double timed_factor(const Control& control, const std::function<bool()>& factor) {
  bool definite = false;
  const double seconds = timed(control, [&] { definite = factor(); });
  if (!definite) generated_failed();
  return seconds;
}

/// --method streamed. The bound is the transfers': bytes over the rates of copies measured both ways
/// at once.
template <class B>
void bench_streamed(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                    BandRates rates);
/// --precision mixed: factor and solve in FP64, by the plan's method, and in mixed precision.
template <class B>
void bench_mixed(Run& run, Context<B>& c, const BandBench& options, const BandRequest& request,
                 const BandPlan& plan, BandRates rates);

}  // namespace terrace::band
