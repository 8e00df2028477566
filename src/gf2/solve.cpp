#include "src/gf2/solve.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "src/gf2/kernel.hpp"

namespace terrace {

template <class B>
bool consistent(const Context<B>& context, const BitMatrix<B>& reduced, const Pivots& pivots,
                Index word, Index words) {
  std::vector<char> is_pivot(std::size_t(reduced.slots()), 0);
  for (const Index row : pivots.rows)
    if (reduced.layout.owner(row) == context.rank())
      is_pivot[std::size_t(reduced.layout.slot(row))] = 1;
  std::vector<Index> others;
  for (Index slot = 0; slot < reduced.slots(); ++slot)
    if (!is_pivot[std::size_t(slot)]) others.push_back(slot);
  Index first = 0;
  collectively(context.control, [&] {
    const Buffer<Index, B> list(Index(others.size())), result(1);
    upload(context.bulk, list.view(), others.data());
    first_nonzero_word(context.bulk,
                       BitRows<const Word, B>{reduced.data.data(), reduced.stride,
                                              Index(others.size()), list.data()},
                       word, word + words, result.data());
    download(context.bulk, &first, result.view());
    context.bulk.synchronize();
  });
  return context.control.reduce(first, Reduce::min) == word + words;
}

template <class B>
BitSolution<B> solution_of_reduced(const Context<B>& context, const BitMatrix<B>& reduced,
                                   const Pivots& pivots, Index columns, Index word, Index words) {
  BitSolution<B> result;
  std::vector<Index> own;
  for (Index q = 0; q < pivots.rank(); ++q) {
    const Index row = pivots.rows[std::size_t(q)];
    if (reduced.layout.owner(row) != context.rank()) continue;
    own.push_back(reduced.layout.slot(row));
    result.destination.push_back(pivots.columns[std::size_t(q)]);
  }
  const std::vector<Index> free_list = free_columns(pivots, columns);
  for (auto f = std::size_t(context.rank()); f < free_list.size(); f += std::size_t(context.size()))
    result.destination.push_back(free_list[f]);
  const Index count = Index(result.destination.size());
  collectively(context.control, [&] {
    result.rows = BitMatrix<B>({count, std::max<Index>(1, count), 1}, 0, words);
    const Buffer<Index, B> list(Index(own.size()));
    upload(context.bulk, list.view(), own.data());
    fill_zero(context.bulk, result.rows.data.view());
    copy_bits(
        context.bulk,
        BitRows<Word, B>{result.rows.data.data(), result.rows.stride, Index(own.size()), nullptr},
        BitRows<const Word, B>{reduced.data.data(), reduced.stride, Index(own.size()), list.data()},
        word, words);
    context.bulk.synchronize();
  });
  return result;
}

template <class B>
std::string check_solution(const Context<B>& context, const BitSource<B>& a, const BitSource<B>& b,
                           BlockCyclic layout, const BitSolution<B>& solution, Word seed) {
  const std::vector<Word> g = random_words(seed, b.columns);
  const auto products = multiply_rows<B>(context, solution.rows.rows(), 0, g);
  std::vector<Word> xg(std::size_t(a.columns), 0);
  for (std::size_t i = 0; i < products.size(); ++i)
    xg[std::size_t(solution.destination[i])] = products[i];
  context.control.reduce(xg, Reduce::bit_xor);
  auto difference = multiply_again(context, a, layout, xg);
  const auto bg = multiply_again(context, b, layout, g);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] ^= bg[i];
  if (!all_zero(context.control, difference)) return "A X differs from B";
  return {};
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template bool consistent(const Context<B>&, const BitMatrix<B>&, const Pivots&, Index, Index);   \
  template BitSolution<B> solution_of_reduced(const Context<B>&, const BitMatrix<B>&,              \
                                              const Pivots&, Index, Index, Index);                 \
  template std::string check_solution(const Context<B>&, const BitSource<B>&, const BitSource<B>&, \
                                      BlockCyclic, const BitSolution<B>&, Word);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
