// BitProduct on the CPU: tables at every width; nothing is packed.
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {

Index BitProduct<Cpu>::bytes(Index, Index inner, Index words, ProductMethod method) {
  return method.stored ? 8 * stored_table_words<Cpu>(inner, words, method.shape) : 0;
}
BitProduct<Cpu>::BitProduct(Index rows, Index inner, Index words, ProductMethod method)
    : method_(method), tables_(bytes(rows, inner, words, method) / 8) {}

void BitProduct<Cpu>::set_right(const Stream<Cpu>& stream, BitRows<const Word, Cpu> right,
                                Index words) {
  right_ = {right, {0, words}, nullptr};
  if (method_.stored && right.data)
    build_tables(stream, right, words, method_.shape, tables_.data());
}

View<Word, Cpu> BitProduct<Cpu>::tables() const {
  return tables_.view().slice(
      0, stored_table_words<Cpu>(right_.rows.count, right_.words(), method_.shape));
}

void BitProduct<Cpu>::add(const Stream<Cpu>& stream, BitRows<Word, Cpu> out, Index out_word,
                          Index right_word, Index words) const {
  if (method_.stored)
    combine_stored(stream, out, left_, right_.rows.count, tables_.data(), right_.words(), out_word,
                   right_word, words, method_.shape);
  else
    right_.each(right_word, words,
                [&](BitRows<const Word, Cpu> strip, Index word, Index at, Index count) {
                  combine(stream, out, left_, strip, out_word + at, word, count, method_.shape);
                });
}

}  // namespace terrace::gf2
