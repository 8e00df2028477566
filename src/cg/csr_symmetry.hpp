// Symmetry of a CSR matrix across ranks: entries that couple two ranks are sent to the other one.
#pragma once
#include <functional>
#include <limits>
#include <vector>

#include "src/cg/csr_load.hpp"

namespace terrace::cg {

inline constexpr Index no_position = std::numeric_limits<Index>::max();

/// Value of own row `row`, counted in the slice, in a column of another rank; zero where nothing is
/// stored.
double stored(const CsrOuter& a, Index row, Index column);

/// The diagonal's entries of own rows, each counted in the slice.
using Diagonal = std::function<std::vector<double>(const std::vector<Index>& rows)>;
/// `best`, or i n + j of an earlier pair that couples this rank to another one and is not symmetric.
/// Collective.
Index find_across(const Control& control, const std::vector<Index>& first, const CsrOuter& a,
                  const Diagonal& diagonal, Index best);

}  // namespace terrace::cg
