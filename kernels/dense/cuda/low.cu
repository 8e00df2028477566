// update() in low precision on CUDA: products of 8-bit integers with few moduli, the sums and A in
// FP64 (emulated.cu). By the rates measured there, 1,200e12 byte products a second: 7 moduli make 170
// TFLOP/s at most, three times DGEMM; A is read and written once a panel.
#include <algorithm>

#include "kernels/dense/cuda/dense.cuh"
#include "kernels/dense/low.hpp"

namespace terrace::dense {

namespace {

constexpr Index most_columns = 8192;  // of Y at a time

emulated::Shape shape_of(const Rows<Cuda>& rows, const Panel<Cuda>& panel, Index columns) {
  return {rows.slots - panel.skip, columns, panel.width, low_moduli};
}

}  // namespace

Index low_bytes(Cuda, Index slots, Index columns, Index block) {
  return emulated::workspace_bytes(Cuda{},
                                   {slots, std::min(columns, most_columns), block, low_moduli});
}

template <>
void begin_low(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
               View<const double, Cuda>, Index from, View<std::byte, Cuda> workspace) {
  if (rows.slots <= panel.skip || rows.columns <= from) return;
  emulated::set_left<Cuda>(stream, shape_of(rows, panel, most_columns),
                           panel.n.slice(panel.skip, panel.n.size - panel.skip),
                           panel_ld(rows.slots), workspace);
}

template <>
void update_low(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                View<const double, Cuda> y, Index from, Index c0, Index c1,
                View<std::byte, Cuda> workspace) {
  if (rows.slots <= panel.skip) return;
  const Index top = panel.skip * rows.ld;
  for (Index c = c0; c < c1; c += most_columns)
    emulated::subtract_product<Cuda>(stream, shape_of(rows, panel, std::min(c1 - c, most_columns)),
                                     y.slice(c - from, y.size - (c - from)), rows.columns - from,
                                     rows.a.slice(top + c, rows.a.size - top - c), rows.ld,
                                     workspace);
}

}  // namespace terrace::dense
