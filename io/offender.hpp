// Wrong elements, and entries of sparse matrices.
#pragma once
#include <limits>
#include <optional>
#include <string>

#include "distrib/control.hpp"

namespace terrace::io {

/// An entry of a sparse matrix.
struct Triplet {
  Index row = 0, column = 0;
  double value = 0;
};

/// The first of the wrong elements that any rank met, in row-major order of the matrix.
struct Offender {
  static constexpr Index none = std::numeric_limits<Index>::max();
  Index row = none, column = none;
  double value = 0;
  void note(Index i, Index j, double v) {
    if (i < row || (i == row && j < column)) *this = {i, j, v};
  }
};
/// The lowest over the ranks, on every rank; nothing when there is none. Collective.
std::optional<Offender> first_offender(const Control& control, const Offender& mine);
/// Throws "NaN or Inf in the matrix; where row i, column j; ..." when there is one. Collective.
void refuse_not_finite(const Control& control, const Offender& mine, const std::string& where);

}  // namespace terrace::io
