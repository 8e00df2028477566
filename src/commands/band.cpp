// terrace band factor, and the options of terrace band solve.
#include "src/commands/band_job.hpp"
#include "src/commands/verify.hpp"
#include "src/program/reading.hpp"

namespace terrace::band {
namespace {

BandRequest factor_request(const Run& run) {
  BandRequest request;
  request.method = run.options.method;
  request.block = run.options.block;
  request.ranks = run.control.size();
  request.lapack_factor = true;
  request.in_steps =
      run.progress.checkpoints != nullptr || (run.options.guard && run.options.no_check);
  check_request(request);  // before anything is opened
  return request;
}

void band_factor(Run& run, const BandOptions& options) {
  BandRequest request = factor_request(run);
  check_scratch(options, request);
  adopt_band_settings(run, request);
  require_output(run.options);
  BandFiles files;
  const io::BandInput input = io::open_band(run.control, matrix_location(run, options.matrix));
  files.matrix = reader_of(run, input);
  files.reread = [&](std::span<const Range> ranges) { return input.reread(ranges); };
  files.location = input.location();
  run.note_input("input", files.location);
  conduct_band(run, files, options, request);
}

}  // namespace

void adopt_band_settings(Run& run, BandRequest& request) {
  const nlohmann::json from = run.restart_settings();
  if (!from.is_object() || run.options.plan) return;
  // The interrupted run had given up one method and gone on with another one.
  if (run.options.precision == "mixed" && from.value("precision", "") == kNotMixed)
    run.settings["precision"] = kNotMixed;
  const std::string method = from.value("method", ""), instead_of = from.value("instead_of", "");
  const bool open = request.open();
  const bool other = !instead_of.empty() && (open || request.method == instead_of);
  if (other) {
    run.settings["instead_of"] = instead_of;
    request.parts = 0;
  }
  if (other ||
      (open && !method.empty() && method != "mixed" && !(request.stored && method == "one-end")))
    request.method = method;
  if (request.parts == 0 && (method == "partition" || method == "streamed") &&
      request.method == method)
    request.parts = from.value("parts", Index(0));
  if (request.method != method) return;
  if (method == "streamed") {
    if (from.value("tile_by_tile", false))
      request.tile_by_tile = true;
    else if (request.in_window())
      fail_together(Exit::input,
                    "the checkpoint is of a band streamed in slabs on one rank, without --diagonal "
                    "or --substitution; --restart; go on so, or start without it");
  }
  if (other) run.options.block = 0;
  run.adopt("block", run.options.block, Index(0));
  request.block = run.options.block;
}

void check_scratch(const BandOptions& options, const BandRequest& request) {
  if (!options.scratch.empty() && !request.open() && request.method != "streamed")
    fail_together(Exit::usage,
                  "--scratch-dir goes with --method streamed or auto; on the command line; leave "
                  "one of them out");
}

void add_commands(CLI::App& app, Selected& selected) {
  CLI::App* band = app.add_subcommand("band", "Symmetric positive definite band matrices");
  band->require_subcommand(1);
  const auto options = std::make_shared<BandOptions>();
  const auto add = [&](CommandFacts facts, auto action) {
    facts.obeys = solver_options + "--block " + facts.obeys;
    CLI::App* command =
        add_command(*band, selected, facts,
                    [options, action](Run& run, const CLI::App&) { action(run, *options); });
    command->add_option("A", options->matrix, "Band matrix: FILE.h5[:/path]")->required();
    command->add_option(
        "--scratch-dir", options->scratch,
        "Folder for the factor of a streamed band, instead of host memory (default: "
        "that of the output, if host memory is too small)");
    add_reading_options(*command, selected.options, {"band"});
    return command;
  };
  add({"factor", "Cholesky factor, written as dataset 'factor'",
       "terrace band factor band.h5:/A -o factor.h5", "--method=auto,tile-columns,streamed",
       verify_factor},
      band_factor);
  CLI::App* solve = add(
      {"solve", "Factor and solve; writes 'x'", "terrace band solve band.h5:/A --rhs :/b -o x.h5",
       "--method=auto,tile-columns,one-end,two-ends,partition,streamed --precision=fp64,mixed",
       verify_solution},
      band_solve);
  solve->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5[:/path] or :/path")
      ->required();
  solve->add_option(
      "--diagonal", options->places.diagonal,
      "gpu or cpu: where to factor the diagonal blocks (--method tile-columns or streamed)");
  solve->add_option("--substitution", options->places.substitution,
                    "gpu or cpu: where to do the triangular solves (same methods)");
  solve->add_option("--factor", options->factor, "Use the factor that 'band factor' stored");
  solve
      ->add_option(
          "--parts", options->parts,
          "Parts of --method partition, or 1 or 2 ends of --method streamed (0: the plan's choice)")
      ->check(not_negative());
}

}  // namespace terrace::band
