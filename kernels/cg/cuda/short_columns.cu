// Floor: the columns from HBM twice, and a byte or two an entry to it; each entry looks its distance up
// in a table in shared memory. 117 million entries in rows of 7, one H200: 0.63 and 0.49 ms, floor 0.11 and
// 0.14; a warp per row took 2.3 and 1.6.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cg/cuda/coarsening.cuh"
#include "kernels/cg/short_columns.hpp"

namespace terrace::cg {
namespace {

constexpr int slots = 1024;  // of a table that is at most half full
constexpr std::int32_t none = std::numeric_limits<std::int32_t>::min();
constexpr Index reach = 1 << 15;

/// Distances of a matrix; a block's, and of all blocks.
struct Distances {
  std::int32_t slot[slots];
  int count;  // most_distances + 1: more
  int far;    // one is reach or more
};
constexpr int too_many = int(csr_most_distances) + 1;

__device__ __forceinline__ int first_slot(std::int32_t d) {
  return int(std::uint32_t(d) * 2654435761u >> 22);
}
/// Enters d, until there are too many.
__device__ __forceinline__ void enter(Distances& all, std::int32_t d) {
  for (int h = first_slot(d);; h = (h + 1) & (slots - 1)) {
    const std::int32_t held = *static_cast<volatile std::int32_t*>(all.slot + h);
    if (held == d || *static_cast<volatile int*>(&all.count) >= too_many) return;
    if (held != none) continue;
    const std::int32_t before = atomicCAS(all.slot + h, none, d);
    if (before == none) atomicAdd(&all.count, 1);
    if (before == none || before == d) return;
  }
}

/// f(entry, distance) of all entries; `width` lanes per row.
template <int width, class F>
__device__ __forceinline__ void over_entries(const CsrRows<Cuda>& m, Index rows, const F& f) {
  for (Index i = first_item() / width; i < rows; i += item_stride() / width) {
    const Index end = m.start.data[i + 1];
#pragma unroll 2
    for (Index k = m.start.data[i] + Index(threadIdx.x % width); k < end; k += width)
      f(k, std::int32_t(m.column.data[k] - i));
  }
}
/// launch<width>(blocks): no more than 1,056, as each fills a table in shared memory first.
template <class Launch>
void with_lanes(Index rows, Index entries, const Launch& launch) {
  constexpr coarsening::RowLanes lanes{.few = 4, .some = 8, .some_from = 4, .all_from = 12};
  coarsening::with_lanes<lanes>(rows, entries, [&]<int width>(unsigned blocks) {
    launch.template operator()<width>(std::min(blocks, 1056u));
  });
}

template <int width>
__global__ void __launch_bounds__(block_threads)
    collect_kernel(CsrRows<Cuda> m, Index rows, Distances* all) {
  __shared__ Distances mine;
  for (int s = int(threadIdx.x); s < slots; s += block_threads) mine.slot[s] = none;
  if (threadIdx.x == 0) mine.count = mine.far = 0;
  __syncthreads();
  over_entries<width>(m, rows, [&](Index, std::int32_t d) {
    if (d < -reach || d >= reach) mine.far = 1;
    enter(mine, d);
  });
  __syncthreads();
  if (threadIdx.x == 0 && mine.far) all->far = 1;
  if (mine.count >= too_many) {
    if (threadIdx.x == 0) atomicMax(&all->count, too_many);
    return;
  }
  for (int s = int(threadIdx.x); s < slots; s += block_threads)
    if (mine.slot[s] != none) enter(*all, mine.slot[s]);
}

template <int width>
__global__ void __launch_bounds__(block_threads)
    near_kernel(CsrRows<Cuda> m, Index rows, std::uint16_t* near) {
  over_entries<width>(
      m, rows, [&](Index k, std::int32_t d) { near[k] = std::uint16_t(d + std::int32_t(reach)); });
}

template <int width>
__global__ void __launch_bounds__(block_threads)
    listed_kernel(CsrRows<Cuda> m, Index rows, View<const std::int32_t, Cuda> distance,
                  std::uint8_t* listed) {
  __shared__ std::int32_t held[slots];
  __shared__ std::uint8_t number[slots];
  for (int s = int(threadIdx.x); s < slots; s += block_threads) held[s] = none;
  __syncthreads();
  for (int n = int(threadIdx.x); n < int(distance.size); n += block_threads) {
    const std::int32_t d = distance.data[n];
    int h = first_slot(d);
    while (atomicCAS(held + h, none, d) != none) h = (h + 1) & (slots - 1);
    number[h] = std::uint8_t(n);
  }
  __syncthreads();
  over_entries<width>(m, rows, [&](Index k, std::int32_t d) {
    int h = first_slot(d);
    while (held[h] != d) h = (h + 1) & (slots - 1);
    listed[k] = number[h];
  });
}

}  // namespace

ShortColumns<Cuda> short_columns(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, Index room) {
  const cudaStream_t lane = native(stream);
  const Index rows = m.rows(), entries = m.column.size;
  ShortColumns<Cuda> made;
  if (entries == 0) return made;
  Distances host;
  std::fill_n(host.slot, slots, none);
  host.count = host.far = 0;
  const Buffer<Distances, Cuda> found(1);
  upload(stream, found.view(), &host);
  with_lanes(rows, entries, [&]<int width>(unsigned blocks) {
    collect_kernel<width><<<blocks, block_threads, 0, lane>>>(m, rows, found.data());
  });
  download(stream, &host, found.view());
  stream.synchronize();
  const bool few = host.count < too_many;
  if (!few && host.far) return made;
  const Index padded = round_up(entries, 128);  // copies in bulk end on lines
  if (current_cuda_device().free_bytes < padded * (few ? 1 : 2) + room) return made;
  if (few) {
    std::vector<std::int32_t> distance;
    std::copy_if(host.slot, host.slot + slots, std::back_inserter(distance),
                 [](std::int32_t d) { return d != none; });
    std::sort(distance.begin(), distance.end());
    made.distance = Buffer<std::int32_t, Cuda>(Index(distance.size()));
    made.listed = Buffer<std::uint8_t, Cuda>(padded);
    upload(stream, made.distance.view(), distance.data());
    with_lanes(rows, entries, [&]<int width>(unsigned blocks) {
      listed_kernel<width>
          <<<blocks, block_threads, 0, lane>>>(m, rows, made.distance.view(), made.listed.data());
    });
  } else {
    made.near = Buffer<std::uint16_t, Cuda>(padded);
    with_lanes(rows, entries, [&]<int width>(unsigned blocks) {
      near_kernel<width><<<blocks, block_threads, 0, lane>>>(m, rows, made.near.data());
    });
  }
  stream.synchronize();
  return made;
}

TERRACE_PREPARED(cg);

}  // namespace terrace::cg
