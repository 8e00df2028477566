// Condition of A without its inverse: from a few columns that are solved with.
//
// Columns z of Cauchy numbers estimate ||A^-1||_infinity: |x z| is distributed as ||x||_1 |z| (Indyk
// 2006), so its geometric mean over the columns estimates ||x||_1 of every row x of A^-1 (Li 2008);
// the largest is within a factor of about five.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/base/buffer.hpp"
#include "kernels/base/random.hpp"

namespace terrace::dense {

inline constexpr Index condition_probes = 16;
inline constexpr double probe_scale = 0x1p-20;  // against overflow
inline constexpr double largest_probe = 1e6;    // before that

/// The tangent of it is a Cauchy number.
constexpr double probe_angle(Index i, Index p) {
  return 1.5707963267948966 * random_uniform(0xc0de, i, p);
}
/// Row i of column p, times probe_scale.
inline double cauchy_probe(Index i, Index p) {
  return probe_scale * std::clamp(std::tan(probe_angle(i, p)), -largest_probe, largest_probe);
}
/// The largest estimate of ||x||_1 over rows of A^-1, from those rows of Y with A Y = Z; row r of Y
/// from y + r * ld on, condition_probes numbers.
double norm_from_probes(Index rows, const double* y, Index ld);

/// a[s, p] = cauchy_probe(row[s], p), s < row.size, p < condition_probes; CUDA's tangent differs from
/// the CPU's in the last bits.
template <class B>
void put_probes(const Stream<B>& stream, std::type_identity_t<View<const Index, B>> row,
                View<double, B> a, Index ld);
/// The same estimate, from rows in memory of B. Waits for the stream.
template <class B>
double norm_from_probes(const Stream<B>& stream, Index rows,
                        std::type_identity_t<View<const double, B>> y, Index ld);

}  // namespace terrace::dense
