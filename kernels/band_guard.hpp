// Check sums of tile columns of a band, for --guard.
#pragma once
#include "kernels/band.hpp"

namespace terrace {

/// Tile columns first, first + step, .. of a band, `count` of them one after the other in memory;
/// entries 0 .. shape.half_bandwidth of each column. The vectors below are numbered by rows of the
/// band and have padded() + reach numbers.
template <class B>
struct GuardTiles {
  BandShape shape;
  const double* data = nullptr;
  Index first = 0, step = 1, count = 0;
};

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

}  // namespace terrace
