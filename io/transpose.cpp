#include "io/transpose.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>

#include "kernels/base/parallel.hpp"

namespace terrace::io {

void transpose(double* to, const double* from, Index rows, Index columns) {
  constexpr Index tile = 32;
  parallel_for(ceil_div(columns, tile), [=](Index k) {
    const Index c0 = k * tile, c1 = std::min(columns, c0 + tile);
    for (Index r0 = 0; r0 < rows; r0 += tile) {
      const Index r1 = std::min(rows, r0 + tile);
      for (Index c = c0; c < c1; ++c)
        for (Index r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
    }
  });
}

namespace {

/// Rows [0, 8) of 8 columns.
void turn_8x8(double* to, Index to_ld, const double* from, Index from_ld) {
  for (Index c = 0; c < 8; ++c)
    for (Index r = 0; r < 8; ++r) to[c * to_ld + r] = from[r * from_ld + c];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void turn_8x8_avx2(double* to, Index to_ld, const double* from,
                                                   Index from_ld) {
  for (Index c = 0; c < 8; c += 4)
    for (Index r = 0; r < 8; r += 4) {
      const double* const f = from + r * from_ld + c;
      const __m256d a = _mm256_loadu_pd(f), b = _mm256_loadu_pd(f + from_ld),
                    d = _mm256_loadu_pd(f + 2 * from_ld), e = _mm256_loadu_pd(f + 3 * from_ld);
      const __m256d p = _mm256_unpacklo_pd(a, b), q = _mm256_unpackhi_pd(a, b),
                    s = _mm256_unpacklo_pd(d, e), t = _mm256_unpackhi_pd(d, e);
      double* const o = to + c * to_ld + r;
      _mm256_storeu_pd(o, _mm256_permute2f128_pd(p, s, 0x20));
      _mm256_storeu_pd(o + to_ld, _mm256_permute2f128_pd(q, t, 0x20));
      _mm256_storeu_pd(o + 2 * to_ld, _mm256_permute2f128_pd(p, s, 0x31));
      _mm256_storeu_pd(o + 3 * to_ld, _mm256_permute2f128_pd(q, t, 0x31));
    }
}
const auto turn_block = __builtin_cpu_supports("avx2") ? &turn_8x8_avx2 : &turn_8x8;
#else
const auto turn_block = &turn_8x8;
#endif

}  // namespace

void turn(double* to, Index to_ld, const double* from, Index from_ld, Index rows, Index columns) {
  constexpr Index side = 8;
  for (Index c0 = 0; c0 < columns; c0 += side) {
    const Index c1 = std::min(columns, c0 + side);
    for (Index r0 = 0; r0 < rows; r0 += side) {
      const Index r1 = std::min(rows, r0 + side);
      if (c1 - c0 == side && r1 - r0 == side) {
        turn_block(to + c0 * to_ld + r0, to_ld, from + r0 * from_ld + c0, from_ld);
        continue;
      }
      for (Index c = c0; c < c1; ++c)
        for (Index r = r0; r < r1; ++r) to[c * to_ld + r] = from[r * from_ld + c];
    }
  }
}

namespace {
// All bits of the exponent set: one more of its last bit reaches the sign's place.
constexpr Word unsigned_part = ~Word(0) >> 1, one = Word(1) << 52;

#if defined(__x86_64__)
__attribute__((target("avx2"))) Word reached_avx2(const double* data, Index size) {
  const __m256i part = _mm256_set1_epi64x((long long)unsigned_part),
                step = _mm256_set1_epi64x((long long)one);
  __m256i all[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                    _mm256_setzero_si256()};
  for (Index i = 0; i + 16 <= size; i += 16)
    for (Index l = 0; l < 4; ++l) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 4 * l));
      all[l] = _mm256_or_si256(all[l], _mm256_add_epi64(_mm256_and_si256(x, part), step));
    }
  all[0] = _mm256_or_si256(_mm256_or_si256(all[0], all[1]), _mm256_or_si256(all[2], all[3]));
  Word lanes[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), all[0]);
  return lanes[0] | lanes[1] | lanes[2] | lanes[3];
}
const bool wide = __builtin_cpu_supports("avx2");
#else
Word reached_avx2(const double*, Index) { return 0; }
constexpr bool wide = false;
#endif
}  // namespace

Index not_finite(const double* data, Index size) {
  Word reached = wide ? reached_avx2(data, size) : 0;
  for (Index i = wide ? size / 16 * 16 : 0; i < size; ++i)
    reached |= (std::bit_cast<Word>(data[i]) & unsigned_part) + one;
  if (reached >> 63 == 0) return -1;
  Index i = 0;
  while (((std::bit_cast<Word>(data[i]) & unsigned_part) + one) >> 63 == 0) ++i;
  return i;
}

}  // namespace terrace::io
