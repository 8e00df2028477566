// Check sums of tile columns of a band, for --guard.
#pragma once
#include <bit>

#include "kernels/band/band.hpp"
#include "kernels/base/random.hpp"

namespace terrace::band {

/// Tile columns first, first + step, .. of a band, `count` of them one after the other in memory;
/// entries 0 .. shape.half_bandwidth of each column. The vectors below are numbered by rows of the
/// band and have padded() + reach numbers.
template <class B>
struct GuardTiles {
  BandShape shape;
  const double* data = nullptr;
  Index first = 0, step = 1, count = 0;
};

/// The weight of row j: about 1 / sqrt(diagonal), a power of two times a number in [0.5, 1), with a
/// random sign; of a diagonal that is not positive and finite about 1.
constexpr double band_weight(double diagonal, Index j) {
  Index exponent = 0;  // diagonal = f 2^exponent, f in [0.5, 1), but for the subnormal
  if (diagonal > 0 && diagonal <= 0x1.fffffffffffffp1023)
    exponent = Index(std::bit_cast<Word>(diagonal) >> 52) - 1022;
  const Index half = (exponent - (exponent & 1)) / 2;  // rounded down
  const double u = random_uniform(0xba9d, j, 5),
               scale = std::bit_cast<double>(Word(1023 - half) << 52);
  return (u < 0 ? -0.5 + 0.5 * u : 0.5 + 0.5 * u) * scale;
}
/// w[j] := band_weight of column j's diagonal, for all columns of the tile columns.
void draw_weights(const Stream<Cpu>&, GuardTiles<Cpu> a, double* w);
void draw_weights(const Stream<Cuda>&, GuardTiles<Cuda> a, double* w);

/// What weigh_band() adds up; t may be sum, and x may be t. Sizes, sums of absolute values, are
/// left out where the pointers are null.
struct GuardSums {
  const double* w = nullptr;
  double *t = nullptr, *t_size = nullptr;
  const double *x = nullptr, *x_size = nullptr;
  double *sum = nullptr, *size = nullptr;
};

/// For the columns j of the tile columns, t[j] += sum_{d >= from} a[d, j] w[j + d]; and then
/// sum[j + d] += alpha a[d, j] x[j]. Reads them once (on CUDA twice); 4 flops an entry, with sizes
/// 8.
void weigh_band(const Stream<Cpu>&, GuardTiles<Cpu> a, Index from, double alpha, GuardSums to);
void weigh_band(const Stream<Cuda>&, GuardTiles<Cuda> a, Index from, double alpha, GuardSums to);
/// *bad: the first row i in [from, to) with a weight whose sum is not finite or of a magnitude
/// above tolerance size[i] + least, size[i] being 1 / |w[i]| where `size` is null; `to` where there
/// is none.
void judge_band_rows(const Stream<Cpu>&, Index from, Index to, const double* w, const double* sum,
                     const double* size, double tolerance, double least, Index* bad);
void judge_band_rows(const Stream<Cuda>&, Index from, Index to, const double* w, const double* sum,
                     const double* size, double tolerance, double least, Index* bad);

}  // namespace terrace::band
