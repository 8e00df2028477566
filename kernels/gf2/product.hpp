// Products over GF(2) with many inner columns: out ^= left * right, the work of wide panels.
//
// On GPUs of compute capability 9.0 the product runs on the binary tensor cores from packed copies
// of both factors; elsewhere it is combine().
#pragma once
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

/// Packed factors of a product, or stored tables of the right one. Sizes are limits; memory is
/// taken by the constructor. set_right() comes before set_left().
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
  /// The stored tables of the right factor, after set_right().
  [[nodiscard]] View<Word, Cpu> tables() const;
  /// out[i][out_word + x] ^= (left right)[i][right_word + x], 0 <= x < words; words and both places
  /// are multiples of bit_row_alignment.
  void add(const Stream<Cpu>&, BitRows<Word, Cpu> out, Index out_word, Index right_word,
           Index words) const;

 private:
  ProductMethod method_;
  BitRows<const Word, Cpu> left_, right_;
  Index words_ = 0;
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
  [[nodiscard]] View<Word, Cuda> tables() const;
  void add(const Stream<Cuda>&, BitRows<Word, Cuda> out, Index out_word, Index right_word,
           Index words) const;

 private:
  ProductMethod method_;
  BitRows<const Word, Cuda> left_, right_;
  Index words_ = 0;
  Buffer<Word, Cuda> packed_left_, packed_right_, tables_;
};

}  // namespace terrace::gf2
