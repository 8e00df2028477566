// Prolongations on CUDA, their transposes, and what is settled of a coarse matrix: one thread per row,
// whose entries are few. Bound by HBM. Floor: a prolongation of q entries 16 e + 12 q bytes, e being the
// entries of A; a transpose 40 q.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/base/random.hpp"
#include "kernels/cg/cuda/coarsening.cuh"

namespace terrace::cg {
namespace {

using coarsening::Lanes;
using coarsening::launch;

__global__ void __launch_bounds__(block_threads)
    tentative_count_kernel(Index rows, const std::int32_t* __restrict__ of, Index* count) {
  for (Index i = first_item(); i <= rows; i += item_stride())
    count[i] = i < rows && of[i] >= 0 ? 1 : 0;
}
__global__ void __launch_bounds__(block_threads)
    tentative_kernel(Index rows, const std::int32_t* __restrict__ of,
                     const Index* __restrict__ start, std::int32_t* column, double* value) {
  for (Index i = first_item(); i < rows; i += item_stride())
    if (of[i] >= 0) column[start[i]] = of[i], value[start[i]] = 1;
}

/// Whether entry e of row i is strong.
struct Strength {
  const CsrRows<Cuda>& a;
  const double* diagonal;
  double factor;
  __device__ __forceinline__ bool operator()(Index i, double own, Index e) const {
    const std::int32_t j = a.column.data[e];
    return j != i && coarsening::is_strong(a.value.data[e], factor, own, diagonal[j]);
  }
};

/// Aggregates that row i meets: its own, and those of strong neighbours.
__global__ void __launch_bounds__(block_threads)
    smoothed_count_kernel(CsrRows<Cuda> a, Index rows, const double* __restrict__ diagonal,
                          double factor, const std::int32_t* __restrict__ of, Index* count) {
  const Strength strong{a, diagonal, factor};
  constexpr int held = 12;
  for (Index i = first_item(); i <= rows; i += item_stride()) {
    const std::int32_t own = i < rows ? of[i] : -1;
    Index found = 0;
    if (own >= 0) {
      const double middle = diagonal[i];
      const Index begin = a.start.data[i], end = a.start.data[i + 1];
      std::int32_t seen[held];
#pragma unroll
      for (int s = 0; s < held; ++s) seen[s] = -1;
      found = 1;
      for (Index e = begin; e < end; ++e) {
        if (!strong(i, middle, e)) continue;
        const std::int32_t other = of[a.column.data[e]];
        if (other < 0 || other == own) continue;
        bool known = false;
#pragma unroll
        for (int s = 0; s < held; ++s) known = known || seen[s] == other;
        if (!known && found > held) {  // not all are held
          for (Index f = begin; f < e && !known; ++f)
            known = of[a.column.data[f]] == other && strong(i, middle, f);
        }
        if (known) continue;
#pragma unroll
        for (int s = 0; s < held; ++s)
          if (s == found - 1) seen[s] = other;
        ++found;
      }
    }
    count[i] = found;
  }
}

/// Adds to the ascending columns of one row.
struct GrowingRow {
  std::int32_t* column;
  double* value;
  Index size;
  __device__ __forceinline__ void add(std::int32_t c, double v) {
    Index to = size;
    while (to > 0 && column[to - 1] > c) --to;
    if (to > 0 && column[to - 1] == c) {
      value[to - 1] += v;
      return;
    }
    for (Index k = size; k > to; --k) column[k] = column[k - 1], value[k] = value[k - 1];
    column[to] = c;
    value[to] = v;
    ++size;
  }
};

__global__ void __launch_bounds__(block_threads)
    smoothed_kernel(CsrRows<Cuda> a, Index rows, const double* __restrict__ diagonal, double factor,
                    const std::int32_t* __restrict__ of, const Index* __restrict__ start,
                    std::int32_t* column, double* value) {
  const Strength strong{a, diagonal, factor};
  for (Index i = first_item(); i < rows; i += item_stride()) {
    if (of[i] < 0) continue;
    const Index begin = a.start.data[i], end = a.start.data[i + 1];
    const double own = diagonal[i];
    double middle = own, sum = 0;
    Word seen = 0;  // which of the first 64 are strong
#pragma unroll 4
    for (Index e = begin; e < end; ++e) {
      const bool counts = strong(i, own, e);
      if (counts)
        sum += fabs(a.value.data[e]);
      else if (a.column.data[e] != i)
        middle += a.value.data[e];
      if (e - begin < 64) seen |= Word(counts) << (e - begin);
    }
    sum += fabs(middle);
    const double weight = coarsening::prolongation_weight / sum;
    GrowingRow row{column + start[i], value + start[i], 0};
    row.add(of[i], 1 - weight * middle);
    for (Index e = begin; e < end; ++e) {
      const bool counts = e - begin < 64 ? (seen >> (e - begin) & 1) != 0 : strong(i, own, e);
      const std::int32_t other = counts ? of[a.column.data[e]] : -1;
      if (other >= 0) row.add(other, -weight * a.value.data[e]);
    }
  }
}

__global__ void __launch_bounds__(block_threads)
    damp_kernel(Index rows, const Index* __restrict__ start,
                const std::int32_t* __restrict__ column, double* value, CsrRows<Cuda> t,
                const double* __restrict__ diagonal, double weight) {
  for (Index i = first_item(); i < rows; i += item_stride()) {
    Index f = t.start.data[i];
    const Index end = t.start.data[i + 1];
    const double factor = f < end ? -weight / diagonal[i] : 0;
    for (Index e = start[i]; e < start[i + 1]; ++e) {
      double v = factor * value[e];
      while (f < end && t.column.data[f] < column[e]) ++f;
      if (f < end && t.column.data[f] == column[e]) v += t.value.data[f];
      value[e] = v;
    }
  }
}

/// row[e]: the row of entry e.
template <int width>
__global__ void __launch_bounds__(block_threads)
    rows_kernel(CsrRows<Cuda> p, Index rows, std::int32_t* row) {
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    for (Index e = p.start.data[i] + lanes.lane; e < p.start.data[i + 1]; e += width)
      row[e] = std::int32_t(i);
  });
}
/// Sorted entries (key, row): values, and where each key begins.
__global__ void __launch_bounds__(block_threads)
    turned_kernel(CsrRows<Cuda> p, Index entries, Index columns,
                  const std::int32_t* __restrict__ key, const std::int32_t* __restrict__ row,
                  Index* start, double* value) {
  for (Index e = first_item(); e < entries; e += item_stride()) {
    const std::int32_t c = key[e];
    const Index begin = p.start.data[row[e]], end = p.start.data[row[e] + 1];
    value[e] = p.value.data[coarsening::first_from(p, begin, end - 1, c)];
    for (Index j = e > 0 ? key[e - 1] + 1 : 0; j <= c; ++j) start[j] = e;
    if (e == entries - 1)
      for (Index j = Index(c) + 1; j <= columns; ++j) start[j] = entries;
  }
}

template <int width>
__global__ void __launch_bounds__(block_threads)
    settle_kernel(Index rows, const Index* __restrict__ start,
                  const std::int32_t* __restrict__ column, double* value, CsrRows<Cuda> t,
                  const double* __restrict__ diagonal, int* negative) {
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    double scale = 0;
    for (Index e = t.start.data[i] + lanes.lane; e < t.start.data[i + 1]; e += width)
      scale += t.value.data[e] * t.value.data[e] * diagonal[t.column.data[e]];
    scale = lanes.sum(scale);
    for (Index e = start[i] + lanes.lane; e < start[i + 1]; e += width) {
      if (column[e] != i) continue;
      const coarsening::Settled found = coarsening::settle(value[e], scale);
      if (found == coarsening::Settled::negative) *negative = 1;
      if (found == coarsening::Settled::null) value[e] = scale;
    }
  });
}

__global__ void __launch_bounds__(block_threads)
    uniform_kernel(View<double, Cuda> v, Word seed, Index first, Index columns) {
  for (Index i = first_item(); i < v.size; i += item_stride())
    v.data[i] = random_uniform(seed, first + i / columns, 0);
}

}  // namespace

template <>
SparseRows<Cuda> tentative_prolongation(const Stream<Cuda>& stream,
                                        View<const std::int32_t, Cuda> of, Index count,
                                        Scratch<Cuda>& scratch) {
  const Index rows = of.size;
  SparseRows<Cuda> t;
  t.columns = count;
  t.start = Buffer<Index, Cuda>(rows + 1);
  launch(stream, rows + 1, tentative_count_kernel, rows, of.data, t.start.data());
  coarsening::sum_before(stream, t.start.view(), scratch);
  const Index entries = coarsening::read_one(stream, t.start.data() + rows);
  t.column = Buffer<std::int32_t, Cuda>(entries);
  t.value = Buffer<double, Cuda>(entries);
  launch(stream, rows, tentative_kernel, rows, of.data, t.start.data(), t.column.data(),
         t.value.data());
  return t;
}

template <>
SparseRows<Cuda> smoothed_prolongation(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                                       View<const double, Cuda> diagonal, double threshold,
                                       View<const std::int32_t, Cuda> of, Index count,
                                       Scratch<Cuda>& scratch) {
  const Index rows = a.rows();
  const double factor = threshold * threshold;
  SparseRows<Cuda> p;
  p.columns = count;
  p.start = Buffer<Index, Cuda>(rows + 1);
  launch(stream, rows + 1, smoothed_count_kernel, a, rows, diagonal.data, factor, of.data,
         p.start.data());
  coarsening::sum_before(stream, p.start.view(), scratch);
  const Index entries = coarsening::read_one(stream, p.start.data() + rows);
  p.column = Buffer<std::int32_t, Cuda>(entries);
  p.value = Buffer<double, Cuda>(entries);
  launch(stream, rows, smoothed_kernel, a, rows, diagonal.data, factor, of.data, p.start.data(),
         p.column.data(), p.value.data());
  return p;
}

template <>
void damp_rows(const Stream<Cuda>& stream, SparseRows<Cuda>& p, const CsrRows<Cuda>& t,
               View<const double, Cuda> diagonal, double weight) {
  launch(stream, p.rows(), damp_kernel, p.rows(), p.start.data(), p.column.data(), p.value.data(),
         t, diagonal.data, weight);
}

template <>
SparseRows<Cuda> transposed(const Stream<Cuda>& stream, const CsrRows<Cuda>& p, Index columns,
                            Scratch<Cuda>& scratch) {
  const Index rows = p.rows(), entries = p.column.size;
  if (entries > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::resources,
                "more than 2^31 entries of a prolongation on one rank; --preconditioner amg; use "
                "more ranks");
  SparseRows<Cuda> t;
  t.columns = rows;
  t.start = Buffer<Index, Cuda>(columns + 1);
  t.column = Buffer<std::int32_t, Cuda>(entries);
  t.value = Buffer<double, Cuda>(entries);
  if (entries == 0) {
    fill_zero(stream, t.start.view());
    return t;
  }
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto row = scratch.take<std::int32_t>(entries), key = scratch.take<std::int32_t>(entries);
  coarsening::with_lanes(rows, entries, [&]<int width>(unsigned blocks) {
    rows_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(p, rows, row.data);
  });
  int bits = 1;
  while (bits < 31 && (Index(1) << bits) < columns) ++bits;
  std::size_t bytes = 0;
  const auto sort = [&](void* room) {
    check(cub::DeviceRadixSort::SortPairs(room, bytes, p.column.data, key.data,
                                          static_cast<const std::int32_t*>(row.data),
                                          t.column.data(), int(entries), 0, bits, native(stream)));
  };
  sort(nullptr);
  const View<char, Cuda> room = scratch.take<char>(Index(bytes) + 1);
  sort(room.data);
  launch(stream, entries, turned_kernel, p, entries, columns, key.data, t.column.data(),
         t.start.data(), t.value.data());
  return t;
}

template <>
bool settle_null_vectors(const Stream<Cuda>& stream, const SparseRows<Cuda>& coarse,
                         const CsrRows<Cuda>& t, View<const double, Cuda> diagonal,
                         Scratch<Cuda>& scratch) {
  const typename Scratch<Cuda>::Scope scope(scratch);
  const View<int, Cuda> negative = scratch.take<int>(1);
  fill_zero(stream, negative);
  coarsening::with_lanes(coarse.rows(), t.column.size, [&]<int width>(unsigned blocks) {
    settle_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        coarse.rows(), coarse.start.data(), coarse.column.data(), coarse.value.data(), t,
        diagonal.data, negative.data);
  });
  return coarsening::read_one(stream, negative.data) == 0;
}

template <>
void fill_uniform(const Stream<Cuda>& stream, Word seed, Index first, Index columns,
                  View<double, Cuda> v) {
  launch(stream, v.size, uniform_kernel, v, seed, first, columns);
}

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
