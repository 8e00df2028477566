// terrace bench dense: inversion of random matrices, beside LAPACK or cuSOLVER.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>

#include "distrib/agree.hpp"
#include "kernels/base/energy.hpp"
#include "kernels/base/random.hpp"
#include "kernels/base/rates.hpp"
#include "src/bench/dense_bench.hpp"
#include "src/dense/elimination.hpp"
#include "src/dense/textbook.hpp"

namespace terrace::dense {

namespace {

/// The devices' clocks: mean_megahertz of the slowest, lowest_megahertz, and the fractions of the
/// time that power and temperature held the clock down on the device where they did most.
void add_clocks(const Control& control, nlohmann::json& report, const ClockWatch::Clocks& mine) {
  std::vector<double> least{mine.mean, mine.lowest};
  std::vector<double> most{mine.power_capped, mine.too_hot};
  control.reduce(least, Reduce::min);
  control.reduce(most, Reduce::max);
  if (least[0] <= 0) return;
  report["mean_megahertz"] = least[0];
  report["lowest_megahertz"] = least[1];
  report["power_capped_fraction"] = most[0];
  report["too_hot_fraction"] = most[1];
}

}  // namespace

RowReader generator(Index first, Index columns, Word seed) {
  return [=](std::span<const Range> ranges, const io::Sink<double>& sink) {
    const Index piece =
        std::clamp<Index>((Index(8) << 20) / std::max<Index>(1, 8 * columns), 1, 1024);
    std::vector<double> rows(static_cast<std::size_t>(piece * columns));
    Index position = 0;
    for (const Range& range : ranges)
      for (Index top = range.first; top < range.end(); top += piece) {
        const Index count = std::min(piece, range.end() - top);
        for (Index i = 0; i < count; ++i)
          for (Index j = 0; j < columns; ++j)
            rows[std::size_t(i * columns + j)] = random_uniform(seed, top + i, first + j);
        sink(position, count, rows.data());
        position += count;
      }
  };
}

template <class B>
nlohmann::json stages_and_clocks(Run& run, Context<B>& context, Index n,
                                 const std::function<void(const StageTimes<B>&)>& work) {
  const auto stages = StageTimes<B>::on();
  ClockWatch watch(context.device.uuid);
  watch.begin();
  work(stages);
  nlohmann::json report = stage_report(run.control, stages.seconds(), n);
  add_clocks(run.control, report, watch.end());
  return report;
}

template <class B>
void bench_rival(Run& run, Context<B>& context, const DenseBenchOptions& options, BenchRun what,
                 const DenseRival<B>& rival) {
  const bool first = run.control.rank() == 0;
  const Buffer<double, B> result =
      collectively(run.control, [&] { return Buffer<double, B>(first ? rival.size : 0); });
  RivalRun found;
  what.stages = nullptr;
  what.who = rival.name;
  what.rival = true;
  what.measure = [&] {
    if (first) found = rival.solve(result);
    return run.control.reduce(found.seconds, Reduce::max);
  };
  what.trouble = [&] {
    return found.info == 0 ? std::string() : fmt::format("its info is {}", found.info);
  };
  what.residual = [&] {
    if (!first) return 0.0;
    Context<B> alone{.control = Control::self(),
                     .comm = Communicator<B>(Control::self()),
                     .device = context.device};
    return rival.ratio(alone, result);
  };
  what.spoil = spoils<B>(context.bulk, result);
  bench_run(run, options, what);
  if (found.note.empty() || !first) return;
  run.report["runs"].back()["note"] = found.note;
  run.say(fmt::format("  {}: {}", rival.name, found.note));
}

namespace {

/// The textbook's method, a line for every shape of its launches. Its warm-up is a small matrix: at
/// n = 3,000 an inversion takes seconds.
template <class B>
void bench_textbook(Run& run, Context<B>& context, const DenseBenchOptions& options, Index n,
                    double bound) {
  constexpr bool host = std::is_same_v<B, Cpu>;
  constexpr Index small = 64;
  const Word seed = Word(run.options.seed);
  const Index bytes = plan_textbook(std::max(n, small), {}).bytes;
  require_memory(run.control, (Index(192) << 20) + (host ? bytes : 0), host ? 0 : bytes);
  const auto inverted = [&](TextbookInverse<B>& solver) {
    const Index order = solver.plan().n;
    std::vector<Index> numbers(solver.destination());
    const Buffer<Index, B> global_row(order);
    upload(context.ahead, global_row.view(), static_cast<const Index*>(numbers.data()));
    solver.reset();
    dense::Rows<B> rows;
    rows.a = solver.data();
    rows.slots = rows.columns = rows.ld = order;
    rows.global_row = global_row;
    dense::fill_random(context.ahead, rows, order, seed);
    context.ahead.synchronize();
    Progress silent(false, false);
    EliminationOutcome found;
    const double seconds = lap_seconds(context.ahead, [&] { found = solver.run(silent); });
    if (!found.good()) fail_together(Exit::outcome, "the random matrix was found singular");
    return seconds;
  };
  const std::vector<Index> ask{0};  // the default shape, or none
  for (const Index threads : options.threads.empty() ? ask : options.threads)
    for (const Index grid : options.grid.empty() ? ask : options.grid) {
      const textbook::Launch launch = launch_of<B>(grid, threads);
      BenchRun what;
      what.sizes = {{"n", n}};
      if (!host) what.sizes.update({{"grid", launch.grid}, {"threads", launch.threads}});
      what.who = "textbook";
      what.work = 2e-9 * std::pow(double(n), 3);
      what.unit = "GFLOP/s";
      what.bound_name = "DGEMM";
      what.bound = bound;
      what.warm_up = false;
      TextbookInverse<B> first(context, plan_textbook(small, launch));
      inverted(first);
      TextbookInverse<B> solver(context, plan_textbook(n, launch));
      what.measure = [&] { return inverted(solver); };
      what.residual = [&] {
        return check_inverse<B>(context, solver, generator(0, n, seed), 1.0).right;
      };
      what.spoil = spoils(context.ahead, solver.data());
      bench_run(run, options, what);
    }
}

/// A rival's inverse as check_inverse() takes it.
template <class B>
struct PlainInverse {
  struct Plan {
    Index n = 0;
    BlockCyclic rows;
  };
  Plan the_plan;
  View<double, B> inverse;
  std::vector<Index> places;

  PlainInverse(Index n, View<double, B> values)
      : the_plan{n, contiguous(n, 1)}, inverse(values), places(std::size_t(n)) {
    std::iota(places.begin(), places.end(), Index(0));
  }
  [[nodiscard]] const Plan& plan() const { return the_plan; }
  [[nodiscard]] Index slots() const { return the_plan.n; }
  [[nodiscard]] Index ld() const { return the_plan.n; }
  [[nodiscard]] View<double, B> data() const { return inverse; }
  [[nodiscard]] std::span<const Index> destination() const { return places; }
};

template <class B>
DenseRival<B> rival_inverse(Context<B>& context, Index n, Word seed, const std::string& name) {
  DenseRival<B> rival{name, n * n, {}, {}};
  rival.solve = [=, &context](View<double, B> inverse) {
    [[maybe_unused]] const Stream<B>& lane = context.bulk;
    if constexpr (std::is_same_v<B, Cpu>)
      return lapack_inverse(n, seed, inverse);
    else
      return cusolver_inverse(lane, n, seed, inverse);
  };
  rival.ratio = [=](Context<B>& alone, View<double, B> inverse) {
    const InverseResidual both =
        check_inverse<B>(alone, PlainInverse<B>(n, inverse), generator(0, n, seed), 1.0);
    return std::min(both.right, both.left);  // by what it solves for one of them is small
  };
  return rival;
}

template <class B>
void bench_inverse(Run& run, Context<B>& context, const DenseBenchOptions& options, Index n,
                   double bound) {
  const Word seed = Word(run.options.seed);
  EliminationPlan plan = plan_elimination<B>(context.size(), n, 0, true, run.options.block,
                                             options.pivoting, run.options.precision == "emulated");
  plan.moduli = options.moduli;
  constexpr bool host = std::is_same_v<B, Cpu>;
  require_memory(run.control, (Index(192) << 20) + (host ? plan.bytes : 0), host ? 0 : plan.bytes);
  BenchRun what;
  what.sizes = {{"n", n}, {"block", plan.block}};
  if (plan.emulated) what.sizes.update({{"precision", "emulated"}, {"moduli", plan.moduli}});
  what.who = "terrace";
  what.work = 2e-9 * std::pow(double(n), 3);
  what.unit = "GFLOP/s";
  what.bound_name = "DGEMM";
  what.bound = bound * context.size();
  what.warm_up = n < 49152 || context.size() > 1;  // a solve of many seconds needs none
  {
    RowElimination<B> solver(context, plan);
    Progress silent(false, false);
    what.measure = [&] {
      dense::fill_random(context.ahead, solver.rows(), n, seed);
      context.ahead.synchronize();
      run.control.barrier();
      EliminationOutcome found;
      const double seconds = lap_seconds(context.ahead, [&] { found = solver.run(silent); });
      if (!found.good()) fail_together(Exit::outcome, "the random matrix was found singular");
      return seconds;
    };
    what.stages = [&] {
      dense::fill_random(context.ahead, solver.rows(), n, seed);
      context.ahead.synchronize();
      return stages_and_clocks<B>(
          run, context, n, [&](const StageTimes<B>& stages) { (void)solver.run(silent, stages); });
    };
    what.residual = [&] {
      return check_inverse<B>(context, solver, generator(0, n, seed), 1.0).right;
    };
    what.spoil = spoils(context.ahead, solver.data());
    bench_run(run, options, what);
  }
  if (run.options.method == "textbook") bench_textbook(run, context, options, n, bound);
  what.sizes = {{"n", n}};
  what.bound = bound;
  for (const std::string& rival : options.rivals)
    bench_rival(run, context, options, what, rival_inverse(context, n, seed, rival));
}

void check_solve_options(const CommonOptions& o, bool solve) {
  if (solve && o.method == "textbook")
    fail_together(Exit::usage,
                  "the textbook method inverts; --solve with --method textbook; leave one of them "
                  "out");
  if (!solve && o.method == "lu")
    fail_together(Exit::usage, "LU solves; --method lu; add --solve, or leave it out");
  if (solve && o.precision == "emulated")
    fail_together(Exit::usage,
                  "systems are measured in FP64; --precision emulated; leave it out, or --solve");
  if (o.precision == "mixed" && (!solve || o.method == "gauss-jordan"))
    fail_together(Exit::usage,
                  "mixed precision is of LU's solutions; --precision mixed; add --solve, without "
                  "--method gauss-jordan");
}

void bench_dense(Run& run, DenseBenchOptions& options) {
  check_solve_options(run.options, options.solve);
  check_moduli(options.moduli, run.options.precision == "emulated");
  // --block and --pivoting are the other method's here.
  check_textbook_options(run.control.size(), run.options.method == "textbook", 0, "auto",
                         !options.grid.empty() || !options.threads.empty());
  with_backend(run, [&]<class B>(Context<B>& context) {
    std::vector<std::string> rivals{std::is_same_v<B, Cpu> ? "lapack" : "cusolver"};
    if (options.solve && !std::is_same_v<B, Cpu>) rivals.emplace_back("cusolver-mixed");
    require_rivals(options, "dense on this backend", rivals);
    if (options.n.empty())
      options.n = std::is_same_v<B, Cpu> ? std::vector<Index>{1000, 4000}
                                         : std::vector<Index>{4096, 8192, 16384};
    if (!options.grid.empty() || !options.threads.empty())
      (void)launch_of<B>(1, 1);  // refused before anything is measured
    const double bound =
        run.control.reduce(dgemm_rate(context.bulk, bound_sizes().order), Reduce::min);
    for (const Index n : options.n) require_countable({double(n), double(n)});
    for (const Index n : options.n) {
      if (options.solve)
        bench_solution(run, context, options, n, bound);
      else
        bench_inverse(run, context, options, n, bound);
    }
  });
}

}  // namespace

#define TERRACE_INSTANTIATE(B)                                                                    \
  template nlohmann::json stages_and_clocks<B>(Run&, Context<B>&, Index,                          \
                                               const std::function<void(const StageTimes<B>&)>&); \
  template void bench_rival<B>(Run&, Context<B>&, const DenseBenchOptions&, BenchRun,             \
                               const DenseRival<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

void add_bench(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<DenseBenchOptions>();
  CLI::App* command = add_command(
      bench, selected,
      {"dense", "Inversion or --solve; rivals: lapack (CPU), cusolver, cusolver-mixed",
       "terrace bench dense --n 2000 --rivals lapack",
       bench_options + "--method=gauss-jordan,textbook,lu --precision=fp64,emulated,mixed --block"},
      [options](Run& run, const CLI::App&) { bench_dense(run, *options); });
  add_bench_options(*command, *options);
  add_stages_option(*command, *options);
  add_launch_options(*command, options->grid, options->threads);
  command->get_option("--grid")->delimiter(',');
  command->get_option("--threads")->delimiter(',');
  command->add_option("--moduli", options->moduli, "Of --precision emulated (default 14)")
      ->check(CLI::Range(fewest_moduli, accurate_moduli));
  CLI::Option* const solve =
      command->add_flag("--solve", options->solve, "Systems A X = B in place of inverses");
  command->add_option("--rhs", options->right, "Right-hand sides of --solve (default 1)")
      ->check(CLI::Range(Index(1), Index(1) << 20))
      ->needs(solve);
  command
      ->add_option("--pivoting", options->pivoting,
                   "partial: as on one rank; tournament: one exchange per panel")
      ->check(CLI::IsMember({"auto", "partial", "tournament"}));
}

}  // namespace terrace::dense
