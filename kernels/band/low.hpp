// Cholesky factor of a band matrix in low precision, as a preconditioner: half precision with
// single-precision sums on CUDA, single precision on the CPU.
//
// The matrix is scaled to a unit diagonal, H = S A S with S = diag(a_ii)^(-1/2), so that no entry
// of H or of its factor exceeds one, and its diagonal is raised by a shift of the size of the
// rounding, so that rounding seldom costs definiteness:
//   L L^T ~ S A S + shift I,   M^-1 = S L^-T L^-1 S.
//
// The factor lies in a block of 64-bit words of its own form on each backend.
//
// Sources: Higham, Pranesh, SIAM J. Sci. Comput. 43, 2021 (scaling, shift, refinement by CG).
#pragma once
#include "kernels/band/band.hpp"

namespace terrace::band {

/// Unit roundoff of the stored factor.
constexpr double band_low_roundoff(Cpu) { return 0x1.0p-24; }
constexpr double band_low_roundoff(Cuda) { return 0x1.0p-11; }

/// True where the functions below run (on CUDA: compute capability 9.0 and more).
constexpr bool band_low_available(Cpu) { return true; }
bool band_low_available(Cuda);

/// Width that the tile columns of `a` below must have.
constexpr Index band_low_width(Cpu) { return 64; }
constexpr Index band_low_width(Cuda) { return 64; }

/// 64-bit words of the factor, and of the scratch that each of the functions below needs (nrhs: of
/// the largest solve).
Index band_low_words(Cpu, BandShape);
Index band_low_words(Cuda, BandShape);
Index band_low_scratch(Cpu, BandShape, Index nrhs);
Index band_low_scratch(Cuda, BandShape, Index nrhs);

/// scale (padded() numbers) := S; low := lower part of S A S + shift I from the tile columns `a`
/// (tiles() * tile() numbers, kernels/band/band.hpp), with ones on the diagonal of rows behind n.
/// status[0] := 0, or the one-based column of the first diagonal entry that is not positive and
/// finite, or whose scale is not a normal number. Reads the matrix once.
void band_low_load(const Stream<Cpu>&, BandShape, View<const double, Cpu> a, double shift,
                   View<double, Cpu> scale, View<Word, Cpu> low, View<Index, Cpu> status,
                   View<Word, Cpu> scratch);
void band_low_load(const Stream<Cuda>&, BandShape, View<const double, Cuda> a, double shift,
                   View<double, Cuda> scale, View<Word, Cuda> low, View<Index, Cuda> status,
                   View<Word, Cuda> scratch);

/// low := its factor. status[0] := 0, or the one-based column of a pivot that is not positive and
/// finite (the factor is then undefined). n m^2 flops.
void band_low_factor(const Stream<Cpu>&, BandShape, View<Word, Cpu> low, View<Index, Cpu> status,
                     View<Word, Cpu> scratch);
void band_low_factor(const Stream<Cuda>&, BandShape, View<Word, Cuda> low, View<Index, Cuda> status,
                     View<Word, Cuda> scratch);

/// out (padded() numbers) := the diagonal of the factor L.
void band_low_diagonal(const Stream<Cpu>&, BandShape, View<const Word, Cpu> low,
                       View<double, Cpu> out);
void band_low_diagonal(const Stream<Cuda>&, BandShape, View<const Word, Cuda> low,
                       View<double, Cuda> out);

/// out (t x t row-major, t = padded() - 64 first) := S^-1 L in the rows and columns of tile columns
/// `first` .. of the factor L, zero above the diagonal: out out^T is what the elimination of the
/// columns before leaves of A + shift diag(A) there.
void band_low_tail(const Stream<Cpu>&, BandShape, View<const Word, Cpu> low,
                   View<const double, Cpu> scale, Index first, View<double, Cpu> out);
void band_low_tail(const Stream<Cuda>&, BandShape, View<const Word, Cuda> low,
                   View<const double, Cuda> scale, Index first, View<double, Cuda> out);

/// z := M^-1 r for nrhs right-hand sides, padded() x nrhs numbers row-major; z may be r. Each
/// right-hand side is scaled by its own largest entry first, so that any magnitude of r will do.
/// Rows behind n are zero and stay so. Linear in r up to rounding; the same bits every time.
/// 4 m nrhs flops per row; reads the factor twice.
void band_low_solve(const Stream<Cpu>&, BandShape, View<const Word, Cpu> low,
                    View<const double, Cpu> scale, Index nrhs, View<const double, Cpu> r,
                    View<double, Cpu> z, View<Word, Cpu> scratch);
void band_low_solve(const Stream<Cuda>&, BandShape, View<const Word, Cuda> low,
                    View<const double, Cuda> scale, Index nrhs, View<const double, Cuda> r,
                    View<double, Cuda> z, View<Word, Cuda> scratch);

}  // namespace terrace::band
