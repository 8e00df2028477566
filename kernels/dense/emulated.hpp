// A -= N Y, accurate as in double precision, by products of 8-bit integers: Ozaki scheme II (Ozaki,
// Uchino, Imamura 2025, arXiv 2504.08009), with scales from 2-norms.
//
// Rows n_i of N and columns y_j of Y become integers v_i = round(2^a_i n_i), w_j = round(2^b_j y_j)
// with |v_i|_2, |w_j|_2 <= B, so that x = v_i w_j, |x| <= B^2 < P / 2 by Cauchy-Schwarz, follows
// from its residues modulo the pairwise coprime p_1 ... p_s, P = p_1 ... p_s. N is given the
// residues of f_i v, f_i = (P / p_i)^-1 mod p_i; then r_i = f_i x mod p_i comes out of a product of
// 8-bit numbers with 32-bit sums (exact for k <= 2^16), and x / P is r_1 / p_1 + ... + r_s / p_s up
// to an integer, in fixed point:
//   two residues  f = r_1 p_2 + r_2 p_1, |f| <= 2^16, of f / (p_1 p_2)
//   1 / (p_1 p_2) to a multiple of 2^-87, in words of 31, 31 and 10 bits: sums of f times each are
//   exact; all together, a multiple of 2^-64 that has lost its integer by overflow, are within
//   2^-64 of x / P.
// Rounding to integers costs sqrt(k) / 2^log2(B) of |n_i| |y_j|; log2 B, from 6 moduli on: 23, 27, 31, 35,
// 39, 43, 46, 50, 54, 58, 60 (16 moduli; more would not fit 64-bit integers). 2 m n k s integer
// operations.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/base/buffer.hpp"

namespace terrace::dense::emulated {

inline constexpr int least_moduli = 6, most_moduli = 16;
inline constexpr Index most_inner = Index(1) << 16;
/// Pairwise coprime; 255 would leave the range of a byte when its residues are formed in single
/// precision, 243 and 235 cost fewer bits than the next free prime would.
inline constexpr int moduli[most_moduli] = {256, 253, 251, 247, 243, 241, 239, 235,
                                            233, 229, 227, 223, 217, 211, 199, 197};
/// Exponent of a row or column that holds a number that is not finite; its products become NaN.
inline constexpr int not_finite = INT32_MIN;

/// Residue of w = h_0 + 2^16 h_1 + ... (16-bit digits, unsigned) times a factor: start + sum of
/// weight_k h_k, |.| <= 2^24, then the remainder of that.
struct Digits {
  std::uint32_t weights;  ///< four signed bytes
  std::int32_t start;
};
struct Modulus {
  int p;
  float inverse;
  Digits left, right;       ///< of v + 2^62, w + 2^62
  std::int32_t reciprocal;  ///< 2^38 / p, rounded: x / p for |x| <= 2^30
};
struct Pair {             ///< of moduli; of an odd number the last goes with 256 and no residue
  std::uint32_t weights;  ///< p_2, p_1: low and high 16 bits
  std::int32_t high, middle, low;  ///< of 2^87 / (p_1 p_2): 31, 31 and 10 bits
};
struct Scheme {
  int count, groups;
  double bound;     ///< B
  double mantissa;  ///< P = mantissa 2^exponent, 1 <= mantissa < 2
  int exponent;
  Modulus moduli[most_moduli];
  Pair pair[most_moduli / 2];  ///< zero beyond the last
};
/// For least_moduli <= count <= most_moduli.
Scheme make_scheme(int count);

/// Norms are taken for this much larger, against rounding errors in them.
inline constexpr double slack = 1 + 0x1p-20;
/// 2-norm of 2^a d so that that of round(2^a d), k numbers, is <= bound.
double room_for(const Scheme& s, Index k);

/// Whether the device has the tensor cores that this is written for: compute capability 9.0.
bool available(Cpu);
bool available(Cuda);

/// Of A -= N Y: A row-major m x n, N column-major m x k, Y row-major k x n.
struct Shape {
  Index m, n, k;
  int moduli;
};
/// Bytes of workspace; grows with n.
Index workspace_bytes(Cpu, const Shape&);
Index workspace_bytes(Cuda, const Shape&);

/// Keeps N in the workspace, for any number of calls of subtract_product with the same m, k and
/// moduli.
template <class B>
void set_left(const Stream<B>&, const Shape&, View<const double, B> left, Index ld,
              View<std::byte, B> workspace);
/// A -= N Y. A row of N or a column of Y that is not finite makes its row or column of A NaN. The
/// same bits on both backends, and whatever columns of Y come together in a call.
template <class B>
void subtract_product(const Stream<B>&, const Shape&, View<const double, B> right, Index ld,
                      View<double, B> a, Index lda, View<std::byte, B> workspace);

}  // namespace terrace::dense::emulated
