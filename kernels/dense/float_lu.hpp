// LU with partial pivoting of a matrix on one device, in FP32: a factor that is refined
// (src/dense/refine.hpp).
//
//   A is taken as R A C, R and C powers of two that bring rows and columns near one, in FP32
//   panels are factored in FP64 (CUDA) or FP32, and L and U are stored in FP32
//   the update A -= N Y, on CUDA: N and Y are sums of two FP16 numbers each, N (2^-10 of what is
//   stored) = N_h + N_l, Y = Y_h + Y_l, and three products, N_h Y_l + N_l Y_h + N_h Y_h, are one
//   with 3 width inner numbers, summed in FP32: 22 bits of |N| <= 1 and of what is near one in Y
//
//   slots 0 ... k block     rows of L and U, in the order of their columns
//   slots k block ...       rows without a pivot so far
//
// U beyond 2^13 leaves FP16's range, what is not finite shows in the info or the solution.
// Sources: Ootomo, Yokota 2022 (sums of FP16 numbers); Carson, Higham 2018.
#pragma once
#include <algorithm>
#include <cstddef>

#include "kernels/base/buffer.hpp"

namespace terrace::dense {

/// Sizes, and the memory of float_lu_bytes().
struct FloatLuShape {
  Index n = 0, block = 1;  ///< block: a multiple of 32
  [[nodiscard]] Index steps() const { return ceil_div(n, block); }
  [[nodiscard]] Index columns() const { return round_up(n, 8); }  ///< the last ones are zero
  [[nodiscard]] Index ld() const {
    const Index ld = round_up(n, 32);
    return ld % 256 == 0 ? ld + 32 : ld;  // rows of a power of two collide in the caches
  }
  [[nodiscard]] Index width(Index k) const { return std::min(block, n - k * block); }
};

template <class B>
struct FloatLu {
  FloatLuShape shape;
  View<float, B> a;     ///< n x ld, row-major
  View<Index, B> row;   ///< n: the row of A in every slot
  View<int, B> powers;  ///< 2 n: exponents of R, of C
  View<Index, B>
      info;  ///< 2: -1, or what is not where a panel had no pivot; 1: zero, 2: not finite
  View<std::byte, B> work;  ///< float_lu_bytes()
};
/// Bytes of FloatLu::work.
Index float_lu_bytes(Cpu, const FloatLuShape& shape);
Index float_lu_bytes(Cuda, const FloatLuShape& shape);

/// a := R A C from row-major A; row, powers, info, and the first panel is loaded.
template <class B>
void begin_float_lu(const Stream<B>&, const FloatLu<B>& lu, View<const double, B> a, Index lda);
/// Pivots and multipliers of panel k, which is loaded. Where info[0] >= 0, nothing is done.
template <class B>
void factor_float_panel(const Stream<B>&, const FloatLu<B>& lu, Index k);
/// Its pivot rows come to rest and become rows of U, and its multipliers are stored.
template <class B>
void share_float_panel(const Stream<B>&, const FloatLu<B>& lu, Index k);
/// Columns [c0, c1), right of panel k, of the rows that do not rest -= N Y.
template <class B>
void update_floats(const Stream<B>&, const FloatLu<B>& lu, Index k, Index c0, Index c1);
/// Panel k, whose columns are up to date.
template <class B>
void load_float_panel(const Stream<B>&, const FloatLu<B>& lu, Index k);

/// x := U^-1 L^-1 x, n rows of `right` numbers, in FP64 with L and U. 2 n^2 right flops.
template <class B>
void solve_float_lu(const Stream<B>&, const FloatLu<B>& lu, Index right, View<double, B> x);

}  // namespace terrace::dense
