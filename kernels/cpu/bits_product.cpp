// BitProduct on the CPU: tables at every width; nothing is packed.
#include "kernels/bits_product.hpp"

namespace terrace {

BitProduct<Cpu>::BitProduct(Index, Index, Index, bool) {}
Index BitProduct<Cpu>::bytes(Index, Index, Index, bool) { return 0; }
void BitProduct<Cpu>::set_right(const Stream<Cpu>&, BitRows<const Word, Cpu> right, Index) {
  right_ = right;
}
void BitProduct<Cpu>::add(const Stream<Cpu>& stream, BitRows<Word, Cpu> out, Index out_word,
                          Index right_word, Index words) const {
  combine(stream, out, left_, right_, out_word, right_word, words);
}

}  // namespace terrace
