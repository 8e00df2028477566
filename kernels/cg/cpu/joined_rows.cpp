// Rows over ranks on the CPU: the twin of kernels/cg/cuda/joined_rows.cu. Bound by memory.
#include "kernels/cg/joined_rows.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/base/parallel.hpp"
#include "kernels/cg/cpu/row_sums.hpp"

namespace terrace::cg {
namespace {

constexpr Index joined_grain = 4096;

template <class F>
void over_rows(Index rows, const F& f) {
  parallel_ranges(rows, joined_grain, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) f(i);
  });
}

/// The first entry of row i whose column is no own one.
Index split_of(const CsrRows<Cpu>& a, Index i, Index own) {
  const std::int32_t* const column = a.column.data;
  return std::lower_bound(column + a.start.data[i], column + a.start.data[i + 1], own) - column;
}

/// Rows of so many entries each, which are counted in start[1 ...].
void make_rows(SparseRows<Cpu>& rows, Index count, Index columns) {
  rows.columns = columns;
  Index* const start = rows.start.data();
  start[0] = 0;
  std::partial_sum(start, start + count + 1, start);
  make_entries(rows, start[count]);
}

void copy_entries(const CsrRows<Cpu>& from, Index first, Index count, SparseRows<Cpu>& to,
                  Index place) {
  std::copy_n(from.column.data + first, count, to.column.data() + place);
  std::copy_n(from.value.data + first, count, to.value.data() + place);
}

/// Row i of a and row k of b to the entries from `to` on, or nowhere; their number.
Index merge(const CsrRows<Cpu>& a, Index i, const CsrRows<Cpu>& b, Index k, SparseRows<Cpu>* rows,
            Index to) {
  Index e = a.start.data[i], f = b.start.data[k];
  const Index first = to, a_end = a.start.data[i + 1], b_end = b.start.data[k + 1];
  for (; e < a_end || f < b_end; ++to) {
    const bool of_a = f == b_end || (e < a_end && a.column.data[e] <= b.column.data[f]);
    const bool of_b = e == a_end || (f < b_end && b.column.data[f] <= a.column.data[e]);
    if (rows) {
      rows->column.data()[to] = of_a ? a.column.data[e] : b.column.data[f];
      rows->value.data()[to] = of_a && of_b ? a.value.data[e] + b.value.data[f]
                               : of_a       ? a.value.data[e]
                                            : b.value.data[f];
    }
    e += of_a, f += of_b;
  }
  return to - first;
}

}  // namespace

template <>
PartedRows<Cpu> part_rows(const Stream<Cpu>& stream, const CsrRows<Cpu>& a, Index own, Index left,
                          Scratch<Cpu>&) {
  stream.synchronize();
  PartedRows<Cpu> parts;
  std::vector<Index> listed;
  for (Index i = 0; i < a.rows(); ++i)
    if (split_of(a, i, own) < a.start.data[i + 1]) listed.push_back(i);
  parts.row = Buffer<Index, Cpu>(Index(listed.size()));
  std::copy(listed.begin(), listed.end(), parts.row.data());
  make_starts(parts.inner, a.rows());
  over_rows(a.rows(), [&](Index i) {
    parts.inner.start.data()[i + 1] = split_of(a, i, own) - a.start.data[i];
  });
  make_rows(parts.inner, a.rows(), own);
  over_rows(a.rows(), [&](Index i) {
    const Index to = parts.inner.start.data()[i];
    copy_entries(a, a.start.data[i], parts.inner.start.data()[i + 1] - to, parts.inner, to);
  });
  make_starts(parts.outer, Index(listed.size()));
  for (std::size_t k = 0; k < listed.size(); ++k)
    parts.outer.start.data()[k + 1] = a.start.data[listed[k] + 1] - split_of(a, listed[k], own);
  make_rows(parts.outer, Index(listed.size()), 0);
  over_rows(Index(listed.size()), [&](Index k) {
    const Index from = parts.outer.start.data()[k], to = parts.outer.start.data()[k + 1];
    copy_entries(a, split_of(a, listed[std::size_t(k)], own), to - from, parts.outer, from);
    for (Index e = from; e < to; ++e) {
      std::int32_t& c = parts.outer.column.data()[e];
      c = std::int32_t(c - left - (c - own < left ? own : 0));
    }
  });
  return parts;
}

template <>
SparseRows<Cpu> add_rows(const Stream<Cpu>& stream, const CsrRows<Cpu>& a, const CsrRows<Cpu>& b,
                         Index columns, Scratch<Cpu>&) {
  stream.synchronize();
  SparseRows<Cpu> sum;
  const Index* const listed = b.row.data;
  make_starts(sum, a.rows());
  over_rows(a.rows(),
            [&](Index i) { sum.start.data()[i + 1] = a.start.data[i + 1] - a.start.data[i]; });
  over_rows(b.rows(), [&](Index k) {
    sum.start.data()[listed[k] + 1] = merge(a, listed[k], b, k, nullptr, 0);
  });
  make_rows(sum, a.rows(), columns);
  parallel_ranges(a.rows(), joined_grain, [&](Index from, Index to) {
    Index k = std::lower_bound(listed, listed + b.rows(), from) - listed;
    for (Index i = from; i < to; ++i) {
      const Index place = sum.start.data()[i];
      if (k < b.rows() && listed[k] == i)
        (void)merge(a, i, b, k++, &sum, place);
      else
        copy_entries(a, a.start.data[i], a.start.data[i + 1] - a.start.data[i], sum, place);
    }
  });
  return sum;
}

template <>
SparseRows<Cpu> take_rows(const Stream<Cpu>& stream, const CsrRows<Cpu>& a,
                          View<const Index, Cpu> listed, Scratch<Cpu>&) {
  stream.synchronize();
  SparseRows<Cpu> rows;
  make_starts(rows, listed.size);
  for (Index k = 0; k < listed.size; ++k)
    rows.start.data()[k + 1] = a.start.data[listed.data[k] + 1] - a.start.data[listed.data[k]];
  make_rows(rows, listed.size, 0);
  over_rows(listed.size, [&](Index k) {
    const Index to = rows.start.data()[k];
    copy_entries(a, a.start.data[listed.data[k]], rows.start.data()[k + 1] - to, rows, to);
  });
  return rows;
}

template <>
void mark_columns(const Stream<Cpu>& stream, View<const std::int32_t, Cpu> column, Index own,
                  View<std::int32_t, Cpu> used) {
  stream.synchronize();
  for (Index e = 0; e < column.size; ++e)
    if (column.data[e] >= own) used.data[column.data[e] - own] = 1;
}
template <>
void renumber_columns(const Stream<Cpu>& stream, View<std::int32_t, Cpu> column, Index own,
                      View<const std::int32_t, Cpu> to) {
  stream.synchronize();
  over_rows(column.size, [&](Index e) {
    std::int32_t& c = column.data[e];
    if (c >= own) c = std::int32_t(own) + to.data[c - own];
  });
}

}  // namespace terrace::cg
