// dense solve of a symmetric positive definite matrix.
#pragma once
#include "io/input.hpp"
#include "src/dense/cholesky.hpp"
#include "src/program/register.hpp"

namespace terrace::dense {

/// A from its file; both have to outlive what is returned.
SymmetricMatrix symmetric(const Run& run, const io::DenseInput& a);

/// Solves through all phases by the band's Cholesky. Throws agreed NotDefinite; with --method
/// cholesky that is an outcome, or an error of the input. Collective.
void solve_by_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput& b);

}  // namespace terrace::dense
