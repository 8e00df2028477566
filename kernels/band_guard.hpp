// Check sums of tile columns of a band, for --guard: each kernel reads them once.
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

/// For their columns j: sum[j] += sum_{d >= from} a[d, j] w[j + d], size[j] += the same of absolute
/// values.
void weigh_band_columns(const Stream<Cpu>&, GuardTiles<Cpu> a, Index from, const double* w,
                        double* sum, double* size);
void weigh_band_columns(const Stream<Cuda>&, GuardTiles<Cuda> a, Index from, const double* w,
                        double* sum, double* size);
/// sum[j + d] += alpha a[d, j] x[j], size[j + d] += |a[d, j] x_size[j]|.
void weigh_band_rows(const Stream<Cpu>&, GuardTiles<Cpu> a, double alpha, const double* x,
                     const double* x_size, double* sum, double* size);
void weigh_band_rows(const Stream<Cuda>&, GuardTiles<Cuda> a, double alpha, const double* x,
                     const double* x_size, double* sum, double* size);
/// bad[0]: the first row i in [from, to) with |sum[i]| above tolerance size[i] + least, bad[1]: the
/// first with a sum that is not finite; `to` where there is none.
void judge_band_rows(const Stream<Cpu>&, Index from, Index to, const double* sum,
                     const double* size, double tolerance, double least, Index* bad);
void judge_band_rows(const Stream<Cuda>&, Index from, Index to, const double* sum,
                     const double* size, double tolerance, double least, Index* bad);

}  // namespace terrace
