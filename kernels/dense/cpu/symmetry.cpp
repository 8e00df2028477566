// Bound by memory: 16 n bytes per row, and r and s, which stay in the caches.
#include "kernels/dense/symmetry.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/cpu/dense_simd.hpp"

namespace terrace::dense {
namespace {

using simd::Lanes;

Word bits_of(double value) {
  const double positive_zero = value + 0.0;  // -0 is 0
  Word bits = 0;
  std::memcpy(&bits, &positive_zero, sizeof bits);
  return bits;
}

struct Sums {
  Word hash = 0;
  double norm = 0;
};

/// Of numbers [from, to), each times its weight; `Copy`: they go to `out`, too.
template <int L, bool Copy>
TERRACE_INLINE Sums sums_of(const double* row, const Word* weight, Index from, Index to,
                            double* out) {
  using Reals = typename Lanes<L>::Reals;
  using Words = typename Lanes<L>::Words;  // whose sums wrap
  Words hash[2] = {};
  Reals norm[2] = {};
  Index j = from;
  for (; j + 2 * L <= to; j += 2 * L)
    for (int u = 0; u < 2; ++u) {
      const Reals x = *reinterpret_cast<const Reals*>(row + j + u * L);
      const Reals plain = x + 0.0;
      const Words bits = reinterpret_cast<const Words&>(plain);
      hash[u] += bits * *reinterpret_cast<const Words*>(weight + j + u * L);
      norm[u] += x < 0 ? -x : x;
      if (Copy) *reinterpret_cast<Reals*>(out + j + u * L) = x;
    }
  Sums sums;
  for (int u = 0; u < 2; ++u)
    for (int l = 0; l < L; ++l) {
      sums.hash += hash[u][l];
      sums.norm += norm[u][l];
    }
  for (; j < to; ++j) {
    sums.hash += bits_of(row[j]) * weight[j];
    sums.norm += std::fabs(row[j]);
    if (Copy) out[j] = row[j];
  }
  return sums;
}

template <int L>
TERRACE_INLINE void take(const WholeRow& p) {
  const Index i = p.i;
  const Sums below = sums_of<L, false>(p.row, p.r, 0, i, nullptr);
  const Sums above = p.out ? sums_of<L, true>(p.row, p.s, i + 1, p.n, p.out - i)
                           : sums_of<L, false>(p.row, p.s, i + 1, p.n, nullptr);
  p.hash = p.r[i] * above.hash - p.s[i] * below.hash;
  p.norm = below.norm + std::fabs(p.row[i]) + above.norm;
  if (!p.out) return;
  p.out[0] = p.row[i];
  std::fill(p.out + (p.n - i), p.out + p.n, 0.0);
}

using simd::fma_level;

TERRACE_LANES(take_in_lanes, take, WholeRow)

}  // namespace

void take_row(const WholeRow& p) { take_in_lanes(p); }

}  // namespace terrace::dense
