// Products over GF(2) by Strassen's algorithm in Winograd's form: a level has 7 products of halves
// and 14 additions, which are XORs. The leaves run BitProduct in panels of inner rows.
#pragma once
#include <functional>

#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {

/// Smallest side, in bits, of a leaf that the planner makes, by measurement: a level pays where the
/// leaf's rate holds at half the size and 7/8 of the time outweighs 14 additions.
template <class B>
inline constexpr Index strassen_leaf = 2048;
template <>
inline constexpr Index strassen_leaf<Cuda> = 32768;
/// The same for `threads` threads a rank: leaves have a piece of combine() (1,024 columns, 4,096
/// rows) for each.
template <class B>
constexpr Index strassen_leaf_of(int threads) {
  Index leaf = strassen_leaf<B>;
  if constexpr (std::is_same_v<B, Cpu>)
    while (leaf / 1024 * ceil_div(leaf, 4096) < threads) leaf *= 2;
  return leaf;
}

constexpr int most_strassen_levels = 16;

/// Levels worth taking: each halves the smallest side, down to `leaf` at least.
int strassen_levels(Index rows, Index inner, Index columns, Index leaf);
/// Levels that a product of rows x inner bits and inner x `words` words admits, at most `levels`:
/// halves hold a row, 512 inner bits and 8 words at least.
int admitted_levels(Index rows, Index inner, Index words, int levels);

/// C += A B on one device. A level adds halves in three temporaries, S (rows x inner), T (inner x
/// words) and X (rows x words), all of half the sides; sides that are not even have a longer second
/// half, and the first counts as padded with zeros. Memory: 3/4 of a square matrix for the first
/// level, a quarter of that for each further one. The schedule is the accumulating one with three
/// temporaries (Huss-Lederman et al., Supercomputing 1996; Boyer, Dumas, Pernet, Zhou, "Memory
/// efficient scheduling of Strassen-Winograd's matrix multiplication algorithm", ISSAC 2009,
/// arXiv:0707.2347).
template <class B>
class BitStrassen {
 public:
  /// What the caller wants to hear while work is enqueued.
  struct Hooks {
    std::function<void(Index rows)> need;          ///< rows [0, rows) of B are read by what follows
    std::function<void(double done)> enqueued;     ///< part of this product, up to 1
    Index first = 0;                               ///< steps that were done before
    std::function<void(Index done)> between = {};  ///< so many steps() are enqueued, not the last
  };
  /// What add() of that shape can be cut into: the 7 products of the first level, or a leaf's steps
  /// of step_rows() inner rows. After some of the products `sums` of the temporaries count, too.
  [[nodiscard]] Index steps(Index rows, Index inner, Index words) const;
  [[nodiscard]] Index step_rows() const { return panel_; }
  [[nodiscard]] int levels(Index rows, Index inner, Index words) const;
  [[nodiscard]] BitRows<Word, B> sums(Index rows, Index inner, Index words) const;
  [[nodiscard]] static bool sums_count(Index products) { return products > 1; }

  BitStrassen() = default;
  /// Takes all memory. rows, inner, words: the largest product; levels: at most; panel: inner rows
  /// of a leaf's steps, a multiple of 64; method: of the leaves.
  BitStrassen(Index rows, Index inner, Index words, int levels, Index panel,
              ProductMethod method = {});
  static Index bytes(Index rows, Index inner, Index words, int levels, Index panel,
                     ProductMethod method = {});

  /// c += a b: a has c.count rows of b.count bits, and zeros from there up to the next multiple of
  /// 512 bits; b has rows of `words` words. Rows without lists; words and strides are multiples of
  /// bit_row_alignment. Fewer levels where the shape admits no more.
  void add(const Stream<B>& stream, BitRows<const Word, B> a, BitRows<const Word, B> b,
           BitRows<Word, B> c, Index words, const Hooks& hooks = {});

 private:
  void product(const Stream<B>& stream, BitRows<const Word, B> a, BitRows<const Word, B> b,
               BitRows<Word, B> c, Index words, int levels, Word* free, const Hooks& hooks);
  void leaf(const Stream<B>& stream, BitRows<const Word, B> a, BitRows<const Word, B> b,
            BitRows<Word, B> c, Index words, const Hooks& hooks);

  Index rows_ = 0, words_ = 0, panel_ = 0;  // of a leaf
  int levels_ = 0;
  BitProduct<B> leaf_;
  Buffer<Word, B> temporaries_;
  double leaves_ = 0, leaves_done_ = 0;
};

}  // namespace terrace::gf2
