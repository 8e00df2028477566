// terrace band solve.
#include "src/commands/band_job.hpp"
#include "src/program/reading.hpp"

namespace terrace::band {
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
  adopt_places(options.places, request);
  if (!options.places.diagonal.empty() && request.stored)
    fail_together(Exit::usage,
                  "a stored factor needs no factorization; --diagonal with --factor; leave one "
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

}  // namespace

void band_solve(Run& run, const BandOptions& options) {
  BandRequest request = solve_request(run, options);
  require_output(run.options);
  const io::Location location = matrix_location(run, options.matrix);
  const io::Location b = other_location(run, options.rhs, location.file);
  BandFiles files;
  const io::BandInput input =
      io::open_band(run.control, location,
                    io::Wanted::square_matrix(b.file == location.file ? b.path : std::string()));
  const io::DenseInput& rhs =
      files.rhs.emplace(io::open_dense(run.control, b, io::Wanted::vectors(input.n())));
  if (rhs.rows() != input.n() && rhs.rows() == input.half_bandwidth() + 1)
    fail_together(Exit::input,
                  fmt::format("a band of {} x {} is not of a matrix of order {}; {}; add --order "
                              "column-major if it is stored column by column",
                              input.half_bandwidth() + 1, input.n(), rhs.rows(),
                              io::to_string(input.location())));
  require_rows(input.n(), rhs);
  files.matrix = reader_of(run, input);
  files.reread = [&](std::span<const Range> ranges) { return input.reread(ranges); };
  files.location = input.location();
  run.note_input("input", input.location());
  run.note_input("rhs", rhs.location());
  std::optional<io::BandInput> factor;
  if (!options.factor.empty()) {
    factor = io::open_band(run.control, io::parse_location(options.factor, location.file));
    check_factor(*factor, input);
    files.factor = reader_of(run, *factor);
    run.note_input("factor", factor->location());
  }
  conduct_band(run, files, options, request);
}

}  // namespace terrace::band
