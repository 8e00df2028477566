// Streamed bands: plans, residuals, problems fed from the host.
#pragma once
#include "kernels/base/problems.hpp"
#include "src/band/parts.hpp"
#include "src/band/stream.hpp"
#include "tests/support/band.hpp"
#include "tests/support/lanes.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

template <class B>
band::BandShape shape_of(Index n, Index m, Index width) {
  const Index clipped = std::clamp<Index>(m, 0, std::max<Index>(n - 1, 0));
  return band::band_shape(n, m,
                          std::is_same_v<B, Cpu> ? width : band::band_part_width(B{}, clipped));
}

/// Streamed from `ends` ends, where there is room.
template <class B>
band::BandPlan plan_of(Index n, Index m, Index width, Index ends) {
  band::BandRequest request;
  request.n = n;
  request.half_bandwidth = m;
  request.method = "streamed";
  request.parts = ends;
  request.block = std::is_same_v<B, Cpu> ? width : 0;
  return plan_band<B>(request);
}

/// x - y, or 1 where y is not finite.
inline double apart(double x, double y) { return std::isfinite(y) ? std::abs(x - y) : 1.0; }

struct Ratios {
  Index failed = 0;
  double factor = INFINITY, fused = INFINITY, stored = INFINITY;
  [[nodiscard]] bool good() const {
    return failed == 0 && factor < 30.0 && fused < 30.0 && stored < 30.0;
  }
};

/// Residuals of the factor, of a solve that goes forward with the factorization, and of one by the
/// factor that it leaves.
template <class B>
Ratios ratios(Context<B>& c, const band::BandPlan& plan, Index slab, Index nrhs,
              const Entry& entry) {
  const band::BandShape& s = plan.shape;
  Progress progress{false, false};
  const band::BandProblem<B> problem = band_problem<B>(s.n, s.half_bandwidth, entry);
  std::vector<double> truth(std::size_t(s.n * nrhs)), x(truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i)
    truth[i] = random_uniform(11, Index(i) / nrhs, Index(i) % nrhs);
  const std::vector<double> b = band_product(s.n, s.half_bandwidth, entry, truth, nrhs);
  band::BandStream<B> a = band_stream<B>(plan, slab);
  band::BandStreamRows<B> rows = band_stream_rows(a, nrhs);
  Ratios result;
  load_stream(c, problem, a);
  set_rows(c, a, rows, b.data());
  result.failed = stream_factor(c, a, &rows, progress);
  if (result.failed != 0) return result;
  stream_backward(c, a, rows, progress);
  get_rows(c, a, rows, x.data());
  const Range all{0, s.n};
  result.fused = band_residual<B>(c, problem, all, x, b, nrhs);
  set_rows(c, a, rows, b.data());
  stream_forward(c, a, rows, progress);
  stream_backward(c, a, rows, progress);
  get_rows(c, a, rows, x.data());
  result.stored = band_residual<B>(c, problem, all, x, b, nrhs);
  result.factor = a.count() > 1 ? 0.0 : band_factor_residual(c, problem, a, 5);
  return result;
}
template <class B>
Ratios ratios(Context<B>& c, const band::BandShape& s, Index slab, Index nrhs, const Entry& entry) {
  return ratios(c, one_ended_stream(s), slab, nrhs, entry);
}

/// The problem on the host.
inline band::BandFeed feed_of(Index n, Entry entry) {
  return [=](Range columns, Index height, double* to, Index ld) {
    for (Index j = 0; j < columns.count; ++j)
      for (Index d = 0; d < height; ++d)
        to[j * ld + d] =
            columns.first + j + d < n ? entry(columns.first + j + d, columns.first + j) : 0.0;
  };
}

#define REQUIRE_GOOD(...)                                                                         \
  do {                                                                                            \
    const Ratios r = __VA_ARGS__;                                                                 \
    INFO("failed " << r.failed << ", factor " << r.factor << ", fused " << r.fused << ", stored " \
                   << r.stored);                                                                  \
    REQUIRE(r.good());                                                                            \
  } while (false)

}  // namespace terrace::test
