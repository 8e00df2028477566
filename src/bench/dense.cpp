// terrace bench dense: inversion of random matrices, beside LAPACK or cuSOLVER.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/random.hpp"
#include "kernels/rates.hpp"
#include "kernels/rivals_dense.hpp"
#include "src/bench/bench.hpp"
#include "src/dense_check.hpp"
#include "src/gauss_jordan.hpp"

namespace terrace {

namespace {

/// The rows of the random matrix on the host, as a file would deliver them.
RowReader generator(Index n, Word seed) {
  return [n, seed](std::span<const Range> ranges, const io::Sink<double>& sink) {
    const Index piece = std::clamp<Index>((Index(8) << 20) / std::max<Index>(1, 8 * n), 1, 1024);
    std::vector<double> rows(static_cast<std::size_t>(piece * n));
    Index position = 0;
    for (const Range& range : ranges)
      for (Index first = range.first; first < range.end(); first += piece) {
        const Index count = std::min(piece, range.end() - first);
        for (Index i = 0; i < count; ++i)
          for (Index j = 0; j < n; ++j)
            rows[std::size_t(i * n + j)] = random_uniform(seed, first + i, j);
        sink(position, count, rows.data());
        position += count;
      }
  };
}

template <class B>
void bench_inverse(Run& run, Context<B>& context, const BenchOptions& options,
                   const std::string& pivoting, Index n, double bound) {
  const Word seed = Word(run.options.seed);
  const JordanPlan plan = plan_jordan<B>(context.size(), n, 0, true, run.options.block, pivoting);
  constexpr bool host = std::is_same_v<B, Cpu>;
  require_memory(run.control, (Index(192) << 20) + (host ? plan.bytes : 0), host ? 0 : plan.bytes);
  BenchRun what;
  what.sizes = {{"n", n}, {"block", plan.block}};
  what.who = "terrace";
  what.work = 2e-9 * std::pow(double(n), 3);
  what.unit = "GFLOP/s";
  what.bound_name = "DGEMM";
  what.bound = bound * context.size();
  {
    GaussJordan<B> solver(context, plan);
    Progress silent(false, false);
    what.measure = [&] {
      dense::fill_random(context.ahead, solver.rows(), n, seed);
      context.ahead.synchronize();
      run.control.barrier();
      JordanOutcome found;
      const double seconds = lap_seconds(context.ahead, [&] { found = solver.run(silent); });
      if (!found.good()) fail_together(Exit::outcome, "the random matrix was found singular");
      return seconds;
    };
    what.stages = [&] {
      const auto stages = StageTimes<B>::on();
      dense::fill_random(context.ahead, solver.rows(), n, seed);
      (void)solver.run(silent, stages);
      return stage_report(run.control, stages.seconds(), n);
    };
    what.residual = [&] {
      return run.options.no_check
                 ? 0.0
                 : check_inverse<B>(context, solver, generator(n, seed), 1.0).right;
    };
    bench_run(run, options, what);
  }
  what.residual = nullptr;
  what.stages = nullptr;
  what.sizes = {{"n", n}};
  what.bound = bound;
  for (const std::string& rival : options.rivals) {
    what.who = rival;
    // A rival runs on rank 0 alone, the others wait.
    const auto on_first = [&](const std::function<double()>& measure) {
      what.measure = [&run, measure] {
        return run.control.reduce(run.control.rank() == 0 ? measure() : 0.0, Reduce::max);
      };
      bench_run(run, options, what);
    };
    if constexpr (host) {
      if (rival == "lapack") on_first([&] { return lapack_inverse_seconds(n, seed); });
    } else {
      if (rival == "cusolver")
        on_first([&] { return cusolver_inverse_seconds(context.bulk, n, seed); });
    }
  }
}

}  // namespace

void add_bench_dense(CLI::App& bench, Selected& selected) {
  CLI::App* command = bench.add_subcommand("dense", "Inversion; rivals: lapack (CPU), cusolver");
  const auto options = std::make_shared<BenchOptions>();
  const auto pivoting = std::make_shared<std::string>("auto");
  add_bench_options(*command, *options);
  add_stages_option(*command, *options);
  add_common_options(*command, selected.options);
  command->add_option("--pivoting", *pivoting, "partial, tournament or auto")
      ->check(CLI::IsMember({"auto", "partial", "tournament"}));
  command->callback([&selected, options, pivoting] {
    selected.command = "bench dense";
    selected.action = [options, pivoting](Run& run) {
      for (const std::string& rival : options->rivals)
        if (rival != "lapack" && rival != "cusolver")
          fail_together(Exit::usage,
                        "unknown rival '" + rival + "'; --rivals; use lapack, cusolver");
      with_backend(run, [&]<class B>(Context<B>& context) {
        if (options->n.empty())
          options->n = std::is_same_v<B, Cpu> ? std::vector<Index>{1000, 4000}
                                              : std::vector<Index>{4096, 8192, 16384};
        const double bound = run.control.reduce(dgemm_rate(context.bulk), Reduce::min);
        for (const Index n : options->n) bench_inverse(run, context, *options, *pivoting, n, bound);
      });
    };
  });
}

}  // namespace terrace
