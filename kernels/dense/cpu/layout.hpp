// Where the parts of a panel lie on the CPU.
#pragma once
#include "kernels/dense/cpu/panel.hpp"
#include "kernels/dense/cpu/product.hpp"
#include "kernels/dense/dense.hpp"

namespace terrace::dense {

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
