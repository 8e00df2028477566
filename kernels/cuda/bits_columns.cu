// Roofline: a pass reads every row's word of the column and moves the rows with a one there, right
// of the column, once in and once out: 16 bytes for 64 columns of such a row.
#include "kernels/bits_columns.hpp"
#include "kernels/cuda/runtime.cuh"

namespace terrace {
namespace {

__global__ void search_kernel(ColumnGauss g, Index column, bool advance) {
  __shared__ int found;
  __shared__ Index first;
  if (threadIdx.x == 0) {
    found = INT_MAX;
    first = g.state[0] + (advance && g.state[1] >= 0);
  }
  __syncthreads();
  const Index count = g.rows.count;
  for (Index from = first; from < count; from += blockDim.x) {
    const Index i = from + threadIdx.x;
    if (i < count &&
        (g.rows.data[g.rows.row(i) * g.rows.stride + column / 64] >> (column % 64)) & 1)
      atomicMin(&found, int(i));
    __syncthreads();
    if (found != INT_MAX) break;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    g.state[0] = first;
    g.state[1] = found == INT_MAX ? -1 : found;
  }
}

__global__ void move_kernel(ColumnGauss g, Index first_word) {
  const Index rank = g.state[0], pivot = g.state[1];
  if (pivot < 0 || pivot == rank) return;
  if (g.order) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      const Index moved = g.order[rank];
      g.order[rank] = g.order[pivot];
      g.order[pivot] = moved;
    }
    return;
  }
  for (Index w = first_word + blockIdx.x * blockDim.x + threadIdx.x; w < g.words;
       w += Index(gridDim.x) * blockDim.x) {
    Word& a = g.rows.data[rank * g.rows.stride + w];
    Word& b = g.rows.data[pivot * g.rows.stride + w];
    const Word moved = a;
    a = b;
    b = moved;
  }
}

// A warp a row: its first lane reads the bit before the row changes.
__global__ void subtract_kernel(ColumnGauss g, Index column) {
  const Index rank = g.state[0], pivot = g.state[1];
  if (pivot < 0) return;
  const Index warps = Index(gridDim.x) * (blockDim.x / 32);
  const int lane = int(threadIdx.x) % 32;
  const Index first_word = column / 64 / 2 * 2;  // 16 bytes a lane
  const Word* from = g.rows.data + g.rows.row(rank) * g.rows.stride;
  for (Index i = pivot + 1 + (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 32; i < g.rows.count;
       i += warps) {
    Word* row = g.rows.data + g.rows.row(i) * g.rows.stride;
    const bool one = (row[column / 64] >> (column % 64)) & 1;
    __syncwarp();
    if (!one) continue;
    for (Index w = first_word + 2 * lane; w < g.words; w += 64) {
      ulonglong2 value = *reinterpret_cast<const ulonglong2*>(row + w);
      const ulonglong2 other = *reinterpret_cast<const ulonglong2*>(from + w);
      value.x ^= other.x, value.y ^= other.y;
      *reinterpret_cast<ulonglong2*>(row + w) = value;
    }
  }
}

}  // namespace

void search_column(const Stream<Cuda>& stream, const ColumnGauss& g, Index column, bool advance) {
  search_kernel<<<1, unsigned(g.search_threads), 0, native(stream)>>>(g, column, advance);
  check_launch();
}

void clear_column(const Stream<Cuda>& stream, const ColumnGauss& g, Index column) {
  const Index first_word = column / 64;
  const unsigned moving = g.order ? 1 : unsigned(ceil_div(g.words - first_word, 256));
  move_kernel<<<moving, 256, 0, native(stream)>>>(g, first_word);
  check_launch();
  const Index warps = g.subtract_threads / 32;
  subtract_kernel<<<unsigned(std::min<Index>(ceil_div(g.rows.count, warps), 132 * 16)),
                    unsigned(g.subtract_threads), 0, native(stream)>>>(g, column);
  check_launch();
}

}  // namespace terrace
