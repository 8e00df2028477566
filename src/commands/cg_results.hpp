// What terrace cg says and writes of its results.
#pragma once
#include <string>
#include <vector>

#include "io/output.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/commands/cg_inputs.hpp"

namespace terrace {

/// Of a matrix without its preconditioner, for `row`: x is zero, or x0 whose residual nobody
/// computed.
CgResult refused_result(CgReason reason, Index row, const CgInputs& in);

/// What is said of all right-hand sides together.
struct CgSummary {
  Index iterations = 0, steps = 0;  ///< the most, the sum
  double scaled = 0, relative = 0;  ///< the worst residuals
  Index failed = -1;                ///< the first right-hand side that did
  nlohmann::json result;            ///< of that one, or of the first
};

/// `power`: the coefficients are those of a matrix whose eigenvalues are 2^-power times the user's.
CgSummary summarise(const std::vector<CgResult>& results, int power);
/// The message of a right-hand side that has not converged.
std::string explain_failure(const CgResult& r, Index column, Index columns,
                            const std::string& where);
/// x, of which this rank writes rows `mine`, at `x`; and the residuals. Collective.
void write_solution(Run& run, const Control& control, const CgInputs& in, const CgCommand& options,
                    const std::vector<CgResult>& results, const CgSummary& sum, Range mine,
                    const double* x, io::Output& output);
void say_solution(Run& run, const CgInputs& in, const CgCommand& options,
                  const std::vector<CgResult>& results, const CgSummary& sum);

}  // namespace terrace
