// terrace band factor, and the options of terrace band solve.
#include "src/commands/band_run.hpp"

namespace terrace {
namespace {

void check_method(const Run& run) {
  if (!run.options.method.empty() && run.options.method != "tile-columns")
    fail_together(Exit::usage,
                  "unknown method '" + run.options.method +
                      "'; --method of band factor; leave it out or use tile-columns: the "
                      "factor is always the one-ended one");
}

void band_factor(Run& run, const BandOptions& options) {
  check_method(run);
  require_output(run.options);
  const io::Location location = io::parse_location(options.matrix);
  const io::BandInput input = io::open_band(run.control, location);
  run.note_input("input", input.location());
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  with_backend(run, [&]<class B>(Context<B>& c) {
    BandRun<B> band(run, c, input, 0, true);
    if (run.options.plan) return;
    band.require();
    band.factor();
    const BandShape& s = band.shape_;
    const double flops = band_factor_flops(s.n, s.half_bandwidth);
    run.rate(flops * 1e-9 / run.seconds("solve"), "GFLOP/s");
    if (!run.options.no_check)
      run.phase("check", [&] {
        judge_band(run, input,
                   band_factor_residual(c, band.problem_, band.tiles_, Word(run.options.seed)));
      });
    run.phase("write", [&] {
      const Index height = input.half_bandwidth() + 1;
      const std::vector<Range> ranges = BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank());
      const auto source = [&](Index position, Index count, double* out) {
        std::fill(out, out + count * height, 0.0);
        copy_rows<double, B>(c.ahead, out, height, band.tiles_.data.data() + position * s.column(),
                             s.column(), std::min(height, s.half_bandwidth + 1), count);
        c.ahead.synchronize();
      };
      const io::Attributes attributes{{"format", std::string("band")},
                                      {"uplo", std::string("lower")},
                                      {"content", std::string("Cholesky factor")},
                                      {"matrix", run.inputs["input"].get<std::string>()}};
      output->write_columns("factor", height, s.n, ranges, source, attributes);
      output->commit(run.attributes());
    });
    run.say(fmt::format("factored n = {}, half-bandwidth {}, in {:.3f} s, {:.4g} GFLOP/s", s.n,
                        s.half_bandwidth, run.seconds("solve"),
                        flops * 1e-9 / run.seconds("solve")));
  });
}

}  // namespace

void add_band_commands(CLI::App& app, Selected& selected) {
  CLI::App* band = app.add_subcommand("band", "Symmetric positive definite band matrices");
  band->require_subcommand(1);
  const auto options = std::make_shared<BandOptions>();
  const auto add = [&](const char* name, const char* what, auto action) {
    CLI::App* command = band->add_subcommand(name, what);
    command->add_option("matrix", options->matrix, "FILE.h5:/path of the band matrix")->required();
    add_common_options(*command, selected.options);
    command->callback([&selected, options, action, text = std::string("band ") + name] {
      selected.command = text;
      selected.action = [options, action](Run& run) { action(run, *options); };
    });
    return command;
  };
  add("factor", "Cholesky factor, written as dataset 'factor'", band_factor);
  CLI::App* solve = add("solve", "Factor and solve; writes 'x'", band_solve);
  solve->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5:/path, or :/path")
      ->required();
  solve->add_option("--diagonal", options->places.diagonal,
                    "gpu or cpu: who factors the diagonal blocks");
  solve->add_option("--substitution", options->places.substitution,
                    "gpu or cpu: who does the triangular solves");
  solve->add_option("--factor", options->factor, "Use the factor that 'band factor' stored");
  solve
      ->add_option("--parts", options->parts,
                   "Parts of --method partition (0: the plan's choice); methods of band solve are "
                   "auto, tile-columns, two-ends and partition")
      ->check(not_negative());
}

}  // namespace terrace
