// terrace bench band --precision mixed: time to solution, FP64 and mixed in one run; and the two
// passes that an iteration is made of.
#include "distrib/agree.hpp"
#include "src/band/mixed.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/band/symmetric.hpp"
#include "src/bench/band_bench.hpp"

namespace terrace::band {
namespace {

/// Rows of the right-hand sides, nrhs numbers each; zero behind row n.
std::vector<double> random_rows(Index n, Index rows, Index nrhs, Word seed) {
  std::vector<double> b(std::size_t(rows * nrhs), 0.0);
  for (Index i = 0; i < n * nrhs; ++i)
    b[std::size_t(i)] = random_uniform(seed + 2, i / nrhs, i % nrhs);
  return b;
}

BenchRun solution_bench(const Control& control, const BandPlan& plan, BandRates rates, Index nrhs,
                        const std::string& precision) {
  BenchRun bench = factor_bench(control, plan, rates);
  bench.sizes["phase"] = "factor and solve";
  bench.sizes["precision"] = precision;
  bench.sizes["right_hand_sides"] = nrhs;
  bench.work += band_solve_flops(plan.shape.n, plan.shape.half_bandwidth, nrhs) * 1e-9;
  return bench;
}

double last_seconds(const Run& run) { return run.report["runs"].back()["seconds"].get<double>(); }

/// Factor and solve by the plan's FP64 method. Returns the median's seconds.
template <class B>
double bench_fp64(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                  BandRates rates, Index nrhs) {
  const Word seed = Word(run.options.seed);
  const BandShape& s = plan.shape;
  const BandProblem<B> problem = generated<B>(s.n, s.half_bandwidth, seed);
  const Range all{0, s.n};
  BenchRun bench = solution_bench(c.control, plan, rates, nrhs, "fp64");
  std::vector<double> solution(std::size_t(s.n * nrhs));
  if (plan.method == BandMethod::tile_columns) {
    BandTiles<B> a = collectively(c.control, [&] { return band_tiles<B>(c, s); });
    BandWork<B> work = collectively(c.control, [&] { return BandWork<B>(s); });
    BandVectors<B> x = collectively(c.control, [&] { return band_vectors<B>(c, s, nrhs); });
    const std::vector<double> b = random_rows(s.n, x.data.size() / nrhs, nrhs, seed);
    bench.measure = [&] {
      band_clear(c, a);
      generate_tiles(c, a, seed);
      upload(c.ahead, x.data.view(), b.data());
      c.ahead.synchronize();
      return timed_factor(c.control, [&] {
        const Index failed = band_cholesky(c, a, work, run.progress);
        band_substitute(c, a, x, run.progress);
        return failed == 0;
      });
    };
    bench.residual = [&] {
      download(c.ahead, solution.data(), x.data.view().slice(0, s.n * nrhs));
      c.ahead.synchronize();
      return band_residual<B>(c, problem, all, solution, b, nrhs);
    };
    bench.spoil = spoils(c.ahead, x.data.view());
    bench_run(run, options, bench);
    return last_seconds(run);
  }
  const Index last = plan.parts() - 1, height = s.half_bandwidth + 1;
  const Range turned = plan.reversed(last) ? plan.columns(last) : Range{};
  BandParts<B> a = collectively(c.control, [&] { return band_parts<B>(c, plan); });
  Buffer<double, B> natural =
      collectively(c.control, [&] { return Buffer<double, B>(turned.count * height); });
  band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, turned.first, turned.count, height,
                    height, natural.view());
  c.ahead.synchronize();
  BandPartRows<B> x = collectively(c.control, [&] { return band_part_rows(a, nrhs); });
  const std::vector<double> b = random_rows(s.n, s.n, nrhs, seed);
  bench.measure = [&] {
    load_parts(c, problem, a);
    set_rows(c, a, x, b.data());
    return timed_factor(c.control, [&] {
      reload_reversed<B>(c, a, natural);
      const bool definite = factor_parts(c, a);
      solve_parts(c, a, x);
      return definite;
    });
  };
  bench.residual = [&] {
    get_rows(c, a, x, solution.data());
    return band_residual<B>(c, problem, all, solution, b, nrhs);
  };
  bench.spoil = spoils(c.ahead, x.rows.view());
  bench_run(run, options, bench);
  return last_seconds(run);
}

/// Bytes over seconds of one pass over the matrix or its factor.
template <class B>
void bench_pass(Run& run, Context<B>& c, const BandBench& options, BenchRun bench, BandRates rates,
                const std::string& name, Index nrhs, double bytes,
                const std::function<void()>& pass) {
  bench.sizes = {{"n", bench.sizes["n"]},
                 {"half_bandwidth", bench.sizes["half_bandwidth"]},
                 {"phase", name},
                 {"right_hand_sides", nrhs}};
  bench.work = 1e-9 * bytes;
  bench.unit = "GB/s";
  bench.bound_name = "memory read";
  bench.bound = rates.memory;
  bench.residual = nullptr;
  bench.spoil = nullptr;
  bench.measure = [&] {
    return timed(c.control, [&] {
      pass();
      c.ahead.synchronize();
    });
  };
  bench_run(run, options, bench);
}

template <class B>
void bench_mixed_solve(Run& run, Context<B>& c, const BandBench& options, BandPlan plan,
                       BandRates rates, Index nrhs, double fp64) {
  const Word seed = Word(run.options.seed);
  const BandShape s = plan.shape =
      band_shape(plan.shape.n, plan.shape.half_bandwidth, band_low_width(B{}));
  plan.begin.clear();
  const BandProblem<B> problem = generated<B>(s.n, s.half_bandwidth, seed);
  BandTiles<B> a = collectively(c.control, [&] { return band_tiles<B>(c, s); });
  generate_tiles(c, a, seed);
  BandMixed<B> mixed = collectively(c.control, [&] { return band_mixed<B>(s, nrhs); });
  Buffer<double, B> x =
      collectively(c.control, [&] { return Buffer<double, B>(s.padded() * nrhs); });
  const View<const double, B> tiles = a.data.view().slice(0, s.tiles() * s.tile());
  const std::vector<double> b = random_rows(s.n, s.padded(), nrhs, seed);
  std::vector<double> solution(std::size_t(s.n * nrhs));
  MixedResult result;
  double factored = 0, solved = 0;
  BenchRun bench = solution_bench(c.control, plan, rates, nrhs, "mixed");
  bench.sizes["method"] = "mixed";
  bench.measure = [&] {
    upload(c.ahead, x.view(), b.data());
    c.ahead.synchronize();
    bool good = false;
    factored = timed(c.control, [&] { good = mixed_factor(c, tiles, mixed); });
    if (!good) generated_failed();
    solved = timed(c.control, [&] { result = mixed_solve(c, tiles, mixed, x); });
    if (result.reason != MixedReason::converged) generated_failed();
    return factored + solved;
  };
  bench.residual = [&] {
    download(c.ahead, solution.data(), x.view().slice(0, s.n * nrhs));
    c.ahead.synchronize();
    return band_residual<B>(c, problem, Range{0, s.n}, solution, b, nrhs);
  };
  bench.spoil = spoils(c.ahead, x.view());
  bench_run(run, options, bench);
  nlohmann::json& line = run.report["runs"].back();
  line["iterations"] = result.iterations;
  line["restarts"] = result.restarts;
  line["backward_error"] = result.backward_error;
  line["factor_seconds"] = factored;  // of the last run
  line["solve_seconds"] = solved;
  std::string against;
  if (fp64 > 0) {
    line["speedup_over_fp64"] = fp64 / last_seconds(run);
    against = fmt::format("; {:.2f} times as fast as FP64", fp64 / last_seconds(run));
  }
  run.say(fmt::format(
      "  {} iterations, {} restarts, backward error {:.3g}; load and factor {:.6f} s, iterations "
      "{:.6f} s{}",
      result.iterations, result.restarts, result.backward_error, factored, solved, against));

  const Index group = mixed.group;
  const double entries = double(s.n) * double(s.half_bandwidth + 1);
  const Index reads = ceil_div(group, band_symmetric_group);
  const View<double, B> from = mixed.r.view(), to = mixed.z.view();
  bench_pass(run, c, options, bench, rates, "product", group, 8 * entries * double(reads), [&] {
    band_symmetric_times(c.ahead, s, tiles, false, group, from, to, mixed.strips);
  });
  const double bytes = 2 * double(mixed.low.size()) * double(sizeof(Word));
  bench_pass(run, c, options, bench, rates, "preconditioner", group, bytes, [&] {
    band_low_solve(c.ahead, s, mixed.low, mixed.scale, group, from, to, mixed.low_scratch);
  });
}

}  // namespace

template <class B>
void bench_mixed(Run& run, Context<B>& c, const BandBench& options, const BandRequest& request,
                 const BandPlan& plan, BandRates rates) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  if (c.size() > 1)
    fail_together(Exit::usage,
                  "mixed precision is measured on one rank; --precision; start one rank for it");
  if (!band_low_available(B{}))
    fail_together(Exit::usage,
                  "mixed precision needs a GPU of compute capability 9.0 and more; --precision; "
                  "leave it out");
  const BandShape s = band_shape(request.n, request.half_bandwidth, band_low_width(B{}));
  const Index bytes =
      band_memory(s, request.nrhs, 1, true).total() + band_mixed_memory<B>(s, request.nrhs).total();
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  for (const Index nrhs : options.right_hand_sides) {
    double fp64 = 0;
    if (plan.method == BandMethod::streamed)
      run.say("the FP64 matrix would be streamed here: no row of FP64");
    else
      fp64 = bench_fp64(run, c, options, plan, rates, nrhs);
    bench_mixed_solve(run, c, options, plan, rates, nrhs, fp64);
  }
}

#define TERRACE_INSTANTIATE(B)                                                       \
  template void bench_mixed(Run&, Context<B>&, const BandBench&, const BandRequest&, \
                            const BandPlan&, BandRates);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
