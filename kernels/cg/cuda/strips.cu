// Floor: the columns from HBM, 4 bytes per nonzero, for each of two launches, and strips and runs to it. A
// thread walks a row, the one before it, and its runs again from L1; a warp finds the strips of 32 rows.
// Not timed alone.
#include "kernels/cg/strips.hpp"

#include "kernels/cg/cuda/coarsening.cuh"
#include "kernels/cg/cuda/products_columns_strips.cuh"

namespace terrace::cg {
namespace {

using strips::run_line, strips::value_line, strips::together;
constexpr Index word = 32;  // rows; no strip goes beyond

struct StripRows {
  const Index* start;
  const std::int32_t* column;
  Index rows;

  /// Row i has the columns of the row before it, plus one.
  __device__ __forceinline__ bool follows(Index i) const {
    const Index from = start[i], before = start[i - 1], length = from - before;
    if (start[i + 1] - from != length) return false;
    for (Index e = 0; e < length; ++e)
      if (column[from + e] != column[before + e] + 1) return false;
    return true;
  }
  /// f(run) of row i.
  template <class F>
  __device__ __forceinline__ void each_run(Index i, const F& f) const {
    const Index end = start[i + 1];
    for (Index e = start[i]; e < end;) {
      const std::int32_t c = column[e];
      int count = 1;
      while (count < 3 && e + count < end && column[e + count] == c + count) ++count;
      f((c - std::int32_t(i)) * 4 + count);
      e += count;
    }
  }
};

/// Rows at which a strip begins, a bit each; and in total[w] their number times 2^32 plus that of the runs.
__global__ void __launch_bounds__(block_threads)
    find_strips_kernel(StripRows a, Index words, std::uint32_t* begins, Index* total) {
  const int lane = int(threadIdx.x) % 32;
  for (Index w = first_item() / word; w <= words; w += item_stride() / word) {
    const Index i = w * word + lane;
    const bool there = i < a.rows;
    const unsigned follows = __ballot_sync(~0u, there && lane > 0 && a.follows(i));
    const unsigned heads = ~follows & (lane == 31 ? ~0u : (2u << lane) - 1);
    const bool begin = there && (lane - (31 - __clz(heads))) % strips::rows == 0;
    const unsigned mask = __ballot_sync(~0u, begin);
    int runs = 0;
    if (begin) a.each_run(i, [&](std::int32_t) { ++runs; });
    runs = coarsening::Lanes<32>().sum(runs);
    if (lane > 0) continue;
    total[w] = Index(__popc(mask)) << 32 | runs;
    if (w < words) begins[w] = mask;
  }
}

__global__ void __launch_bounds__(block_threads)
    fill_strips_kernel(StripRows a, Index words, const std::uint32_t* begins, const Index* total,
                       CsrStrip* strip, std::int32_t* run) {
  const int lane = int(threadIdx.x) % 32;
  for (Index w = first_item() / word; w <= words; w += item_stride() / word) {
    const Index i = w * word + lane, first = total[w] >> 32, first_run = total[w] & 0xffffffff;
    if (w == words) {
      if (lane == 0) strip[first] = {a.start[a.rows], std::int32_t(a.rows), unsigned(first_run)};
      continue;
    }
    const unsigned mask = begins[w];
    const bool begin = (mask >> lane & 1) != 0;
    int runs = 0;
    if (begin) a.each_run(i, [&](std::int32_t) { ++runs; });
    int upto = runs;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(~0u, upto, offset);
      if (lane >= offset) upto += below;
    }
    if (!begin) continue;
    Index to = first_run + upto - runs;
    strip[first + __popc(mask & ((1u << lane) - 1))] = {a.start[i], std::int32_t(i), unsigned(to)};
    a.each_run(i, [&](std::int32_t r) { run[to++] = r; });
  }
}

/// The most entries and runs of a block's strips, with whole lines.
__global__ void __launch_bounds__(block_threads)
    measure_strips_kernel(const CsrStrip* strip, Index count, unsigned long long* most) {
  for (Index k = first_item() * together; k < count; k += item_stride() * together) {
    const CsrStrip from = strip[k], to = strip[min(count, k + together)];
    const Index entries = round_up(to.entry, value_line) - from.entry / value_line * value_line;
    const Index runs = round_up(Index(to.run) + 1, run_line) - from.run / run_line * run_line;
    atomicMax(most, static_cast<unsigned long long>(entries));
    atomicMax(most + 1, static_cast<unsigned long long>(runs));
  }
}

}  // namespace

Strips<Cuda> csr_strips(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, Index room) {
  // Four times a distance, and the number of all runs, fit in 32 bits.
  constexpr Index most_rows = Index(1) << 29, most_entries = Index(1) << 32;
  const Index rows = m.rows(), words = ceil_div(rows, word);
  Strips<Cuda> made;
  if (m.column.size == 0 || !has_bulk_copies() || m.row.size > 0 || m.longs.size > 0) return made;
  if (rows >= most_rows || m.column.size >= most_entries) return made;
  const auto lacks_memory = [&](Index bytes) {
    return current_cuda_device().free_bytes < bytes + room;
  };
  if (lacks_memory(rows + (Index(8) << 20))) return made;  // for the scratch
  Scratch<Cuda> scratch;
  const StripRows a{m.start.data, m.column.data, rows};
  const auto total = scratch.take<Index>(words + 1), most = scratch.take<Index>(2);
  const auto begins = scratch.take<std::uint32_t>(words);
  coarsening::launch(stream, (words + 1) * word, find_strips_kernel, a, words, begins.data,
                     total.data);
  coarsening::sum_before(stream, total, scratch);
  const Index all = coarsening::read_one(stream, total.data + words);
  const Index count = all >> 32, runs = all & 0xffffffff;
  if (2 * rows < 5 * count || lacks_memory(16 * count + 4 * runs)) return made;
  made.strip = Buffer<CsrStrip, Cuda>(count + 1);
  made.run = Buffer<std::int32_t, Cuda>(round_up(runs + 1, run_line));
  coarsening::launch(stream, (words + 1) * word, fill_strips_kernel, a, words, begins.data,
                     total.data, made.strip.data(), made.run.data());
  fill_zero(stream, most);
  coarsening::launch(stream, ceil_div(count, Index(together)), measure_strips_kernel,
                     made.strip.data(), count, reinterpret_cast<unsigned long long*>(most.data));
  made.entries = coarsening::read_one(stream, most.data);
  made.runs = coarsening::read_one(stream, most.data + 1);
  return strips::fits(made.entries, made.runs) ? std::move(made) : Strips<Cuda>();
}

}  // namespace terrace::cg
