// factor_panel() on CUDA: one thread block, a candidate row and its transform in each thread's
// registers, 64 columns at a time.
//
//   choose   one warp finds the pivots of the 64 columns among 96 rows (a vote and a shuffle a
//            column, no barrier); where those are dependent, rows that are left nonzero join
//   tables   all 16 combinations of every 4 of the (at most 64) pivot rows S, and of T's rows
//   apply    row ^= (row[pivot columns] T) S for every other row, by look-ups; T S for pivot rows
//
// Roofline: none but latency: the warp's 64 dependent steps, and 16 look-ups a row of 9 words for
// 64 columns, 2 clocks a warp and word.
#include <type_traits>

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

constexpr int few = 640;
constexpr int tried = 96;  // rows that the choosing warp holds, three a lane

/// The choice in 64 columns, for the block: of pivot q its row, column, the 64-bit row of T, and
/// the reduced row's word.
struct Chosen {
  Word transform[64], reduced[64];
  unsigned columns[64][3], transforms[64][3];  ///< X and T by columns, a bit a candidate
  short row[64], bit[64], place[64];           ///< place: among the candidates
  int count;
};

/// One warp, a lane holding columns lane and lane + 32 of X and T as bits of 96 rows: the pivot
/// column c goes to all lanes, and a column with a one in the pivot row p gets c without p.
__device__ __forceinline__ void eliminate(Chosen& chosen, int lane) {
  unsigned y[4][3];  // two columns of X, two of T
  unsigned free[3] = {~0u, ~0u, ~0u};
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    y[0][k] = chosen.columns[lane][k];
    y[1][k] = chosen.columns[lane + 32][k];
    y[2][k] = y[3][k] = 0;
  }
  int found = 0, place[2] = {0, 0}, column_of[2] = {0, 0};
  // Without branches: where no row is free, p is zero and nothing changes.
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll 2
    for (int bit = 0; bit < 32; ++bit) {
      unsigned c[3], p[3], d[3];
#pragma unroll
      for (int k = 0; k < 3; ++k) c[k] = __shfl_sync(~0u, y[half][k], bit);
      const unsigned f0 = c[0] & free[0], f1 = c[1] & free[1], f2 = c[2] & free[2];
      p[0] = f0 & (0 - f0);
      p[1] = f0 ? 0 : f1 & (0 - f1);
      p[2] = f0 | f1 ? 0 : f2 & (0 - f2);
      const bool any = (f0 | f1 | f2) != 0;
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        d[k] = c[k] ^ p[k];
        free[k] ^= p[k];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned hit = (y[i][0] & p[0]) | (y[i][1] & p[1]) | (y[i][2] & p[2]);
        const unsigned mask = hit ? ~0u : 0;
#pragma unroll
        for (int k = 0; k < 3; ++k) y[i][k] ^= d[k] & mask;
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {  // column `found` of T is c
        const bool mine = any && found == 32 * h + lane;
#pragma unroll
        for (int k = 0; k < 3; ++k) y[2 + h][k] = mine ? c[k] : y[2 + h][k];
        const int at = f0   ? 31 - __clz(int(p[0]))
                       : f1 ? 63 - __clz(int(p[1]))
                            : 95 - __clz(int(p[2]));
        place[h] = mine ? at : place[h];
        column_of[h] = mine ? 32 * half + bit : column_of[h];
      }
      found += any;
    }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    chosen.place[lane + 32 * h] = short(place[h]);
    chosen.bit[lane + 32 * h] = short(column_of[h]);
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    chosen.columns[lane][k] = y[0][k];
    chosen.columns[lane + 32][k] = y[1][k];
    chosen.transforms[lane][k] = y[2][k];
    chosen.transforms[lane + 32][k] = y[3][k];
  }
  if (lane == 0) chosen.count = found;
}

/// Gauss-Jordan on 64 columns of rows candidate[0, count); `column` holds every row's word.
__device__ __forceinline__ void choose(const Word* column, const short* candidate, int count,
                                       Chosen& chosen) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32,
            warps = int(blockDim.x) / 32;
  for (int task = warp; task < 6; task += warps) {
    const int c = task % 3 * 32 + lane;
    const unsigned x = c < count ? unsigned(column[candidate[c]] >> (task / 3 * 32)) : 0;
    unsigned mine = 0;
#pragma unroll
    for (int bit = 0; bit < 32; ++bit) {
      const unsigned turned = __ballot_sync(~0u, (x >> bit) & 1);
      if (lane == bit) mine = turned;
    }
    chosen.columns[task / 3 * 32 + lane][task % 3] = mine;
  }
  __syncthreads();
  if (warp == 0) eliminate(chosen, lane);
  __syncthreads();
  // Back to rows.
  for (int q = warp; q < chosen.count; q += warps) {
    const int place = chosen.place[q], k = place / 32, bit = place % 32;
    const unsigned x0 = __ballot_sync(~0u, (chosen.columns[lane][k] >> bit) & 1);
    const unsigned x1 = __ballot_sync(~0u, (chosen.columns[lane + 32][k] >> bit) & 1);
    const unsigned t0 = __ballot_sync(~0u, (chosen.transforms[lane][k] >> bit) & 1);
    const unsigned t1 = __ballot_sync(~0u, (chosen.transforms[lane + 32][k] >> bit) & 1);
    if (lane == 0) {
      chosen.reduced[q] = Word(x1) << 32 | x0;
      chosen.transform[q] = Word(t1) << 32 | t0;
      chosen.row[q] = candidate[place];
    }
  }
  __syncthreads();
}

/// Numbers the threads with `set` in order; returns how many before this one, and all in `total`.
/// Two barriers.
__device__ __forceinline__ int number_threads(bool set, int* starts, int& total) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32,
            warps = int(blockDim.x) / 32;
  const unsigned mask = __ballot_sync(~0u, set);
  if (lane == 0) starts[warp] = __popc(mask);
  __syncthreads();
  int mine = lane < warps ? starts[lane] : 0;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(~0u, mine, step);
    if (lane >= step) mine += below;
  }
  total = __shfl_sync(~0u, mine, 31);
  const int before = warp > 0 ? __shfl_sync(~0u, mine, warp - 1) : 0;
  __syncthreads();
  return before + __popc(mask & ((1u << lane) - 1));
}

/// Chooses pivots of 64 columns among the threads' rows, `bits` of those that are `active`.
__device__ __forceinline__ void choose_pivots(bool active, Word bits, const Word* column,
                                              short* candidate, int* starts, Chosen& chosen) {
  const int thread = int(threadIdx.x);
  bool join = active && bits != 0;
  int total = 0, known = 0;
  int at = number_threads(join, starts, total);
  while (true) {
    if (join && known + at < tried) candidate[known + at] = short(thread);
    __syncthreads();
    choose(column, candidate, min(tried, known + total), chosen);
    const int found = chosen.count;
    if (found == 64 || known + total <= tried) break;
    // Rows outside the span of the pivots so far.
    Word rest = active ? bits : 0;
    for (int q = 0; q < found; ++q)
      if (active && (bits >> chosen.bit[q]) & 1) rest ^= chosen.reduced[q];
    join = rest != 0;
    if (thread < found) candidate[thread] = chosen.row[thread];
    known = found;
    at = number_threads(join, starts, total);
    if (total == 0) break;
  }
}

/// All combinations of every four pivot rows, and of their rows of T.
template <int W, int pitch>
__device__ __forceinline__ void make_tables(const Word (&pivot_rows)[64][pitch],
                                            const Chosen& chosen, int found, int groups,
                                            Word (&sums)[16][16][pitch], Word (&factors)[16][16]) {
  for (int x = int(threadIdx.x); x < groups * 16 * (W + 2); x += int(blockDim.x)) {
    const int g = x / (16 * (W + 2)), e = x / (W + 2) % 16, u = x % (W + 2);
    Word sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if ((e >> j) & 1 && 4 * g + j < found)
        sum ^= u <= W ? pivot_rows[4 * g + j][u <= W ? u : 0] : chosen.transform[4 * g + j];
    if (u <= W)
      sums[g][e][u] = sum;
    else
      factors[g][e] = sum;
  }
}

/// The pivot rows whose sum goes onto a row: its bits in their columns, times T.
__device__ __forceinline__ Word combination_of(Word bits, const Chosen& chosen, int found,
                                               int groups, const Word (&factors)[16][16]) {
  Word selected = bits, combination = 0;
  if (found < 64) {
    selected = 0;
    for (int q = 0; q < found; ++q) selected |= ((bits >> chosen.bit[q]) & 1) << q;
  }
#pragma unroll 4
  for (int g = 0; g < groups; ++g) combination ^= factors[g][(selected >> (4 * g)) & 15];
  return combination;
}

template <int W, int threads>
__global__ void __launch_bounds__(threads, 1)
    factor_kernel(BitRows<const Word, Cuda> rows, int words, PanelFactor<Cuda> out) {
  constexpr int pitch = (W + 1) | 1;  // odd: 16 entries of a table lie in different banks
  __shared__ Word column[threads];
  __shared__ Word pivot_rows[64][pitch], sums[16][16][pitch], factors[16][16];
  __shared__ Chosen chosen;
  __shared__ short candidate[tried], own[threads];
  __shared__ int starts[32];
  const int thread = int(threadIdx.x);
  const bool exists = thread < rows.count;
  const Word* from = exists ? rows.data + rows.row(thread) * rows.stride : nullptr;
  // Words w .. w + words of [row | transform], w the word in turn: what is left of it is zero for
  // a row without a pivot, and final, hence already in `out`, for a pivot row; the transform has
  // no more words than pivots so far need.
  Word a[W + 1];
#pragma unroll
  for (int u = 0; u <= W; ++u) a[u] = exists && u < words ? from[u] : 0;
  int pivot_number = -1, rank = 0;
#pragma unroll 1  // straight code of all words would not fit the instruction cache
  for (int w = 0; w < words; ++w) {
    const bool active = exists && pivot_number < 0;
    const Word bits = a[0];
    column[thread] = bits;
    own[thread] = -1;
    choose_pivots(active, bits, column, candidate, starts, chosen);
    const int found = chosen.count;
    for (int q = thread; q < found; q += int(blockDim.x)) own[chosen.row[q]] = short(q);
    __syncthreads();
    const int mine = own[thread];
    if (mine >= 0) {
      pivot_number = rank + mine;
      out.info[1 + pivot_number] = 64 * w + chosen.bit[mine];
      out.info[1 + 64 * words + pivot_number] = thread;
      for (int u = 0; u < w; ++u) out.reduced[pivot_number * max_panel_words + u] = 0;
#pragma unroll
      for (int u = 0; u <= W; ++u) {
        const bool unit = u == words + pivot_number / 64 - w;
        a[u] |= Word(unit) << (pivot_number % 64);
        pivot_rows[mine][u] = a[u];
      }
    }
    __syncthreads();
    const int groups = (found + 3) / 4;
    make_tables<W>(pivot_rows, chosen, found, groups, sums, factors);
    __syncthreads();
    Word combination = 0;
    if (mine >= 0) {
      combination = chosen.transform[mine];
#pragma unroll
      for (int u = 0; u <= W; ++u) a[u] = 0;
    } else {
      combination = combination_of(bits, chosen, found, groups, factors);
    }
#pragma unroll 2
    for (int g = 0; g < groups; ++g) {
      const Word* entry = sums[g][(combination >> (4 * g)) & 15];
#pragma unroll
      for (int u = 0; u <= W; ++u) a[u] ^= entry[u];
    }
    if (pivot_number >= 0) out.reduced[pivot_number * max_panel_words + w] = a[0];
#pragma unroll
    for (int u = 0; u < W; ++u) a[u] = a[u + 1];
    a[W] = 0;
    rank += found;
  }
  if (thread == 0) out.info[0] = rank;
  if (pivot_number >= 0) {
#pragma unroll
    for (int u = 0; u < max_panel_words; ++u) {
      if (u >= words) out.reduced[pivot_number * max_panel_words + u] = 0;
      out.transform[pivot_number * max_panel_words + u] =
          u < words && u <= W ? a[u <= W ? u : 0] : 0;
    }
  }
  for (Index x = rank * max_panel_words + thread; x < 64 * words * max_panel_words; x += blockDim.x)
    out.reduced[x] = out.transform[x] = 0;
}

}  // namespace

void factor_panel(const Stream<Cuda>& stream, BitRows<const Word, Cuda> rows, Index words,
                  PanelFactor<Cuda> out) {
  const auto threads = unsigned(round_up(rows.count > 0 ? rows.count : 1, 32));
  const auto launch = [&](auto kernel) {
    kernel<<<1, threads, 0, native(stream)>>>(rows, int(words), out);
    check_launch();
  };
  // Fewer threads have more registers each.
  const auto choose_threads = [&]<int W>(std::integral_constant<int, W>) {
    if (threads <= few)
      launch(factor_kernel<W, few>);
    else
      launch(factor_kernel<W, int(max_candidates)>);
  };
  if (words <= 1)
    choose_threads(std::integral_constant<int, 1>{});
  else if (words <= 2)
    choose_threads(std::integral_constant<int, 2>{});
  else if (words <= 4)
    choose_threads(std::integral_constant<int, 4>{});
  else
    choose_threads(std::integral_constant<int, 8>{});
}

}  // namespace terrace::gf2
