#include "src/gf2/results.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"

namespace terrace::gf2 {

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

template <class B>
std::string check_transform(const Context<B>& context, const BitSource<B>& source,
                            const BitMatrix<B>& form, const Pivots& pivots, Index word, Word seed) {
  const BlockCyclic& layout = form.layout;
  const auto whole = [&](const std::vector<Word>& mine) {  // one word per row, on every rank
    std::vector<Word> all(std::size_t(layout.extent), 0);
    for (std::size_t slot = 0; slot < mine.size(); ++slot)
      all[std::size_t(layout.global(Index(slot), context.rank()))] = mine[slot];
    context.control.reduce(all, Reduce::bit_xor);
    return all;
  };
  const std::vector<Word> z = random_words(seed, source.columns);
  const auto az = whole(multiply_again(context, source, layout, z));
  auto difference = multiply_rows<B>(context, form.rows(), word, az);
  const auto rz = multiply_rows<B>(context, form.rows(), 0, z);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] ^= rz[i];
  if (!all_zero(context.control, difference)) return "T A differs from the form";
  std::vector<Word> v = random_words(seed + 1, layout.extent);
  for (const Index row : pivots.rows) v[std::size_t(row)] = 0;
  auto tv = multiply_rows<B>(context, form.rows(), word, v);
  for (std::size_t slot = 0; slot < tv.size(); ++slot)
    tv[slot] ^= v[std::size_t(layout.global(Index(slot), context.rank()))];
  if (!all_zero(context.control, tv)) return "T is not regular";
  return {};
}

std::vector<Index> free_columns(const Pivots& pivots, Index columns) {
  std::vector<Index> result;
  result.reserve(std::size_t(columns - pivots.rank()));
  std::size_t q = 0;
  for (Index j = 0; j < columns; ++j) {
    if (q < pivots.columns.size() && pivots.columns[q] == j)
      ++q;
    else
      result.push_back(j);
  }
  return result;
}

BlockCyclic kernel_layout(Index rows, Index words, int ranks) {
  const Index stride = round_up(std::max<Index>(1, words), bit_row_alignment);
  return {rows, std::clamp<Index>(staging_rows(stride) / ranks, 1, 512), ranks};
}

template <class B>
BitMatrix<B> kernel_basis(const Context<B>& context, const BitMatrix<B>& reduced,
                          const Pivots& pivots, Index columns) {
  const std::vector<Index> free_list = free_columns(pivots, columns);
  std::vector<Index> slot_list(std::size_t(columns), -1);
  for (Index q = 0; q < pivots.rank(); ++q)
    if (reduced.layout.owner(pivots.rows[std::size_t(q)]) == context.rank())
      slot_list[std::size_t(pivots.columns[std::size_t(q)])] =
          reduced.layout.slot(pivots.rows[std::size_t(q)]);
  const BlockCyclic layout =
      kernel_layout(Index(free_list.size()), ceil_div(columns, 64), context.size());
  const Stream<B>& lane = context.ahead;
  const int ranks = context.size();

  struct Memory {
    BitMatrix<B> basis;
    Buffer<Index, B> slots, free;
    Buffer<Word, B> all, mine;
  };
  auto memory = collectively(context.control, [&] {
    Memory m{BitMatrix<B>(context, layout, ceil_div(columns, 64)),
             Buffer<Index, B>(columns),
             Buffer<Index, B>(layout.extent),
             {},
             {}};
    const Index part = layout.block * m.basis.stride;
    m.all = Buffer<Word, B>(part * ranks);
    m.mine = Buffer<Word, B>(part);
    upload(lane, m.slots.view(), slot_list.data());
    upload(lane, m.free.view(), free_list.data());
    lane.synchronize();
    return m;
  });
  const BitMatrix<B>& basis = memory.basis;
  const Index together = layout.block * ranks, stride = basis.stride;
  for (Index f = 0; f < layout.extent; f += together) {
    const Index rows = std::min(together, layout.extent - f);
    fill_zero(lane, memory.all.view());
    kernel_rows(lane, BitRows<Word, B>{memory.all.data(), stride, rows, nullptr}, reduced.rows(),
                memory.slots.data(), columns, memory.free.data() + f, context.rank() == 0);
    // The ranks' bits do not overlap, so a sum is their union.
    context.comm.reduce_scatter(lane, Reduce::sum, memory.all.view(), memory.mine.view());
    const Index slot = layout.slots_before(f, context.rank());
    const Index count = layout.slots_before(f + together, context.rank()) - slot;
    copy_bits(lane, BitRows<Word, B>{basis.data.data() + slot * stride, stride, count, nullptr},
              BitRows<const Word, B>{memory.mine.data(), stride, count, nullptr}, 0, stride);
  }
  lane.synchronize();
  return std::move(memory.basis);
}

template <class B>
std::string check_kernel(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                         const BitMatrix<B>& basis, const Pivots& pivots, Word seed) {
  const Index slots = basis.slots(), words = source.words();
  const Index multiplier_words = std::max<Index>(1, ceil_div(slots, 64));
  const Stream<B>& lane = context.bulk;
  std::vector<Word> combined(std::size_t(64 * words), 0);
  collectively(context.control, [&] {
    // G K: row t combines the basis rows f whose random word has bit t.
    std::vector<Word> host(std::size_t(64 * multiplier_words), 0);
    for (Index slot = 0; slot < slots; ++slot) {
      const Word g = random_word(seed, basis.layout.global(slot, context.rank()), 1);
      for (Index t = 0; t < 64; ++t)
        host[std::size_t(t * multiplier_words + slot / 64)] |= ((g >> t) & 1) << (slot % 64);
    }
    const Buffer<Word, B> multipliers(64 * multiplier_words), sums(64 * basis.stride);
    upload(lane, multipliers.view(), host.data());
    fill_zero(lane, sums.view());
    combine(lane, BitRows<Word, B>{sums.data(), basis.stride, 64, nullptr},
            BitRows<const Word, B>{multipliers.data(), multiplier_words, 64, nullptr}, basis.rows(),
            0, 0, basis.stride);
    copy_rows(lane, combined.data(), words, sums.data(), basis.stride, words, 64);
    lane.synchronize();
  });
  context.control.reduce(combined, Reduce::bit_xor);
  std::vector<Word> v(std::size_t(source.columns), 0);
  for (Index j = 0; j < source.columns; ++j)
    for (Index t = 0; t < 64; ++t)
      v[std::size_t(j)] |= ((combined[std::size_t(t * words + j / 64)] >> (j % 64)) & 1) << t;

  const std::vector<Index> free_list = free_columns(pivots, source.columns);
  for (Index f = 0; f < Index(free_list.size()); ++f)
    if (v[std::size_t(free_list[std::size_t(f)])] != random_word(seed, f, 1))
      return "the basis is not the identity in the free columns";
  if (!all_zero(context.control, multiply_again(context, source, layout, v)))
    return "the matrix does not send the basis to zero";
  return {};
}

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

#define TERRACE_INSTANTIATE(B)                                                                     \
  template bool consistent(const Context<B>&, const BitMatrix<B>&, const Pivots&, Index, Index);   \
  template BitSolution<B> solution_of_reduced(const Context<B>&, const BitMatrix<B>&,              \
                                              const Pivots&, Index, Index, Index);                 \
  template std::string check_solution(const Context<B>&, const BitSource<B>&, const BitSource<B>&, \
                                      BlockCyclic, const BitSolution<B>&, Word);                   \
  template std::string check_transform(const Context<B>&, const BitSource<B>&,                     \
                                       const BitMatrix<B>&, const Pivots&, Index, Word);           \
  template BitMatrix<B> kernel_basis(const Context<B>&, const BitMatrix<B>&, const Pivots&,        \
                                     Index);                                                       \
  template std::string check_kernel(const Context<B>&, const BitSource<B>&, BlockCyclic,           \
                                    const BitMatrix<B>&, const Pivots&, Word);                     \
  template void order_inverse(const Context<B>&, const BitMatrix<B>&, const Pivots&);              \
  template std::vector<Word> witness_of_inverse(const Context<B>&, const BitMatrix<B>&,            \
                                                const Pivots&, Word);                              \
  template std::string check_inverse(const Context<B>&, const BitSource<B>&, BlockCyclic,          \
                                     const std::vector<Word>&, Word);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
