// terrace bench dense --solve: systems with random matrices, beside LAPACK or cuSOLVER.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "distrib/agree.hpp"
#include "src/bench/dense_bench.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

namespace {

/// LAPACK's ratio of a solution; `own_rows` as check_solution() wants it.
template <class B>
double solution_ratio(Context<B>& context, Index n, Index right, Word seed, const BlockCyclic& rows,
                      const std::function<void(Index, Index, double*)>& own_rows) {
  return check_solution<B>(context, n, right, rows.ranges(context.rank()), own_rows,
                           generator(0, n, seed), generator(n, right, seed), 1.0);
}

template <class B>
DenseRival<B> rival_solver(Context<B>& context, Index n, Index right, Word seed,
                           const std::string& name) {
  DenseRival<B> rival{name, n * right, {}, {}};
  rival.solve = [=, &context](View<double, B> x) {
    [[maybe_unused]] const Stream<B>& lane = context.bulk;
    if constexpr (std::is_same_v<B, Cpu>)
      return lapack_solution(n, right, seed, x);
    else
      return cusolver_solution(lane, n, right, seed, x, name == "cusolver-mixed");
  };
  rival.ratio = [=](Context<B>& alone, View<double, B> x) {
    std::vector<double> values(static_cast<std::size_t>(n * right));
    download(alone.ahead, values.data(), View<const double, B>(x));
    alone.ahead.synchronize();
    return solution_ratio<B>(alone, n, right, seed, contiguous(n, 1),
                             [&](Index from, Index count, double* out) {
                               for (Index i = 0; i < n; ++i)
                                 for (Index j = 0; j < count; ++j)  // LAPACK's columns
                                   out[i * count + j] = values[std::size_t((from + j) * n + i)];
                             });
  };
  return rival;
}

}  // namespace

/// generator() of A's rows, which makes them where they are wanted, for sinks that only copy.
template <class B>
RowReader local_generator(Context<B>& context, Index n, Word seed) {
  const RowReader on_host = generator(0, n, seed);
  const auto local = [&context, n, seed](std::span<const Range> ranges,
                                         const io::Sink<double>& sink) {
    const Stream<B>& lane = context.ahead;
    const Index piece = std::clamp<Index>((Index(32) << 20) / std::max<Index>(1, n), 1, 4096);
    const Buffer<double, B> rows(piece * n);
    const Buffer<Index, B> numbers(piece);
    std::vector<Index> host(static_cast<std::size_t>(piece));
    Index position = 0;
    for (const Range& range : ranges)
      for (Index top = range.first; top < range.end(); top += piece) {
        dense::Rows<B> some;
        some.slots = std::min(piece, range.end() - top);
        some.a = rows;
        some.columns = some.ld = n;
        some.global_row = numbers.view().slice(0, some.slots);
        std::iota(host.begin(), host.end(), top);
        upload(lane, numbers.view(), static_cast<const Index*>(host.data()));
        dense::fill_random(lane, some, n, seed);
        lane.synchronize();
        sink(position, some.slots, rows.data());
        position += some.slots;
      }
  };
  return {[on_host](std::span<const Range> ranges, const io::Sink<double>& sink) {
            on_host(ranges, sink);
          },
          local};
}

/// Ours with --precision mixed: the factor in low precision and the refinement. Where a copy of A
/// is kept for the residuals, it is made before, as A is.
template <class B>
void bench_mixed(Run& run, Context<B>& context, const DenseBenchOptions& options, Index n,
                 BenchRun what) {
  const Word seed = Word(run.options.seed);
  DenseRequest request{"lu", false, options.right};
  request.block = run.options.block;
  request.pivoting = options.pivoting;
  request.mixed = true;
  request.condition = false;
  const DensePlan plan = plan_dense<B>(context.size(), n, request);
  constexpr bool host = std::is_same_v<B, Cpu>;
  require_memory(run.control, (Index(192) << 20) + plan.host_bytes() + (host ? plan.bytes : 0),
                 host ? 0 : plan.bytes);
  what.sizes = {{"n", n},
                {"rhs", options.right},
                {"block", plan.float_block > 0 ? plan.float_block : plan.block}};
  what.who = "terrace mixed";
  DenseSystem<B> system(context, plan, local_generator(context, n, seed),
                        generator(n, options.right, seed));
  Progress silent(false, false);
  what.measure = [&] {
    system.read();
    run.control.barrier();
    EliminationOutcome found;
    const double seconds = lap_seconds(context.ahead, [&] { found = system.solve(silent); });
    if (!found.good()) fail_together(Exit::outcome, "the random matrix was found singular");
    return seconds;
  };
  what.stages = [&] {
    system.read();
    return stages_and_clocks<B>(
        run, context, n, [&](const StageTimes<B>& stages) { (void)system.solve(silent, stages); });
  };
  what.residual = [&] { return system.check(silent); };
  what.spoil = [&](double value) { spoils(context.ahead, system.solution())(value); };
  bench_run(run, options, what);
  const Refinement& r = system.refinement();
  nlohmann::json& line = run.report["runs"].back();
  line["precision"] = r.converged ? "mixed" : "fp64";
  line["refinement_steps"] = r.steps;
  line["gmres_steps"] = r.krylov;
  line["refinement_seconds"] = r.seconds;
  run.say(r.converged ? fmt::format("  {} steps of refinement, {} of GMRES, {:.3g} s", r.steps,
                                    r.krylov, r.seconds)
                      : "  solved in FP64: " + r.why);
}

template <class B>
void bench_solution(Run& run, Context<B>& context, const DenseBenchOptions& options, Index n,
                    double bound) {
  const Word seed = Word(run.options.seed);
  const Index right = options.right;
  const bool lu = run.options.method != "gauss-jordan";
  const EliminationPlan plan = plan_elimination<B>(context.size(), n, right, false,
                                                   run.options.block, options.pivoting, false, lu);
  constexpr bool host = std::is_same_v<B, Cpu>;
  require_memory(run.control, (Index(192) << 20) + (host ? plan.bytes : 0), host ? 0 : plan.bytes);
  BenchRun what;
  what.sizes = {{"n", n}, {"rhs", right}, {"block", plan.block}};
  what.who = lu ? "terrace" : "terrace gauss-jordan";
  // LU's flops for all: a rate in them is comparable.
  what.work = 1e-9 * (2.0 / 3 * std::pow(double(n), 3) + 2.0 * double(n) * double(n * right));
  what.unit = "GFLOP/s";
  what.bound_name = "DGEMM";
  what.bound = bound * context.size();
  {
    RowElimination<B> solver(context, plan);
    Progress silent(false, false);
    const auto fill = [&] {
      dense::Rows<B> rows = solver.rows();
      dense::fill_random(context.ahead, rows, n + right, seed);
      context.ahead.synchronize();
      run.control.barrier();
    };
    what.measure = [&] {
      fill();
      EliminationOutcome found;
      const double seconds = lap_seconds(context.ahead, [&] { found = solver.run(silent); });
      if (!found.good()) fail_together(Exit::outcome, "the random matrix was found singular");
      return seconds;
    };
    what.stages = [&] {
      fill();
      return stages_and_clocks<B>(
          run, context, n, [&](const StageTimes<B>& stages) { (void)solver.run(silent, stages); });
    };
    what.residual = [&] {
      return solution_ratio<B>(
          context, n, right, seed, plan.rows, [&](Index from, Index count, double* out) {
            std::vector<double> own(std::size_t(solver.slots() * count));
            copy_rows<double>(context.ahead, own.data(), count, solver.data().data + n + from,
                              solver.ld(), count, solver.slots());
            context.ahead.synchronize();
            for (Index s = 0; s < solver.slots(); ++s)
              std::copy_n(own.data() + s * count, count,
                          out + solver.destination()[std::size_t(s)] * count);
          });
    };
    what.spoil =
        spoils(context.ahead, solver.data().slice(n, std::max<Index>(0, solver.data().size - n)));
    bench_run(run, options, what);
  }
  what.stages = nullptr;
  if (run.options.precision == "mixed") bench_mixed(run, context, options, n, what);
  what.sizes = {{"n", n}, {"rhs", right}};
  what.bound = bound;
  for (const std::string& rival : options.rivals)
    bench_rival(run, context, options, what, rival_solver(context, n, right, seed, rival));
}

#define TERRACE_INSTANTIATE(B) \
  template void bench_solution<B>(Run&, Context<B>&, const DenseBenchOptions&, Index, double);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
