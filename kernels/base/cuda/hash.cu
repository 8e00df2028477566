// Roofline: memory bandwidth, 8 bytes an element; about 60 instructions each, a third of what the
// multiprocessors do meanwhile.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/hash.hpp"

namespace terrace {
namespace {

__global__ void hash_kernel(Index total, Index columns, const Index* __restrict__ row,
                            const Word* __restrict__ data, Index ld,
                            unsigned long long* __restrict__ sum) {
  unsigned long long mine = 0;
  for (Index k = first_item(); k < total; k += item_stride()) {
    const Index i = k / columns, j = k - i * columns;
    mine += hash_element(data[i * ld + j], row[i] * columns + j);
  }
  for (int offset = 16; offset > 0; offset >>= 1)
    mine += __shfl_down_sync(0xffffffffu, mine, offset);
  if ((threadIdx.x & 31) == 0) atomicAdd(sum, mine);  // whole numbers: any order
}

}  // namespace

Word hash_rows(const Stream<Cuda>& stream, View<const Index, Cuda> row, Index columns,
               const Word* data, Index ld) {
  const Index total = row.size * columns;
  if (total == 0) return 0;
  const Buffer<Word, Cuda> sum(1);
  Word result = 0;
  fill_zero(stream, sum.view());
  hash_kernel<<<blocks_for(total), block_threads, 0, native(stream)>>>(
      total, columns, row.data, data, ld, reinterpret_cast<unsigned long long*>(sum.data()));
  check_launch();
  download(stream, &result, sum.view());
  stream.synchronize();
  return result;
}

}  // namespace terrace
