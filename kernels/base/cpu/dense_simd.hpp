// Vectors of doubles for Gauss-Jordan elimination, and the layout of its panels.
#pragma once
#include "kernels/base/cpu/simd.hpp"

namespace terrace::simd {

/// L doubles that may lie at any multiple of 8 bytes. Name the types in declarations: `auto` drops
/// their alignment.
template <int L>
struct Lanes;
template <>
struct Lanes<4> {
  typedef double Reals __attribute__((vector_size(32), aligned(8), may_alias));
  typedef Index Numbers __attribute__((vector_size(32), aligned(8), may_alias));
  typedef Word Words __attribute__((vector_size(32), aligned(8), may_alias));
};
template <>
struct Lanes<8> {
  typedef double Reals __attribute__((vector_size(64), aligned(8), may_alias));
  typedef Index Numbers __attribute__((vector_size(64), aligned(8), may_alias));
  typedef Word Words __attribute__((vector_size(64), aligned(8), may_alias));
};

/// Level of the products here; both vector levels round alike, as both multiply and add in one.
inline simd::Level fma_level() {
#if defined(__x86_64__)
  static const bool fma = __builtin_cpu_supports("fma");
  return fma ? simd::level() : simd::Level::plain;
#else
  return simd::Level::plain;
#endif
}
inline int lanes() { return fma_level() == simd::Level::avx512 ? 8 : 4; }

constexpr Index inner_width = 16;  ///< columns eliminated one by one between matrix products

/// Rows in slivers of L = lanes(), every sliver column by column:
///
///   sliver 0   | column 0: rows 0 ... L-1 | column 1: rows 0 ... L-1 | ...
///   sliver 1   | column 0: rows L ... 2L-1 | ...
///
/// `stride` doubles a sliver, an odd number of cache lines: one column of many slivers spreads over
/// the sets of the caches.
struct Slivers {
  double* x = nullptr;
  Index stride = 0;
  [[nodiscard]] double* row(Index i) const { return x + i / lanes() * stride + i % lanes(); }
};
inline Index sliver_stride(Index columns) { return round_up(columns, inner_width) * lanes() + 8; }
inline Index slivers(Index rows) { return ceil_div(rows, lanes()); }

}  // namespace terrace::simd

/// Defines name(parameter) from an always-inlined template body##<lanes>(parameter).
#if defined(__x86_64__)
#define TERRACE_LANES(name, body, Parameter)                                               \
  __attribute__((target("avx512f,avx2,fma"))) void name##_avx512(const Parameter& p) {     \
    body<8>(p);                                                                            \
  }                                                                                        \
  __attribute__((target("avx2,fma"))) void name##_avx2(const Parameter& p) { body<4>(p); } \
  void name(const Parameter& p) {                                                          \
    switch (fma_level()) {                                                                 \
      case simd::Level::avx512:                                                            \
        return name##_avx512(p);                                                           \
      case simd::Level::avx2:                                                              \
        return name##_avx2(p);                                                             \
      default:                                                                             \
        return body<4>(p);                                                                 \
    }                                                                                      \
  }
#else
#define TERRACE_LANES(name, body, Parameter) \
  void name(const Parameter& p) { body<4>(p); }
#endif
