// Coarsening on CUDA: the diagonal, strong entries and aggregates. Bound by HBM. Floor, with n rows and
// e entries: the diagonal 12 e, strong entries 12 e + 4 e, a pass of the choice of roots 4 e + 25 n (3
// full passes in all, the other rounds see few rows). With prolongation.cu, seven points on 200^3 (8 M
// rows, 56 M entries, 24 M of P): 6 GB, 1.4 ms at 4.5 TB/s. Not measured alone.
#include <array>

#include <cub/device/device_scan.cuh>

#include "kernels/cg/cuda/coarsening.cuh"

namespace terrace::cg {
namespace coarsening {

template <class T>
void sum_in_place(const Stream<Cuda>& stream, View<T, Cuda> v, Scratch<Cuda>& scratch) {
  if (v.size == 0) return;
  std::size_t bytes = 0;
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, v.data, v.data, v.size, native(stream)));
  const typename Scratch<Cuda>::Scope scope(scratch);
  const View<char, Cuda> room = scratch.take<char>(Index(bytes) + 1);
  check(cub::DeviceScan::ExclusiveSum(room.data, bytes, v.data, v.data, v.size, native(stream)));
}
void sum_before(const Stream<Cuda>& stream, View<Index, Cuda> v, Scratch<Cuda>& scratch) {
  sum_in_place(stream, v, scratch);
}
void sum_before(const Stream<Cuda>& stream, View<std::int32_t, Cuda> v, Scratch<Cuda>& scratch) {
  sum_in_place(stream, v, scratch);
}

}  // namespace coarsening

namespace {

using coarsening::Lanes;
using coarsening::launch;
using coarsening::State;

struct StrongView {
  const Index* start;
  const std::int32_t* column;
  const std::int32_t* count;
};

/// What judge_rows() finds: numbers that rise by atomicMax(). A bound is positive, so its bits rise with it.
struct Found {
  unsigned long long last_good;  // rows before the first bad one count from behind
  unsigned long long longest, bound;
};

template <int width>
__global__ void __launch_bounds__(block_threads)
    judge_rows_kernel(CsrRows<Cuda> a, Index rows, double* diagonal, Found* found) {
  unsigned long long behind = 0, longest = 0, bound = 0;
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    const Index from = a.start.data[i], to = a.start.data[i + 1];
    double sum = 0, middle = 0;
    for (Index e = from + lanes.lane; e < to; e += width) {
      const double v = a.value.data[e];
      sum += fabs(v);
      if (a.column.data[e] == i) middle = v;
    }
    sum = lanes.sum(sum);
    middle = lanes.sum(middle);  // of one lane
    if (lanes.lane == 0) diagonal[i] = middle;
    longest = max(longest, (unsigned long long)(to - from));
    if (middle > 0 && isfinite(1 / middle))
      bound = max(bound, (unsigned long long)__double_as_longlong(sum / middle));
    else
      behind = max(behind, (unsigned long long)(rows - i));
  });
  const Lanes<32> warp;
  __syncwarp();
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    behind = max(behind, __shfl_xor_sync(warp.mask, behind, offset));
    longest = max(longest, __shfl_xor_sync(warp.mask, longest, offset));
    bound = max(bound, __shfl_xor_sync(warp.mask, bound, offset));
  }
  if (warp.lane != 0) return;
  if (behind > 0) atomicMax(&found->last_good, behind);
  if (longest > 0) atomicMax(&found->longest, longest);
  if (bound > 0) atomicMax(&found->bound, bound);
}

/// Strong columns of row i to column[start[i]] ..., in order; and the first state of a row.
template <int width>
__global__ void __launch_bounds__(block_threads)
    strong_kernel(CsrRows<Cuda> a, Index rows, const double* __restrict__ diagonal, double factor,
                  std::int32_t* column, std::int32_t* count, State* state) {
  coarsening::over_rows<width>(rows, [&](Index i, const Lanes<width>& lanes) {
    const Index begin = a.start.data[i], end = a.start.data[i + 1];
    const double own = diagonal[i];
    Index to = begin;
    for (Index e = begin; e < end; e += width) {
      const bool there = e + lanes.lane < end;
      const std::int32_t j = there ? a.column.data[e + lanes.lane] : 0;
      const bool strong =
          there && j != i && j < rows &&
          coarsening::is_strong(a.value.data[e + lanes.lane], factor, own, diagonal[j]);
      int all = 0;
      const int before = lanes.before(strong, all);
      if (strong) column[to + before] = j;
      to += all;
    }
    if (lanes.lane == 0) {
      count[i] = std::int32_t(to - begin);
      state[i] = to > begin ? State::undecided : State::blocked;
    }
  });
}

/// Rows that a round looks at: all of them, or those listed.
struct OpenRows {
  const std::int32_t* row = nullptr;
  const int* listed = nullptr;
  __device__ __forceinline__ Index size(Index rows) const { return row ? Index(*listed) : rows; }
};
/// Those of them that the next round looks at, in any order.
struct StillOpen {
  std::int32_t* row;
  int* listed;
  /// By all threads of a block: row i where it `stays`. One atomic operation per block: one per warp, all on
  /// one number, took most of a round's time.
  __device__ __forceinline__ void add(std::int32_t i, bool stays) const {
    constexpr int warps = block_threads / 32;
    __shared__ int begins[warps];
    const Lanes<32> warp;
    const int mine = int(threadIdx.x) / 32;
    __syncwarp();
    int all = 0;
    const int before = warp.before(stays, all);
    if (warp.lane == 0) begins[mine] = all;
    __syncthreads();
    if (threadIdx.x == 0) {
      int sum = 0;
      for (int w = 0; w < warps; ++w) sum += begins[w];
      int to = sum > 0 ? atomicAdd(listed, sum) : 0;
      for (int w = 0; w < warps; ++w) {
        const int count = begins[w];
        begins[w] = to;
        to += count;
      }
    }
    __syncthreads();
    if (stays) row[begins[mine] + before] = i;
  }
};

/// f(i, there, lanes) of each open row; a block's threads stay together, some of them with no row at the end.
template <int width, class F>
__device__ __forceinline__ void over_open(const OpenRows& open, Index rows, const F& f) {
  const Lanes<width> lanes;
  const Index all = open.size(rows);
  for (Index first = Index(blockIdx.x) * block_threads; first < all * width;
       first += item_stride()) {
    const Index k = (first + Index(threadIdx.x)) / width;
    const bool there = k < all;
    f(!there ? 0 : open.row ? Index(open.row[k]) : k, there, lanes);
  }
}

/// least[i]: the smallest word of row i and its neighbours, where it is not settled.
template <int width>
__global__ void __launch_bounds__(block_threads)
    least_kernel(StrongView strong, Index rows, OpenRows open, int round,
                 const State* __restrict__ state, Word* least) {
  over_open<width>(open, rows, [&](Index i, bool there, const Lanes<width>& lanes) {
    const State own = state[i];
    if (!there || own == State::blocked || least[i] == coarsening::settled) return;
    Word smallest = own == State::undecided ? coarsening::priority(std::int32_t(i), round)
                                            : coarsening::settled;
    bool near = own == State::in;
    const std::int32_t* const column = strong.column + strong.start[i];
    for (int e = lanes.lane; e < strong.count[i]; e += width) {
      const std::int32_t j = column[e];
      const State other = state[j];
      near = near || other == State::in;
      if (other == State::undecided) {
        const Word word = coarsening::priority(j, round);
        smallest = word < smallest ? word : smallest;
      }
    }
    near = lanes.any(near);
    smallest = lanes.least(smallest);
    if (lanes.lane == 0) least[i] = near ? coarsening::settled : smallest;
  });
}

/// Undecided rows with a settled neighbour are out, those that are least everywhere are in. Rows that are
/// not settled stay open.
template <int width>
__global__ void __launch_bounds__(block_threads)
    decide_kernel(StrongView strong, Index rows, OpenRows open, int round, State* state,
                  const Word* __restrict__ least, StillOpen still) {
  over_open<width>(open, rows, [&](Index i, bool there, const Lanes<width>& lanes) {
    const Word word = least[i];
    if (there && state[i] == State::undecided) {
      const Word own = coarsening::priority(std::int32_t(i), round);
      bool near = word == coarsening::settled, other = word != own;
      const std::int32_t* const column = strong.column + strong.start[i];
      for (int e = lanes.lane; e < strong.count[i]; e += width) {
        const std::int32_t j = column[e];
        const Word its = least[j];
        if (its == coarsening::settled) {
          // Words of rows that are not there are settled too, and never were less.
          near = near || state[j] != State::blocked;
        } else {
          other = other || its != own;
        }
      }
      near = lanes.any(near);
      other = lanes.any(other);
      if (lanes.lane == 0 && near)
        state[i] = State::out;
      else if (lanes.lane == 0 && !other)
        state[i] = State::in;
    }
    still.add(std::int32_t(i), there && lanes.lane == 0 && word != coarsening::settled);
  });
}

__global__ void __launch_bounds__(block_threads)
    begin_kernel(Index rows, const State* __restrict__ state, Word* least) {
  for (Index i = first_item(); i < rows; i += item_stride())
    least[i] = state[i] == State::blocked ? coarsening::settled : 0;
}

/// root[i]: row i where it is in, or its first neighbour that is.
__global__ void __launch_bounds__(block_threads)
    cover_kernel(StrongView strong, Index rows, const State* __restrict__ state, bool again,
                 std::int32_t* root) {
  for (Index i = first_item(); i < rows; i += item_stride()) {
    if (again && root[i] >= 0) continue;
    std::int32_t found = state[i] == State::in ? std::int32_t(i) : -1;
    if (state[i] != State::blocked && found < 0) {
      const std::int32_t* const column = strong.column + strong.start[i];
      const int count = strong.count[i];
      for (int e = 0; e < count && found < 0; ++e)
        if (state[column[e]] == State::in) found = column[e];
    }
    root[i] = found;
  }
}

/// States for the second choice.
__global__ void __launch_bounds__(block_threads)
    free_kernel(StrongView strong, Index rows, const std::int32_t* __restrict__ root,
                State* state) {
  for (Index i = first_item(); i < rows; i += item_stride()) {
    const int all = strong.count[i];
    State own = State::blocked;
    if (root[i] < 0 && all > 0) {
      const std::int32_t* const column = strong.column + strong.start[i];
      int free = 0;
      for (int e = 0; e < all; ++e) free += root[column[e]] < 0;
      own = coarsening::may_begin(free, all) ? State::undecided : State::out;
    }
    state[i] = own;
  }
}

__global__ void __launch_bounds__(block_threads)
    size_kernel(Index rows, const std::int32_t* __restrict__ root, std::int32_t* size) {
  for (Index i = first_item(); i < rows; i += item_stride())
    if (root[i] >= 0) atomicAdd(size + root[i], 1);
}

/// Rows that are left join their neighbours; joined[i] is the root of each row then, and begins[i] one
/// where it is itself.
__global__ void __launch_bounds__(block_threads)
    join_kernel(StrongView strong, Index rows, const std::int32_t* __restrict__ root,
                const std::int32_t* __restrict__ size, std::int32_t* joined, std::int32_t* begins) {
  for (Index i = first_item(); i < rows; i += item_stride()) {
    std::int32_t best = root[i];
    if (best < 0) {
      const std::int32_t* const column = strong.column + strong.start[i];
      const int count = min(strong.count[i], int(coarsening::most_looked_at));
      int most = 0;
      for (int e = 0; e < count; ++e) {
        const std::int32_t other = root[column[e]];
        if (other < 0) continue;
        int same = 0;
        for (int f = 0; f < count; ++f) same += root[column[f]] == other;
        if (same > most || (same == most && size[other] < size[best])) {
          best = other;
          most = same;
        }
      }
    }
    joined[i] = best;
    begins[i] = best == i;
  }
}

__global__ void __launch_bounds__(block_threads)
    number_kernel(Index rows, const std::int32_t* __restrict__ joined,
                  const std::int32_t* __restrict__ number, std::int32_t* of) {
  for (Index i = first_item(); i < rows; i += item_stride())
    of[i] = joined[i] < 0 ? -1 : number[joined[i]];
}

/// Decides the undecided rows, in rounds; the host looks every few of them. `lists`: two of `rows`.
void choose_roots(const Stream<Cuda>& stream, const StrongView& strong, Index rows, Index entries,
                  State* state, View<Word, Cuda> least, View<int, Cuda> listed,
                  const std::array<std::int32_t*, 2>& lists) {
  constexpr int together = 8;
  // Blocks that fill the device; how many rows are open it alone knows.
  constexpr unsigned few = 132 * 8;
  fill_zero(stream, listed);
  launch(stream, rows, begin_kernel, rows, state, least.data);
  OpenRows open;
  for (int round = 0; round < coarsening::most_rounds; ++round) {
    const StillOpen still{lists[std::size_t(round % 2)], listed.data + round};
    coarsening::with_lanes(rows, entries, [&]<int width>(unsigned all) {
      const unsigned blocks = round == 0 ? all : std::min(all, few);
      least_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(strong, rows, open, round,
                                                                        state, least.data);
      decide_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(strong, rows, open, round,
                                                                         state, least.data, still);
    });
    open = {still.row, still.listed};
    if (round % together == together - 1 && coarsening::read_one(stream, still.listed) == 0) return;
  }
}

}  // namespace

template <>
RowsJudged judge_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                      View<double, Cuda> diagonal, Scratch<Cuda>& scratch) {
  const Index rows = a.rows();
  if (rows == 0) return {};
  const typename Scratch<Cuda>::Scope scope(scratch);
  const View<Found, Cuda> found = scratch.take<Found>(1);
  fill_zero(stream, found);
  coarsening::with_lanes(rows, a.column.size, [&]<int width>(unsigned blocks) {
    judge_rows_kernel<width><<<std::min(blocks, 4224u), block_threads, 0, native(stream)>>>(
        a, rows, diagonal.data, found.data);
  });
  const Found f = coarsening::read_one(stream, found.data);
  RowsJudged judged;
  if (f.last_good > 0) judged.bad = rows - Index(f.last_good);
  judged.longest = Index(f.longest);
  static_assert(sizeof judged.bound == sizeof f.bound);
  __builtin_memcpy(&judged.bound, &f.bound, sizeof f.bound);
  return judged;
}

template <>
RowAggregates<Cuda> aggregate_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                                   View<const double, Cuda> diagonal, double threshold,
                                   Scratch<Cuda>& scratch) {
  const Index rows = a.rows(), entries = a.column.size;
  RowAggregates<Cuda> result{Buffer<std::int32_t, Cuda>(rows), 0};
  if (rows == 0) return result;
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto column = scratch.take<std::int32_t>(entries), count = scratch.take<std::int32_t>(rows),
             root = scratch.take<std::int32_t>(rows), size = scratch.take<std::int32_t>(rows),
             joined = scratch.take<std::int32_t>(rows),
             number = scratch.take<std::int32_t>(rows + 1);
  const auto state = scratch.take<State>(rows);
  const auto least = scratch.take<Word>(rows);
  const auto listed = scratch.take<int>(coarsening::most_rounds);
  const StrongView strong{a.start.data, column.data, count.data};
  coarsening::with_lanes(rows, entries, [&]<int width>(unsigned blocks) {
    strong_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        a, rows, diagonal.data, threshold * threshold, column.data, count.data, state.data);
  });
  choose_roots(stream, strong, rows, entries, state.data, least, listed, {size.data, joined.data});
  launch(stream, rows, cover_kernel, strong, rows, state.data, false, root.data);
  launch(stream, rows, free_kernel, strong, rows, root.data, state.data);
  choose_roots(stream, strong, rows, entries, state.data, least, listed, {size.data, joined.data});
  launch(stream, rows, cover_kernel, strong, rows, state.data, true, root.data);
  fill_zero(stream, size);
  fill_zero(stream, number);
  launch(stream, rows, size_kernel, rows, root.data, size.data);
  launch(stream, rows, join_kernel, strong, rows, root.data, size.data, joined.data, number.data);
  coarsening::sum_before(stream, number, scratch);
  launch(stream, rows, number_kernel, rows, joined.data, number.data, result.of.data());
  result.count = coarsening::read_one(stream, number.data + rows);
  return result;
}

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
