// What the products on the CPU share.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/cpu/sums.hpp"

namespace terrace::cg {

template <bool absolute>
inline double entry(double v) {
  return absolute ? std::fabs(v) : v;
}
/// Of a head.
template <bool absolute>
inline double entry(std::uint32_t v) {
  return entry<absolute>(std::bit_cast<double>(Word(v) << 32));
}

/// Columns of the band that one piece of work takes; its p, up and low stay in the first-level
/// cache by strips.
constexpr Index band_strip = 1024;
inline Index band_tile(Index rows, Index m) {
  return round_up(std::max({Index(1), 2 * m, ceil_div(rows, Index(256)), band_strip}), band_strip);
}

/// p.q and p.p, in two chains each.
inline Pair dots(const double* p, const double* q, Index count) {
  double a[2] = {}, b[2] = {};
  for (Index i = 0; i < count; ++i) {
    a[i & 1] += p[i] * q[i];
    b[i & 1] += p[i] * p[i];
  }
  return {a[0] + a[1], b[0] + b[1]};
}

}  // namespace terrace::cg
