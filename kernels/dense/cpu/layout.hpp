// Where the parts of a panel lie on the CPU.
#pragma once
#include <algorithm>

#include "kernels/dense/cpu/panel.hpp"
#include "kernels/dense/cpu/product.hpp"
#include "kernels/dense/dense.hpp"

namespace terrace::dense {

// A piece of work for a thread is worth what waking the thread costs: some 20 us.
constexpr Index least_numbers = Index(1) << 14;  // that are copied
constexpr double least_flops = 1e6;

/// Rows of a piece, at least `rows`, where each copies so many numbers.
inline Index piece_rows(Index numbers, Index rows) {
  return round_up(std::max(rows, least_numbers / std::max<Index>(1, numbers)), rows);
}

inline Slivers slivers_of(const Panel<Cpu>& panel) {
  return {panel.n.data, sliver_stride(panel.block)};
}
/// Behind the slivers: 1 for the pivot rows of the panel, whose rows of A start at zero, or 0. Not
/// column_of: the next panel's pivots are chosen beside this one's update.
inline double* pivot_flags(const Rows<Cpu>& rows, const Panel<Cpu>& panel) {
  return panel.n.data + slivers(rows.slots) * sliver_stride(panel.block);
}
/// Y of the panel, rows that hold columns `from` on.
inline PackedRows packed_rows(const Panel<Cpu>& panel, Index length, Index from, bool inverse,
                              double* y) {
  const Index unit = inverse ? panel.first - from : length;
  return {y, panel.width, length, unit, inverse ? unit + panel.width : length};
}

}  // namespace terrace::dense
