// Distinct numbers on CUDA. Bound by launches where lists are a rank's border; by the lists, 16 bytes a
// number, where they are long.
#include <limits>

#include "kernels/cg/cuda/coarsening.cuh"
#include "kernels/cg/distinct.hpp"

namespace terrace::cg {
namespace {

using coarsening::launch;
using Bits = unsigned long long;

/// ends = { least, largest }.
__global__ void __launch_bounds__(block_threads)
    reach_kernel(View<const Index, Cuda> list, NumberRange without, long long* ends) {
  long long least = std::numeric_limits<Index>::max(), most = std::numeric_limits<Index>::min();
  for (Index k = first_item(); k < list.size; k += item_stride()) {
    const Index n = list.data[k];
    if (n < 0 || without.has(n)) continue;
    least = min(least, (long long)n);
    most = max(most, (long long)n);
  }
  for (int offset = 16; offset > 0; offset >>= 1) {
    least = min(least, __shfl_xor_sync(0xffffffffu, least, offset));
    most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
  }
  if (threadIdx.x % 32 == 0 && least <= most) {
    atomicMin(ends, least);
    atomicMax(ends + 1, most);
  }
}
__global__ void __launch_bounds__(block_threads)
    set_kernel(View<const Index, Cuda> list, NumberRange without, Index least, Bits* set) {
  for (Index k = first_item(); k < list.size; k += item_stride()) {
    const Index n = list.data[k], at = n - least;
    if (n < 0 || without.has(n)) continue;
    const Bits bit = Bits(1) << (at % 64);
    if ((set[at / 64] & bit) == 0) atomicOr(set + at / 64, bit);
  }
}
/// Bits of each word, and zero behind them.
__global__ void __launch_bounds__(block_threads)
    count_bits_kernel(const Word* __restrict__ set, Index words, Index* count) {
  for (Index w = first_item(); w <= words; w += item_stride())
    count[w] = w < words ? __popcll(set[w]) : 0;
}
__global__ void __launch_bounds__(block_threads)
    ascending_kernel(const Word* __restrict__ set, const Index* __restrict__ before, Index words,
                     Index least, Index* to) {
  for (Index w = first_item(); w < words; w += item_stride()) {
    Index* next = to + before[w];
    for (Bits left = set[w]; left != 0; left &= left - 1)
      *next++ = least + 64 * w + __ffsll((long long)left) - 1;
  }
}
__global__ void __launch_bounds__(block_threads)
    locate_kernel(View<const Index, Cuda> from, NumberRange own, Index least,
                  const Word* __restrict__ set, const Index* __restrict__ before,
                  std::int32_t* to) {
  for (Index k = first_item(); k < from.size; k += item_stride()) {
    const Index n = from.data[k];
    if (n < 0 || own.has(n)) {
      to[k] = std::int32_t(n < 0 ? -1 : n - own.first);
      continue;
    }
    const Index at = n - least;
    const Bits below = (Bits(1) << (at % 64)) - 1;
    to[k] = std::int32_t(own.count + before[at / 64] + __popcll(set[at / 64] & below));
  }
}

}  // namespace

template <>
DistinctNumbers<Cuda> distinct_numbers(const Stream<Cuda>& stream,
                                       const std::vector<View<const Index, Cuda>>& lists,
                                       NumberRange without, Scratch<Cuda>& scratch) {
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto ends = scratch.take<Index>(2);
  Index found[2] = {std::numeric_limits<Index>::max(), std::numeric_limits<Index>::min()};
  upload(stream, ends, found);
  for (const auto& list : lists)
    launch(stream, list.size, reach_kernel, list, without, reinterpret_cast<long long*>(ends.data));
  download(stream, found, View<const Index, Cuda>(ends));
  stream.synchronize();
  DistinctNumbers<Cuda> numbers;
  if (found[1] < found[0]) return numbers;
  const Index least = found[0], words = (found[1] - least) / 64 + 1;
  numbers.least = least;
  numbers.set = Buffer<Word, Cuda>(words);
  numbers.before = Buffer<Index, Cuda>(words + 1);
  fill_zero(stream, numbers.set.view());
  for (const auto& list : lists)
    launch(stream, list.size, set_kernel, list, without, least,
           reinterpret_cast<Bits*>(numbers.set.data()));
  launch(stream, words + 1, count_bits_kernel, numbers.set.data(), words, numbers.before.data());
  coarsening::sum_before(stream, numbers.before.view(), scratch);
  numbers.ascending =
      Buffer<Index, Cuda>(coarsening::read_one(stream, numbers.before.data() + words));
  launch(stream, words, ascending_kernel, numbers.set.data(), numbers.before.data(), words, least,
         numbers.ascending.data());
  stream.synchronize();
  return numbers;
}

template <>
void locate(const Stream<Cuda>& stream, const DistinctNumbers<Cuda>& numbers, NumberRange own,
            View<const Index, Cuda> from, View<std::int32_t, Cuda> to) {
  launch(stream, from.size, locate_kernel, from, own, numbers.least, numbers.set.data(),
         numbers.before.data(), to.data);
}

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
