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
    if (c >= own) c = to.data[c - own];
  });
}

template <>
void global_columns(const Stream<Cpu>& stream, View<const std::int32_t, Cpu> column,
                    NumberRange own, View<const Index, Cpu> needed, View<Index, Cpu> to) {
  stream.synchronize();
  over_rows(column.size, [&](Index e) {
    const std::int32_t c = column.data[e];
    to.data[e] = c < own.count ? own.first + c : needed.data[c - own.count];
  });
}
template <>
void shift_numbers(const Stream<Cpu>& stream, View<const std::int32_t, Cpu> from, Index by,
                   View<Index, Cpu> to) {
  stream.synchronize();
  over_rows(from.size, [&](Index k) { to.data[k] = from.data[k] < 0 ? -1 : from.data[k] + by; });
}
template <>
void global_rows(const Stream<Cpu>& stream, const CsrRows<Cpu>& a, NumberRange own,
                 View<const Index, Cpu> needed, Index left, View<std::int32_t, Cpu> column,
                 View<double, Cpu> value) {
  stream.synchronize();
  over_rows(a.rows(), [&](Index i) {
    const std::int32_t* const from = a.column.data + a.start.data[i];
    const std::int32_t* const to = a.column.data + a.start.data[i + 1];
    const std::int32_t* const others = std::lower_bound(from, to, own.count);
    const std::int32_t* const right = std::lower_bound(others, to, own.count + left);
    Index e = a.start.data[i];
    const auto put = [&](const std::int32_t* begin, const std::int32_t* end) {
      for (const std::int32_t* c = begin; c != end; ++c, ++e) {
        column.data[e] =
            std::int32_t(*c < own.count ? own.first + *c : needed.data[*c - own.count]);
        value.data[e] = a.value.data[c - a.column.data];
      }
    };
    put(others, right), put(from, others), put(right, to);
  });
}
template <>
void row_sizes(const Stream<Cpu>& stream, View<const Index, Cpu> start, View<Index, Cpu> sizes) {
  stream.synchronize();
  over_rows(sizes.size, [&](Index i) { sizes.data[i] = start.data[i + 1] - start.data[i]; });
}
template <>
void sizes_to_starts(const Stream<Cpu>& stream, View<Index, Cpu> v, Index first, Scratch<Cpu>&) {
  stream.synchronize();
  std::exclusive_scan(v.data, v.data + v.size, v.data, first);
}

template <>
ListedRows<Cpu> sum_parts(const Stream<Cpu>& stream, const CsrRows<Cpu>& parts,
                          View<const Index, Cpu> of, NumberRange own, Index columns,
                          Scratch<Cpu>&) {
  stream.synchronize();
  std::vector<Index> order, row, first;  // parts by rows; rows, and the first part of each
  for (Index k = 0; k < of.size; ++k)
    if (parts.start.data[k + 1] > parts.start.data[k]) order.push_back(k);
  std::stable_sort(order.begin(), order.end(),
                   [&](Index j, Index k) { return of.data[j] < of.data[k]; });
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Index i = of.data[order[k]] - own.first;
    if (!row.empty() && row.back() == i) continue;
    row.push_back(i);
    first.push_back(Index(k));
  }
  first.push_back(Index(order.size()));
  const auto rows = Index(row.size());
  // Threads sum where a row may stand, and rows then close up.
  SparseRows<Cpu> room;
  make_starts(room, rows);
  const auto each_part = [&](Index i, const auto& f) {
    for (Index k = first[std::size_t(i)]; k < first[std::size_t(i) + 1]; ++k) {
      const Index part = order[std::size_t(k)];
      f(parts.start.data[part], parts.start.data[part + 1]);
    }
  };
  over_rows(rows, [&](Index i) {
    Index most = 0;
    each_part(i, [&](Index from, Index to) { most += to - from; });
    room.start.data()[i + 1] = most;
  });
  make_rows(room, rows, columns);
  ListedRows<Cpu> sums;
  make_starts(sums.rows, rows);
  parallel_ranges(rows, joined_grain / 16, [&](Index i, Index end) {
    std::vector<std::pair<std::int32_t, double>> all;
    for (; i < end; ++i) {
      all.clear();
      each_part(i, [&](Index e, Index last) {
        for (; e < last; ++e) all.emplace_back(parts.column.data[e], parts.value.data[e]);
      });
      std::stable_sort(all.begin(), all.end(),
                       [](const auto& x, const auto& y) { return x.first < y.first; });
      Index to = room.start.data()[i];
      const Index begin = to;
      for (const auto& [column, value] : all) {
        if (to > begin && room.column.data()[to - 1] == column) {
          room.value.data()[to - 1] += value;
          continue;
        }
        room.column.data()[to] = column;
        room.value.data()[to++] = value;
      }
      sums.rows.start.data()[i + 1] = to - begin;
    }
  });
  make_rows(sums.rows, rows, columns);
  over_rows(rows, [&](Index i) {
    const Index to = sums.rows.start.data()[i];
    copy_entries(room.view(), room.start.data()[i], sums.rows.start.data()[i + 1] - to, sums.rows,
                 to);
  });
  sums.row = Buffer<Index, Cpu>(rows);
  std::copy(row.begin(), row.end(), sums.row.data());
  return sums;
}

}  // namespace terrace::cg
