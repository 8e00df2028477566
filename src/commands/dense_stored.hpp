// The factors that dense factor wrote, for dense solve --factor.
#pragma once
#include "src/commands/dense_run.hpp"
#include "src/dense/factor_file.hpp"

namespace terrace::dense {

/// --factor, with what stands beside it; refuses what is not a factor of A's order, and options that
/// a solve with it does not obey. Notes the input. Collective.
FactorFile open_factor(Run& run, const io::DenseInput& a, const DenseOptions& options);

}  // namespace terrace::dense
