#include "kernels/dense/probes.hpp"

#include <limits>
#include <vector>

#include "kernels/base/parallel.hpp"

namespace terrace::dense {

double norm_from_probes(Index rows, const double* y, Index ld) {
  constexpr Index grain = 256;
  std::vector<double> most(std::size_t(ceil_div(rows, grain)), 0.0);
  parallel_for(Index(most.size()), [&](Index k) {
    for (Index i = k * grain; i < std::min(rows, (k + 1) * grain); ++i) {
      double logarithms = 0;
      for (Index p = 0; p < condition_probes; ++p)
        logarithms +=
            std::log(std::max(std::fabs(y[i * ld + p]), std::numeric_limits<double>::denorm_min()));
      most[std::size_t(k)] =
          std::max(most[std::size_t(k)], std::exp(logarithms / double(condition_probes)));
    }
  });
  return (most.empty() ? 0.0 : *std::max_element(most.begin(), most.end())) / probe_scale;
}

template <>
void put_probes(const Stream<Cpu>& stream, View<const Index, Cpu> row, View<double, Cpu> a,
                Index ld) {
  stream.run([=] {
    parallel_ranges(row.size, 64, [&](Index begin, Index end) {
      for (Index s = begin; s < end; ++s)
        for (Index p = 0; p < condition_probes; ++p)
          a.data[s * ld + p] = cauchy_probe(row.data[s], p);
    });
  });
}

template <>
double norm_from_probes(const Stream<Cpu>& stream, Index rows, View<const double, Cpu> y,
                        Index ld) {
  stream.synchronize();
  return norm_from_probes(rows, y.data, ld);
}

}  // namespace terrace::dense
