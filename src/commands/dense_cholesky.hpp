// dense solve of a symmetric positive definite matrix.
#pragma once
#include <optional>

#include "io/input.hpp"
#include "src/program/register.hpp"

namespace terrace::dense {

/// Why a matrix is not Cholesky's: it is not symmetric (minor 0), or its leading minor of that order
/// is not positive.
struct NotDefinite {
  Index minor = 0;
};

/// --assume auto: whether a few rows, read for this, are symmetric and their diagonal positive.
/// Collective.
bool looks_definite(const Run& run, const io::DenseInput& a);

/// Solves through all phases by the band's Cholesky, as a band of all columns; whether the matrix is
/// symmetric is seen while it is read. Throws agreed NotDefinite; with --method cholesky that is an
/// outcome, or an error of the input. Collective.
void solve_by_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput& b);

}  // namespace terrace::dense
