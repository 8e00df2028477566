// Condition of A without its inverse: from a few columns that are solved with.
//
// Columns z of Cauchy numbers estimate ||A^-1||_infinity: |x z| is distributed as ||x||_1 |z| (Indyk
// 2006), so its geometric mean over the columns estimates ||x||_1 of every row x of A^-1 (Li 2008);
// the largest is within a factor of about five.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"

namespace terrace::dense {

inline constexpr Index condition_probes = 16;
inline constexpr double probe_scale = 0x1p-20;  // against overflow

/// Row i of column p, times probe_scale.
inline double cauchy_probe(Index i, Index p) {
  const double angle = 1.5707963267948966 * random_uniform(0xc0de, i, p);
  return probe_scale * std::clamp(std::tan(angle), -1e6, 1e6);
}
/// The largest estimate of ||x||_1 over rows of A^-1, from those rows of Y with A Y = Z.
inline double norm_from_probes(Index rows, const std::vector<double>& y) {
  constexpr Index grain = 256;
  std::vector<double> most(std::size_t(ceil_div(rows, grain)), 0.0);
  parallel_for(Index(most.size()), [&](Index k) {
    for (Index i = k * grain; i < std::min(rows, (k + 1) * grain); ++i) {
      double logarithms = 0;
      for (Index p = 0; p < condition_probes; ++p)
        logarithms += std::log(std::max(std::fabs(y[std::size_t(i * condition_probes + p)]),
                                        std::numeric_limits<double>::denorm_min()));
      most[std::size_t(k)] =
          std::max(most[std::size_t(k)], std::exp(logarithms / double(condition_probes)));
    }
  });
  return (most.empty() ? 0.0 : *std::max_element(most.begin(), most.end())) / probe_scale;
}

}  // namespace terrace::dense
