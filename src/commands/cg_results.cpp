#include "src/commands/cg_results.hpp"

#include <algorithm>
#include <cmath>

#include "distrib/hypre.hpp"
#include "src/cg/eigen_estimate.hpp"
#include "src/program/summary.hpp"

namespace terrace::cg {
namespace {

/// `power`: the coefficients are those of a matrix whose eigenvalues are 2^-power times the user's.
nlohmann::json describe(const CgResult& r, int power) {
  nlohmann::json json = {{"iterations", r.iterations},
                         {"reason", to_string(r.reason)},
                         {"converged", converged(r.reason)},
                         {"relative_residual", r.true_residual},
                         {"recurrence_residual", r.recurrence_residual},
                         {"initial_residual", r.initial_residual},
                         {"restarts", r.restarts}};
  if (r.position >= 0) json["position"] = r.position;
  const EigenEstimate e = estimate_eigenvalues(r.alpha, r.beta);
  if (e.iterations > 0)
    json["eigenvalues"] = {{"smallest", std::ldexp(e.smallest, power)},
                           {"largest", std::ldexp(e.largest, power)},
                           {"condition", e.condition()},
                           {"iterations", e.iterations}};
  return json;
}

/// One row per iteration: its number, then each right-hand side's relative residual (the last one
/// repeated once it has stopped).
std::vector<double> residual_table(const std::vector<CgResult>& results, Index iterations) {
  const Index columns = Index(results.size()) + 1;
  std::vector<double> table(std::size_t(iterations * columns));
  for (Index k = 0; k < iterations; ++k) {
    table[std::size_t(k * columns)] = double(k + 1);
    for (Index j = 1; j < columns; ++j) {
      const CgResult& r = results[std::size_t(j - 1)];
      const Index at = std::min(k, Index(r.history.size()) - 1);
      table[std::size_t(k * columns + j)] =
          at >= 0 ? r.history[std::size_t(at)] : r.initial_residual;
    }
  }
  return table;
}

}  // namespace

std::string explain_failure(const CgResult& r, Index column, Index columns,
                            const std::string& where, bool dense) {
  std::string what = fmt::format("not converged ({}) after {} iterations, relative residual {:.3g}",
                                 to_string(r.reason), r.iterations, r.true_residual);
  if (columns > 1) what += fmt::format(", right-hand side {}", column);
  std::string advice = "x and residuals are written";
  if (r.position >= 0)
    what += fmt::format(": the matrix is not positive definite, by row {}", r.position);
  else if (r.reason == CgReason::indefinite_matrix)
    what += ": the matrix is not positive definite";
  else if (r.beyond_range)
    what += ": x is beyond the range of double precision";
  else if (r.reason == CgReason::breakdown)
    what += ": the matrix is singular, to rounding";
  if (r.position >= 0 || r.reason == CgReason::indefinite_matrix)
    advice += dense ? "; use dense solve, which needs no positive definite matrix"
                    : "; correct the matrix: conjugate gradients need a positive definite one";
  else if (r.reason == CgReason::indefinite_preconditioner)
    advice += "; take another --preconditioner";
  if (r.reason == CgReason::breakdown && !r.beyond_range)
    advice += "; take out rows that are empty, or that others make up";
  if (r.reason == CgReason::max_iterations) advice += "; raise --max-iterations or --rtol";
  if (r.beyond_range)
    advice += "; scale the matrix or b by a power of two";
  else if (r.reason == CgReason::stagnation)
    advice += "; this is what rounding allows: raise --rtol";
  return what + "; " + where + "; " + advice;
}

CgSummary summarise(const std::vector<CgResult>& results, int power) {
  CgSummary sum;
  const auto failed = std::find_if(results.begin(), results.end(),
                                   [](const CgResult& r) { return !converged(r.reason); });
  if (failed != results.end()) sum.failed = failed - results.begin();
  for (const CgResult& r : results) {
    sum.iterations = std::max(sum.iterations, r.iterations);
    sum.steps += r.iterations;
    sum.scaled = std::isnan(r.scaled_residual) ? r.scaled_residual
                                               : std::fmax(sum.scaled, r.scaled_residual);
    sum.relative = std::fmax(sum.relative, r.true_residual);
  }
  sum.result = {{"iterations", 0}, {"reason", "rtol"}, {"converged", true}};
  if (!results.empty())
    sum.result = describe(results[std::size_t(std::max<Index>(0, sum.failed))], power);
  if (results.size() > 1) {
    sum.result["right_hand_sides"] = nlohmann::json::array();
    for (const CgResult& r : results) sum.result["right_hand_sides"].push_back(describe(r, power));
  }
  return sum;
}

nlohmann::json describe_preconditioner(const PreconditionerNotes& local,
                                       const ChebyshevNotes& polynomial,
                                       const MultigridNotes& multigrid) {
  if (!multigrid.levels.empty()) {
    nlohmann::json levels = nlohmann::json::array();
    for (const MultigridNotes::Level& level : multigrid.levels)
      levels.push_back({{"rows", level.rows}, {"nonzeros", level.nonzeros}});
    nlohmann::json details = {{"levels", levels},
                              {"operator_complexity", multigrid.operator_complexity()},
                              {"setup_seconds", multigrid.seconds},
                              {"levels_made_on_backend", multigrid.there},
                              {"levels_on_every_rank", multigrid.whole}};
    for (const auto& [part, seconds] : multigrid.parts) details["setup_parts"][part] = seconds;
    if (multigrid.vectors > 0) {
      details["near_null_space"] = multigrid.vectors;
      details["unknowns_per_node"] = multigrid.unknowns;
    }
    return details;
  }
  if (polynomial.degree > 0)
    return {{"degree", polynomial.degree}, {"low", polynomial.low}, {"high", polynomial.high}};
  if (local.block > 0) return {{"block", local.block}};
  if (local.attempts == 0) return {{"hypre", hypre_version()}};
  return {{"shift", local.shift},
          {"attempts", local.attempts},
          {"levels", local.levels},
          {"nonzeros", local.nonzeros}};
}

std::string describe_levels(const MultigridNotes& multigrid) {
  std::string rows;
  for (const MultigridNotes::Level& level : multigrid.levels)
    rows += fmt::format("{}{}", rows.empty() ? "" : ", ", level.rows);
  return fmt::format("multigrid of {} rows, operator complexity {:.2f}, made in {:.2g} s", rows,
                     multigrid.operator_complexity(), multigrid.seconds);
}

void write_solution(Run& run, CgInputs& in, const CgCommand& options, const CgSolution& solution,
                    const CgSummary& sum, const io::Source<double>& x) {
  const Index nrhs = in.rhs.columns();
  const std::string reason = sum.result["reason"];
  const io::Attributes attributes{{"reason", reason},
                                  {"converged", Index(sum.failed < 0)},
                                  {"iterations", sum.iterations},
                                  {"norm", options.norm}};
  in.output->write<double>("x", in.n, in.rhs.is_vector() ? -1 : nrhs, {&solution.own, 1}, x,
                           attributes);
  const std::vector<double> table = residual_table(solution.results, sum.iterations);
  const Range all{0, run.control.rank() == 0 ? sum.iterations : 0};
  in.output->write<double>(
      "residuals", sum.iterations, nrhs + 1, {&all, 1},
      [&](Index position, Index count, double* out) {
        std::copy_n(table.begin() + position * (nrhs + 1), count * (nrhs + 1), out);
      },
      attributes);
  io::Attributes terrace = run.attributes();
  terrace["reason"] = reason;
  terrace["rtol"] = options.solve.rtol;
  terrace["atol"] = options.solve.atol;
  if (options.norm != "unpreconditioned")  // for verify, which does not know M
    terrace["relative_residual"] = sum.relative;
  terrace["format"] = std::string(form_name(in.kind));
  in.output->commit(terrace);
}

std::string describe_solution(const Run& run, const CgInputs& in, const CgCommand& options,
                              const std::vector<CgResult>& results, const CgSummary& sum) {
  std::string lines =
      fmt::format("x, converged ({}) after {}", sum.result["reason"].get<std::string>(),
                  counted(sum.iterations, "iteration"));
  if (sum.steps > 0)
    lines += fmt::format(", {} iterations/s", digits(double(sum.steps) / run.seconds("solve")));
  CgResult worst;
  for (const CgResult& r : results) {
    worst.true_residual = std::max(worst.true_residual, r.true_residual);
    worst.recurrence_residual = std::max(worst.recurrence_residual, r.recurrence_residual);
  }
  lines += fmt::format("\n{}relative residual {:.3g} from the matrix, {:.3g} from the recurrence",
                       results.size() > 1 ? "largest " : "", worst.true_residual,
                       worst.recurrence_residual);
  if (!sum.result.contains("eigenvalues")) return lines;
  const nlohmann::json& e = sum.result["eigenvalues"];
  return lines +
         fmt::format("\neigenvalues{} from {:.4g} to {:.4g}, condition at least {:.4g}",
                     options.solve.preconditioner == "none" ? "" : " with the preconditioner",
                     e["smallest"].get<double>(), e["largest"].get<double>(),
                     e["condition"].get<double>());
}

}  // namespace terrace::cg
