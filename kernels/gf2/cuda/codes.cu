// Roofline: as combine()'s; the orders differ in what building the tables costs.
#include "kernels/gf2/codes.hpp"

#include <vector>

#include "kernels/gf2/cuda/combine.cuh"

namespace terrace::gf2 {
namespace {

constexpr int most_k = 14;
__constant__ unsigned short all_codes[1 << most_k];
__constant__ unsigned short half_codes[1 << (most_k - 1)];

template <CodeOrder order, int k>
__device__ __forceinline__ unsigned code_at(int i) {
  if constexpr (order == CodeOrder::table)
    return all_codes[i];
  else if constexpr (order == CodeOrder::computed)
    return unsigned(i) ^ (unsigned(i) >> 1);
  else if constexpr (order == CodeOrder::two_passes)
    return half_codes[i];
  else
    return i < 1 << (k - 1) ? half_codes[i] : half_codes[(1 << k) - 1 - i] | 1u << (k - 1);
}

template <CodeOrder order>
struct Walk {
  template <class S>
  static __device__ __forceinline__ void tables(const typename S::Part* rows,
                                                typename S::Part* table) {
    using V = typename S::Part;
    constexpr int walked = order == CodeOrder::two_passes ? S::k - 1 : S::k;
    constexpr int share = (S::tables << walked) * S::lanes / S::threads;
    constexpr int step = share >= 32 ? 32 : share >= 16 ? 16 : share >= 8 ? 8 : share >= 4 ? 4 : 2;
    constexpr int pieces = (1 << walked) / step;
    for (int item = int(threadIdx.x); item < S::tables * pieces * S::lanes; item += S::threads) {
      const int lane = item % S::lanes, piece = item / S::lanes % pieces;
      const int t = item / (S::lanes * pieces);
      const V* from = rows + t * S::k * S::lanes + lane;
      V* to = table + (t << S::k) * S::lanes + lane;
      unsigned code = code_at<order, S::k>(piece * step);
      V entry{};
#pragma unroll
      for (int j = 0; j < S::k; ++j)
        if ((code >> j) & 1) add(entry, from[j * S::lanes]);
      to[code * S::lanes] = entry;
#pragma unroll
      for (int s = 1; s < step; ++s) {
        const unsigned next = code_at<order, S::k>(piece * step + s);
        add(entry, from[(__ffs(int(next ^ code)) - 1) * S::lanes]);
        code = next;
        to[code * S::lanes] = entry;
      }
    }
    if constexpr (order == CodeOrder::two_passes) {
      constexpr int half = 1 << (S::k - 1);
      __syncthreads();
      for (int item = int(threadIdx.x); item < S::tables * half * S::lanes; item += S::threads) {
        const int lane = item % S::lanes, code = item / S::lanes % half;
        const int t = item / (S::lanes * half);
        V* to = table + (t << S::k) * S::lanes + lane;
        V entry = to[code * S::lanes];
        add(entry, rows[(t * S::k + S::k - 1) * S::lanes + lane]);
        to[(code | half) * S::lanes] = entry;
      }
    }
  }
};

void upload_codes() {
  static OncePerDevice<bool> once;
  (void)once([] {
    std::vector<unsigned short> codes(std::size_t(1) << most_k);
    for (unsigned i = 0; i < codes.size(); ++i) codes[i] = static_cast<unsigned short>(i ^ i >> 1);
    check(cudaMemcpyToSymbol(all_codes, codes.data(), 2 * codes.size()));
    check(cudaMemcpyToSymbol(half_codes, codes.data(), codes.size()));
    return true;
  });
}

template <class S, CodeOrder order>
void launch(const Stream<Cuda>& stream, const Combine& what) {
  auto* kernel = combine_kernel<S, false, Walk<order>>;
  constexpr int bytes = S::table_bytes + S::source_bytes;
  allow_shared(kernel, bytes);
  const dim3 grid(unsigned(ceil_div(what.words, S::strip_words)),
                  unsigned(ceil_div(what.out.count, S::tile_rows)));
  kernel<<<grid, unsigned(S::threads), std::size_t(bytes), native(stream)>>>(what);
  check_launch();
}

template <class S>
void launch(const Stream<Cuda>& stream, const Combine& what, CodeOrder order) {
  upload_codes();
  switch (order) {
    case CodeOrder::standard:
      break;
    case CodeOrder::computed:
      return launch<S, CodeOrder::computed>(stream, what);
    case CodeOrder::table:
      return launch<S, CodeOrder::table>(stream, what);
    case CodeOrder::half:
      return launch<S, CodeOrder::half>(stream, what);
    case CodeOrder::two_passes:
      return launch<S, CodeOrder::two_passes>(stream, what);
  }
  throw Error(Exit::internal, "no such order of codes");
}

}  // namespace

void combine_with_codes(const Stream<Cuda>& stream, BitRows<Word, Cuda> out,
                        BitRows<const Word, Cuda> multipliers, BitRows<const Word, Cuda> source,
                        Index out_word, Index source_word, Index words, Index k, CodeOrder order) {
  if (out.count <= 0 || source.count <= 0 || words <= 0) return;
  if (order == CodeOrder::standard)
    return combine(stream, out, multipliers, source, out_word, source_word, words, {k});
  const Combine what{out, multipliers, source, out_word, source_word, words, nullptr, 0};
  switch (k) {  // the default shapes of bits_combine.cu
    case 4:
      return launch<Launch<4, 16, uint4, 8, 8, 512, 2>>(stream, what, order);
    case 8:
      return launch<Launch<8, 4, uint4, 8, 8, 1024, 1>>(stream, what, order);
    case 11:
      return launch<Launch<11, 3, uint4, 2, 16, 512, 1>>(stream, what, order);
    case 14:
      return launch<Launch<14, 1, uint2, 1, 32, 512, 1>>(stream, what, order);
    default:
      throw Error(Exit::internal, "tables of this k have one order only");
  }
}

}  // namespace terrace::gf2
