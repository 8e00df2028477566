// terrace bench band --precision mixed: time to solution, FP64 and mixed in one run; and the two
// passes that an iteration is made of.
#include <fmt/core.h>

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/band/symmetric.hpp"
#include "src/band/mixed_ends.hpp"
#include "src/bench/band_bench.hpp"

namespace terrace::band {
namespace {

/// Rows `ranges` of the right-hand sides, nrhs numbers each.
std::vector<double> random_rows(std::span<const Range> ranges, Index nrhs, Word seed) {
  std::vector<double> b;
  for (const Range& range : ranges)
    for (Index i = range.first; i < range.end(); ++i)
      for (Index k = 0; k < nrhs; ++k) b.push_back(random_uniform(seed + 2, i, k));
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
  BenchRun bench = solution_bench(c.control, plan, rates, nrhs, "fp64");
  if (plan.method == BandMethod::tile_columns) {
    BandTiles<B> a = collectively(c.control, [&] { return band_tiles<B>(c, s); });
    BandWork<B> work = collectively(c.control, [&] { return BandWork<B>(s); });
    BandVectors<B> x = collectively(c.control, [&] { return band_vectors<B>(c, s, nrhs); });
    std::vector<double> b = random_rows(x.rows.ranges(c.rank()), nrhs, seed);
    b.resize(std::size_t(x.data.size()), 0.0);  // behind row n
    std::vector<double> solution(b.size());
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
      download(c.ahead, solution.data(), x.data.view());
      c.ahead.synchronize();
      return band_residual<B>(c, problem, x.rows, solution, b, nrhs);
    };
    bench.spoil = spoils(c.ahead, x.data.view());
    bench_run(run, options, bench);
    return last_seconds(run);
  }
  const Index last = plan.parts() - 1, height = s.half_bandwidth + 1;
  const bool holds = plan.reversed(last) && plan.owner(last) == c.rank();
  const Range turned = holds ? plan.columns(last) : Range{}, own = plan.rows_of(c.rank());
  BandParts<B> a = collectively(c.control, [&] { return band_parts<B>(c, plan); });
  Buffer<double, B> natural =
      collectively(c.control, [&] { return Buffer<double, B>(turned.count * height); });
  band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, turned.first, turned.count, height,
                    height, natural.view());
  c.ahead.synchronize();
  BandPartRows<B> x = collectively(c.control, [&] { return band_part_rows(a, nrhs); });
  const std::vector<double> b = random_rows({&own, 1}, nrhs, seed);
  std::vector<double> solution(b.size());
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
    return band_residual<B>(c, problem, own, solution, b, nrhs);
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

/// The matrix and right-hand sides in mixed precision: one rank's tile columns, or an end of two.
template <class B>
class MixedBench {
 public:
  MixedBench(Context<B>& context, const BandPlan& plan, Index nrhs, Word seed)
      : own(plan.ranks > 1 ? plan.rows_of(context.rank()) : Range{0, plan.shape.n}),
        b(random_rows({&own, 1}, nrhs, seed)),
        c_(context),
        plan_(plan),
        problem_(generated<B>(plan.shape.n, plan.shape.half_bandwidth, seed)) {
    collectively(c_.control, [&] {
      if (plan.ranks > 1) {
        ends_ = mixed_ends<B>(c_, plan, nrhs);
        end_rows_ = band_part_rows(ends_.parts, nrhs);
        mixed = band_mixed<B>(ends_.shape, nrhs);
        mixed.ends = &ends_;
      } else {
        a_ = band_tiles<B>(c_, plan.shape);
        x_ = Buffer<double, B>(plan.shape.padded() * nrhs);
        mixed = band_mixed<B>(plan.shape, nrhs);
      }
    });
    if (plan.ranks == 1) generate_tiles(c_, a_, seed);
  }
  void load() {
    if (plan_.ranks > 1) {
      load_mixed_ends(c_, problem_, ends_);
      return set_rows(c_, ends_.parts, end_rows_, b.data());
    }
    fill_zero(c_.ahead, x_.view());
    upload(c_.ahead, x_.view().slice(0, Index(b.size())), b.data());
    c_.ahead.synchronize();
  }
  double residual() {
    std::vector<double> solution(b.size());
    if (plan_.ranks > 1) {
      get_rows(c_, ends_.parts, end_rows_, solution.data());
    } else {
      download(c_.ahead, solution.data(), x_.view().slice(0, Index(b.size())));
      c_.ahead.synchronize();
    }
    return band_residual<B>(c_, problem_, own, solution, b, mixed.nrhs);
  }
  [[nodiscard]] View<const double, B> tiles() const {
    return plan_.ranks > 1 ? ends_.matrix()
                           : View<const double, B>(
                                 a_.data.view().slice(0, plan_.shape.tiles() * plan_.shape.tile()));
  }
  [[nodiscard]] View<double, B> x() const {
    return plan_.ranks > 1 ? end_rows_.rows.view() : x_.view();
  }

  const Range own;
  const std::vector<double> b;
  BandMixed<B> mixed;

 private:
  Context<B>& c_;
  const BandPlan& plan_;
  const BandProblem<B> problem_;
  BandTiles<B> a_;
  MixedEnds<B> ends_;
  BandPartRows<B> end_rows_;
  Buffer<double, B> x_;
};

template <class B>
void bench_mixed_solve(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                       BandRates rates, Index nrhs, double fp64) {
  const BandShape& s = plan.shape;
  MixedBench<B> problem(c, plan, nrhs, Word(run.options.seed));
  BandMixed<B>& mixed = problem.mixed;
  MixedResult result;
  double factored = 0, solved = 0;
  BenchRun bench = solution_bench(c.control, plan, rates, nrhs, "mixed");
  bench.measure = [&] {
    problem.load();
    bool good = false;
    factored = timed(c.control, [&] { good = mixed_factor(c, problem.tiles(), mixed); });
    if (!good) generated_failed();
    solved =
        timed(c.control, [&] { result = mixed_solve(c, problem.tiles(), mixed, problem.x()); });
    if (result.reason != MixedReason::converged) generated_failed();
    return factored + solved;
  };
  bench.residual = [&] { return problem.residual(); };
  bench.spoil = spoils(c.ahead, problem.x());
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

  if (plan.ranks > 1) return;
  const Index group = mixed.group;
  const double entries = double(s.n) * double(s.half_bandwidth + 1);
  const Index reads = ceil_div(group, band_symmetric_group);
  const View<double, B> from = mixed.r.view(), to = mixed.z.view();
  bench_pass(run, c, options, bench, rates, "product", group, 8 * entries * double(reads), [&] {
    band_symmetric_times(c.ahead, s, problem.tiles(), false, group, from, to, mixed.strips);
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
  if (!band_low_available(B{}))
    fail_together(Exit::usage,
                  "mixed precision needs a GPU of compute capability 9.0 and more; --precision; "
                  "leave it out");
  BandRequest wanted = request;
  wanted.mixed = true;
  wanted.device_bytes = 0;  // asked for below
  const BandPlan mixed = plan_band<B>(wanted);
  const Index bytes = mixed_needs<B>(mixed, request.nrhs, true).total();
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  for (const Index nrhs : options.right_hand_sides) {
    double fp64 = 0;
    if (plan.method == BandMethod::streamed)
      run.say("the FP64 matrix would be streamed here: no row of FP64");
    else
      fp64 = bench_fp64(run, c, options, plan, rates, nrhs);
    bench_mixed_solve(run, c, options, mixed, rates, nrhs, fp64);
  }
}

#define TERRACE_INSTANTIATE(B)                                                       \
  template void bench_mixed(Run&, Context<B>&, const BandBench&, const BandRequest&, \
                            const BandPlan&, BandRates);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
