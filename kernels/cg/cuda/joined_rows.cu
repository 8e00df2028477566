// Rows over ranks on CUDA. Bound by HBM: entries once in and once out, 24 bytes each, and the starts of
// rows. Rows that meet others are few, those at the border of a rank's part; a thread merges each, and
// parts of them are sorted.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cg/cuda/coarsening.cuh"
#include "kernels/cg/joined_rows.hpp"

namespace terrace::cg {
namespace {

using coarsening::Lanes;
using coarsening::launch;

/// where[i]: the row of b that belongs to row i of a; -1: none.
__global__ void __launch_bounds__(block_threads)
    where_kernel(const Index* __restrict__ listed, Index count, std::int32_t* where) {
  for (Index k = first_item(); k < count; k += item_stride()) where[listed[k]] = std::int32_t(k);
}
__global__ void __launch_bounds__(block_threads) nowhere_kernel(View<std::int32_t, Cuda> where) {
  for (Index i = first_item(); i < where.size; i += item_stride()) where.data[i] = -1;
}

/// put(place, column, value) of each entry of row i of a and row k of b, from `to` on.
template <class Put>
__device__ __forceinline__ Index merge(const CsrRows<Cuda>& a, Index i, const CsrRows<Cuda>& b,
                                       Index k, Index to, const Put& put) {
  Index e = a.start.data[i], f = b.start.data[k];
  const Index first = to, a_end = a.start.data[i + 1], b_end = b.start.data[k + 1];
  for (; e < a_end || f < b_end; ++to) {
    const bool of_a = f == b_end || (e < a_end && a.column.data[e] <= b.column.data[f]);
    const bool of_b = e == a_end || (f < b_end && b.column.data[f] <= a.column.data[e]);
    if (of_a && of_b)
      put(to, a.column.data[e], a.value.data[e] + b.value.data[f]);
    else if (of_a)
      put(to, a.column.data[e], a.value.data[e]);
    else
      put(to, b.column.data[f], b.value.data[f]);
    e += of_a, f += of_b;
  }
  return to - first;
}

__global__ void __launch_bounds__(block_threads)
    added_sizes_kernel(CsrRows<Cuda> a, Index rows, CsrRows<Cuda> b,
                       const std::int32_t* __restrict__ where, Index* count) {
  for (Index i = first_item(); i <= rows; i += item_stride()) {
    const std::int32_t k = i < rows ? where[i] : -1;
    count[i] = i == rows ? 0
               : k < 0   ? a.start.data[i + 1] - a.start.data[i]
                         : merge(a, i, b, k, 0, [](Index, std::int32_t, double) {});
  }
}
template <int width>
__global__ void __launch_bounds__(block_threads)
    add_rows_kernel(CsrRows<Cuda> a, Index rows, CsrRows<Cuda> b,
                    const std::int32_t* __restrict__ where, const Index* __restrict__ start,
                    std::int32_t* column, double* value) {
  const auto put = [&](Index place, std::int32_t c, double v) {
    column[place] = c, value[place] = v;
  };
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    const std::int32_t k = where[i];
    const Index begin = a.start.data[i], to = start[i];
    if (k >= 0 && lanes.lane == 0) (void)merge(a, i, b, k, to, put);
    if (k < 0)
      for (Index e = begin + lanes.lane; e < a.start.data[i + 1]; e += width)
        put(to + e - begin, a.column.data[e], a.value.data[e]);
  });
}

__global__ void __launch_bounds__(block_threads)
    taken_sizes_kernel(CsrRows<Cuda> a, View<const Index, Cuda> listed, Index* count) {
  for (Index k = first_item(); k <= listed.size; k += item_stride())
    count[k] =
        k < listed.size ? a.start.data[listed.data[k] + 1] - a.start.data[listed.data[k]] : 0;
}
template <int width>
__global__ void __launch_bounds__(block_threads)
    take_kernel(CsrRows<Cuda> a, const Index* __restrict__ listed, Index rows,
                const Index* __restrict__ start, std::int32_t* column, double* value) {
  coarsening::over_rows<width>(rows, [&](Index k, const Lanes<width>& lanes) {
    const Index from = a.start.data[listed[k]], to = start[k];
    for (Index e = lanes.lane; e < start[k + 1] - to; e += width) {
      column[to + e] = a.column.data[from + e];
      value[to + e] = a.value.data[from + e];
    }
  });
}

__global__ void __launch_bounds__(block_threads)
    mark_kernel(View<const std::int32_t, Cuda> column, Index own, std::int32_t* used) {
  for (Index e = first_item(); e < column.size; e += item_stride())
    if (column.data[e] >= own) used[column.data[e] - own] = 1;
}
__global__ void __launch_bounds__(block_threads)
    renumber_kernel(View<std::int32_t, Cuda> column, Index own,
                    const std::int32_t* __restrict__ to) {
  for (Index e = first_item(); e < column.size; e += item_stride())
    if (column.data[e] >= own) column.data[e] = to[column.data[e] - own];
}
__global__ void __launch_bounds__(block_threads)
    global_kernel(View<const std::int32_t, Cuda> column, NumberRange own,
                  const Index* __restrict__ needed, Index* to) {
  for (Index e = first_item(); e < column.size; e += item_stride()) {
    const std::int32_t c = column.data[e];
    to[e] = c < own.count ? own.first + c : needed[c - own.count];
  }
}
__global__ void __launch_bounds__(block_threads)
    numbers_kernel(View<const std::int32_t, Cuda> from, Index by, Index* to) {
  for (Index k = first_item(); k < from.size; k += item_stride())
    to[k] = from.data[k] < 0 ? -1 : from.data[k] + by;
}
template <int width>
__global__ void __launch_bounds__(block_threads)
    global_rows_kernel(CsrRows<Cuda> a, Index rows, NumberRange own,
                       const Index* __restrict__ needed, Index left, std::int32_t* column,
                       double* value) {
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    const Index from = a.start.data[i], to = a.start.data[i + 1];
    const Index others = coarsening::first_from(a, from, to, own.count);
    const Index right = coarsening::first_from(a, others, to, own.count + left);
    for (Index e = from + lanes.lane; e < to; e += width) {
      const std::int32_t c = a.column.data[e];
      const Index place = e < others ? e + (right - others) : e < right ? e - (others - from) : e;
      column[place] = std::int32_t(c < own.count ? own.first + c : needed[c - own.count]);
      value[place] = a.value.data[e];
    }
  });
}
__global__ void __launch_bounds__(block_threads)
    sizes_kernel(View<const Index, Cuda> start, Index* sizes) {
  for (Index i = first_item(); i + 1 < start.size; i += item_stride())
    sizes[i] = start.data[i + 1] - start.data[i];
}
__global__ void __launch_bounds__(block_threads) shift_kernel(View<Index, Cuda> v, Index by) {
  for (Index i = first_item(); i < v.size; i += item_stride()) v.data[i] += by;
}

/// Row and column of each entry in one number, rows above the `bits` of columns; and the entry.
template <int width>
__global__ void __launch_bounds__(block_threads)
    keys_kernel(CsrRows<Cuda> parts, Index rows, const Index* __restrict__ of, Index first,
                int bits, Word* key, std::int32_t* entry) {
  coarsening::over_rows<width>(rows, [&](Index k, const Lanes<width>& lanes) {
    const Word row = Word(of[k] - first) << bits;
    for (Index e = parts.start.data[k] + lanes.lane; e < parts.start.data[k + 1]; e += width) {
      key[e] = row | Word(parts.column.data[e]);
      entry[e] = std::int32_t(e);
    }
  });
}
/// 1 where a column begins, and where a row does; zero behind them.
__global__ void __launch_bounds__(block_threads)
    begins_kernel(const Word* __restrict__ key, Index entries, int bits, Index* column,
                  Index* row) {
  for (Index e = first_item(); e <= entries; e += item_stride()) {
    column[e] = e < entries && (e == 0 || key[e] != key[e - 1]);
    row[e] = e < entries && (e == 0 || key[e] >> bits != key[e - 1] >> bits);
  }
}
/// Of these, added up. A thread adds what stands in one place.
__global__ void __launch_bounds__(block_threads)
    sums_kernel(const Word* __restrict__ key, const std::int32_t* __restrict__ entry, Index entries,
                int bits, const Index* __restrict__ column_at, const Index* __restrict__ row_at,
                const double* __restrict__ part, Index* start, Index* row, std::int32_t* column,
                double* value) {
  for (Index e = first_item(); e < entries; e += item_stride()) {
    const Index to = column_at[e];
    if (e + 1 == entries) start[row_at[entries]] = column_at[entries];
    if (column_at[e + 1] == to) continue;
    if (row_at[e + 1] > row_at[e]) {
      row[row_at[e]] = Index(key[e] >> bits);
      start[row_at[e]] = to;
    }
    double sum = part[entry[e]];
    for (Index f = e + 1; f < entries && key[f] == key[e]; ++f) sum += part[entry[f]];
    column[to] = std::int32_t(key[e] & ((Word(1) << bits) - 1));
    value[to] = sum;
  }
}

/// Of kernels that copy rows: lanes that read side by side, also of short ones.
constexpr coarsening::RowLanes copying{.few = 8, .some = 8};

/// Rows whose sizes stand in their starts: these, and memory for the entries.
void make_rows(const Stream<Cuda>& stream, SparseRows<Cuda>& rows, Index columns,
               Scratch<Cuda>& scratch) {
  rows.columns = columns;
  coarsening::sum_before(stream, rows.start.view(), scratch);
  const Index entries = coarsening::read_one(stream, rows.start.data() + rows.rows());
  rows.column = Buffer<std::int32_t, Cuda>(entries);
  rows.value = Buffer<double, Cuda>(entries);
}

}  // namespace

template <>
SparseRows<Cuda> add_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                          const CsrRows<Cuda>& b, Index columns, Scratch<Cuda>& scratch) {
  const Index rows = a.rows();
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto where = scratch.take<std::int32_t>(rows);
  launch(stream, rows, nowhere_kernel, where);
  launch(stream, b.rows(), where_kernel, b.row.data, b.rows(), where.data);
  SparseRows<Cuda> sum;
  sum.start = Buffer<Index, Cuda>(rows + 1);
  launch(stream, rows + 1, added_sizes_kernel, a, rows, b, where.data, sum.start.data());
  make_rows(stream, sum, columns, scratch);
  coarsening::with_lanes<copying>(rows, a.column.size, [&]<int width>(unsigned blocks) {
    add_rows_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        a, rows, b, where.data, sum.start.data(), sum.column.data(), sum.value.data());
  });
  stream.synchronize();
  return sum;
}

template <>
SparseRows<Cuda> take_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                           View<const Index, Cuda> listed, Scratch<Cuda>& scratch) {
  SparseRows<Cuda> rows;
  rows.start = Buffer<Index, Cuda>(listed.size + 1);
  launch(stream, listed.size + 1, taken_sizes_kernel, a, listed, rows.start.data());
  make_rows(stream, rows, 0, scratch);
  coarsening::with_lanes<copying>(listed.size, rows.nonzeros(), [&]<int width>(unsigned blocks) {
    take_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        a, listed.data, listed.size, rows.start.data(), rows.column.data(), rows.value.data());
  });
  stream.synchronize();
  return rows;
}

template <>
void mark_columns(const Stream<Cuda>& stream, View<const std::int32_t, Cuda> column, Index own,
                  View<std::int32_t, Cuda> used) {
  launch(stream, column.size, mark_kernel, column, own, used.data);
}
template <>
void renumber_columns(const Stream<Cuda>& stream, View<std::int32_t, Cuda> column, Index own,
                      View<const std::int32_t, Cuda> to) {
  launch(stream, column.size, renumber_kernel, column, own, to.data);
}

template <>
void global_columns(const Stream<Cuda>& stream, View<const std::int32_t, Cuda> column,
                    NumberRange own, View<const Index, Cuda> needed, View<Index, Cuda> to) {
  launch(stream, column.size, global_kernel, column, own, needed.data, to.data);
}
template <>
void shift_numbers(const Stream<Cuda>& stream, View<const std::int32_t, Cuda> from, Index by,
                   View<Index, Cuda> to) {
  launch(stream, from.size, numbers_kernel, from, by, to.data);
}
template <>
void global_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, NumberRange own,
                 View<const Index, Cuda> needed, Index left, View<std::int32_t, Cuda> column,
                 View<double, Cuda> value) {
  coarsening::with_lanes<copying>(a.rows(), a.column.size, [&]<int width>(unsigned blocks) {
    global_rows_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        a, a.rows(), own, needed.data, left, column.data, value.data);
  });
}
template <>
void row_sizes(const Stream<Cuda>& stream, View<const Index, Cuda> start, View<Index, Cuda> sizes) {
  launch(stream, sizes.size, sizes_kernel, start, sizes.data);
}
template <>
void sizes_to_starts(const Stream<Cuda>& stream, View<Index, Cuda> v, Index first,
                     Scratch<Cuda>& scratch) {
  coarsening::sum_before(stream, v, scratch);
  if (first != 0) launch(stream, v.size, shift_kernel, v, first);
}

template <>
ListedRows<Cuda> sum_parts(const Stream<Cuda>& stream, const CsrRows<Cuda>& parts,
                           View<const Index, Cuda> of, NumberRange own, Index columns,
                           Scratch<Cuda>& scratch) {
  const Index entries = parts.column.size;
  if (entries > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::resources,
                "2^31 entries or more came from other ranks; in a level of multigrid; use more "
                "ranks");
  ListedRows<Cuda> sums;
  sums.rows.columns = columns;
  if (entries == 0) {
    sums.rows.start = Buffer<Index, Cuda>(1);
    fill_zero(stream, sums.rows.start.view());
    return sums;
  }
  const auto bits_of = [](Index count) {
    int bits = 1;
    while ((Index(1) << bits) < count) ++bits;
    return bits;
  };
  const int bits = bits_of(columns);
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto keys = scratch.take<Word>(entries), key = scratch.take<Word>(entries);
  const auto places = scratch.take<std::int32_t>(entries),
             place = scratch.take<std::int32_t>(entries);
  coarsening::with_lanes(parts.rows(), entries, [&]<int width>(unsigned blocks) {
    keys_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        parts, parts.rows(), of.data, own.first, bits, keys.data, places.data);
  });
  std::size_t bytes = 0;
  const auto sort = [&](void* room) {
    check(cub::DeviceRadixSort::SortPairs(room, bytes, static_cast<const Word*>(keys.data),
                                          key.data, static_cast<const std::int32_t*>(places.data),
                                          place.data, int(entries), 0, bits + bits_of(own.count),
                                          native(stream)));
  };
  sort(nullptr);
  const View<char, Cuda> room = scratch.take<char>(Index(bytes) + 1);
  sort(room.data);
  const auto column_at = scratch.take<Index>(entries + 1),
             row_at = scratch.take<Index>(entries + 1);
  launch(stream, entries + 1, begins_kernel, key.data, entries, bits, column_at.data, row_at.data);
  coarsening::sum_before(stream, column_at, scratch);
  coarsening::sum_before(stream, row_at, scratch);
  const Index left = coarsening::read_one(stream, column_at.data + entries);
  const Index rows = coarsening::read_one(stream, row_at.data + entries);
  sums.rows.start = Buffer<Index, Cuda>(rows + 1);
  sums.rows.column = Buffer<std::int32_t, Cuda>(left);
  sums.rows.value = Buffer<double, Cuda>(left);
  sums.row = Buffer<Index, Cuda>(rows);
  launch(stream, entries, sums_kernel, key.data, place.data, entries, bits, column_at.data,
         row_at.data, parts.value.data, sums.rows.start.data(), sums.row.data(),
         sums.rows.column.data(), sums.rows.value.data());
  stream.synchronize();
  return sums;
}

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
