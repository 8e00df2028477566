// Rows of A B with many entries, or where few rows have to keep a device busy: a block makes a row. All
// of it name the row's columns, in a table in shared memory; these are sorted. Then groups of a warp each
// add up a run of the left factor's entries, in order, into sums of their own, which are added in the
// order of the groups: bits repeat.
#pragma once
#include "kernels/cg/cuda/sparse_product_table.cuh"

namespace terrace::cg {
namespace sparse_product_detail {

constexpr int wide_threads = 256, wide_warps = wide_threads / 32;

/// Names the columns of row i in `key`; their number, more than 3/4 of the table where there is no room.
/// `found`: shared. All threads of the block; they are in step at its end.
template <int slots>
__device__ __forceinline__ int name_columns(const CsrRows<Cuda>& a, const CsrRows<Cuda>& b, Index i,
                                            std::int32_t* key, int* found) {
  constexpr int most = slots / 4 * 3;
  const Lanes<32> warp;
  for (int s = int(threadIdx.x); s < slots; s += wide_threads) key[s] = empty_place;
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  const Index end = a.start.data[i + 1];
  bool full = false;
  for (Index first = a.start.data[i] + threadIdx.x / 32; first < end && !full;
       first += wide_threads) {
    const HeldEntries<32> held(a, b, first + Index(wide_warps) * warp.lane, end, false);
    const int count = int(min(Index(32), (end - first + wide_warps - 1) / wide_warps));
    for (int h = 0; h < count && !full; ++h) {
      const Index from = __shfl_sync(warp.mask, held.from, h);
      const int length = __shfl_sync(warp.mask, held.length, h);
      int fresh = 0;
      for (int f = warp.lane; f < length; f += 32) {
        const int place = find_place<slots>(key, b.column.data[from + f]);
        fresh += place < 0;
        full = place < -slots;
        if (full) break;
      }
      fresh = warp.sum(fresh);
      if (fresh > 0 && warp.lane == 0) atomicAdd(found, fresh);
      __syncwarp();
      full = warp.any(full) || *reinterpret_cast<volatile int*>(found) > most;
    }
  }
  if (full && warp.lane == 0) atomicMax(found, most + 1);
  __syncthreads();
  return *found;
}

template <int slots>
__global__ void __launch_bounds__(wide_threads)
    wide_count_kernel(CsrRows<Cuda> a, CsrRows<Cuda> b, RowList list, Index* count,
                      std::int32_t* more, int* more_count) {
  __shared__ std::int32_t key[slots];
  __shared__ int found;
  const Index all = list.size();
  for (Index k = blockIdx.x; k < all; k += gridDim.x) {
    const Index i = list[k];
    const int columns = name_columns<slots>(a, b, i, key, &found);
    if (threadIdx.x == 0) {
      if (columns > slots / 4 * 3)
        more[atomicAdd(more_count, 1)] = std::int32_t(i);
      else
        count[i] = columns;
    }
    __syncthreads();
  }
}

/// Ascending, as numbers without a sign: empty places are last.
template <int slots>
__device__ __forceinline__ void sort_columns(std::int32_t* column) {
  for (int run = 2; run <= slots; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int t = int(threadIdx.x); t < slots / 2; t += wide_threads) {
        const int low = 2 * distance * (t / distance) + t % distance, high = low + distance;
        const bool up = (low & run) == 0;
        const std::int32_t x = column[low], y = column[high];
        if ((unsigned(x) > unsigned(y)) == up) column[low] = y, column[high] = x;
      }
      __syncthreads();
    }
}

/// The place of a column that is there.
template <int slots>
__device__ __forceinline__ int known_place(const std::int32_t* key, std::int32_t column) {
  int place = first_place<slots>(column);
  while (key[place] != column) place = (place + 1) & (slots - 1);
  return place;
}

template <int slots, int groups>
struct WideRow {
  static constexpr int most = slots / 4 * 3;
  double sum[groups * most];  // of each group, side by side
  std::int32_t key[slots], sorted[slots];
  std::uint16_t rank[slots];  // of a place's column
  int found;
};

template <int slots, int groups>
__global__ void __launch_bounds__(wide_threads)
    wide_fill_kernel(CsrRows<Cuda> a, CsrRows<Cuda> b, RowList list,
                     const Index* __restrict__ start, std::int32_t* column, double* value) {
  extern __shared__ double wide_memory[];
  auto& row = *reinterpret_cast<WideRow<slots, groups>*>(wide_memory);
  const Lanes<32> warp;
  const int group = int(threadIdx.x) / 32, me = int(threadIdx.x);
  const Index all = list.size();
  for (Index k = blockIdx.x; k < all; k += gridDim.x) {
    const Index i = list[k], begin = a.start.data[i], end = a.start.data[i + 1];
    const int columns = name_columns<slots>(a, b, i, row.key, &row.found);
    for (int s = me; s < slots; s += wide_threads) row.sorted[s] = row.key[s];
    for (int s = me; s < groups * columns; s += wide_threads) row.sum[s] = 0;
    __syncthreads();
    sort_columns<slots>(row.sorted);
    for (int r = me; r < columns; r += wide_threads)
      row.rank[known_place<slots>(row.key, row.sorted[r])] = std::uint16_t(r);
    __syncthreads();
    const Index run = (end - begin + groups - 1) / groups;
    const Index mine = begin + group * run, stop = min(end, mine + run);
    double* const sum = row.sum + group * columns;
    for (Index first = mine; group < groups && first < stop; first += 32) {
      const HeldEntries<32> held(a, b, first + warp.lane, stop, true);
      const int count = int(min(Index(32), stop - first));
      for (int h = 0; h < count; ++h) {
        const Index from = __shfl_sync(warp.mask, held.from, h);
        const int length = __shfl_sync(warp.mask, held.length, h);
        const double factor = __shfl_sync(warp.mask, held.factor, h);
        for (int f = warp.lane; f < length; f += 32) {
          const int place = known_place<slots>(row.key, b.column.data[from + f]);
          sum[row.rank[place]] += factor * b.value.data[from + f];
        }
        __syncwarp();  // the next entry meets the same columns
      }
    }
    __syncthreads();
    const Index to = start[i];
    for (int r = me; r < columns; r += wide_threads) {
      double total = row.sum[r];
      for (int g = 1; g < groups; ++g) total += row.sum[g * columns + r];
      column[to + r] = row.sorted[r];
      value[to + r] = total;
    }
    __syncthreads();
  }
}

template <int slots>
void count_wide_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
                     const RowList& list, Index* count, std::int32_t* more, int* more_count) {
  wide_count_kernel<slots>
      <<<unsigned(std::min(a.rows(), Index(132) * 64)), wide_threads, 0, native(stream)>>>(
          a, b, list, count, more, more_count);
  check_launch();
}

template <int slots, int groups>
void fill_wide_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
                    const RowList& list, int host_count, const Index* start, std::int32_t* column,
                    double* value) {
  if (host_count == 0) return;
  constexpr Index bytes = Index(sizeof(WideRow<slots, groups>));
  allow_shared(wide_fill_kernel<slots, groups>, bytes);
  wide_fill_kernel<slots, groups>
      <<<unsigned(std::min(Index(host_count), Index(132) * 64)), wide_threads, std::size_t(bytes),
         native(stream)>>>(a, b, list, start, column, value);
  check_launch();
}

}  // namespace sparse_product_detail
}  // namespace terrace::cg
