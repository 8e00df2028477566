// Stages of emulated products on the GPU around the integer products: exponents, residues, and the
// way back.
#pragma once
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/emulated.hpp"

namespace terrace::dense::emulated {

// 1.5 2^23: a sum with it is rounded to an integer that stands in its low bits.
constexpr float magic = 12582912.0F;

/// c + a_0 b_0 + a_1 b_1: 16-bit a unsigned, bytes 0, 1 (or 2, 3) of b signed.
__device__ __forceinline__ int dot_low(unsigned a, unsigned b, int c) {
  int d;
  asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ int dot_high(unsigned a, unsigned b, int c) {
  int d;
  asm("dp2a.hi.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// sum += a b; written in C it becomes a product of 64-bit numbers.
__device__ __forceinline__ void add_product(long long& sum, int a, int b) {
  asm("mad.wide.s32 %0, %1, %2, %0;" : "+l"(sum) : "r"(a), "r"(b));
}

/// Low byte: the residue of w, given as w + 2^62.
__device__ __forceinline__ unsigned residue(Word w, const Digits& d, const Modulus& m) {
  const int t = dot_high(unsigned(w >> 32), d.weights, dot_low(unsigned(w), d.weights, d.start));
  const int q = __float_as_int(fmaf(float(t), m.inverse, magic));
  return unsigned(t - m.p * q);
}
/// Low byte: the residue of a sum of products.
__device__ __forceinline__ unsigned residue_of_sum(int x, const Modulus& m) {
  const long long q = (long long)x * m.reciprocal + (1ll << 37);
  return unsigned(x - m.p * (int(q >> 32) >> 6));
}
/// Low bytes of four words.
__device__ __forceinline__ unsigned bytes_of(unsigned a, unsigned b, unsigned c, unsigned d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

/// 2^64 x / P from its residues, four a word; -P / 2 < x < P / 2. By integers: beside products of
/// bytes an instruction of double precision waits for hundreds of cycles.
template <int groups>
__device__ __forceinline__ double fraction(const unsigned (&r)[groups], const Scheme& s) {
  long long high = 0, middle = 1 << 12;
  int low = 0;
  const auto add = [&](int f, const Pair& pair) {
    add_product(high, f, pair.high);
    add_product(middle, f, pair.middle);
    low += f * pair.low;
  };
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    add(dot_low(s.pair[2 * g].weights, r[g], 0), s.pair[2 * g]);
    add(dot_high(s.pair[2 * g + 1].weights, r[g], 0), s.pair[2 * g + 1]);
  }
  return __ll2double_rn((long long)((Word(high) << 18) + Word((middle + (low >> 10)) >> 13)));
}

/// c - fraction P 2^exponent, exponent without that of P. Two factors where one leaves the range.
__device__ __forceinline__ double subtract(double c, double fraction, double mantissa,
                                           int exponent) {
  const int e = min(max(exponent, -2044), 2046), half = abs(e) <= 1022 ? 0 : e >> 1;
  const double first = __hiloint2double((half + 1023) << 20, 0);
  const double second =
      __hiloint2double(__double2hiint(mantissa) + ((e - half) << 20), __double2loint(mantissa));
  return fma(-(fraction * first), second, c);
}

/// exponents[i] of vector i < count of `inner` numbers in[i + k ld]: a 2-norm <= room. Blocks of 32
/// vectors; the same order of sums as on the CPU.
__global__ void __launch_bounds__(256) exponents_kernel(Index count, Index inner, const double* in,
                                                        Index ld, double room, int* exponents) {
  __shared__ double largest[8][33], squares[8][33];
  const int x = int(threadIdx.x) % 32, y = int(threadIdx.x) / 32;
  const Index i = Index(blockIdx.x) * 32 + x;
  double most = 0, sum = 0;
  bool finite = true;
  if (i < count)
    for (Index k = y; k < inner; k += 8) {
      const double d = in[i + k * ld];
      finite = finite && fabs(d) <= 0x1.fffffffffffffp1023;
      most = fmax(most, fabs(d));
      sum = fma(d, d, sum);
    }
  largest[y][x] = finite ? most : __longlong_as_double(0x7ff0000000000000ll);
  squares[y][x] = sum;
  __syncthreads();
  for (int g = 0; g < 8; ++g) most = fmax(most, largest[g][x]);
  finite = most <= 0x1.fffffffffffffp1023;
  int shift = 0;  // numbers times 2^-shift have squares
  if (finite && most != 0 && (most > 0x1p400 || most < 0x1p-400)) {
    shift = ilogb(most);
    sum = 0;
    if (i < count)
      for (Index k = y; k < inner; k += 8) {
        const double d = scalbn(in[i + k * ld], -shift);
        sum = fma(d, d, sum);
      }
  }
  __syncthreads();
  squares[y][x] = sum;
  __syncthreads();
  if (y != 0 || i >= count) return;
  sum = squares[0][x];
  for (int g = 1; g < 8; ++g) sum += squares[g][x];
  exponents[i] = !finite ? not_finite : most == 0 ? 0 : ilogb(room / (sqrt(sum) * slack)) - shift;
}

/// Residues of vectors i < padded, 128 numbers a block of 32 vectors; zero beyond count and inner.
template <bool left, class Planes>
__global__ void __launch_bounds__(256)
    residues_kernel(Index count, Index inner, const double* in, Index ld, const int* exponents,
                    const __grid_constant__ Scheme s, Planes planes) {
  const int piece = int(threadIdx.x) % 8;
  const Index i = Index(blockIdx.x) * 32 + threadIdx.x / 8;
  const Index k0 = Index(blockIdx.y) * 128 + 16 * piece;
  Word w[16];
  const int e = i < count ? exponents[i] : not_finite;
  // The halves of an exponent beyond those of double.
  const int half = e == not_finite ? 0 : e >> 1;
  const double first = __hiloint2double((half + 1023) << 20, 0);
  const double second = e == not_finite ? 0 : __hiloint2double((e - half + 1023) << 20, 0);
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    const double d = e != not_finite && k0 + k < inner ? in[i + (k0 + k) * ld] : 0;
    w[k] = Word(__double2ll_rn(d * first * second)) + (Word(1) << 62);
  }
  for (int p = 0; p < s.count; ++p) {
    const Modulus& m = s.moduli[p];
    const Digits d = left ? m.left : m.right;
    unsigned r[4];
#pragma unroll
    for (int q = 0; q < 4; ++q)
      r[q] = bytes_of(residue(w[4 * q], d, m), residue(w[4 * q + 1], d, m),
                      residue(w[4 * q + 2], d, m), residue(w[4 * q + 3], d, m));
    *planes.at(p, i, Index(blockIdx.y) * 8 + piece) = uint4{r[0], r[1], r[2], r[3]};
  }
}

}  // namespace terrace::dense::emulated
