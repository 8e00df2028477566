// Plain matrices as sources of distributed rows.
#pragma once
#include "src/gf2/matrix.hpp"
#include "tests/support/bits.hpp"

namespace terrace::test {

/// Rows of a plain matrix (all ranks have it) as a source.
template <class B>
BitSource<B> plain_source(const Context<B>& context, const PlainBits& plain, BlockCyclic layout) {
  BitSource<B> source{plain.rows, plain.columns, {}};
  source.read = [&context, &plain, layout](const BitSink<B>& sink) {
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

}  // namespace terrace::test
