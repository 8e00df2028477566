// The factors that dense factor wrote, for dense solve --factor.
#pragma once
#include <optional>

#include "io/input.hpp"
#include "src/commands/dense_run.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

struct FactorFiles {
  io::DenseInput factor;
  std::optional<io::DenseInput> pivots;  ///< none: it is Cholesky's
  io::Attributes attributes;
  /// An attribute of the factor; refuses a factor without it.
  [[nodiscard]] double number(const char* name) const;
};

/// --factor, with what stands beside it; refuses what is not a factor of A's order, and options that
/// a solve with it does not obey. Notes the input. Collective.
FactorFiles open_factor(Run& run, const io::DenseInput& a, const DenseOptions& options);

/// LU's as a solution needs it; `files` has to outlive what is returned. Collective.
StoredFactor stored_factor(const Run& run, const FactorFiles& files);

}  // namespace terrace::dense
