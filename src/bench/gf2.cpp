// bench gf2: options; reduced or echelon form of matrices generated on the backend from the seed.
#include "src/bench/gf2.hpp"
#include "src/program/profile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "distrib/agree.hpp"
#include "kernels/base/kept_memory.hpp"
#include "src/bench/gf2_calibrate.hpp"
#include "src/bench/gf2_study.hpp"

namespace terrace::gf2 {
namespace {

/// Multiply-adds of an elimination: for each pivot, the rows that it is added to (all of them;
/// echelon form: those that are no pivots yet) times the columns from it on. With m rows, n columns
/// and the pivots in the first r columns
///   reduced form   m r (n - r / 2)                               n^3 / 2 for m = n = r
///   echelon form   r m n - (m + n) r^2 / 2 + r^3 / 3             n^3 / 3
double elimination_work(const Pivots& pivots, Index rows, Index columns, bool echelon) {
  double sum = 0;
  for (Index q = 0; q < pivots.rank(); ++q)
    sum += double(rows - (echelon ? q : 0)) * double(columns - pivots.columns[std::size_t(q)]);
  return sum;
}

/// Of inverses the first of the seeds from `--seed` on that gives a regular matrix is measured.
template <class B>
void bench_elimination(Run& run, const Gf2Bench& o, Context<B>& context, Index n,
                       const Gf2Setting& setting) {
  const Index columns = o.columns > 0 ? o.columns : n;
  require_countable({double(n), double(columns)});
  if (o.rank > std::min(n, columns))
    fail_together(Exit::usage, fmt::format("no {} x {} matrix has rank {}; --rank; use {} or less",
                                           n, columns, o.rank, std::min(n, columns)));
  const BitTask task = o.inverse ? BitTask::inverse : o.echelon ? BitTask::echelon : BitTask::rref;
  const BitPlan plan = plan_bits(context, n, columns, 0,
                                 {panel_wish(run.options, o.candidates), task, run.options.seed},
                                 measured_panels(context));
  const Index block = plan.panels.columns;
  if (!o.inverse) run.report["block"] = block;
  if (!o.inverse) run.report["method"] = elimination_method<B>(plan.panels);
  RandomBits what{Word(run.options.seed), columns, o.half_rank, n, o.density, o.rank};
  auto source = random_source(context, what, plan.layout);
  const Index words = o.inverse ? plan.words() : plan.all_words();  // an inverse needs no witness
  const BitMemory memory = bits_memory<B>(plan, context.size());
  require_bench_memory<B>(run, memory.bytes + memory.staging,
                          HostRows<B>::bytes(o, plan.layout, words));
  BitResult<B> found;
  const auto host = collectively(context.control, [&] {
    found.matrix = BitMatrix<B>(context, plan.layout, words);
    return HostRows<B>(o, found.matrix);
  });
  Progress quiet(false, false);
  BenchRun line = bit_line(o, setting,
                           {{"n", n},
                            {"form", o.inverse   ? "inverse"
                                     : o.echelon ? "echelon"
                                                 : "rref"},
                            {"block", block}});
  if (o.columns > 0) line.sizes["columns"] = columns;
  if (o.density != 0.5) line.sizes["density"] = o.density;
  if (o.half_rank) line.sizes["half_rank"] = true;
  if (o.rank >= 0) line.sizes["rank_limit"] = o.rank;
  // A large size needs none where a smaller one has loaded the kernels.
  line.warm_up = o.inverse || n <= 32768 || !run.report.contains("runs");
  const auto eliminate_again = [&](const StageTimes<B>& stages) {
    if (o.inverse)
      load(context, source, found.matrix);
    else
      load_bits(context, plan, source, {}, found.matrix);
    host.take(context, found.matrix);
    return timed(context, setting.meter, [&] {
      host.send(context, found.matrix);
      found = reduce_bits(context, plan, std::move(found.matrix), quiet, stages);
      host.receive(context, found.matrix);
    });
  };
  while (o.inverse && (eliminate_again({}), found.pivots.first_zero_pivot >= 0))
    ++what.seed, source = random_source(context, what, plan.layout);
  line.measure = [&] {
    const double seconds = eliminate_again({});
    line.work = o.inverse ? found.work : elimination_work(found.pivots, n, columns, o.echelon);
    return seconds;
  };
  line.certificate = [&] {
    const std::string broken = certify_bits(context, plan, source, {}, found);
    return broken.empty() ? std::string("passed") : "failed: " + broken;
  };
  line.stages = [&] {
    const auto stages = StageTimes<B>::on();
    eliminate_again(stages);
    return stage_report(run.control, stages.seconds(), found.pivots.rank());
  };
  line.spoil = spoils_bits(context, found.matrix);
  bench_run(run, o.common, line);
  if (o.inverse) return;
  auto& last = run.report["runs"].back();
  BitAnswer ours{found.pivots.rank(), {}};
  last["rank"] = ours.rank;
  if ((o.checksum || !o.common.rivals.empty()) && !o.echelon)
    ours.checksum = checksum(context, found.matrix, found.pivots, plan.words());
  if (o.checksum) {
    last["checksum"] = fmt::format("{:016x}", *ours.checksum);
    run.say(fmt::format("rank {} checksum {:016x}", ours.rank, *ours.checksum));
  }
  bench_bit_rivals(run, o, line, n, ours);
}

void bench(Run& run, const Gf2Bench& o) {
  require_bit_method(panel_wish(run.options, o.candidates));
  require_bit_rivals(o.common);
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (o.transfers && std::is_same_v<B, Cpu>)
      fail_together(Exit::usage, "the CPU backend transfers nothing; --transfers; leave it out");
    require_bit_method_on<B>(panel_wish(run.options, o.candidates));
    std::vector<Index> sizes = o.common.n;
    if (sizes.empty()) {
      if constexpr (std::is_same_v<B, Cpu>)
        sizes = {4096, 8192, 16384};
      else
        sizes = {16384, 32768, 65536};
    }
    const KeepsMemory kept;  // from run to run, as the library does
    EnergyMeter meter;
    if (!o.calibrate.empty()) return calibrate_gf2(run, context, o.calibrate);
    if (!o.study.empty()) return study_gf2(run, context, sizes, o.study);
    if (o.common.energy) meter = EnergyMeter(context);  // before anything runs: what idling takes
    const Gf2Setting setting{bit_bound(context), o.common.energy ? &meter : nullptr};
    for (const Index n : sizes) {
      if (o.product)
        bench_product(run, o, context, n, setting);
      else
        bench_elimination(run, o, context, n, setting);
    }
  });
}

/// Options that this kind of `bench gf2` would not obey.
void refuse_ignored(const Gf2Bench& o, const CLI::App& command) {
  if (o.product || o.inverse)
    refuse_given(command, {"--rivals"}, "rivals are measured beside eliminations");
}

CLI::Validator probability() {
  return {[](const std::string& value) {
            const double p = std::strtod(value.c_str(), nullptr);
            return p >= 0 && p <= 1 ? std::string() : value + " is not between 0 and 1";
          },
          "PROBABILITY"};
}

}  // namespace

void add_bench(CLI::App& bench_app, Selected& selected) {
  auto options = std::make_shared<Gf2Bench>();
  CLI::App* command =
      add_command(bench_app, selected,
                  {"gf2", "Eliminations, products and inverses of random bit matrices",
                   "terrace bench gf2 --n 4096,8192",
                   bench_options + "--method=tables,tensor,columns --block --k "
                                   "--tables=local,broadcast --panels=device,host"},
                  [options](Run& run, const CLI::App& given) {
                    refuse_ignored(*options, given);
                    bench(run, *options);
                  });
  add_bench_options(*command, options->common);
  auto* stages = add_stages_option(*command, options->common);
  command->add_flag("--energy", options->common.energy,
                    "Joules per solve: repeats it until the solves took 3 s");
  auto* product =
      command->add_flag("--product", options->product, "Products of random bit matrices instead");
  add_levels_option(*command, options->levels);
  command->get_option("--levels")->needs(product);
  auto* inverse = command->add_flag("--inverse", options->inverse,
                                    "Inverses of random regular matrices instead");
  inverse->excludes(product);
  stages->excludes(product);
  // Options of eliminations alone.
  const auto shape = [&](CLI::Option* option) {
    return option->excludes(product)->excludes(inverse);
  };
  shape(command->add_option("--columns", options->columns, "Columns (default: as many as rows)"))
      ->check(positive());
  shape(command->add_option("--density", options->density, "Fraction of ones (default 0.5)"))
      ->check(probability());
  auto* half =
      shape(command->add_flag("--half-rank", options->half_rank, "Matrices of rank n / 2"));
  shape(command->add_option("--rank", options->rank, "Use matrices of this rank"))
      ->check(not_negative())
      ->excludes(half);
  command->add_option("--candidates", options->candidates, candidates_help)
      ->check(not_negative())
      ->excludes(product);
  auto* echelon = shape(command->add_flag("--echelon", options->echelon, "Echelon form only"));
  shape(command->add_flag("--checksum", options->checksum, "Print a checksum of the reduced form"))
      ->excludes(echelon);
  auto* calibrate =
      shape(command->add_flag("--calibrate{all}", options->calibrate,
                              "Find the fastest tables, panels, columns (--calibrate=columns) or "
                              "all of this device, store them"))
          ->check(CLI::IsMember({"all", "tables", "panels", "columns"}));
  auto* study =
      shape(command->add_flag("--study{all}", options->study,
                              "Column by column as in 2013: search, rows, paths, codes or all; "
                              "--study=search"))
          ->check(CLI::IsMember({"all", "search", "rows", "paths", "codes"}))
          ->excludes(calibrate);
  command->add_flag("--transfers", options->transfers,
                    "Include the transfer from page-locked host memory and back");
  // What studies and calibrations choose themselves.
  for (const char* name : {"--method", "--block", "--k", "--tables", "--panels", "--candidates",
                           "--columns", "--density", "--half-rank", "--rank", "--echelon",
                           "--checksum", "--transfers", "--energy", "--stages", "--rivals"})
    for (CLI::Option* own : {calibrate, study}) own->excludes(command->get_option(name));
  calibrate->excludes(command->get_option("--n"));
}

}  // namespace terrace::gf2
