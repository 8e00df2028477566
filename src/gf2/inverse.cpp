#include "src/gf2/inverse.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"

namespace terrace {

template <class B>
void order_inverse(const Context<B>& context, const BitMatrix<B>& matrix, const Pivots& pivots) {
  const Index n = matrix.layout.extent, slots = matrix.slots();
  const Index chunk = std::min(slots, staging_rows(matrix.stride));
  const Stream<B>& lane = context.bulk;
  std::vector<Index> host(std::size_t(n), 0);  // bit i_r of the inverse was bit c_r
  for (Index r = 0; r < n; ++r)
    host[std::size_t(pivots.rows[std::size_t(r)])] = pivots.columns[std::size_t(r)];
  const auto [from, staging] = collectively(context.control, [&] {
    return std::make_pair(Buffer<Index, B>(n), Buffer<Word, B>(chunk * matrix.stride));
  });
  upload(lane, from.view(), host.data());
  for (Index i = 0; i < slots; i += chunk) {
    const Index count = std::min(chunk, slots - i);
    const BitRows<Word, B> rows{matrix.data.data() + i * matrix.stride, matrix.stride, count,
                                nullptr};
    const BitRows<Word, B> ordered{staging.data(), matrix.stride, count, nullptr};
    permute_bits(lane, ordered, rows, from.data(), n);
    copy_bits(lane, rows, ordered, 0, matrix.words);
  }
  lane.synchronize();
}

template <class B>
std::vector<Word> witness_of_inverse(const Context<B>& context, const BitMatrix<B>& matrix,
                                     const Pivots& pivots, Word seed) {
  const Index n = matrix.layout.extent;
  const auto products = multiply_rows<B>(context, matrix.rows(), 0, random_words(seed, n));
  std::vector<Word> x(std::size_t(n), 0);
  for (Index q = 0; q < n; ++q) {
    const Index row = pivots.rows[std::size_t(q)];
    if (matrix.layout.owner(row) == context.rank())
      x[std::size_t(pivots.columns[std::size_t(q)])] =
          products[std::size_t(matrix.layout.slot(row))];
  }
  context.control.reduce(x, Reduce::bit_xor);
  return x;
}

template <class B>
std::string check_inverse(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                          const std::vector<Word>& witness, Word seed) {
  auto difference = multiply_again(context, source, layout, witness);
  for (Index slot = 0; slot < Index(difference.size()); ++slot)
    difference[std::size_t(slot)] ^= random_word(seed, layout.global(slot, context.rank()), 0);
  if (!all_zero(context.control, difference))
    return "the matrix times its inverse is not the identity";
  return {};
}

#define TERRACE_INSTANTIATE(B)                                                            \
  template void order_inverse(const Context<B>&, const BitMatrix<B>&, const Pivots&);     \
  template std::vector<Word> witness_of_inverse(const Context<B>&, const BitMatrix<B>&,   \
                                                const Pivots&, Word);                     \
  template std::string check_inverse(const Context<B>&, const BitSource<B>&, BlockCyclic, \
                                     const std::vector<Word>&, Word);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
