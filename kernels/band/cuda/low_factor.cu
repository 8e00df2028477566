// Roofline: n m^2 flops on the half-precision tensor cores; a task of 128 x 128 reads 32 KiB from
// L2 for 2.1 MFLOP, 5.5 TB/s allow 350 TFLOP/s. The chain of diagonal tasks stands against it at
// small m.
//
// The launch of kernels/band/cuda/parts.cu (tasks, their order, flags) with tiles of half precision
// and sums of single precision: a warp of its own brings whole tiles by bulk copies, two tile rows
// and two tile columns a stage; eight warps multiply. A product with the inverse of a diagonal
// block takes both halves of each operand (value and what its rounding lost). Numbers outside the
// band are zeros that stay zeros.
#include "kernels/band/cuda/low_consumer.cuh"

namespace terrace::band {
namespace low {
namespace {

using namespace factoring;

/// The warp that brings operands and deals the tasks.
struct Producer {
  const Problem& p;
  const Launch& l;
  const int role, lane;
  unsigned turn = 0;

  [[nodiscard]] __device__ const unsigned* flags(Index k) const {
    return l.parts[0].flags + k * l.stride;
  }
  __device__ void spin(const unsigned* flag, unsigned count) const {
    while (acquire_flag(flag) < count) __nanosleep(20);
    __syncwarp();
    order_global_copies();
  }
  /// The next stage: A, and one or two pieces of B.
  __device__ void fill(Piece a, Piece b, Piece c = Piece()) {
    const int s = turn % kStages;
    wait_for(&empty[s], (turn / kStages + 1) % 2);
    if (lane == 0) {
      unsigned char* const to = shared_bytes() + s * kStage;
      arrive_for_bytes(&full[s], unsigned(a.tiles + b.tiles + c.tiles) * kTileBytes);
      if (a.tiles > 0) copy_in_bulk(to, a.from, unsigned(a.tiles) * kTileBytes, &full[s]);
      if (b.tiles > 0) copy_in_bulk(to + kB, b.from, unsigned(b.tiles) * kTileBytes, &full[s]);
      if (c.tiles > 0)
        copy_in_bulk(to + kB + b.tiles * kTileBytes, c.from, unsigned(c.tiles) * kTileBytes,
                     &full[s]);
    }
    __syncwarp();
    ++turn;
  }
  /// Tiles (i, k) .. (i + rows - 1, k), as far as they are in the band.
  [[nodiscard]] __device__ Piece strip(Index i, Index k, int rows) const {
    return {p.f.tile(k, i - k), max(0, min(rows, int(l.reach_tiles - (i - k)) + 1))};
  }
  [[nodiscard]] __device__ bool ready(Index i, Index k, int rows) const {
    for (int a = 0; a < rows; ++a)
      if (i + a - k <= l.reach_tiles && acquire_flag(flags(k) + (i + a - k)) < 4) return false;
    return true;
  }

  __device__ void products(const Task& t) {
    const bool diagonal = t.kind == parts::diagonal;
    const Index row = diagonal ? t.row - 1 : t.row;  // only with products: row > 0
    const int rows = diagonal ? 2 : t.rows;
    for (Index k = t.k0; k < t.k1;) {
      const Index mine = k + lane;
      const bool ok =
          mine < t.k1 && ready(row, mine, rows) && (diagonal || ready(t.column, mine, t.columns));
      const unsigned all = __ballot_sync(kAll, ok);
      const int run = all == kAll ? 32 : __ffs(int(~all)) - 1;
      if (run == 0) {
        __nanosleep(20);
        continue;
      }
      order_global_copies();
      for (const Index to = k + run; k < to; ++k)
        fill(strip(row, k, rows), diagonal ? Piece{} : strip(t.column, k, t.columns));
    }
  }
  [[nodiscard]] __device__ Piece inverse(Index j) const { return {p.f.tile(j, 0), 1}; }
  [[nodiscard]] __device__ Piece inverse_rest(Index j) const { return {p.f.rest + j * kTile, 1}; }

  __device__ void finish(const Task& t) {
    if (t.kind == parts::diagonal) {  // holds all stages until the block is factored
      const Index j = t.row;
      if (j > 0) {
        const int s = turn % kStages;
        wait_for(&empty[s], (turn / kStages + 1) % 2);
        if (lane == 0) {
          unsigned char* const to = shared_bytes() + s * kStage;
          arrive_for_bytes(&full[s], 4 * kTileBytes);
          copy_in_bulk(to, p.f.tile(j - 1, 1), kTileBytes, &full[s]);
          copy_in_bulk(to + kTileBytes, p.f.tile(j, 0), kTileBytes, &full[s]);
        }
        spin(flags(j - 1), 8);
        if (lane == 0) {
          unsigned char* const to = shared_bytes() + s * kStage + kB;
          copy_in_bulk(to, inverse(j - 1).from, kTileBytes, &full[s]);
          copy_in_bulk(to + kTileBytes, inverse_rest(j - 1).from, kTileBytes, &full[s]);
        }
        __syncwarp();
        ++turn;
      } else {
        fill({}, {p.f.tile(0, 0), 1});  // in the place of B: see Consumer::diagonal_task
      }
      for (int s = 1; s < kStages; ++s) fill({}, {});
      return;
    }
    const Index j = t.column;
    spin(flags(j), 8);
    fill(strip(t.row, j, t.rows), inverse(j), inverse_rest(j));
    if (t.columns < 2) return;
    spin(flags(j) + 1, 4);
    fill({}, {p.f.tile(j, 1), 1});
    spin(flags(j + 1), 8);
    fill(strip(t.row, j + 1, t.rows), inverse(j + 1), inverse_rest(j + 1));
  }

  __device__ void run() {
    for (unsigned number = 0;; ++number) {
      const int slot = number % 2;
      const Task t = parts::next_task<kColumns>(l, role, lane);
      wait_for(&task_empty[slot], (number / 2 + 1) % 2);
      if (lane == 0) tasks[slot] = t;
      __syncwarp();
      if (lane == 0) arrive(&task_full[slot]);
      if (t.kind == parts::stop) return;
      products(t);
      finish(t);
    }
  }
};

__global__ void __launch_bounds__(kThreads, 2) factor_kernel(const __grid_constant__ Problem p) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  __shared__ int mine;
  if (threadIdx.x == 0) {
    mine = parts::role(p.launch);
    for (int s = 0; s < kStages; ++s) {
      make_barrier(&full[s], 1);
      make_barrier(&empty[s], kWarps);
    }
    for (int s = 0; s < 2; ++s) {
      make_barrier(&task_full[s], 1);
      make_barrier(&task_empty[s], kWarps);
    }
  }
  __syncthreads();
  if (mine == parts::kLeaves) return;
  if (warp == kWarps)
    Producer{p, p.launch, mine, lane}.run();
  else
    Consumer{p, p.launch, lane, warp}.run();
}

__global__ void status_kernel(const unsigned long long* failed, Index* status) {
  *status = *failed == ~0ull ? 0 : Index(*failed);
}

/// Words of scratch: the first failure, two counters, the launch's CTAs and flags, two to a word.
Index flag_words(const Factor& f) { return ceil_div(f.count * (f.reach_tiles + 1), 2); }

}  // namespace

Index factor_scratch(const Factor& f) { return 3 + parts::kBlockWords / 2 + flag_words(f); }

}  // namespace low

using namespace device;
using namespace low;

void band_low_factor(const Stream<Cuda>& stream, BandShape s, View<Word, Cuda> low,
                     View<Index, Cuda> status, View<Word, Cuda> scratch) {
  const Factor f(s, low.data);
  if (s.width != kW || low.size < f.words() || status.size < 1 || scratch.size < factor_scratch(f))
    throw Error(Exit::internal, "sizes of a factor; kernels/band/cuda/low_factor.cu");
  auto* const failed = reinterpret_cast<unsigned long long*>(scratch.data);
  check(cudaMemsetAsync(failed, 0, std::size_t(factor_scratch(f)) * sizeof(Word), native(stream)));
  check(cudaMemsetAsync(failed, 0xff, sizeof(Word), native(stream)));
  if (f.count > 0) {
    static OncePerDevice<int> once;
    const int resident = once([] {
      allow_shared(factor_kernel, kShared);
      int blocks = 0;
      check(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, factor_kernel, kThreads, kShared));
      return std::max(blocks, 1) * current_cuda_device().multiprocessors;
    });
    Problem p{{}, f};
    Launch& l = p.launch;
    l.reach = s.reach;
    l.reach_tiles = f.reach_tiles;
    l.stride = f.reach_tiles + 1;
    l.count = 1;
    l.apart = true;
    l.counter = failed + 1;
    parts::Part& part = l.parts[0];
    part.tiles = part.end = part.ring = f.count;
    part.complete = true;
    l.blocks = reinterpret_cast<unsigned*>(failed + 3);
    part.flags = l.blocks + parts::kBlockWords;
    part.failed = failed;
    parts::lay_out<kColumns>(l, resident, f.reach_tiles / 12 + 3);
    factor_kernel<<<unsigned(resident), kThreads, kShared, native(stream)>>>(p);
    check_launch();
    form_near(native(stream), f);
  }
  status_kernel<<<1, 1, 0, native(stream)>>>(failed, status.data);
  check_launch();
}

}  // namespace terrace::band
