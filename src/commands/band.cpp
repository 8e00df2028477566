// terrace band factor, and the options of terrace band solve.
#include "distrib/agree.hpp"
#include "src/commands/band_mixed.hpp"
#include "src/commands/band_run.hpp"
#include "src/commands/band_streamed.hpp"

namespace terrace {
namespace {

/// tile-columns unless another one is asked for; `free` when none is.
BandRequest factor_request(const Run& run, bool& free) {
  BandRequest request;
  request.method = run.options.method;
  request.block = run.options.block;
  request.ranks = run.control.size();
  request.nrhs = 0;
  request.lapack_factor = true;
  free = request.method.empty() || request.method == "auto";
  if (free) request.method = "tile-columns";
  if (request.method != "tile-columns" && request.method != "streamed")
    fail_together(Exit::usage,
                  "unknown method '" + request.method +
                      "'; --method of band factor; use tile-columns, streamed or auto: the factor "
                      "is always the one-ended one");
  request.n = 1;
  (void)plan_band<Cpu>(request);  // usage errors before anything is opened
  return request;
}

/// `columns` (of those in `ranges`) puts columns of the factor into the file's layout.
void write_factor(Run& run, io::Output& output, const io::BandInput& input,
                  const std::vector<Range>& ranges, const io::Source<double>& columns) {
  run.phase("write", [&] {
    const io::Attributes attributes{{"format", std::string("band")},
                                    {"uplo", std::string("lower")},
                                    {"content", std::string("Cholesky factor")},
                                    {"matrix", run.inputs["input"].get<std::string>()}};
    output.write_columns("factor", input.half_bandwidth() + 1, input.n(), ranges, columns,
                         attributes);
    output.commit(run.attributes());
  });
}

void note_factored(Run& run, const BandShape& s) {
  const double rate = band_factor_flops(s.n, s.half_bandwidth) * 1e-9 / run.seconds("solve");
  run.rate(rate, "GFLOP/s");
  run.say(fmt::format("factored n = {}, half-bandwidth {}, in {:.3f} s, {:.4g} GFLOP/s", s.n,
                      s.half_bandwidth, run.seconds("solve"), rate));
}

template <class B>
void factor_streamed(Run& run, Context<B>& c, const io::BandInput& input, const BandPlan& plan,
                     io::Output* output, const std::string& scratch) {
  StreamRun<B> stream(run, c, input, plan, 0, scratch);
  if (run.options.plan) return;
  stream.require();
  const auto factor = [&] { stream.factor([]() -> BandStreamRows<B>* { return nullptr; }); };
  factor();
  stream.flip();
  if (!run.options.no_check)
    run.phase("check", [&] {
      double reciprocal = 1;
      const auto residual = [&] {
        return band_factor_residual<B>(c, stream.problem_, stream.band_, Word(run.options.seed),
                                       reciprocal);
      };
      judge_band(run, input, residual(), [&] {
        try_again(run, [&] {
          factor();
          return residual();
        });
      });
      note_band_condition(run, input, reciprocal);
    });
  const BandShape& s = plan.shape;
  const Index height = input.half_bandwidth() + 1, inside = s.half_bandwidth + 1;
  const io::Source<double> columns = [&](Index position, Index count, double* out) {
    std::fill(out, out + count * height, 0.0);
    copy_columns(stream.band_, position, count, inside, height, out);
  };
  write_factor(run, *output, input, {{0, s.n}}, columns);
  note_factored(run, s);
}

void band_factor(Run& run, const BandOptions& options) {
  bool free = false;
  BandRequest request = factor_request(run, free);
  check_scratch(options, free, request);
  if (free) {
    request.method = "auto";
    adopt_band_settings(run, request, false);
    free = request.method == "auto";
    if (free) request.method = "tile-columns";
  } else {
    adopt_band_settings(run, request, false);
  }
  require_output(run.options);
  const io::Location location = io::parse_location(options.matrix);
  const io::BandInput input = io::open_band(run.control, location);
  run.note_input("input", input.location());
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  request.n = input.n();
  request.half_bandwidth = input.half_bandwidth();
  with_backend(run, [&]<class B>(Context<B>& c) {
    note_memory(c, request);
    BandPlan plan = plan_band<B>(request);
    if (free) stream_if_too_big<B>(request, plan);
    if (plan.method == BandMethod::streamed)
      return factor_streamed(run, c, input, plan, output ? &*output : nullptr, options.scratch);
    BandRun<B> band(run, c, input, 0, true);
    if (run.options.plan) return;
    band.require();
    band.factor();
    const BandShape& s = band.shape_;
    if (!run.options.no_check)
      run.phase("check", [&] {
        double reciprocal = 1;
        const auto residual = [&] {
          return band_factor_residual<B>(c, band.problem_, band.tiles_, Word(run.options.seed),
                                         reciprocal);
        };
        judge_band(run, input, residual(), [&] { band.verify_factor(residual); });
        note_band_condition(run, input, reciprocal);
      });
    else if (run.options.guard)
      run.phase("guard", [&] { band.verify_factor(); });
    const Index height = input.half_bandwidth() + 1;
    const io::Source<double> columns = [&](Index position, Index count, double* out) {
      std::fill(out, out + count * height, 0.0);
      copy_rows<double, B>(c.ahead, out, height, band.tiles_.data.data() + position * s.column(),
                           s.column(), std::min(height, s.half_bandwidth + 1), count);
      c.ahead.synchronize();
    };
    write_factor(run, *output, input, BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank()),
                 columns);
    note_factored(run, s);
  });
}

}  // namespace

void adopt_band_settings(Run& run, BandRequest& request, bool stored_factor) {
  const nlohmann::json from = run.restart_settings();
  if (!from.is_object() || run.options.plan) return;
  // The interrupted run had given up one method and gone on with another one.
  if (run.options.precision == "mixed" && from.value("precision", "") == kNotMixed)
    run.settings["precision"] = kNotMixed;
  const std::string method = from.value("method", ""), instead_of = from.value("instead_of", "");
  const bool open = request.method.empty() || request.method == "auto";
  const bool other = !instead_of.empty() && (open || request.method == instead_of);
  if (other) {
    run.settings["instead_of"] = instead_of;
    request.parts = 0;
  }
  if (other ||
      (open && !method.empty() && method != "mixed" && !(stored_factor && method == "one-end")))
    request.method = method;
  if (request.parts == 0 && (method == "partition" || method == "streamed") &&
      request.method == method)
    request.parts = from.value("parts", Index(0));
  if (request.method != method) return;
  if (other) run.options.block = 0;
  run.adopt("block", run.options.block, Index(0));
  request.block = run.options.block;
}

void add_band_commands(CLI::App& app, Selected& selected) {
  CLI::App* band = app.add_subcommand("band", "Symmetric positive definite band matrices");
  band->require_subcommand(1);
  const auto options = std::make_shared<BandOptions>();
  const auto add = [&](const char* name, const char* what, auto action) {
    CLI::App* command = band->add_subcommand(name, what);
    command->add_option("matrix", options->matrix, "FILE.h5:/path of the band matrix")->required();
    command->add_option(
        "--scratch-dir", options->scratch,
        "Folder for the factor of a streamed band, instead of host memory (default: "
        "that of the output, if host memory is too small)");
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
  solve->add_option(
      "--diagonal", options->places.diagonal,
      "gpu or cpu: who factors the diagonal blocks (--method tile-columns or streamed)");
  solve->add_option("--substitution", options->places.substitution,
                    "gpu or cpu: who does the triangular solves (likewise)");
  solve->add_option("--factor", options->factor, "Use the factor that 'band factor' stored");
  solve
      ->add_option(
          "--parts", options->parts,
          "Parts of --method partition, or 1 or 2 ends of --method streamed (0: the plan's "
          "choice); methods of band solve are auto, tile-columns, one-end, two-ends, "
          "partition and streamed")
      ->check(not_negative());
}

}  // namespace terrace
