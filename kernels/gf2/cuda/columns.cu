// Roofline: a pass reads every row's word of the column and moves the rows with a one there, right
// of the column, once in and once out: 16 bytes for 64 columns of such a row.
#include "kernels/gf2/columns.hpp"

#include <algorithm>
#include <climits>

#include "kernels/base/cuda/runtime.cuh"

namespace terrace::gf2 {
namespace {

using Gauss = ColumnGauss<Cuda>;

constexpr Index constant_words = 8192;  // 64 KiB: rows of 524,288 columns
__constant__ __align__(16) Word constant_row[constant_words];

__device__ __forceinline__ Word* row_at(const Gauss& g, Index position) {
  return g.data + (g.swap ? position : g.order[position]) * g.stride;
}

__global__ void search_kernel(const Gauss g, Index column, bool advance) {
  __shared__ int found;
  __shared__ Index first;
  if (threadIdx.x == 0) {
    found = INT_MAX;
    first = g.state[0] + (advance && g.state[1] >= 0);
  }
  __syncthreads();
  for (Index from = first; from < g.count; from += blockDim.x) {
    const Index i = from + threadIdx.x;
    if (i < g.count && (row_at(g, i)[column / 64] >> (column % 64)) & 1) atomicMin(&found, int(i));
    __syncthreads();
    const bool done = found != INT_MAX;
    __syncthreads();
    if (done) break;
  }
  if (threadIdx.x != 0) return;
  g.state[0] = first;
  g.state[1] = found == INT_MAX ? -1 : found;
  if (found == INT_MAX) return;
  g.columns[first] = column;
  const Index moved = g.order[first];
  g.order[first] = g.order[found];
  g.order[found] = moved;
}

/// Words of a row that are moved: 16 bytes at a time, the last word with what stands beside it.
__host__ __device__ inline Index moved_words(const Gauss& g) { return round_up(g.words, 2); }

/// Swaps the rows where rows move, and puts the pivot row aside where it is read from there.
__global__ void move_kernel(const Gauss g, Index first_word, bool stage) {
  const Index rank = g.state[0], pivot = g.state[1];
  if (pivot < 0) return;
  Word* to = row_at(g, rank);
  Word* from = g.swap ? row_at(g, pivot) : to;
  for (Index w = first_word + blockIdx.x * blockDim.x + threadIdx.x; w < moved_words(g);
       w += Index(gridDim.x) * blockDim.x) {
    const Word mine = from[w];
    if (stage) g.staged[w] = mine;
    if (from == to) continue;
    from[w] = to[w];
    to[w] = mine;
  }
}

template <PivotPath path>
__device__ __forceinline__ ulonglong2 pivot_words(const Word* row, unsigned long long texture,
                                                  Index w) {
  if constexpr (path == PivotPath::constant) {
    return *reinterpret_cast<const ulonglong2*>(constant_row + w);
  } else if constexpr (path == PivotPath::texture) {
    const uint4 v = tex1Dfetch<uint4>(cudaTextureObject_t(texture), int(w / 2));
    return {v.x | Word(v.y) << 32, v.z | Word(v.w) << 32};
  } else {
    return *reinterpret_cast<const ulonglong2*>(row + w);
  }
}

// `lanes` threads a row; they have read its bit before one of them changes it.
template <PivotPath path>
__global__ void __launch_bounds__(1024) subtract_kernel(const Gauss g, Index column, Index above) {
  extern __shared__ ulonglong2 memory[];
  const Index rank = g.state[0], pivot = g.state[1];
  if (pivot < 0) return;
  const int lanes = g.shape.lanes, group = int(threadIdx.x) / lanes;
  const int lane = int(threadIdx.x) % lanes, rows = int(blockDim.x) / lanes;
  const Index column_word = column / 64;
  const Index first_word = g.in_place ? 0 : column_word / 2 * 2;  // 16 bytes a lane
  const Word bit = Word(1) << (column % 64);
  const Word* from = row_at(g, rank);
  if constexpr (path == PivotPath::shared) {
    for (Index w = first_word + 2 * Index(threadIdx.x); w < g.words; w += 2 * Index(blockDim.x))
      memory[(w - first_word) / 2] = *reinterpret_cast<const ulonglong2*>(from + w);
    from = reinterpret_cast<const Word*>(memory) - first_word;
    __syncthreads();
  }
  const Index before = rank - above, items = before + g.count - (pivot + 1);
  for (Index base = Index(blockIdx.x) * rows; base < items; base += Index(gridDim.x) * rows) {
    const Index item = base + group;
    Word* row = nullptr;
    bool one = false;
    if (item < items) {
      row = row_at(g, item < before ? above + item : pivot + 1 + (item - before));
      one = (row[column_word] & bit) != 0;
    }
    if (lanes > 32)
      __syncthreads();
    else
      __syncwarp();
    if (!one) continue;
    for (Index w = first_word + 2 * lane; w < g.words; w += 2 * lanes) {
      ulonglong2 value = *reinterpret_cast<const ulonglong2*>(row + w);
      ulonglong2 other = pivot_words<path>(from, g.texture, w);
      if (g.in_place && w == column_word / 2 * 2) (column_word % 2 ? other.y : other.x) &= ~bit;
      value.x ^= other.x, value.y ^= other.y;
      *reinterpret_cast<ulonglong2*>(row + w) = value;
    }
  }
}

template <PivotPath path>
void subtract(const Stream<Cuda>& stream, const Gauss& g, Index column, Index above) {
  const Index rows = g.shape.threads / g.shape.lanes;
  const Index first_word = g.in_place ? 0 : column / 64 / 2 * 2;
  const Index blocks =
      std::clamp<Index>(ceil_div(g.count - above, rows), 1, std::max(1, g.shape.blocks));
  std::size_t bytes = 0;
  if constexpr (path == PivotPath::shared) {
    bytes = std::size_t(8 * (moved_words(g) - first_word));
    if (bytes > 48 * 1024) allow_shared(subtract_kernel<path>, int(bytes));
  }
  subtract_kernel<path>
      <<<unsigned(blocks), unsigned(g.shape.threads), bytes, native(stream)>>>(g, column, above);
  check_launch();
}

}  // namespace

void search_column(const Stream<Cuda>& stream, const Gauss& g, Index column, bool advance) {
  search_kernel<<<1, unsigned(g.shape.search_threads), 0, native(stream)>>>(g, column, advance);
  check_launch();
}

void clear_column(const Stream<Cuda>& stream, const Gauss& g, Index column, Index above) {
  if (g.count <= 0) return;
  const bool stage = g.path == PivotPath::constant || g.path == PivotPath::texture;
  if (g.swap || stage) {
    const Index first_word = g.in_place ? 0 : column / 64 / 2 * 2;
    move_kernel<<<unsigned(ceil_div(moved_words(g) - first_word, 256)), 256, 0, native(stream)>>>(
        g, first_word, stage);
    check_launch();
  }
  switch (g.path) {
    case PivotPath::plain:
      return subtract<PivotPath::plain>(stream, g, column, above);
    case PivotPath::shared:
      return subtract<PivotPath::shared>(stream, g, column, above);
    case PivotPath::constant:
      if (moved_words(g) > constant_words)
        throw Error(Exit::internal, "a pivot row longer than constant memory");
      check(cudaMemcpyToSymbolAsync(constant_row, g.staged, std::size_t(8 * moved_words(g)), 0,
                                    cudaMemcpyDeviceToDevice, native(stream)));
      return subtract<PivotPath::constant>(stream, g, column, above);
    case PivotPath::texture:
      return subtract<PivotPath::texture>(stream, g, column, above);
  }
}

RowTexture::RowTexture(const Word* row, Index words) {
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = const_cast<Word*>(row);
  resource.res.linear.desc = cudaCreateChannelDesc<uint4>();
  resource.res.linear.sizeInBytes = std::size_t(8 * round_up(words, 2));
  cudaTextureDesc texture{};
  texture.readMode = cudaReadModeElementType;
  cudaTextureObject_t made = 0;
  check(cudaCreateTextureObject(&made, &resource, &texture, nullptr));
  handle_ = made;
}

RowTexture::~RowTexture() {
  if (handle_ != 0) cudaDestroyTextureObject(handle_);
}

}  // namespace terrace::gf2
