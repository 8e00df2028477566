// Product of a symmetric band matrix, kept as its lower tile columns, with a few vectors.
#pragma once
#include "kernels/band/band.hpp"

namespace terrace::band {

/// Width that the tile columns must have.
inline constexpr Index band_symmetric_width = 64;
/// Right-hand sides that share one read of the matrix.
inline constexpr Index band_symmetric_group = 4;

/// Numbers of scratch: a strip of reach + 64 rows a tile column, 1/32 of the matrix a right-hand
/// side of a group.
constexpr Index band_symmetric_scratch(const BandShape& s, Index nrhs) {
  return s.tiles() * (s.reach + s.width) * std::clamp<Index>(nrhs, 1, band_symmetric_group);
}

/// y := A x, or |A| x with `absolute`, for padded() x nrhs numbers row-major, from the tile columns
/// `a` of the lower part (tiles() * tile() numbers, kernels/band/band.hpp). Rows behind n take part
/// with what is stored of them. y may not be x. Reads the matrix once for up to
/// band_symmetric_group right-hand sides; 4 m nrhs flops per row. The same bits every time: each tile
/// column leaves a strip, and the strips are summed in their order.
void band_symmetric_times(const Stream<Cpu>&, BandShape, View<const double, Cpu> a, bool absolute,
                          Index nrhs, View<const double, Cpu> x, View<double, Cpu> y,
                          View<double, Cpu> scratch);
void band_symmetric_times(const Stream<Cuda>&, BandShape, View<const double, Cuda> a, bool absolute,
                          Index nrhs, View<const double, Cuda> x, View<double, Cuda> y,
                          View<double, Cuda> scratch);

}  // namespace terrace::band
