#include <algorithm>

#include "src/gf2.hpp"

namespace terrace {

namespace {
constexpr Index panel_rows = 4096;
}

BlockCyclic factor_layout(Index rows, int ranks) {
  return {rows, ranks == 1 ? std::max<Index>(64, round_up(rows, 64)) : panel_rows, ranks};
}

template <class B>
Index multiply_bytes(Index rows, Index stride) {
  return 2 * panel_rows * stride * Index(sizeof(Word)) +
         BitProduct<B>::bytes(rows, panel_rows, stride);
}

template <class B>
MultiplyMemory<B>::MultiplyMemory(const Context<B>& context, Index rows, Index inner, Index stride,
                                  bool tables)
    : product(rows, std::min(inner, panel_rows), stride, {tables}) {
  if (context.size() == 1) return;
  for (auto& panel : received) panel = Buffer<Word, B>(panel_rows * stride);
}

template <class B>
void multiply_bits(Context<B>& context, const BitMatrix<B>& a, const BitMatrix<B>& b,
                   const BitMatrix<B>& c, Index inner, MultiplyMemory<B>& memory,
                   Progress& progress) {
  const Index panels = ceil_div(inner, panel_rows), stride = b.stride;
  const Stream<B>&ahead = context.ahead, &bulk = context.bulk;
  const bool alone = context.size() == 1;
  progress.begin("multiplying", double(panels));
  Event<B> read[2] = {bulk.record(), bulk.record()};  // when a buffer may be written again
  for (Index k = 0; k < panels; ++k) {
    const Index first = k * panel_rows, rows = std::min(panel_rows, inner - first);
    BitRows<const Word, B> panel{b.data.data() + first * stride, stride, rows, nullptr};
    if (!alone) {
      const Buffer<Word, B>& buffer = memory.received[k % 2];
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
    memory.product.set_right(bulk, panel, stride);
    memory.product.set_left(bulk, {a.data.data() + first / 64, a.stride, a.slots(), nullptr});
    memory.product.add(bulk, c.rows(), 0, 0, stride);
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
  template Index multiply_bytes<B>(Index, Index);                                                  \
  template struct MultiplyMemory<B>;                                                               \
  template void multiply_bits(Context<B>&, const BitMatrix<B>&, const BitMatrix<B>&,               \
                              const BitMatrix<B>&, Index, MultiplyMemory<B>&, Progress&);          \
  template std::string check_product(const Context<B>&, const BitSource<B>&, BlockCyclic,          \
                                     const BitSource<B>&, BlockCyclic, const BitMatrix<B>&, Index, \
                                     Word);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
