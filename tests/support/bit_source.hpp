// Plain matrices as sources of distributed rows.
#pragma once
#include "src/gf2/matrix.hpp"
#include "tests/support/bits.hpp"

namespace terrace::test {

/// Rows of a plain matrix (all ranks have it) as a source.
template <class B>
gf2::BitSource<B> plain_source(const Context<B>& context, const PlainBits& plain,
                               BlockCyclic layout) {
  gf2::BitSource<B> source{plain.rows, plain.columns, {}};
  source.read = [&context, &plain, layout](const gf2::BitSink<B>& sink) {
    const Index slots = layout.slots(context.rank()), words = ceil_div(plain.columns, 64);
    std::vector<Word> host;
    for (Index slot = 0; slot < slots; ++slot) {
      const auto row = pack_row(plain, layout.global(slot, context.rank()), words);
      host.insert(host.end(), row.begin(), row.end());
    }
    const Buffer<Word, B> slice(Index(host.size()));
    upload(context.bulk, slice.view(), host.data());
    for (Index i = 0; i < slots; i += 7)  // several pieces
      sink(i, {slice.data() + i * words, words, std::min<Index>(7, slots - i), nullptr});
    context.bulk.synchronize();
  };
  return source;
}

/// Rows 0 .. rows of distributed bits, on all ranks: row destination[i] = local row i.
template <class B>
PlainBits gather(const Context<B>& context, const gf2::BitMatrix<B>& matrix, Index rows,
                 Index columns, const std::vector<Index>& destination) {
  const Index words = ceil_div(columns, 64);
  std::vector<Word> mine(std::size_t(matrix.slots() * words)), all(std::size_t(rows * words), 0);
  copy_rows(context.bulk, mine.data(), words, matrix.data.data(), matrix.stride, words,
            matrix.slots());
  context.bulk.synchronize();
  for (Index slot = 0; slot < matrix.slots(); ++slot)
    std::copy_n(mine.begin() + slot * words, words,
                all.begin() + destination[std::size_t(slot)] * words);
  context.control.reduce(all, Reduce::bit_xor);
  PlainBits result(rows, columns);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      result(i, j) = std::uint8_t((all[std::size_t(i * words + j / 64)] >> (j % 64)) & 1);
  return result;
}

inline std::vector<Index> globals(const BlockCyclic& layout, int rank) {
  std::vector<Index> result;
  for (Index slot = 0; slot < layout.slots(rank); ++slot)
    result.push_back(layout.global(slot, rank));
  return result;
}

}  // namespace terrace::test
