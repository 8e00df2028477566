// Roofline: the factor and the spikes are read once a substitution, so memory rate for few
// right-hand sides. Every BLAS call works on one fixed tile: bits do not depend on threads.
#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/band/cpu/steps.hpp"
#include "kernels/band/parts.hpp"
#include "kernels/base/cpu/columns.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index kRows = 64;      // arrow rows of one task
constexpr Index kColumns = 256;  // rows of a part in one product with its spike
constexpr Index kNarrow = 512;   // reach below which a part is left to one thread

int as_int(Index i) { return static_cast<int>(i); }

/// Rows of the part behind tile column k that it reaches.
Index rows_below(const BandShape& s, const BandPart<Cpu>& part, Index k) {
  return std::min(s.reach, (part.tiles + part.window - k - 1) * s.width);
}

/// out (rows x nrhs) -= a (rows x columns, or its transpose; column-major) in; row-major vectors.
void subtract_product(bool transposed, const double* a, Index ld, Index rows, Index columns,
                      Index nrhs, const double* in, double* out) {
  if (nrhs == 1 && transposed)
    add_dots(columns, rows, -1.0, a, ld, in, out);
  else if (nrhs == 1)
    add_columns(rows, columns, -1.0, a, ld, in, out);
  else
    cblas_dgemm(CblasColMajor, CblasNoTrans, transposed ? CblasNoTrans : CblasTrans, as_int(nrhs),
                as_int(rows), as_int(columns), -1.0, in, as_int(nrhs), a, as_int(ld), 1.0, out,
                as_int(nrhs));
}

void forward(const BandShape& s, const BandPart<Cpu>& part, const BandPartVectors<Cpu>& x,
             Index nrhs) {
  const Index w = s.width, length = part.tiles * w;
  for (Index k = part.from; k < part.end(); ++k)
    band_forward_step(s, rows_below(s, part, k), part.tile(s, k), nrhs, x.rows + k * w * nrhs,
                      x.rows + (k + 1) * w * nrhs);
  const Index first = part.from * w, last = std::min(part.end() * w, length);
  parallel_ranges(part.arrow, kRows, [&](Index from, Index to) {
    for (Index row = first; row < last; row += kColumns)
      subtract_product(false, part.spike + from + row * part.arrow, part.arrow, to - from,
                       std::min(kColumns, last - row), nrhs, x.rows + row * nrhs,
                       x.arrow + from * nrhs);
  });
}

void backward(const BandShape& s, const BandPart<Cpu>& part, const BandPartVectors<Cpu>& x,
              Index nrhs) {
  const Index w = s.width, first = part.from * w, last = part.end() * w;
  if (part.arrow > 0)
    parallel_ranges(last - first, kColumns, [&](Index from, Index to) {
      const Index row = first + from;
      subtract_product(true, part.spike + row * part.arrow, part.arrow, to - from, part.arrow, nrhs,
                       x.arrow, x.rows + row * nrhs);
    });
  for (Index k = part.end() - 1; k >= part.from; --k)
    band_backward_step(s, rows_below(s, part, k), part.tile(s, k), nrhs, x.rows + k * w * nrhs,
                       x.rows + (k + 1) * w * nrhs);
}

using Parts = std::span<const BandPart<Cpu>>;
using Vectors = std::span<const BandPartVectors<Cpu>>;

/// step(s, part, its vectors, nrhs) for all parts: narrow ones side by side.
void on_parts(const Stream<Cpu>& stream, const BandShape& s, Parts parts, Vectors x, Index nrhs,
              void (*step)(const BandShape&, const BandPart<Cpu>&, const BandPartVectors<Cpu>&,
                           Index)) {
  if (nrhs == 0) return;
  stream.run(
      [=, parts = std::vector(parts.begin(), parts.end()), x = std::vector(x.begin(), x.end())] {
        const auto one = [&](Index p) { step(s, parts[std::size_t(p)], x[std::size_t(p)], nrhs); };
        const Index count = Index(parts.size());
        if (s.reach < kNarrow || count >= thread_count()) return parallel_for(count, one);
        for (Index p = 0; p < count; ++p) one(p);
      });
}

}  // namespace

Index band_prepared_doubles(Cpu, BandShape, const BandPart<Cpu>&) { return 0; }
void band_prepare(const Stream<Cpu>&, BandShape, Parts) {}
Index band_substitute_scratch(Cpu, BandShape, std::span<const BandPart<Cpu>>, Index) { return 0; }

void band_forward_parts(const Stream<Cpu>& stream, BandShape s, Parts parts, Vectors x, Index nrhs,
                        View<Word, Cpu> scratch) {
  on_parts(stream, s, parts, x, nrhs, forward);
}

void band_backward_parts(const Stream<Cpu>& stream, BandShape s, Parts parts, Vectors x, Index nrhs,
                         View<Word, Cpu> scratch) {
  on_parts(stream, s, parts, x, nrhs, backward);
}

void band_reverse(const Stream<Cpu>& stream, Index n, Index first, Index count, Index height,
                  const BandForm& from, double* to, Index to_ld, Index top, Index* not_finite) {
  stream.run([=] {
    std::atomic<bool> finite = true;
    // By reversed columns: column n - 1 - i takes row i of the natural ones.
    const Index least = std::max(first, top);
    const Index rows = std::min(n, first + count + height - 1) - least;
    parallel_ranges(std::max<Index>(rows, 0), 32, [&](Index begin, Index end) {
      bool all = true;
      for (Index i = least + begin; i < least + end; ++i)
        for (Index j = std::max(first, i - height + 1); j < std::min(first + count, i + 1); ++j) {
          const double number = from.data[(i - j) * from.diagonal + (j - first) * from.column];
          to[(i - j) + (n - 1 - i) * to_ld] = number;
          all &= std::isfinite(number);
        }
      if (!all) finite = false;
    });
    if (!finite && not_finite) *not_finite = 1;
  });
}

void band_spikes(const Stream<Cpu>& stream, std::span<const BandSpike> spikes, Index height,
                 Index arrow, Index* not_finite) {
  stream.run([=, all = std::vector<BandSpike>(spikes.begin(), spikes.end())] {
    std::atomic<bool> finite = true;
    parallel_for(Index(all.size()), [&](Index k) {
      const BandSpike& s = all[std::size_t(k)];
      bool good = true;
      for (Index c = 0; c < s.count; ++c)
        for (Index d = std::max<Index>(0, s.gap - c); d < height && c + d - s.gap < s.end; ++d) {
          const double number = s.from.data[d * s.from.diagonal + c * s.from.column];
          s.spike[s.r0 + c + (c + d - s.gap) * arrow] = number;
          good &= std::isfinite(number);
        }
      if (!good) finite = false;
    });
    if (!finite && not_finite) *not_finite = 1;
  });
}

}  // namespace terrace::band
