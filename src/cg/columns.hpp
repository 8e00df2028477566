// Blocks of a few columns on the host, row-major: element (i, v) at i * width + v. By the threads
// of parallel_for.
#pragma once
#include <vector>

#include "distrib/control.hpp"

namespace terrace::cg {

/// Largest magnitude of each column over all ranks; infinite for a NaN. Collective.
std::vector<double> largest_of_columns(const Control& control, const std::vector<double>& block,
                                       Index width);
/// Columns j0 .. j0 + width - 1 of `all` (`total` wide), zeros beyond its last.
std::vector<double> take_columns(const std::vector<double>& all, Index total, Index j0,
                                 Index width);
/// The first `count` columns of `block` (`width` wide) to columns j0 .. j0 + count - 1 of `all`.
void put_columns(const std::vector<double>& block, Index width, Index j0, Index count,
                 std::vector<double>& all, Index total);
/// to(i, v) = from(i, v) 2^power[v] in the columns with chosen[v]; the others stay as they are.
void scale_columns(const std::vector<double>& from, const std::vector<int>& power,
                   const std::vector<bool>& chosen, std::vector<double>& to);

}  // namespace terrace::cg
