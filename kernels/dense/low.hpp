// update() in low precision, for a factor that is refined (src/dense/refine.hpp): N and Y are rounded
// once a panel, each of their rows and columns scaled by a power of two, so that no scale of the
// matrix leaves their range; A, panels and pivots stay in FP64.
//   CPU   FP32 products and sums of a panel: u = 2^-24
//   CUDA  products of 8-bit integers with low_moduli moduli (emulated.hpp), rounded to about 27 bits of
//         |n_i| |y_j|; compute capability 9.0
// Another product is another body of these functions.
#pragma once
#include "kernels/dense/dense.hpp"

namespace terrace::dense {

/// 2 m n k operations each: 14 make an FP64 product.
inline constexpr int low_moduli = 7;

/// Bytes of `workspace`, for up to `slots` rows of `columns`.
Index low_bytes(Cpu, Index slots, Index columns, Index block);
Index low_bytes(Cuda, Index slots, Index columns, Index block);

/// Takes N, rows from panel.skip on, and what it can of Y, columns `from` on, for any number of
/// calls of update_low().
template <class B>
void begin_low(const Stream<B>&, const Rows<B>& rows, const Panel<B>& panel,
               View<const double, B> y, Index from, View<std::byte, B> workspace);
/// A[:, c0 ... c1) -= N Y[:, c0 ... c1) as update() does. Every entry has the same bits whatever
/// columns come together in a call.
template <class B>
void update_low(const Stream<B>&, const Rows<B>& rows, const Panel<B>& panel,
                View<const double, B> y, Index from, Index c0, Index c1,
                View<std::byte, B> workspace);

}  // namespace terrace::dense
