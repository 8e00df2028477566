#include <algorithm>

#include "distrib/agree.hpp"
#include "src/gf2.hpp"

namespace terrace {

namespace {
constexpr Index panel_rows = 1024;
}

BlockCyclic factor_layout(Index rows, int ranks) {
  return {rows, ranks == 1 ? std::max<Index>(64, round_up(rows, 64)) : panel_rows, ranks};
}

Index multiply_bytes(Index stride) { return 2 * panel_rows * stride * Index(sizeof(Word)); }

template <class B>
void multiply_bits(Context<B>& context, const BitMatrix<B>& a, const BitMatrix<B>& b,
                   const BitMatrix<B>& c, Index inner, Progress& progress) {
  const Index panels = ceil_div(inner, panel_rows), stride = b.stride;
  const Stream<B>&ahead = context.ahead, &bulk = context.bulk;
  const bool alone = context.size() == 1;
  const auto buffers = collectively(context.control, [&] {
    return std::make_pair(Buffer<Word, B>(alone ? 0 : panel_rows * stride),
                          Buffer<Word, B>(alone ? 0 : panel_rows * stride));
  });
  progress.begin("multiplying", double(panels));
  Event<B> read[2] = {bulk.record(), bulk.record()};  // when a buffer may be written again
  for (Index k = 0; k < panels; ++k) {
    const Index first = k * panel_rows, rows = std::min(panel_rows, inner - first);
    BitRows<const Word, B> panel{b.data.data() + first * stride, stride, rows, nullptr};
    if (!alone) {
      const Buffer<Word, B>& buffer = k % 2 == 0 ? buffers.first : buffers.second;
      const int owner = b.layout.owner(first);
      ahead.wait(read[k % 2]);
      if (owner == context.rank())
        copy(ahead, buffer.view().slice(0, rows * stride),
             b.data.view().slice(b.layout.slot(first) * stride, rows * stride));
      context.comm.broadcast(ahead, owner, buffer.view().slice(0, rows * stride));
      bulk.wait(ahead.record());
      panel.data = buffer.data();
    }
    // C += A[:, panel] B[panel, :]
    combine(bulk, c.rows(),
            BitRows<const Word, B>{a.data.data() + first / 64, a.stride, a.slots(), nullptr}, panel,
            0, 0, stride);
    read[k % 2] = bulk.record();
    progress.tick(double(k + 1));
  }
  ahead.synchronize();
  bulk.synchronize();
  progress.end();
}

template <class B>
std::string check_product(const Context<B>& context, const BitSource<B>& a, BlockCyclic a_layout,
                          const BitSource<B>& b, BlockCyclic b_layout, const BitMatrix<B>& c,
                          Index columns, Word seed) {
  const std::vector<Word> z = random_words(seed, columns);
  const auto mine = multiply_again(context, b, b_layout, z);
  std::vector<Word> bz(std::size_t(b.rows), 0);
  for (Index slot = 0; slot < Index(mine.size()); ++slot)
    bz[std::size_t(b_layout.global(slot, context.rank()))] = mine[std::size_t(slot)];
  context.control.reduce(bz, Reduce::bit_xor);
  auto difference = multiply_again(context, a, a_layout, bz);
  const auto cz = multiply_rows<B>(context, c.rows(), 0, z);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] ^= cz[i];
  if (!all_zero(context.control, difference)) return "A B Z differs from C Z";
  return {};
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template void multiply_bits(Context<B>&, const BitMatrix<B>&, const BitMatrix<B>&,               \
                              const BitMatrix<B>&, Index, Progress&);                              \
  template std::string check_product(const Context<B>&, const BitSource<B>&, BlockCyclic,          \
                                     const BitSource<B>&, BlockCyclic, const BitMatrix<B>&, Index, \
                                     Word);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
