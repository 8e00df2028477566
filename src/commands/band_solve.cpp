// terrace band solve.
#include "src/commands/band_mixed.hpp"
#include "src/commands/band_parts.hpp"
#include "src/commands/band_streamed.hpp"
#include "src/commands/band_tile_columns.hpp"
#include "src/commands/band_windowed.hpp"

namespace terrace {
namespace {

/// The stored factor must have the matrix's sizes.
void check_factor(const io::BandInput& factor, const io::BandInput& matrix) {
  if (factor.n() == matrix.n() && factor.half_bandwidth() == matrix.half_bandwidth()) return;
  fail_together(
      Exit::input,
      fmt::format("the factor has order {} and half-bandwidth {}, the matrix {} and {}; {}; name "
                  "the factor of this matrix",
                  factor.n(), factor.half_bandwidth(), matrix.n(), matrix.half_bandwidth(),
                  io::to_string(factor.location())));
}

/// What the window does not know is refused.
void refuse_in_window(const Run& run, const BandOptions& options) {
  const auto refuse = [](const char* option) {
    fail_together(Exit::usage,
                  std::string("a band streamed tile column by tile column (--diagonal, "
                              "--substitution) has none; ") +
                      option + "; leave it out, or those");
  };
  if (!run.options.checkpoint.empty() || !run.options.restart.empty())
    refuse("--checkpoint, --restart");
  if (!options.scratch.empty()) refuse("--scratch-dir");
}

/// Mixed precision has its own method and width.
void check_mixed_options(const CommonOptions& common, const BandOptions& options) {
  const auto refuse = [](const std::string& what) {
    fail_together(Exit::usage, what +
                                   " does not go with --precision mixed; --precision; leave one "
                                   "of them out");
  };
  if (!options.factor.empty()) refuse("--factor");
  if (!options.places.diagonal.empty()) refuse("--diagonal");
  if (!options.places.substitution.empty()) refuse("--substitution");
  if (options.parts > 0) refuse("--parts");
  if (!options.scratch.empty()) refuse("--scratch-dir");
  if (!common.method.empty() && common.method != "auto") refuse("--method " + common.method);
  if (common.block > 0) refuse("--block");
  if (common.guard) refuse("--guard");
}

/// As the options and an interrupted run have it; sizes are to come.
BandRequest solve_request(Run& run, const BandOptions& options) {
  BandRequest request;
  request.method = run.options.method;
  request.parts = options.parts;
  request.block = run.options.block;
  request.ranks = run.control.size();
  request.stored = request.lapack_factor = !options.factor.empty();
  request.check = !run.options.no_check;
  if (adopt_places(options.places, request)) refuse_in_window(run, options);
  if (!options.places.diagonal.empty() && request.stored)
    fail_together(Exit::usage,
                  "nothing is factored with a stored factor; --diagonal with --factor; leave one "
                  "of them out");
  const BandRequest asked = request;
  if (run.options.precision != "fp64") check_mixed_options(run.options, options);
  adopt_band_settings(run, request);
  request.mixed =
      run.options.precision == "mixed" && run.settings.value("precision", "") != kNotMixed;
  if (request.stored && !request.open() && request.method != "streamed" &&
      request.method != "tile-columns")
    fail_together(Exit::usage, "--factor goes with tile-columns and streamed, not with " +
                                   request.method + "; --method; leave one of them out");
  check_request(request);  // before anything is opened
  check_scratch(options, asked);
  return request;
}

/// By the way of the plan; returns why it gave up, or empty.
template <class B>
std::string solve_by(Run& run, Context<B>& c, const BandSystem& system, const BandPlan& plan) {
  switch (plan.method) {
    case BandMethod::tile_columns:
      return conduct_band<SolveByTileColumns<B>>(run, c, system, plan);
    case BandMethod::mixed:
      return conduct_band<SolveMixed<B>>(run, c, system, plan);
    case BandMethod::streamed:
      return plan.tile_by_tile ? conduct_band<SolveInWindow<B>>(run, c, system, plan)
                               : conduct_band<SolveStreamed<B>>(run, c, system, plan);
    default:
      return conduct_band<SolveByParts<B>>(run, c, system, plan);
  }
}

template <class B>
void solve_band(Run& run, Context<B>& c, const BandSystem& system, const BandRequest& request) {
  BandPlan plan = plan_band<B>(request);
  if (run.progress.checkpoints && system.factor && plan.method != BandMethod::streamed)
    fail_together(Exit::usage,
                  "a stored factor in memory is solved with at once, and keeps no checkpoints; "
                  "--checkpoint, --restart; leave them out, or use --method streamed");
  const auto not_mixed = [&] {
    run.report["precision"] = "fp64";
    run.settings["precision"] = kNotMixed;
  };
  if (!plan.note.empty()) {
    not_mixed();
    if (!run.options.plan) note_fall_back(run, plan.note);
  }
  for (std::string why; !(why = solve_by(run, c, system, plan)).empty();) {
    const BandPlan failed = std::exchange(plan, plan_instead<B>(request, plan, why));
    if (failed.method == BandMethod::mixed)
      not_mixed();
    else
      run.settings["instead_of"] = to_string(failed.method);
    note_fall_back(run, plan.note);
  }
}

}  // namespace

void band_solve(Run& run, const BandOptions& options) {
  BandRequest request = solve_request(run, options);
  require_output(run.options);
  const io::Location location = io::parse_location(options.matrix);
  const io::BandInput input = io::open_band(run.control, location);
  const io::DenseInput rhs = io::open_dense(
      run.control, io::parse_location(options.rhs, location.file), io::Role::right_hand_side);
  if (rhs.rows() != input.n())
    fail_together(
        Exit::input,
        fmt::format("the right-hand side has {} rows, the matrix {}; {}; give one row for "
                    "each row of the matrix",
                    rhs.rows(), input.n(), io::to_string(rhs.location())));
  run.note_input("input", input.location());
  run.note_input("rhs", rhs.location());
  std::optional<io::BandInput> factor;
  if (!options.factor.empty()) {
    factor = io::open_band(run.control, io::parse_location(options.factor, location.file));
    check_factor(*factor, input);
    run.note_input("factor", factor->location());
  }
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  const BandSystem system{
      input,          &rhs,           factor ? &*factor : nullptr, output ? &*output : nullptr,
      options.places, options.scratch};
  request.n = input.n();
  request.half_bandwidth = input.half_bandwidth();
  request.nrhs = rhs.columns();
  run.report["right_hand_sides"] = request.nrhs;
  run.report["precision"] = "fp64";
  with_backend(run, [&]<class B>(Context<B>& c) {
    check_places(B{}, options.places);
    note_memory(c, request);
    solve_band(run, c, system, request);
  });
}

}  // namespace terrace
