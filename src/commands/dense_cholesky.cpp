#include "src/commands/dense_cholesky.hpp"

#include <fmt/core.h>

#include <utility>

#include "src/commands/band_job.hpp"

namespace terrace::dense {

SymmetricMatrix symmetric(const Run& run, const io::DenseInput& a) {
  return {run.control, a.rows(),
          [&run, &a](std::span<const Range> ranges, const io::Sink<double>& sink) {
            a.read(run.control, ranges, sink);
          }};
}

void solve_by_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput& b) {
  const bool asked = run.options.method == "cholesky";
  const SymmetricMatrix matrix = symmetric(run, a);
  band::BandFiles files;
  files.matrix = {a.rows(), a.rows() - 1, matrix.columns()};
  files.location = a.location();
  files.whole = true;
  files.rhs.emplace(b);
  files.judge = [&](Index minor) {
    const std::optional<NotDefinite> why = matrix.refused(minor);
    if (!why) return;
    if (!asked) throw NotDefinite(*why);
    if (why->minor == 0)
      fail_together(Exit::input, fmt::format("the matrix is not symmetric; {}; use --method lu, or "
                                             "mend the matrix",
                                             io::to_string(a.location())));
  };
  const std::string method = std::exchange(run.options.method, "auto");
  band::BandRequest request;
  request.method = run.options.block > 0 ? "tile-columns" : "auto";  // the others' widths are fixed
  request.block = run.options.block;
  request.ranks = run.control.size();
  band::adopt_band_settings(run, request);
  band::check_request(request);
  run.settings["assume"] = "spd";
  band::conduct_band(run, files, band::BandOptions(), request);
  run.options.method = method;
}

}  // namespace terrace::dense
