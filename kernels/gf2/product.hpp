// Products over GF(2) with many inner columns: out ^= left * right, the work of wide panels.
//
// On GPUs of compute capability 9.0 the product runs on the binary tensor cores from packed copies
// of both factors; elsewhere it is combine().
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {

/// Whether the bound device has binary tensor cores that this build can use.
bool has_bit_tensor_cores();

/// Bit-MAC/s of the binary tensor cores alone, measured now; 0 without them.
double bit_tensor_rate(const Stream<Cuda>& stream);

/// How a product is computed; every way gives the same bits.
struct ProductMethod {
  bool tables = false;  ///< by tables on every device, where binary tensor cores are
  bool stored = false;  ///< tables once into memory, where other ranks may get them, not per block
  TableShape shape{};
  [[nodiscard]] bool needs_tables() const { return tables || stored; }
};

/// The right factor of a product, in strips of columns: strip p has words [cuts[p], cuts[p + 1]).
/// Several strips lie one behind the other, each packed closely.
template <class B>
struct RightFactor {
  BitRows<const Word, B> rows;
  std::vector<Index> cuts = {0, 0};  ///< from 0 on, multiples of bit_row_alignment
  Word* memory = nullptr;            ///< of the strips, where they come one by one
  static RightFactor in_strips(Word* memory, Index inner, std::vector<Index> cuts) {
    const Index words = cuts.back();
    return {{memory, words, inner, nullptr}, std::move(cuts), memory};
  }
  [[nodiscard]] Index words() const { return cuts.back(); }
  [[nodiscard]] Index words(int p) const { return cuts[std::size_t(p) + 1] - cuts[std::size_t(p)]; }
  [[nodiscard]] BitRows<const Word, B> strip(int p) const {
    if (cuts.size() == 2) return rows;
    return {rows.data + rows.count * cuts[std::size_t(p)], words(p), rows.count, nullptr};
  }
  [[nodiscard]] View<Word, B> strip_memory(int p) const {
    return {memory + rows.count * cuts[std::size_t(p)], rows.count * words(p)};
  }
  /// Calls f(strip, its word, the word's number from `word` on, how many) for the strips' parts of
  /// words [word, word + words).
  template <class F>
  void each(Index word, Index words, F&& f) const {
    for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
      const Index from = std::max(word, cuts[p]), to = std::min(word + words, cuts[p + 1]);
      if (from < to) f(strip(int(p)), from - cuts[p], from - word, to - from);
    }
  }
};

/// Packed factors of a product, or stored tables of the right one. Sizes are limits; memory is
/// taken by the constructor. set_right() or set_strips() comes before set_left().
template <class B>
class BitProduct;

template <>
class BitProduct<Cpu> {
 public:
  BitProduct() = default;
  BitProduct(Index rows, Index inner, Index words, ProductMethod method = {});
  static Index bytes(Index rows, Index inner, Index words, ProductMethod method = {});
  /// Whether set_left() copied or will copy the left factor; otherwise add() reads it where it is.
  [[nodiscard]] bool packed() const { return false; }
  /// rows x inner bits.
  void set_left(const Stream<Cpu>&, BitRows<const Word, Cpu> left) { left_ = left; }
  /// inner rows of `words` words. With stored tables `right.data` may be null: the tables of inner
  /// rows come into tables() by other means.
  void set_right(const Stream<Cpu>&, BitRows<const Word, Cpu> right, Index words);
  /// The same from strips in `memory`, of `inner` rows, without stored tables. Where each rank has
  /// one, it calls set_strip() for that, and all exchange strip_memory().
  void set_strips(Word* memory, Index inner, std::vector<Index> cuts) {
    right_ = RightFactor<Cpu>::in_strips(memory, inner, std::move(cuts));
  }
  void set_strip(const Stream<Cpu>&, int) {}
  [[nodiscard]] View<Word, Cpu> strip_memory(int p) const { return right_.strip_memory(p); }
  /// The stored tables of the right factor, after set_right().
  [[nodiscard]] View<Word, Cpu> tables() const;
  /// out[i][out_word + x] ^= (left right)[i][right_word + x], 0 <= x < words; words and both places
  /// are multiples of bit_row_alignment.
  void add(const Stream<Cpu>&, BitRows<Word, Cpu> out, Index out_word, Index right_word,
           Index words) const;

 private:
  ProductMethod method_;
  BitRows<const Word, Cpu> left_;
  RightFactor<Cpu> right_;
  Buffer<Word, Cpu> tables_;
};

template <>
class BitProduct<Cuda> {
 public:
  BitProduct() = default;
  BitProduct(Index rows, Index inner, Index words, ProductMethod method = {});
  static Index bytes(Index rows, Index inner, Index words, ProductMethod method = {});
  /// False with few inner columns: tables read less than padding to whole steps costs.
  [[nodiscard]] bool packed() const;
  void set_left(const Stream<Cuda>&, BitRows<const Word, Cuda> left);
  void set_right(const Stream<Cuda>&, BitRows<const Word, Cuda> right, Index words);
  void set_strips(Word* memory, Index inner, std::vector<Index> cuts) {
    right_ = RightFactor<Cuda>::in_strips(memory, inner, std::move(cuts));
  }
  void set_strip(const Stream<Cuda>&, int p);
  [[nodiscard]] View<Word, Cuda> strip_memory(int p) const;
  [[nodiscard]] View<Word, Cuda> tables() const;
  void add(const Stream<Cuda>&, BitRows<Word, Cuda> out, Index out_word, Index right_word,
           Index words) const;

 private:
  [[nodiscard]] Word* packed_strip(int p) const;

  ProductMethod method_;
  BitRows<const Word, Cuda> left_;
  RightFactor<Cuda> right_;
  Buffer<Word, Cuda> packed_left_, packed_right_, tables_;
};

}  // namespace terrace::gf2
