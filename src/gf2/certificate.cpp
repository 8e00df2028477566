#include "src/gf2/certificate.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"
#include "kernels/gf2/product.hpp"
#include "src/gf2/row_share.hpp"

namespace terrace::gf2 {

Word witness_seed(Index seed) { return mix(Word(seed) ^ 0x7769746e65737321ull) >> 1; }

std::vector<Word> random_words(Word seed, Index n) {
  std::vector<Word> words(static_cast<std::size_t>(n));
  for (Index j = 0; j < n; ++j) words[std::size_t(j)] = random_word(seed, j, 0);
  return words;
}

bool all_zero(const Control& control, const std::vector<Word>& words) {
  const bool mine = std::all_of(words.begin(), words.end(), [](Word w) { return w == 0; });
  return control.reduce(Index(mine), Reduce::min) != 0;
}

namespace {

/// 64 vectors on the backend, ready for multiply_words().
template <class B>
class SlicedWords {
 public:
  SlicedWords(const Context<B>& context, const std::vector<Word>& v)
      : words_(ceil_div(Index(v.size()), 64)), plain_(Index(v.size())), sliced_(64 * words_) {
    upload(context.bulk, plain_.view(), v.data());
    slice_words(context.bulk, plain_.view(), sliced_.view());
    context.bulk.synchronize();
  }
  void multiply(const Stream<B>& lane, Word* out, BitRows<const Word, B> rows, Index word) const {
    multiply_words(lane, out, rows, word, words_, sliced_.data());
  }

 private:
  Index words_;
  Buffer<Word, B> plain_, sliced_;
};

/// The products of all rows of a source with several sets of 64 vectors, in one reading.
template <class B>
std::vector<std::vector<Word>> multiply_all(const Context<B>& context, const BitSource<B>& source,
                                            Index rows,
                                            const std::vector<const std::vector<Word>*>& sets) {
  std::vector<SlicedWords<B>> sliced;
  std::vector<Buffer<Word, B>> products;
  collectively(context.control, [&] {
    for (const auto* set : sets) {
      sliced.emplace_back(context, *set);
      products.emplace_back(rows);
      fill_zero(context.bulk, products.back().view());
    }
  });
  source.read([&](Index position, BitRows<const Word, B> slice) {
    for (std::size_t s = 0; s < sets.size(); ++s)
      sliced[s].multiply(context.bulk, products[s].data() + position, slice, 0);
  });
  std::vector<std::vector<Word>> result;
  for (const auto& product : products) {
    result.emplace_back(static_cast<std::size_t>(rows));
    download(context.bulk, result.back().data(), product.view());
  }
  context.bulk.synchronize();
  return result;
}

/// Gathers one word of each pivot row to all ranks; `mine` holds a word per slot.
std::vector<Word> of_pivot_rows(const Control& control, const BlockCyclic& layout,
                                const Pivots& pivots, const std::vector<Word>& mine) {
  std::vector<Word> words(std::size_t(pivots.rank()), 0);
  for (std::size_t q = 0; q < words.size(); ++q)
    if (layout.owner(pivots.rows[q]) == control.rank())
      words[q] = mine[std::size_t(layout.slot(pivots.rows[q]))];
  control.reduce(words, Reduce::bit_xor);
  return words;
}

}  // namespace

template <class B>
void put_witness(const Context<B>& context, const BitMatrix<B>& matrix, Index word, Word seed) {
  std::vector<Word> words(std::size_t(matrix.slots()));
  for (Index slot = 0; slot < matrix.slots(); ++slot)
    words[std::size_t(slot)] = random_word(seed, matrix.layout.global(slot, matrix.rank), 0);
  const Buffer<Word, B> staging =
      collectively(context.control, [&] { return Buffer<Word, B>(matrix.slots()); });
  upload(context.bulk, staging.view(), words.data());
  copy_bits(context.bulk,
            BitRows<Word, B>{matrix.data.data() + word, matrix.stride, matrix.slots(), nullptr},
            BitRows<const Word, B>{staging.data(), 1, matrix.slots(), nullptr}, 0, 1);
  context.bulk.synchronize();
}

template <class B>
std::vector<Word> multiply_again(const Context<B>& context, const BitSource<B>& source,
                                 BlockCyclic layout, const std::vector<Word>& v) {
  return multiply_all(context, source, layout.slots(context.rank()), {&v}).front();
}

template <class B>
std::vector<Word> multiply_rows(const Context<B>& context, BitRows<const Word, B> rows, Index word,
                                const std::vector<Word>& v) {
  std::vector<Word> products(std::size_t(rows.count));
  collectively(context.control, [&] {
    const SlicedWords<B> sliced(context, v);
    const Buffer<Word, B> out(rows.count);
    fill_zero(context.bulk, out.view());
    sliced.multiply(context.bulk, out.data(), rows, word);
    download(context.bulk, products.data(), out.view());
    context.bulk.synchronize();
  });
  return products;
}

template <class B>
Witness witness_of_reduced(const Context<B>& context, const BitMatrix<B>& matrix, Index columns,
                           Index word, const Pivots& pivots, Word seed) {
  std::vector<Word> x(std::size_t(matrix.slots()));
  const Buffer<Word, B> column =
      collectively(context.control, [&] { return Buffer<Word, B>(matrix.slots()); });
  copy_bits(context.bulk, BitRows<Word, B>{column.data(), 1, matrix.slots(), nullptr},
            matrix.rows(), word, 1);
  download(context.bulk, x.data(), column.view());
  context.bulk.synchronize();
  const std::vector<Word> y =
      multiply_rows<B>(context, matrix.rows(), 0, random_words(seed + 1, columns));
  return {seed, of_pivot_rows(context.control, matrix.layout, pivots, x),
          of_pivot_rows(context.control, matrix.layout, pivots, y)};
}

namespace {

constexpr Index witness_words = bit_row_alignment;  // [x | y | padding]

/// This rank's pivot rows, panel after panel: those above a panel are a prefix of the list.
struct OwnPivotRows {
  std::vector<Index> slots, above;  // above[k]: rows of the list above panel k
  std::vector<Index> info;          // of each panel, as extract_bits() reads it
  Index info_size = 0;
};
template <class B>
OwnPivotRows own_pivot_rows(const BitMatrix<B>& matrix, const Pivots& pivots, Index panel_words) {
  OwnPivotRows own;
  own.info_size = PanelFactor<B>::info_size(panel_words);
  own.info.assign(pivots.panels.size() * std::size_t(own.info_size), 0);
  Index* to = own.info.data();
  for (const auto& panel : pivots.panels) {
    own.above.push_back(Index(own.slots.size()));
    to[0] = panel.count;
    for (Index q = 0; q < panel.count; ++q) {
      const auto at = std::size_t(panel.first + q);
      to[1 + q] = pivots.columns[at] - 64 * panel.word;
      if (matrix.layout.owner(pivots.rows[at]) == matrix.rank)
        own.slots.push_back(matrix.layout.slot(pivots.rows[at]));
    }
    to += own.info_size;
  }
  return own;
}

/// The memory of a substitution, V = [x | y | padding] in `values`.
template <class B>
struct WitnessMemory {
  WitnessMemory(const Context<B>& context, Index slots, const OwnPivotRows& pivots,
                Index panel_words)
      : values(slots * witness_words),
        y(slots),
        multipliers(Index(pivots.slots.size()) * panel_words),
        own(Index(pivots.slots.size())),
        info(Index(pivots.info.size())),
        share(context, 64 * panel_words, witness_words),
        product(Index(pivots.slots.size()), 64 * panel_words, witness_words) {}
  Buffer<Word, B> values, y, multipliers;
  Buffer<Index, B> own, info;
  RowShare<B> share;
  BitProduct<B> product;
};

/// V[i] ^= E[i, P_k] V[I_k] for the pivot rows i above panel k, from the last panel to the first.
template <class B>
void substitute(const Stream<B>& lane, const BitMatrix<B>& matrix, const Pivots& pivots,
                const OwnPivotRows& own, WitnessMemory<B>& memory) {
  std::vector<Index> rows;
  for (Index k = Index(pivots.panels.size()) - 1; k >= 0; --k) {
    const auto& panel = pivots.panels[std::size_t(k)];
    rows.assign(pivots.rows.begin() + panel.first, pivots.rows.begin() + panel.first + panel.count);
    lane.synchronize();  // the plan of the last panel has been read
    // V[I_k]
    const auto values =
        memory.share.bring(lane, matrix.layout, rows, memory.values.data(), witness_words, 0,
                           witness_words, [](Index slot) { return slot; });
    memory.product.set_right(lane, values, witness_words);
    // E[i, P_k]: the panel's words, or those of its pivot columns alone
    const Index count = own.above[std::size_t(k)];
    BitRows<const Word, B> multipliers{matrix.data.data() + panel.word, matrix.stride, count,
                                       memory.own.data()};
    if (!memory.product.packed() || panel.count < 64 * panel.words) {
      const BitRows<Word, B> packed{memory.multipliers.data(), panel.words, count, nullptr};
      extract_bits(
          lane, packed,
          BitRows<const Word, B>{matrix.data.data(), matrix.stride, count, memory.own.data()},
          panel.word, panel.words, memory.info.data() + k * own.info_size);
      multipliers = packed;
    }
    memory.product.set_left(lane, multipliers);
    memory.product.add(lane, {memory.values.data(), witness_words, count, memory.own.data()}, 0, 0,
                       witness_words);
  }
}

}  // namespace

template <class B>
Witness witness_of_echelon(const Context<B>& context, const BitMatrix<B>& matrix, Index columns,
                           Index word, const Pivots& pivots, Word seed) {
  Index panel_words = 1;  // of the widest panel
  for (const auto& panel : pivots.panels) panel_words = std::max(panel_words, panel.words);
  const Index slots = matrix.slots();
  const Stream<B>& lane = context.bulk;
  const OwnPivotRows own = own_pivot_rows(matrix, pivots, panel_words);
  const std::vector<Word> y =
      multiply_rows<B>(context, matrix.rows(), 0, random_words(seed + 1, columns));
  std::vector<Word> result(std::size_t(slots * witness_words));

  const auto memory = collectively(context.control, [&] {
    return std::make_unique<WitnessMemory<B>>(context, slots, own, panel_words);
  });
  Word* const values = memory->values.data();
  fill_zero(lane, memory->values.view());
  upload(lane, memory->y.view(), y.data());
  copy_bits(lane, BitRows<Word, B>{values, witness_words, slots, nullptr}, matrix.rows(), word, 1);
  copy_bits(lane, BitRows<Word, B>{values + 1, witness_words, slots, nullptr},
            BitRows<const Word, B>{memory->y.data(), 1, slots, nullptr}, 0, 1);
  upload(lane, memory->own.view(), own.slots.data());
  upload(lane, memory->info.view(), own.info.data());
  substitute(lane, matrix, pivots, own, *memory);
  download(lane, result.data(), memory->values.view());
  lane.synchronize();

  std::vector<Word> x_mine(static_cast<std::size_t>(slots)), y_mine(x_mine);
  for (Index slot = 0; slot < slots; ++slot) {
    x_mine[std::size_t(slot)] = result[std::size_t(slot * witness_words)];
    y_mine[std::size_t(slot)] = result[std::size_t(slot * witness_words + 1)];
  }
  return {seed, of_pivot_rows(context.control, matrix.layout, pivots, x_mine),
          of_pivot_rows(context.control, matrix.layout, pivots, y_mine)};
}

template <class B>
std::string check_rank(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                       const Pivots& pivots, const Witness& witness) {
  const auto rank = std::size_t(pivots.rank());
  bool listed = pivots.rows.size() == rank && witness.x.size() == rank && witness.y.size() == rank;
  std::vector<char> seen(std::size_t(source.rows), 0);
  for (std::size_t q = 0; listed && q < rank; ++q) {
    const Index row = pivots.rows[q], column = pivots.columns[q];
    listed = row >= 0 && row < source.rows && !seen[std::size_t(row)] && column < source.columns &&
             column > (q > 0 ? pivots.columns[q - 1] : -1);
    if (listed) seen[std::size_t(row)] = 1;
  }
  if (!listed) return "the pivots are not distinct rows and ascending columns of the matrix";

  // A [X at the pivot columns | Z - Y at the pivot columns]
  std::vector<Word> x(std::size_t(source.columns), 0);
  std::vector<Word> z = random_words(witness.seed + 1, source.columns);
  for (std::size_t q = 0; q < rank; ++q) {
    x[std::size_t(pivots.columns[q])] = witness.x[q];
    z[std::size_t(pivots.columns[q])] ^= witness.y[q];
  }
  auto products = multiply_all(context, source, layout.slots(context.rank()), {&x, &z});
  Index wrong = 0;
  for (const Index row : pivots.rows)
    if (layout.owner(row) == context.rank())
      wrong += products[0][std::size_t(layout.slot(row))] != random_word(witness.seed, row, 0);
  if (context.control.reduce(wrong, Reduce::sum) > 0)
    return "the pivot rows and columns are dependent (lower bound of the rank)";
  if (!all_zero(context.control, products[1]))
    return "rows outside the span of the pivot rows (upper bound of the rank)";
  return {};
}

#define TERRACE_INSTANTIATE(B)                                                                   \
  template void put_witness(const Context<B>&, const BitMatrix<B>&, Index, Word);                \
  template Witness witness_of_reduced(const Context<B>&, const BitMatrix<B>&, Index, Index,      \
                                      const Pivots&, Word);                                      \
  template Witness witness_of_echelon(const Context<B>&, const BitMatrix<B>&, Index, Index,      \
                                      const Pivots&, Word);                                      \
  template std::string check_rank(const Context<B>&, const BitSource<B>&, BlockCyclic,           \
                                  const Pivots&, const Witness&);                                \
  template std::vector<Word> multiply_again(const Context<B>&, const BitSource<B>&, BlockCyclic, \
                                            const std::vector<Word>&);                           \
  template std::vector<Word> multiply_rows(const Context<B>&, BitRows<const Word, B>, Index,     \
                                           const std::vector<Word>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
