// Matrix times vector on one device: dense rows, a symmetric band, CSR rows. All are bound by the
// bytes of the matrix, which each reads once: 8 rows ld, 8 rows (m + 1), 12 nonzeros + 8 rows.
//
// From the heads of the entries (kernels/cg/heads.hpp) alone 4 bytes each are less; not with `absolute`.
//
// Every product also returns { p.q, p.p } over its own rows, with p already at hand. With
// `absolute`, q = |A| p (for the row-sum norm). `skip` points to a number in the memory of the
// backend: where it is not zero when the product begins, nothing is read or written.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/base/sums.hpp"

namespace terrace::cg {

/// `rows` rows of a row-major matrix; ld is a multiple of 16, elements past the last column are
/// zero.
template <class B>
struct DenseRows {
  View<const double, B> a;
  Index rows = 0, ld = 0;
};

/// q = A p with p of ld elements (zero past the last column); `first` is the column of row 0's
/// diagonal.
void multiply(const Stream<Cpu>&, const DenseRows<Cpu>&, Index first, View<const double, Cpu> p,
              View<double, Cpu> q, const SumTarget<Cpu>&, bool absolute = false,
              const double* skip = nullptr);
void multiply(const Stream<Cuda>&, const DenseRows<Cuda>&, Index first, View<const double, Cuda> p,
              View<double, Cuda> q, const SumTarget<Cuda>&, bool absolute = false,
              const double* skip = nullptr);

/// q = what the caller's own `product(p, q)` computes, `rows` numbers each.
void multiply(const Stream<Cpu>&, Index rows,
              const std::function<void(const double* p, double* q)>& product,
              View<const double, Cpu> p, View<double, Cpu> q, const SumTarget<Cpu>&,
              const double* skip = nullptr);

/// Rows [r0, r0 + rows) of a symmetric band matrix of half-bandwidth m, by diagonals:
///
///   s[d * ld + w + i - min(d, w)] = A[r0 + i, r0 + i - d]     w = min(m, rows), i in [0, rows)
///   s[d * ld + w + j]             = A[r0 + j + d, r0 + j]     j in [0, rows)
///
/// The two meet where r0 + i - d is a row of this slice; left of it stand the min(d, rows) entries
/// that belong to columns of earlier slices. Zero outside the matrix. ld >= w + rows.
template <class B>
struct BandRows {
  View<const double, B> s;
  Index rows = 0, half_bandwidth = 0, ld = 0;
  View<const std::uint32_t, B> head{};  ///< of s; size 0, or multiply() reads it in place of s
  [[nodiscard]] Index lead() const { return half_bandwidth < rows ? half_bandwidth : rows; }
};

/// q = A p. p[0..rows) are the slice's own entries; p[-m..0) and p[rows..rows+m) must be readable
/// and finite (zero outside the matrix). scratch: band_scratch() doubles.
void multiply(const Stream<Cpu>&, const BandRows<Cpu>&, const double* p, View<double, Cpu> q,
              View<double, Cpu> scratch, const SumTarget<Cpu>&, bool absolute = false,
              const double* skip = nullptr);
void multiply(const Stream<Cuda>&, const BandRows<Cuda>&, const double* p, View<double, Cuda> q,
              View<double, Cuda> scratch, const SumTarget<Cuda>&, bool absolute = false,
              const double* skip = nullptr);
Index band_scratch(Cpu, Index rows, Index half_bandwidth);
Index band_scratch(Cuda, Index rows, Index half_bandwidth);

/// Up to 4 rows, from `row` on, of equal lengths: the columns of each are those of the row before, plus
/// one. Entries from `entry` on; the first row's columns from `run` on.
struct CsrStrip {
  Index entry = 0;
  std::int32_t row = 0;
  std::uint32_t run = 0;
};

/// CSR rows. Column numbers count from the slice's own first entry of p: negative or >= rows for
/// entries that other ranks own. `row` lists the rows (size 0: all rows 0, 1, ...).
template <class B>
struct CsrRows {
  View<const Index, B> start;  ///< rows + 1 positions in `column` and `value`
  View<const std::int32_t, B> column;
  View<const double, B> value;
  View<const Index, B> row;
  // For CUDA, from chunks_of(); size 0: a product that suits rows of equal lengths.
  View<const Index, B> chunk{}, longs{};
  View<double, B> partial{};  ///< scratch: a double a chunk where there are long rows
  bool scattered = false;     ///< is_scattered(): p is worth more of the first-level cache
  View<const std::uint32_t, B> head{};  ///< of value; size 0, or multiply() reads it in its place
  // For CUDA, from short_columns(); size 0: `column` is read.
  View<const std::uint8_t, B> listed{};
  View<const std::int32_t, B> distance{};
  View<const std::uint16_t, B> near{};
  // For CUDA, from csr_strips(); size 0: none.
  View<const CsrStrip, B> strip{};    ///< the last: what follows the last one
  View<const std::int32_t, B> run{};  ///< 4 (column - row) + count of 1 to 3 columns side by side
  Index strip_entries = 0, strip_runs = 0;  ///< at most so many of a block's strips
  [[nodiscard]] Index rows() const { return start.size > 0 ? start.size - 1 : 0; }
};

/// At most so many entries and rows a chunk; a longer row is cut into pieces of so many entries.
constexpr Index csr_chunk_entries = 896, csr_chunk_rows = 128;
/// ShortColumns::distance has no more.
constexpr Index csr_most_distances = 256;

/// q[row] = A p, or q[row] += A p with `add` in the sums' target.
void multiply(const Stream<Cpu>&, const CsrRows<Cpu>&, const double* p, View<double, Cpu> q,
              const SumTarget<Cpu>&, bool absolute = false, const double* skip = nullptr);
void multiply(const Stream<Cuda>&, const CsrRows<Cuda>&, const double* p, View<double, Cuda> q,
              const SumTarget<Cuda>&, bool absolute = false, const double* skip = nullptr);

/// q = A p of all rows, of any shape, where rows are as short as a prolongation's, without sums; false where
/// they are not, and nothing is done.
bool multiply_short_rows(const Stream<Cpu>&, const CsrRows<Cpu>&, const double* p,
                         View<double, Cpu> q, const double* skip = nullptr);
bool multiply_short_rows(const Stream<Cuda>&, const CsrRows<Cuda>&, const double* p,
                         View<double, Cuda> q, const double* skip = nullptr);

/// q = A p for `columns` vectors at once, 1 to 16, row-major: p[i * columns + c]. The
/// matrix is read once for all of them. Ranges of p and q as in the products above (the halo of p
/// in units of rows). Bands and CSR rows leave { p.q of each column, p.p of each column }, with room
/// for partial sums of `columns`. DenseRows: p from column 0 of the matrix, ld rows; no sums.
void multiply_columns(const Stream<Cpu>&, const DenseRows<Cpu>&, const double* p,
                      View<double, Cpu> q, Index columns, const double* skip = nullptr);
void multiply_columns(const Stream<Cuda>&, const DenseRows<Cuda>&, const double* p,
                      View<double, Cuda> q, Index columns, const double* skip = nullptr);
/// scratch: columns * band_scratch().
void multiply_columns(const Stream<Cpu>&, const BandRows<Cpu>&, const double* p,
                      View<double, Cpu> q, View<double, Cpu> scratch, const SumTarget<Cpu>&,
                      Index columns, const double* skip = nullptr);
void multiply_columns(const Stream<Cuda>&, const BandRows<Cuda>&, const double* p,
                      View<double, Cuda> q, View<double, Cuda> scratch, const SumTarget<Cuda>&,
                      Index columns, const double* skip = nullptr);
/// With `add` in the sums' target, q[row] += A p.
void multiply_columns(const Stream<Cpu>&, const CsrRows<Cpu>&, const double* p, View<double, Cpu> q,
                      const SumTarget<Cpu>&, Index columns, const double* skip = nullptr);
void multiply_columns(const Stream<Cuda>&, const CsrRows<Cuda>&, const double* p,
                      View<double, Cuda> q, const SumTarget<Cuda>&, Index columns,
                      const double* skip = nullptr);

/// Largest relative difference that still counts as symmetric, against the larger of |a_ij|, |a_ji|
/// and sqrt(|a_ii a_jj|).
constexpr double symmetry_tolerance = 1e-12;
constexpr bool symmetric_pair(double a, double b, double scale) {
  const double difference = a > b ? a - b : b - a;
  const double larger = (a < 0 ? -a : a) > (b < 0 ? -b : b) ? (a < 0 ? -a : a) : (b < 0 ? -b : b);
  return difference <= symmetry_tolerance * (larger > scale ? larger : scale);
}

/// Two blocks that should be each other's transposes: a (rows x columns, lda) stands at (row,
/// column) of an n x n matrix, b (columns x rows, ldb) at (column, row). worst[0] = min(worst[0], i
/// n + j) over the offending pairs (i < j global positions). Reads each block once.
template <class B>
struct TransposedBlocks {
  const double* a = nullptr;
  Index lda = 0, row = 0, rows = 0;
  const double* b = nullptr;
  Index ldb = 0, column = 0, columns = 0;
};
void find_asymmetry(const Stream<Cpu>&, const TransposedBlocks<Cpu>&, Index n,
                    View<const double, Cpu> diagonal, View<Index, Cpu> worst);
void find_asymmetry(const Stream<Cuda>&, const TransposedBlocks<Cuda>&, Index n,
                    View<const double, Cuda> diagonal, View<Index, Cuda> worst);

/// Rows [first, first + rows) of dense_cg_entry(seed, 1 / sqrt(n), i, j, diagonal), zero up to ld.
void fill_dense_cg(const Stream<Cpu>&, Word seed, Index n, Index first, Index rows, Index ld,
                   View<double, Cpu> a, double diagonal = 2);
void fill_dense_cg(const Stream<Cuda>&, Word seed, Index n, Index first, Index rows, Index ld,
                   View<double, Cuda> a, double diagonal = 2);
/// The slice r0 of band_spd_entry(seed, n, m, i, j) in the form of BandRows.
void fill_band_spd(const Stream<Cpu>&, Word seed, Index n, Index r0, Index rows, Index m, Index ld,
                   View<double, Cpu> s);
void fill_band_spd(const Stream<Cuda>&, Word seed, Index n, Index r0, Index rows, Index m, Index ld,
                   View<double, Cuda> s);

}  // namespace terrace::cg
