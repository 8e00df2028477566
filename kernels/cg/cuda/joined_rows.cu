// Rows over ranks on CUDA. Bound by HBM: entries once in and once out, 24 bytes each, and the starts of
// rows. Rows that meet others are few, those at the border of a rank's part; a thread merges each.
#include "kernels/cg/cuda/coarsening.cuh"
#include "kernels/cg/joined_rows.hpp"

namespace terrace::cg {
namespace {

using coarsening::Lanes;
using coarsening::launch;

/// The first entry of row i whose column is no own one.
__device__ __forceinline__ Index split_of(const CsrRows<Cuda>& a, Index i, Index own) {
  Index low = a.start.data[i], high = a.start.data[i + 1];
  while (low < high) {
    const Index middle = (low + high) / 2;
    if (a.column.data[middle] < own)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

__global__ void __launch_bounds__(block_threads)
    cut_kernel(CsrRows<Cuda> a, Index rows, Index own, Index* inner, Index* outer, Index* has) {
  for (Index i = first_item(); i <= rows; i += item_stride()) {
    const Index split = i < rows ? split_of(a, i, own) : 0;
    inner[i] = i < rows ? split - a.start.data[i] : 0;
    outer[i] = i < rows ? a.start.data[i + 1] - split : 0;
    has[i] = outer[i] > 0;
  }
}

/// What cut_kernel() counted, added up.
struct Places {
  const Index *inner, *outer, *has;
};
template <int width>
__global__ void __launch_bounds__(block_threads)
    part_kernel(CsrRows<Cuda> a, Index rows, Index own, Index left, Places places,
                std::int32_t* inner_column, double* inner_value, Index* outer_start, Index* row,
                std::int32_t* outer_column, double* outer_value) {
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    const Index begin = a.start.data[i], inner = places.inner[i];
    const Index split = begin + places.inner[i + 1] - inner;
    for (Index e = begin + lanes.lane; e < split; e += width) {
      inner_column[inner + e - begin] = a.column.data[e];
      inner_value[inner + e - begin] = a.value.data[e];
    }
    const Index outer = places.outer[i], count = places.outer[i + 1] - outer;
    if (count == 0) return;
    if (lanes.lane == 0) {
      const Index k = places.has[i];
      row[k] = i;
      outer_start[k] = outer;
      if (k + 1 == places.has[rows]) outer_start[k + 1] = outer + count;
    }
    for (Index e = lanes.lane; e < count; e += width) {
      const std::int32_t c = a.column.data[split + e];
      outer_column[outer + e] = std::int32_t(c - left - (c - own < left ? own : 0));
      outer_value[outer + e] = a.value.data[split + e];
    }
  });
}

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
    if (column.data[e] >= own) column.data[e] = std::int32_t(own) + to[column.data[e] - own];
}
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
PartedRows<Cuda> part_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, Index own,
                           Index left, Scratch<Cuda>& scratch) {
  const Index rows = a.rows();
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto outer = scratch.take<Index>(rows + 1), has = scratch.take<Index>(rows + 1);
  PartedRows<Cuda> parts;
  parts.inner.start = Buffer<Index, Cuda>(rows + 1);
  launch(stream, rows + 1, cut_kernel, a, rows, own, parts.inner.start.data(), outer.data,
         has.data);
  coarsening::sum_before(stream, outer, scratch);
  coarsening::sum_before(stream, has, scratch);
  make_rows(stream, parts.inner, own, scratch);
  const Index entries = coarsening::read_one(stream, outer.data + rows);
  const Index listed = coarsening::read_one(stream, has.data + rows);
  parts.outer.start = Buffer<Index, Cuda>(listed + 1);
  parts.outer.column = Buffer<std::int32_t, Cuda>(entries);
  parts.outer.value = Buffer<double, Cuda>(entries);
  parts.row = Buffer<Index, Cuda>(listed);
  if (listed == 0) fill_zero(stream, parts.outer.start.view());
  coarsening::with_lanes(rows, a.column.size, [&]<int width>(unsigned blocks) {
    part_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        a, rows, own, left, {parts.inner.start.data(), outer.data, has.data},
        parts.inner.column.data(), parts.inner.value.data(), parts.outer.start.data(),
        parts.row.data(), parts.outer.column.data(), parts.outer.value.data());
  });
  stream.synchronize();
  return parts;
}

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
  coarsening::with_lanes(rows, a.column.size, [&]<int width>(unsigned blocks) {
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
  coarsening::with_lanes(listed.size, rows.nonzeros(), [&]<int width>(unsigned blocks) {
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

}  // namespace terrace::cg
