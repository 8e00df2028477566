// Bound by memory: at most 48 bytes an element and pass, little beside the band itself.
#include <algorithm>

#include "kernels/band/mixed_cg_passes.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index kLeast = 4096;  // rows of a piece
constexpr Index kPieces = band_cg_scratch / (4 * band_cg_columns);

template <class Pass>
void run(const Stream<Cpu>& stream, const BandCg<Cpu>& c, Index nrhs, const Pass& pass) {
  stream.run([=] {
    constexpr double start = Pass::maximum ? -band_cg_passes::kInfinity : 0.0;
    const auto combine = [](double& sum, double value) {
      if constexpr (Pass::maximum)
        sum = std::max(sum, value);
      else
        sum += value;
    };
    const Index grain = std::max(kLeast, ceil_div(c.rows, kPieces));
    const auto partial = [&](Index piece, Index v) {
      return c.scratch.data + (piece * band_cg_columns + v) * 4;
    };
    parallel_ranges(c.rows, grain, [&](Index from, Index to) {
      for (Index v = 0; v < nrhs; ++v) {
        const double coefficient = pass.coefficient(v);
        double value[4] = {}, sum[4] = {start, start, start, start};
        for (Index i = from; i < to; ++i) {
          pass(i, v, i * nrhs + v, coefficient, value);
          for (int k = 0; k < Pass::values; ++k) combine(sum[k], value[k]);
        }
        std::copy_n(sum, 4, partial(from / grain, v));
      }
    });
    for (Index v = 0; v < nrhs; ++v)
      for (int k = 0; k < Pass::values; ++k) {
        double sum = start;
        for (Index piece = 0; piece < ceil_div(c.rows, grain); ++piece)
          combine(sum, partial(piece, v)[k]);
        c.state.data[(Pass::first + k) * nrhs + v] = sum;
      }
  });
}

}  // namespace

TERRACE_BAND_CG_PASSES(Cpu)

}  // namespace terrace::band
