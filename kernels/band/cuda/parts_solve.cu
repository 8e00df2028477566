// Roofline: arrows: the spike is read once, 8 bytes for 2 flops a right-hand side, HBM.
#include "kernels/band/cuda/parts_solve.cuh"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace::band {
namespace {

constexpr int kWarps = 8;
/// Columns of a spike that share one read of V vectors.
constexpr int columns_of_warp(int v) { return v == 1 ? 8 : 4; }
constexpr unsigned kAll = 0xffffffffu;

/// One part's arrow and spike in a substitution for few.
struct ArrowPart {
  const double* spike;
  double *rows, *arrow_rows;  ///< right-hand sides of the part and of its arrow
  double* partial;
  Index arrow, columns;
  Index columns_of_block;
  int partials;  ///< sums of `partial`, arrow x nrhs each
};
constexpr int kArrowsAtOnce = 48;
struct ArrowParts {
  ArrowPart part[kArrowsAtOnce];
};
static_assert(sizeof(ArrowParts) <= 4000);

/// partial[blockIdx.y] (arrow x nrhs) := W y for its columns of W; a block takes 64 rows. blockIdx.z
/// counts the parts, and groups of V right-hand sides in each, which share one read of the spike.
template <int V>
__global__ void __launch_bounds__(32 * kWarps)
    spike_times(const __grid_constant__ ArrowParts parts, int groups, int nrhs) {
  __shared__ double part[kWarps][V][64];
  const ArrowPart& p = parts.part[int(blockIdx.z) / groups];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index r0 = Index(blockIdx.x) * 64;
  if (r0 >= p.arrow || int(blockIdx.y) >= p.partials) return;
  const Index first = Index(blockIdx.y) * p.columns_of_block;
  const Index end = min(p.columns, first + p.columns_of_block);
  const int v0 = int(blockIdx.z) % groups * V, count = min(V, nrhs - v0);
  const double *const spike = p.spike, *const y = p.rows;
  const Index arrow = p.arrow;
  double sum[V][2] = {};
#pragma unroll 8
  for (Index c = first + warp; c < end; c += kWarps) {
    const double2 w = *reinterpret_cast<const double2*>(spike + c * arrow + r0 + 2 * lane);
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v < count) {
        const double known = y[c * nrhs + v0 + v];
        sum[v][0] += w.x * known;
        sum[v][1] += w.y * known;
      }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    part[warp][v][2 * lane] = sum[v][0];
    part[warp][v][2 * lane + 1] = sum[v][1];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < count * 64; at += blockDim.x) {
    const int v = at / 64, r = at % 64;
    double total = 0.0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += part[w][v][r];
    p.partial[(Index(blockIdx.y) * arrow + r0 + r) * nrhs + v0 + v] = total;
  }
}

/// x -= the partial sums, one after the other.
__device__ void subtract_sums(Index size, int count, const double* partial, double* x) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += step) {
    double total = 0.0;
#pragma unroll 4
    for (int p = 0; p < count; ++p) total += partial[p * size + i];
    x[i] -= total;
  }
}
__global__ void __launch_bounds__(256)
    subtract_partial(Index size, int count, const double* partial, double* x) {
  subtract_sums(size, count, partial, x);
}
/// blockIdx.y counts the parts.
__global__ void __launch_bounds__(256)
    subtract_partials(const __grid_constant__ ArrowParts parts, int nrhs) {
  const ArrowPart& p = parts.part[blockIdx.y];
  subtract_sums(p.arrow * nrhs, p.partials, p.partial, p.arrow_rows);
}

/// Sums over the warp of N numbers per lane, N a power of two, at most 32: lane l gets that of
/// number l N / 32.
template <int N>
__device__ double sums_of_warp(double (&s)[N]) {
  const int lane = threadIdx.x % 32;
  int step = 16;
#pragma unroll
  for (int n = N; n > 1; n /= 2, step /= 2)
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      const bool upper = lane & step;
      const double given = upper ? s[i] : s[i + n / 2];
      s[i] = (upper ? s[i + n / 2] : s[i]) + __shfl_xor_sync(kAll, given, step);
    }
#pragma unroll
  for (; step > 0; step /= 2) s[0] += __shfl_xor_sync(kAll, s[0], step);
  return s[0];
}

/// rows -= W^T x; a warp takes columns_of_warp(V) columns of W. blockIdx.z counts the parts,
/// blockIdx.y groups of V right-hand sides.
template <int V>
__global__ void __launch_bounds__(32 * kWarps)
    subtract_spike_transposed(const __grid_constant__ ArrowParts parts, int nrhs) {
  const ArrowPart& p = parts.part[blockIdx.z];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int columns = columns_of_warp(V);
  const Index c0 = (Index(blockIdx.x) * kWarps + warp) * columns;
  const int v0 = blockIdx.y * V, count = min(V, nrhs - v0);
  if (c0 >= p.columns) return;  // a multiple of 64
  const double *const spike = p.spike, *const x = p.arrow_rows;
  const Index arrow = p.arrow;
  double sum[V][columns] = {};
#pragma unroll 2
  for (Index r = 2 * lane; r < arrow; r += 64) {
    double2 w[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c)
      w[c] = *reinterpret_cast<const double2*>(spike + (c0 + c) * arrow + r);
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v < count) {
        const double upper = x[r * nrhs + v0 + v], lower = x[(r + 1) * nrhs + v0 + v];
#pragma unroll
        for (int c = 0; c < columns; ++c) sum[v][c] += w[c].x * upper + w[c].y * lower;
      }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const double total = sums_of_warp(sum[v]);
    constexpr int lanes = 32 / columns;
    if (lane % lanes == 0 && v < count) p.rows[(c0 + lane / lanes) * nrhs + v0 + v] -= total;
  }
}

constexpr Index kGroup = 512;       // right-hand sides of one launch for many
constexpr Index kAlign = 32;        // words
constexpr Index kMostPartial = 64;  // partial sums of W y, at most
/// Numbers of a product's result that keep the device busy.
constexpr Index kBusy = 132 * 128 * 128 * 2;

bool is_few(Index nrhs) { return nrhs <= kFewColumns; }

/// Partial sums of W y for one part.
Index partial_sums(const BandPart<Cuda>& part, Index nrhs) {
  if (part.arrow == 0 || part.tiles == 0) return 0;
  const Index wanted = is_few(nrhs) ? std::min(kMostPartial, ceil_div(part.tiles, 4))
                                    : std::min(ceil_div(kBusy, part.arrow * nrhs), Index(16));
  return std::clamp<Index>(wanted, 1, part.tiles);
}

/// Numbers of the products of one direction, for few; and what of them takes scratch.
Index few_numbers(const BandShape& s, const BandPart<Cuda>& part) {
  return part.tiles * few_distances(s.reach) * kTileSize;
}
Index few_products(const BandShape& s, const BandPart<Cuda>& part) {
  return part.prepared ? 0 : few_numbers(s, part);
}

/// Where what lies in scratch, in words.
struct Places {
  std::vector<Index> product, board, flags;
  std::vector<Index> partial;  ///< many: the same for all parts, one after the other
  Index zeroed = 0;            ///< the first words: boards (few) or flags (many)
  Index size = 0;

  Places(const BandShape& s, std::span<const BandPart<Cuda>> parts, Index nrhs) {
    const bool few = is_few(nrhs);
    const Index columns = std::min(nrhs, kGroup);
    const auto take = [&](std::vector<Index>& at, Index words) {
      at.push_back(size);
      size += round_up(words, kAlign);
    };
    for (const BandPart<Cuda>& p : parts) {
      if (few)
        take(board, few_board(p.tiles, columns));
      else
        take(flags, many_chains(columns) * kFlagStride / 2);
    }
    zeroed = size;
    for (const BandPart<Cuda>& p : parts) {
      take(product, few ? few_products(s, p) : p.tiles * kTileSize);
      if (!few) take(board, many_board(p.tiles, p.window, columns));
    }
    Index most = 0;
    for (const BandPart<Cuda>& p : parts) {
      const Index sums = round_up(partial_sums(p, nrhs) * p.arrow * nrhs, kAlign);
      partial.push_back(size);
      if (few)
        size += sums;
      else
        most = std::max(most, sums);
    }
    size += most + kAlign;  // the last ones for aligning the whole
  }
};

void require(bool holds, const char* what) {
  if (!holds) throw Error(Exit::internal, std::string(what) + "; kernels/band/cuda/parts_solve.cu");
}

/// arrow rows -= W y, for many.
void subtract_from_arrow(const Stream<Cuda>& stream, const BandPart<Cuda>& part,
                         const BandPartVectors<Cuda>& x, Index nrhs, double* partial) {
  const Index columns = part.tiles * kTile, count = partial_sums(part, nrhs);
  if (count == 0) return;
  const Index each = ceil_div(part.tiles, count) * kTile, whole = columns / each,
              used = ceil_div(columns, each), size = part.arrow * nrhs;
  const double one = 1, zero = 0;
  check(cublasDgemmStridedBatched_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, nrhs, part.arrow,
                                     each, &one, x.rows, nrhs, each * nrhs, part.spike, part.arrow,
                                     each * part.arrow, &zero, partial, nrhs, size, whole));
  if (used > whole)
    check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, nrhs, part.arrow,
                         columns - whole * each, &one, x.rows + whole * each * nrhs, nrhs,
                         part.spike + whole * each * part.arrow, part.arrow, &zero,
                         partial + whole * size, nrhs));
  subtract_partial<<<unsigned(std::min<Index>(ceil_div(size, 256), 1024)), 256, 0,
                     native(stream)>>>(size, int(used), partial, x.arrow);
  check_launch();
}

/// rows -= W^T (arrow rows), for many.
void subtract_arrow(const Stream<Cuda>& stream, const BandPart<Cuda>& part,
                    const BandPartVectors<Cuda>& x, Index nrhs) {
  const Index columns = part.tiles * kTile;
  if (part.arrow == 0 || columns == 0) return;
  const double minus = -1, one = 1;
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, nrhs, columns, part.arrow, &minus,
                       x.arrow, nrhs, part.spike, part.arrow, &one, x.rows, nrhs));
}

/// Either of them for few, of all parts at once; partial(p): where part p's sums go.
template <int V, class Partial>
void subtract_arrows(const Stream<Cuda>& stream, std::span<const BandPart<Cuda>> parts,
                     std::span<const BandPartVectors<Cuda>> x, Index nrhs, bool transposed,
                     const Partial& partial) {
  const Index groups = ceil_div(nrhs, V);
  ArrowParts some{};
  Index arrow = 0, columns = 0, partials = 0;
  int count = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const BandPart<Cuda>& part = parts[p];
    if (const Index sums = partial_sums(part, nrhs); sums > 0) {
      const Index own = part.tiles * kTile, each = ceil_div(part.tiles, sums) * kTile;
      const Index used = ceil_div(own, each);
      some.part[count++] = {part.spike, x[p].rows, x[p].arrow, partial(p),
                            part.arrow, own,       each,       int(used)};
      arrow = std::max(arrow, part.arrow);
      columns = std::max(columns, own);
      partials = std::max(partials, used);
    }
    if (count == 0 || (count < kArrowsAtOnce && p + 1 < parts.size())) continue;
    if (transposed) {
      subtract_spike_transposed<V><<<dim3(unsigned(ceil_div(columns, kWarps * columns_of_warp(V))),
                                          unsigned(groups), unsigned(count)),
                                     32 * kWarps, 0, native(stream)>>>(some, int(nrhs));
    } else {
      spike_times<V><<<dim3(unsigned(arrow / 64), unsigned(partials), unsigned(groups * count)),
                       32 * kWarps, 0, native(stream)>>>(some, int(groups), int(nrhs));
      check_launch();
      const Index blocks = std::min<Index>(ceil_div(arrow * nrhs, 256), 1024);
      subtract_partials<<<dim3(unsigned(blocks), unsigned(count)), 256, 0, native(stream)>>>(
          some, int(nrhs));
    }
    check_launch();
    count = 0, arrow = columns = partials = 0;
  }
}

void substitute(const Stream<Cuda>& stream, const BandShape& s,
                std::span<const BandPart<Cuda>> parts, std::span<const BandPartVectors<Cuda>> x,
                Index nrhs, View<Word, Cuda> scratch, bool transposed) {
  if (nrhs == 0 || parts.empty()) return;
  const Places places(s, parts, nrhs);
  require(s.width == kTile, "width of a part is not 64");
  require(x.size() == parts.size(), "parts and right-hand sides differ in number");
  require(scratch.size >= places.size, "scratch too small");
  for (const BandPart<Cuda>& p : parts) {
    require(p.ring >= p.tiles + p.window, "substitution in a ring that turns over");
    require(p.arrow % kTile == 0, "arrow is not a multiple of the width");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data);
  Word* const base = reinterpret_cast<Word*>(Index(round_up(Index(address), kAlign * 8)));
  const auto words = [&](Index at) { return base + at; };
  const auto numbers = [&](Index at) { return reinterpret_cast<double*>(base + at); };
  const bool few = is_few(nrhs);

  const auto of_arrow = [&](std::size_t p) { return numbers(places.partial[p]); };
  const auto subtract_few = [&] {
    if (nrhs == 1)
      subtract_arrows<1>(stream, parts, x, nrhs, transposed, of_arrow);
    else
      subtract_arrows<4>(stream, parts, x, nrhs, transposed, of_arrow);
  };
  if (transposed && few)
    subtract_few();
  else if (transposed)
    for (std::size_t p = 0; p < parts.size(); ++p) subtract_arrow(stream, parts[p], x[p], nrhs);
  const bool prepared =
      few && std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.prepared; });
  for (Index column = 0; column < nrhs; column += kGroup) {
    check(cudaMemsetAsync(base, 0, std::size_t(places.zeroed) * sizeof(Word), native(stream)));
    for (std::size_t first = 0; first < parts.size(); first += kPartsAtOnce) {
      SolveParts all{};
      all.reach = s.reach;
      all.stride = nrhs;
      all.columns = int(std::min(kGroup, nrhs - column));
      all.count = int(std::min<std::size_t>(kPartsAtOnce, parts.size() - first));
      for (int i = 0; i < all.count; ++i) {
        const std::size_t p = first + std::size_t(i);
        const BandPart<Cuda>& part = parts[p];
        all.part[i] = {part.band,
                       part.inverse,
                       x[p].rows + column,
                       few && part.prepared
                           ? part.prepared + (transposed ? few_numbers(s, part) : 0)
                           : numbers(places.product[p]),
                       words(places.board[p]),
                       few ? nullptr : reinterpret_cast<unsigned*>(words(places.flags[p])),
                       int(part.tiles),
                       int(part.window)};
        const Index steps = part.tiles > 0 ? part.tiles + (transposed ? 0 : part.window) : 0;
        all.steps = std::max(all.steps, int(steps));
      }
      if (all.steps == 0) continue;
      if (column == 0 && !prepared) form_products(native(stream), all, transposed, few);
      few ? substitute_few(native(stream), all, transposed)
          : substitute_many(native(stream), all, transposed);
    }
  }
  if (!transposed && few)
    subtract_few();
  else if (!transposed)
    for (std::size_t p = 0; p < parts.size(); ++p)
      subtract_from_arrow(stream, parts[p], x[p], nrhs, of_arrow(p));
}

}  // namespace

Index band_prepared_doubles(Cuda, BandShape s, const BandPart<Cuda>& part) {
  return 2 * few_numbers(s, part);
}

void band_prepare(const Stream<Cuda>& stream, BandShape s, std::span<const BandPart<Cuda>> parts) {
  for (const bool transposed : {false, true})
    for (std::size_t first = 0; first < parts.size(); first += kPartsAtOnce) {
      SolveParts all{};
      all.reach = s.reach;
      all.count = int(std::min<std::size_t>(kPartsAtOnce, parts.size() - first));
      for (int i = 0; i < all.count; ++i) {
        const BandPart<Cuda>& part = parts[first + std::size_t(i)];
        all.part[i] = {part.band,       part.inverse,
                       nullptr,         part.prepared + (transposed ? few_numbers(s, part) : 0),
                       nullptr,         nullptr,
                       int(part.tiles), int(part.window)};
      }
      form_products(native(stream), all, transposed, true);
    }
}

Index band_substitute_scratch(Cuda, BandShape s, std::span<const BandPart<Cuda>> parts,
                              Index nrhs) {
  return nrhs > 0 && !parts.empty() ? Places(s, parts, nrhs).size : 0;
}

void band_forward_parts(const Stream<Cuda>& stream, BandShape s,
                        std::span<const BandPart<Cuda>> parts,
                        std::span<const BandPartVectors<Cuda>> x, Index nrhs,
                        View<Word, Cuda> scratch) {
  substitute(stream, s, parts, x, nrhs, scratch, false);
}

void band_backward_parts(const Stream<Cuda>& stream, BandShape s,
                         std::span<const BandPart<Cuda>> parts,
                         std::span<const BandPartVectors<Cuda>> x, Index nrhs,
                         View<Word, Cuda> scratch) {
  substitute(stream, s, parts, x, nrhs, scratch, true);
}

}  // namespace terrace::band
