// dense solve and dense factor of a symmetric positive definite matrix.
#pragma once
#include "src/commands/dense_stored.hpp"

namespace terrace::dense {

/// By Cholesky where that is asked for or assumed, and holds: through all phases. `b`: null for the
/// factor. False: LU has to go on, what needs saying is said. Collective.
bool done_by_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput* b,
                      const DenseOptions& options);

/// Solves with Cholesky's factor, through all phases. Collective.
void solve_with_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput& b,
                         const FactorFile& files);

}  // namespace terrace::dense
