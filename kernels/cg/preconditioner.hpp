// Preconditioners of conjugate gradients on one device: inverses of diagonal blocks, incomplete
// Cholesky factors, and the vector passes of the Chebyshev polynomial.
//
// Everything that runs in an iteration takes `skip`: where it is not null and *skip != 0, nothing
// is touched. Nothing allocates or waits for the host, and sums have a fixed order. Several vectors
// (`columns`) stand row-major: element (i, c) at i * columns + c.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/base/buffer.hpp"

namespace terrace::cg {

/// The part of a symmetric matrix that couples this rank's rows, on the host: both triangles or the
/// lower one (entries above the diagonal are not read), local column numbers in any order, no
/// duplicates.
struct LocalRows {
  std::vector<Index> start{0}, column;
  std::vector<double> value;
  [[nodiscard]] Index rows() const { return Index(start.size()) - 1; }
};

// --- inverses of diagonal blocks -----------------------------------------------------------------

constexpr Index most_block = 64;

/// Symmetric blocks of b rows (the last smaller), half of each stored, by wrapped diagonals:
///
///   block k, of h = min(b, rows - k b) rows, starts at k * stride(b), and with M its values
///   value[d * h + i] = M[i, (i + d) mod h]     d in [0, h / 2], i in [0, h)
///
/// Each entry stands for two, but those of d = 0 and d = h / 2 for even h, which stand for one.
template <class B>
struct DiagonalBlocks {
  View<const double, B> value;
  Index rows = 0, block = 0;
  static constexpr Index stride(Index block) { return (block / 2 + 1) * block; }
  static constexpr Index size(Index rows, Index block) {
    return ceil_div(rows, block) * stride(block);
  }
};

/// Inverses of the diagonal blocks of `a` in the form of DiagonalBlocks, by Cholesky factorisation,
/// in threads. The result is -1, or the first row of `a` at which a block is not positive definite.
Index invert_diagonal_blocks(const LocalRows& a, Index block, double* value);

/// z = M r, block by block. Reads 4 (b + 2) bytes per row of M, and r; writes z.
void multiply_blocks(const Stream<Cpu>&, const DiagonalBlocks<Cpu>&, Index columns,
                     View<const double, Cpu> r, View<double, Cpu> z, const double* skip = nullptr);
void multiply_blocks(const Stream<Cuda>&, const DiagonalBlocks<Cuda>&, Index columns,
                     View<const double, Cuda> r, View<double, Cuda> z,
                     const double* skip = nullptr);

// --- incomplete Cholesky factors -----------------------------------------------------------------

/// Strict triangle by rows, in slices of `height` rows, each slice as wide as its longest row:
///   entry e of row i at start[i / height] + e * height + i % height     column -1: no entry
/// height 1 is CSR. Columns ascend.
struct HostTriangle {
  std::vector<Index> start{0};
  std::vector<std::int32_t> column;
  std::vector<double> value;
};

/// A ~ L L' with the pattern of A's lower triangle (Meijerink, van der Vorst 1977). Row i of the
/// factor is row order[i] of A (order empty: row i), such that row i needs rows of earlier levels
/// alone; level k is rows level[k] ... level[k + 1] - 1.
struct IncompleteFactor {
  HostTriangle lower, upper;  ///< L and L' without their diagonals
  std::vector<double> inverse_diagonal;
  std::vector<std::int32_t> order;
  std::vector<Index> level;
  Index nonzeros = 0;  ///< of L with its diagonal
  double shift = 0;    ///< A + shift diag(A) was factored
  Index attempts = 0;
  Index bad_row = -1;  ///< no factor: a diagonal entry that is not positive, or a hopeless pivot
};
/// Tries shifts of 0, 1e-3, 2e-3, 4e-3, ... until all pivots are positive (Manteuffel 1980). Where
/// sort_by_level(rows, levels) holds, renumbered for parallel solves, otherwise in natural order.
/// `height`: of the slices. In threads. Throws Error(usage) from 2^31 rows on.
IncompleteFactor incomplete_cholesky(const LocalRows& a,
                                     const std::function<bool(Index, Index)>& sort_by_level,
                                     Index height);

/// Rows of a slice: CSR on the CPU, a warp's rows on CUDA.
constexpr Index slice_height(Cpu) { return 1; }
constexpr Index slice_height(Cuda) { return 32; }
/// Whether solves on this backend want a factor of so many rows and levels sorted by level.
bool wants_levels(Cpu, Index rows, Index levels);
bool wants_levels(Cuda, Index rows, Index levels);

template <class B>
struct TriangleView {
  View<const Index, B> start;
  View<const std::int32_t, B> column;
  View<const double, B> value;
};
template <class B>
struct FactorView {
  TriangleView<B> lower, upper;
  View<const double, B> inverse_diagonal;
  View<const std::int32_t, B> order;
  View<const Index, Cpu> level;  ///< used on the CPU
  View<double, B> y, x;          ///< rows * columns each; prepare_solve() before the first solve
  View<Word, B> tickets;         ///< 2
  [[nodiscard]] Index rows() const { return inverse_diagonal.size; }
};

/// Sets y, x and tickets of the view to what solve_factor() expects and leaves behind.
void prepare_solve(const Stream<Cpu>&, const FactorView<Cpu>&);
void prepare_solve(const Stream<Cuda>&, const FactorView<Cuda>&);
/// z = (L L')^-1 r. Reads each triangle once, 12 bytes an entry, and 48 bytes per row.
void solve_factor(const Stream<Cpu>&, const FactorView<Cpu>&, Index columns,
                  View<const double, Cpu> r, View<double, Cpu> z, const double* skip = nullptr);
void solve_factor(const Stream<Cuda>&, const FactorView<Cuda>&, Index columns,
                  View<const double, Cuda> r, View<double, Cuda> z, const double* skip = nullptr);

// --- Chebyshev polynomial ------------------------------------------------------------------------

/// d = factor D r, and z = d unless z is empty; `inverse_diagonal` D has one value a row. 24 n bytes and 8.
void chebyshev_start(const Stream<Cpu>&, double factor, Index columns,
                     View<const double, Cpu> inverse_diagonal, View<const double, Cpu> r,
                     View<double, Cpu> d, View<double, Cpu> z, const double* skip = nullptr);
void chebyshev_start(const Stream<Cuda>&, double factor, Index columns,
                     View<const double, Cuda> inverse_diagonal, View<const double, Cuda> r,
                     View<double, Cuda> d, View<double, Cuda> z, const double* skip = nullptr);
/// Where a step stands in a polynomial.
struct ChebyshevStep {
  bool first = false;  ///< z begins as d is before
  bool last = false;   ///< rest and d need not be right behind it
};
/// rest = from - q, d = a d + b D rest, z += d; `from` may be `rest`. 64 n bytes; of the first 56, of the
/// last 48.
void chebyshev_step(const Stream<Cpu>&, double a, double b, Index columns,
                    View<const double, Cpu> inverse_diagonal, View<const double, Cpu> from,
                    View<const double, Cpu> q, View<double, Cpu> rest, View<double, Cpu> d,
                    View<double, Cpu> z, const ChebyshevStep& which, const double* skip = nullptr);
void chebyshev_step(const Stream<Cuda>&, double a, double b, Index columns,
                    View<const double, Cuda> inverse_diagonal, View<const double, Cuda> from,
                    View<const double, Cuda> q, View<double, Cuda> rest, View<double, Cuda> d,
                    View<double, Cuda> z, const ChebyshevStep& which, const double* skip = nullptr);
/// The first step after a correction d of z, q = A d: rest -= q, z += d + factor D rest,
/// d = factor D rest. 64 n bytes.
void chebyshev_correct(const Stream<Cpu>&, double factor, Index columns,
                       View<const double, Cpu> inverse_diagonal, View<const double, Cpu> q,
                       View<double, Cpu> rest, View<double, Cpu> d, View<double, Cpu> z,
                       const double* skip = nullptr);
void chebyshev_correct(const Stream<Cuda>&, double factor, Index columns,
                       View<const double, Cuda> inverse_diagonal, View<const double, Cuda> q,
                       View<double, Cuda> rest, View<double, Cuda> d, View<double, Cuda> z,
                       const double* skip = nullptr);

}  // namespace terrace::cg
