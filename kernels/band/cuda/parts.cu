// Roofline: a product of 64 x 64 blocks is 0.52 MFLOP; a task of 128 x 64 (NC = 1) reads 96 KB from
// L2 for two of them, one of 128 x 128 (NC = 2) 128 KB for four: 11 and 16 flops a byte against
// L2's 5.5 TB/s. Reached on an H200: 44 of 58 TFLOP/s from m = 8,000 on. Below m = 2,000 the chain
// of diagonal tasks bounds: 10.2 us for 64 columns from one or two ends, where its multiprocessors do
// nothing else; 11 to 20 in parts, beside blocks that multiply.
//
// One launch eliminates whole parts. Tasks are dealt in column order by a counter; each waits for
// the factored tiles it reads (flags in L2), so the order of the tasks is all the synchronization
// there is, and a task only waits for earlier ones. Left-looking: a block of the factor is summed
// in registers over all tile columns before it, multiplied by the inverse of the diagonal block,
// and written once.
//
//   diagonal task j     tiles (j, j-1) and (j, j): the first is finished, the second takes its
//                       product, is factored and inverted; the chain runs through these tasks alone
//   pair task           tile rows i, i+1 of NC tile columns, or one of them alone
//
// Four warps of their own bring operands by asynchronous copies (16 columns of each tile a stage);
// the others multiply on the FP64 tensor cores.
//
// Whole parts of one or two tiles have a launch of their own for their columns, narrow.cuh, where a
// chain takes 8 to 10 us for 64 columns; this one does what comes after them.
#include "kernels/band/parts.hpp"
#include "kernels/base/assumed.hpp"

#include "kernels/band/cuda/narrow.cuh"
#include "kernels/band/cuda/parts_producer.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

using namespace device;
using namespace parts;

/// Tasks of 128 x 128, with M tiles in a half-bandwidth: without spikes from M^2 times the parts =
/// kWideWork on, with spikes from M = kWideTiles on.
constexpr Index kWideWork = 2000, kWideTiles = 60;

/// Threads: NC warpgroups that multiply, and one that brings their operands.
template <int NC>
constexpr int kThreads = NC * 128 + 128;

template <int NC, int S>
__global__ void __launch_bounds__(kThreads<NC>, NC == 1 ? 2 : 1)
    eliminate_parts(const __grid_constant__ Launch launch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ int mine;
  if (threadIdx.x == 0) {
    mine = role(launch);
    for (int s = 0; s < S; ++s) {
      make_barrier(&full[s], 128);
      make_barrier(&empty[s], NC * 4);
    }
    for (int s = 0; s < 2; ++s) {
      make_barrier(&task_full[s], 1);
      make_barrier(&task_empty[s], NC * 4 + 3);
    }
  }
  __syncthreads();
  if (mine == kLeaves) return;
  if (warp >= NC * 4) {
    fewer_registers<40>();
    Producer<NC, S>{launch, mine, lane, (warp - NC * 4) / 2, warp % 2}.run();
  } else {
    more_registers<NC == 1 ? 208 : 232>();
    Consumer<NC, S>{launch, lane, warp}.run();
  }
}

/// status := 0, or the column that failed.
__global__ void read_status(const unsigned long long* failed, int count, Index* status) {
  const int p = int(threadIdx.x);
  if (p < count) status[p] = failed[p] == ~0ull ? 0 : Index(failed[p]);
}

/// CTAs for the diagonal blocks of a part: as many as it takes to begin a block's sum early enough.
template <int NC>
Index diagonals(const Launch& launch) {
  const Index tiles = launch.reach_tiles;
  // By trials on an H200 (jobs/results/band.md). By arithmetic a sum takes 2.4 M us; a tile column
  // takes 10 us, or, in tasks of 128 x 128, 6 M^2 ns per part.
  const Index most = 5 + 5 * tiles / 16;
  if (NC == 2)
    return std::max(Index(4), std::min(most, 1 + ceil_div(Index(700), tiles * launch.count)));
  if (launch.apart) return most;
  // The others make a tile column in 5 M^2 ns, the chain in 9 us; a sum of M tiles takes 4 M us on
  // a multiprocessor with another block's.
  return 3 + 8 * tiles / std::max(Index(18), tiles * tiles / 100);
}

template <int NC, int S>
void launch_parts(const Stream<Cuda>& stream, Launch& launch) {
  constexpr int bytes = std::max(S * stage_doubles<NC>, kChainNumbers) * int(sizeof(double));
  static OncePerDevice<int> once;
  const int resident = once([] {
    allow_shared(eliminate_parts<NC, S>, bytes);
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, eliminate_parts<NC, S>,
                                                        kThreads<NC>, bytes));
    return std::max(blocks, 1) * current_cuda_device().multiprocessors;
  });
  lay_out<NC>(launch, resident, diagonals<NC>(launch));
  eliminate_parts<NC, S><<<unsigned(resident), kThreads<NC>, bytes, native(stream)>>>(launch);
  check_launch();
}

/// Whole parts of at most kNarrowTiles tiles.
bool is_narrow(const BandShape& s, std::span<const BandPart<Cuda>> parts) {
  return band_reach_tiles(s) <= kNarrowTiles &&
         std::all_of(parts.begin(), parts.end(), [](const BandPart<Cuda>& p) {
           return p.from == 0 && p.complete() && p.tiles > 0 && p.arrow <= kNarrowTiles * kW;
         });
}
/// Such parts: their columns, and then what comes after.
void launch_narrow(const Stream<Cuda>& stream, Launch& launch, Index flags) {
  constexpr int bytes = kNarrowNumbers * int(sizeof(double));
  static OncePerDevice<bool> once;
  once([] {
    allow_shared(eliminate_narrow, bytes);
    return true;
  });
  eliminate_narrow<<<unsigned(2 * launch.count), kNarrowThreads, bytes, native(stream)>>>(launch);
  check_launch();
  if (std::all_of(launch.parts, launch.parts + launch.count,
                  [](const Part& p) { return p.window == 0 && p.arrow == 0; }))
    return;
  // All tiles are there: more than a flag counts to.
  check(cudaMemsetAsync(launch.parts[0].flags, 1, std::size_t(flags) * sizeof(unsigned),
                        native(stream)));
  launch.rest = true;
  launch_parts<1, 4>(stream, launch);
}

/// Words of scratch: failures, counters (a part's diagonal blocks, and all else), the launch's CTAs
/// and flags, two to a word.
struct Scratch {
  Index flags = 0, words = 0;  // with the turns of arrow blocks behind the flags
  Scratch(const BandShape& s, std::span<const BandPart<Cuda>> parts) {
    Index stride = 0, columns = 0;
    for (const BandPart<Cuda>& p : parts) {
      stride = std::max(stride, width(s, p));
      columns += p.end() - p.from;
    }
    flags = columns * stride;
    Index blocks = 0;
    for (const BandPart<Cuda>& p : parts) blocks = std::max(blocks, p.arrow / kW * (p.arrow / kW));
    const Index turns = blocks * Index(parts.size());
    words = 2 * Index(parts.size()) + 1 + kBlockWords / 2 + ceil_div(flags + turns, 2);
  }
  static Index width(const BandShape& s, const BandPart<Cuda>& p) {
    return band_reach_tiles(s) + 1 + p.arrow / kW;
  }
};

}  // namespace

bool band_parts_available(Cuda) {
  return current_cuda_device().compute_capability >= 90 && shared_bytes_of_block() >= 223 * 1024;
}

Index band_factor_scratch(Cuda, BandShape s, std::span<const BandPart<Cuda>> parts) {
  return Scratch(s, parts).words;
}

void band_factor_parts(const Stream<Cuda>& stream, BandShape s,
                       std::span<const BandPart<Cuda>> parts, View<Index, Cuda> status,
                       View<Word, Cuda> scratch) {
  const Scratch layout(s, parts);
  if (s.width != kW || scratch.size < layout.words || status.size < Index(parts.size()))
    throw Error(Exit::internal, "width, scratch or status of parts; kernels/band/cuda/parts.cu");
  for (std::size_t first = 0; first < parts.size(); first += kMostParts) {
    const auto some = parts.subspan(first, std::min<std::size_t>(kMostParts, parts.size() - first));
    const Scratch needed(s, some);
    auto* const failed = reinterpret_cast<unsigned long long*>(scratch.data);
    auto* const counter = failed + some.size();
    check(cudaMemsetAsync(failed, 0, std::size_t(needed.words) * sizeof(Word), native(stream)));
    check(cudaMemsetAsync(failed, 0xff, some.size() * sizeof(Word), native(stream)));
    auto* const blocks = reinterpret_cast<unsigned*>(counter + 1 + some.size());
    auto* flags = blocks + kBlockWords;
    Launch launch{};
    launch.reach = s.reach;
    launch.reach_tiles = int(band_reach_tiles(s));
    launch.count = int(some.size());
    launch.counter = counter;
    launch.blocks = blocks;
    launch.turns = flags + needed.flags;
    for (const BandPart<Cuda>& p : some)
      launch.stride = std::max(launch.stride, int(Scratch::width(s, p)));
    for (std::size_t i = 0; i < some.size(); ++i) {
      const BandPart<Cuda>& p = some[i];
      launch.parts[i] = {p.band,       p.inverse,    p.spike, p.arrow_block, p.coupling,
                         p.tiles,      p.window,     p.from,  p.end(),       p.ring,
                         p.arrow / kW, p.complete(), flags,   failed + i};
      flags += (p.end() - p.from) * launch.stride;
    }
    const Index tiles = launch.reach_tiles;
    const bool band_alone =
        std::all_of(some.begin(), some.end(), [](const auto& p) { return p.arrow == 0; });
    const bool wide = band_alone ? launch.count * tiles * tiles >= kWideWork : tiles >= kWideTiles;
    launch.apart = !wide && band_alone && launch.count <= 2;
    if (is_narrow(s, some))
      launch_narrow(stream, launch, needed.flags);
    else if (wide)
      launch_parts<2, 6>(stream, launch);
    else
      launch_parts<1, 4>(stream, launch);
    read_status<<<1, kMostParts, 0, native(stream)>>>(failed, launch.count, status.data + first);
    check_launch();
  }
}

}  // namespace terrace::band
