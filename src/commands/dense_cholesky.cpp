#include "src/commands/dense_cholesky.hpp"

#include <fmt/core.h>

#include <utility>

#include "distrib/agree.hpp"
#include "distrib/imagined.hpp"
#include "kernels/dense/probes.hpp"
#include "src/commands/band_job.hpp"
#include "src/commands/dense_run.hpp"
#include "src/dense/cholesky.hpp"

namespace terrace::dense {
namespace {

RowReader reader(const Run& run, const io::DenseInput& input) {
  return [&run, &input](std::span<const Range> ranges, const io::Sink<double>& sink) {
    input.read(ranks_here(run.control), ranges, sink);
  };
}

/// Whether the matrix goes by Cholesky first; refuses what that does not obey, and contradictions.
bool wants_cholesky(Run& run, const DenseOptions& options) {
  const std::string& method = run.options.method;
  std::string assume = options.assume;
  run.adopt("assume", assume, std::string());
  if (method != "cholesky" && (assume.empty() || assume == "general")) return false;
  const auto refuse = [](const std::string& what, const std::string& option) {
    fail_together(Exit::usage, fmt::format("{}; {}; leave one of them out", what, option));
  };
  if (!method.empty() && method != "cholesky")
    refuse("--assume " + assume + " chooses the method", "--method " + method);
  if (method == "cholesky" && assume == "general")
    refuse("Cholesky's method needs a positive definite matrix", "--assume general");
  if (run.options.precision != "fp64")
    refuse("Cholesky's method has FP64 only", "--precision " + run.options.precision);
  if (options.pivoting != "auto")
    refuse("Cholesky's method has no pivots", "--pivoting " + options.pivoting);
  return true;
}

/// The matrix as a band of all columns.
void describe_whole(Run& run, const io::DenseInput& a, SymmetricMatrix& matrix,
                    band::BandFiles& files) {
  const bool asked = run.options.method == "cholesky";
  files.matrix = {a.rows(), a.rows() - 1, matrix.columns()};
  files.location = a.location();
  band::DenseAsBand& dense = files.dense.emplace();
  dense.judge = [&, asked](Index minor) {
    const std::optional<NotDefinite> why = matrix.refused(minor);
    if (!why) return;
    if (!asked) throw NotDefinite(*why);
    if (why->minor == 0)
      fail_together(Exit::input, fmt::format("the matrix is not symmetric; {}; use --method lu, or "
                                             "mend the matrix",
                                             io::to_string(a.location())));
  };
  dense.reciprocal_condition = [&](auto ranges, const auto& solve) {
    return matrix.reciprocal_condition(ranges, solve);
  };
  dense.probes = condition_probes;
}

void conduct_whole(Run& run, band::BandFiles& files) {
  const std::string method = std::exchange(run.options.method, "auto");
  band::BandRequest request;
  request.method = run.options.block > 0 ? "tile-columns" : "auto";  // the others' widths are fixed
  request.block = run.options.block;
  request.ranks = run.control.size();
  request.stored = bool(files.factor);
  request.lapack_factor = request.stored || !files.rhs;
  request.in_steps = !files.rhs && (run.progress.checkpoints != nullptr ||
                                    (run.options.guard && run.options.no_check));
  band::adopt_band_settings(run, request);
  band::check_request(request);
  run.settings["assume"] = "spd";
  band::conduct_band(run, files, band::BandOptions(), request);
  run.options.method = method;
}

/// Of settings: why Cholesky's method was given up, so that LU goes on from its checkpoints.
constexpr const char* kNotCholesky = "not_cholesky";

void note_not_cholesky(Run& run, const io::DenseInput& a, const std::string& words) {
  run.settings[kNotCholesky] = words;
  run.warn(fmt::format("the matrix is {}; {}; it is solved by LU instead", words,
                       io::to_string(a.location())));
}

}  // namespace

bool done_by_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput* b,
                      const DenseOptions& options) {
  const bool wanted = wants_cholesky(run, options), asked = run.options.method == "cholesky";
  const nlohmann::json before = elimination_settings(run);  // which LU goes on with
  if (before.is_object() && !asked && before.contains(kNotCholesky)) {
    note_not_cholesky(run, a, before[kNotCholesky].get<std::string>());
    return false;
  }
  if (!wanted || (before.is_object() && options.assume == "auto" && !asked)) return false;
  const bool maybe = options.assume == "auto" && !asked && !run.restart_settings().is_object();
  if (a.rows() == 0) {  // LU has nothing to do either
    run.options.method.clear();
    return false;
  }
  SymmetricMatrix matrix(run.control, a.rows(), reader(run, a));
  if (maybe) {
    if (run.options.plan) {
      run.say(
          "assume     auto: Cholesky is tried where a few rows are symmetric; the plan is LU's");
      return false;
    }
    bool looks = false;
    run.phase("assume", [&] { looks = matrix.looks_definite(); });
    if (!looks) return false;
    run.say("a few rows are symmetric: Cholesky's method is tried");
  }
  const nlohmann::json settings = run.settings;
  const Index block = run.options.block;  // LU's own: a checkpoint of Cholesky's has its width
  try {
    band::BandFiles files;
    describe_whole(run, a, matrix, files);
    if (b) files.rhs.emplace(*b);
    conduct_whole(run, files);
    return true;
  } catch (const NotDefinite& why) {
    run.settings = settings;
    run.options.block = block;
    note_not_cholesky(run, a, why.words());
  }
  run.options.method.clear();
  for (const char* key : {"way", "right_hand_sides", "memory", "places"}) run.report.erase(key);
  return false;
}

void solve_with_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput& b,
                         const FactorFile& stored) {
  run.options.method = "cholesky";  // what is not symmetric has no such factor
  SymmetricMatrix matrix(run.control, a.rows(), reader(run, a));
  band::BandFiles files;
  describe_whole(run, a, matrix, files);
  files.rhs.emplace(b);
  files.factor = {a.rows(), a.rows() - 1, columns_of_cholesky(run.control, stored)};
  files.dense->reciprocal_condition = [&](auto, const auto&) {
    return stored.number("reciprocal_condition");
  };
  files.dense->probes = 0;
  conduct_whole(run, files);
}

}  // namespace terrace::dense
