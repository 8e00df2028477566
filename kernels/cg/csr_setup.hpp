// A CSR matrix on its way from a file to a product, judged and cut where it will be multiplied: one
// pass over the 12 bytes of an entry each. Columns are numbered from the slice's own first row.
#pragma once
#include "kernels/cg/products.hpp"

namespace terrace::cg {

/// Numbers of entries that are not as a product needs them.
struct CsrFaults {
  Index outside = 0;     ///< no column of the matrix
  Index far = 0;         ///< 2^31 columns or more from the slice's first row
  Index unsorted = 0;    ///< column not beyond the one before it in its row
  Index not_finite = 0;  ///< NaN or Inf
};

/// to[k] = from[k] - origin; adds to outside, of `columns`, and to far.
void number_columns(const Stream<Cpu>&, View<const Index, Cpu> from, View<std::int32_t, Cpu> to,
                    Index columns, Index origin, View<CsrFaults, Cpu>);
void number_columns(const Stream<Cuda>&, View<const Index, Cuda> from, View<std::int32_t, Cuda> to,
                    Index columns, Index origin, View<CsrFaults, Cuda>);
/// Adds to unsorted and not_finite.
void judge(const Stream<Cpu>&, const CsrRows<Cpu>&, View<CsrFaults, Cpu>);
void judge(const Stream<Cuda>&, const CsrRows<Cuda>&, View<CsrFaults, Cuda>);

// From here on, columns rise within each row.

/// diagonal[i] = A[i, i], zero where it is not stored.
void find_diagonal(const Stream<Cpu>&, const CsrRows<Cpu>&, View<double, Cpu> diagonal);
void find_diagonal(const Stream<Cuda>&, const CsrRows<Cuda>&, View<double, Cuda> diagonal);
/// worst[0] = min(worst[0], i n + j) over the pairs i < j of own rows that are not symmetric, i and j
/// counted in the whole matrix, whose row `first` is the slice's first. Reads each entry and, by
/// bisection of a row, its partner.
void find_asymmetry(const Stream<Cpu>&, const CsrRows<Cpu>&, Index first, Index n,
                    View<const double, Cpu> diagonal, View<Index, Cpu> worst);
void find_asymmetry(const Stream<Cuda>&, const CsrRows<Cuda>&, Index first, Index n,
                    View<const double, Cuda> diagonal, View<Index, Cuda> worst);
/// Entries of other ranks' rows in own columns, each row by ascending columns, rows ascending within a
/// rank: entries start[k] ... of row[k], an own row, which are in its columns of rank r for begin[r] <= k <
/// begin[r + 1]. Rows and columns of the whole matrix, of which first[r] ... are rank r's; turned, so
/// that row[k] is an entry's column.
template <class B>
struct CameEntries {
  View<const Index, B> first, begin, start, row, column;
  View<const double, B> value;
};
/// The entry in row j and own column i, zero where none came.
template <class B>
constexpr double came(const CameEntries<B>& c, Index i, Index j) {
  const auto place = [](const Index* list, Index low, Index high, Index n) {
    while (low < high) {
      const Index middle = (low + high) / 2;
      if (list[middle] < n)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  const Index rank = place(c.first.data, 0, c.first.size, j + 1) - 1;
  const Index end = c.begin.data[rank + 1], k = place(c.row.data, c.begin.data[rank], end, i);
  if (k == end || c.row.data[k] != i) return 0;
  const Index last = c.start.data[k + 1], e = place(c.column.data, c.start.data[k], last, j);
  return e < last && c.column.data[e] == j ? c.value.data[e] : 0;
}
/// As find_asymmetry(), of own rows that are listed, in columns of other ranks: `column`, of the whole
/// matrix. diagonal[outer.row[k]] and diagonal[outer.column[e]] belong to an entry.
void find_outer_asymmetry(const Stream<Cpu>&, const CsrRows<Cpu>& outer,
                          View<const Index, Cpu> column, Index first, Index n,
                          const double* diagonal, const CameEntries<Cpu>&, View<Index, Cpu> worst);
void find_outer_asymmetry(const Stream<Cuda>&, const CsrRows<Cuda>& outer,
                          View<const Index, Cuda> column, Index first, Index n,
                          const double* diagonal, const CameEntries<Cuda>&,
                          View<Index, Cuda> worst);
/// near = { entries of a sample of rows, those within 16 columns of an entry of the row above }.
void sample_nearness(const Stream<Cpu>&, const CsrRows<Cpu>&, View<Index, Cpu> near);
void sample_nearness(const Stream<Cuda>&, const CsrRows<Cuda>&, View<Index, Cuda> near);
/// So p is gathered better with more of the first-level cache.
constexpr bool is_scattered(Index entries, Index near) { return 2 * near < entries; }

/// Entries whose column is no own row, of the rows that have some.
template <class B>
struct OuterRows {
  Buffer<Index, B> row, start;  ///< which rows, ascending; one more than these
  Buffer<std::int32_t, B> column;
  Buffer<double, B> value;
};
/// Copies of them. inner_start[i], rows + 1 numbers: where row i begins without them. Waits; takes 12
/// bytes a row for that time.
OuterRows<Cpu> copy_outer(const Stream<Cpu>&, const CsrRows<Cpu>&, View<Index, Cpu> inner_start);
OuterRows<Cuda> copy_outer(const Stream<Cuda>&, const CsrRows<Cuda>&,
                           View<Index, Cuda> inner_start);
/// Of rows [from, from + rows) the entries whose column is an own row, in order: those of row i from
/// inner_start[i] - inner_start[from] on.
void pick_inner(const Stream<Cpu>&, const CsrRows<Cpu>&, Index from, Index rows,
                View<const Index, Cpu> inner_start, View<std::int32_t, Cpu> column,
                View<double, Cpu> value);
void pick_inner(const Stream<Cuda>&, const CsrRows<Cuda>&, Index from, Index rows,
                View<const Index, Cuda> inner_start, View<std::int32_t, Cuda> column,
                View<double, Cuda> value);

}  // namespace terrace::cg
