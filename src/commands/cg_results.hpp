// What terrace cg says and writes of its results.
#pragma once
#include <string>
#include <vector>

#include "src/commands/cg_inputs.hpp"

namespace terrace::cg {

/// What is said of all right-hand sides together.
struct CgSummary {
  Index iterations = 0, steps = 0;  ///< the most, the sum
  double scaled = 0, relative = 0;  ///< the worst residuals
  Index failed = -1;                ///< the first right-hand side that did
  nlohmann::json result;            ///< of that one, or of the first
};

/// `power`: the coefficients are those of a matrix whose eigenvalues are 2^-power times the user's.
CgSummary summarise(const std::vector<CgResult>& results, int power);
/// The message of a right-hand side that has not converged. `dense`: a form that dense solve reads.
std::string explain_failure(const CgResult& r, Index column, Index columns,
                            const std::string& where, bool dense);
/// `preconditioner_details` of the report.
nlohmann::json describe_preconditioner(const PreconditionerNotes& local,
                                       const ChebyshevNotes& polynomial,
                                       const MultigridNotes& multigrid);
/// The levels of multigrid, in a line.
std::string describe_levels(const MultigridNotes& multigrid);
/// x, of which this rank writes rows solution.own, from `x`; and the residuals. Collective.
void write_solution(Run& run, CgInputs& in, const CgCommand& options, const CgSolution& solution,
                    const CgSummary& sum, const io::Source<double>& x);
/// The lines at the end of a run.
std::string describe_solution(const Run& run, const CgInputs& in, const CgCommand& options,
                              const std::vector<CgResult>& results, const CgSummary& sum);

}  // namespace terrace::cg
