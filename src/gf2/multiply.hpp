// Products over GF(2) of row slices, and their check against the input read again. Checks return an
// empty string, or what is broken; 64 random vectors each.
#pragma once
#include <functional>
#include <string>

#include "src/frame/progress.hpp"
#include "src/gf2/certificate.hpp"
#include "src/gf2/strassen.hpp"

namespace terrace::gf2 {

/// Rows of the right factor in blocks, one broadcast each.
BlockCyclic factor_layout(Index rows, int ranks);

/// How a product is cut: equal on all ranks.
struct MultiplyPlan {
  int levels = 0;      ///< of Strassen's algorithm, on each rank's rows
  Index panel = 0;     ///< inner rows of a leaf's step
  Index gathered = 0;  ///< rows of B that several ranks gather at a time, a multiple of 512; two
                       ///< such buffers by turns, one where that is all of B
  ProductMethod method{};
  std::string reason;  ///< why so many levels, for people
};
/// What the command line wants.
struct MultiplyWish {
  Index levels = -1;  ///< -1: the planner's choice
  Index panel = 0;    ///< rounded up to a multiple of 64; 0: the planner's choice
  ProductMethod method{};
  int threads = 1;  ///< of a rank, where the backend computes with threads; equal on all ranks
};
/// A plan for `rows` rows on the fullest rank, `inner` x 64 `words` bits of B. fits(bytes) says
/// whether multiply_bytes() fits beside all else, the same on all ranks, and may be collective; it
/// is asked about the planner's choice, level by level down, not about a wish.
template <class B>
MultiplyPlan plan_multiply(int ranks, Index rows, Index inner, Index words, MultiplyWish wish,
                           const std::function<bool(Index bytes)>& fits);
/// Bytes beside the matrices: gathered rows of B, packed factors, temporaries of the levels.
template <class B>
Index multiply_bytes(int ranks, Index rows, Index inner, Index words, const MultiplyPlan& plan);
template <class B>
struct MultiplyMemory {
  MultiplyPlan plan;
  Buffer<Word, B> received[2];  ///< gathered rows of B, by turns
  BitStrassen<B> product;
  /// rows of this rank; words: B's stride.
  MultiplyMemory(const Context<B>& context, Index rows, Index inner, Index words,
                 const MultiplyPlan& how);
};
/// C += A B: A in row slices (`inner` columns, unused bits zero), B in factor_layout(), C's rows as
/// A's and its stride as B's. B's blocks are broadcast to all ranks ahead of the products. With
/// checkpoints the run may stop after each gathered panel, and go on from there on any number of
/// ranks; and after each of the 7 products of its first level, or each of its leaf's steps where
/// there is no level.
template <class B>
void multiply_bits(Context<B>& context, const BitMatrix<B>& a, const BitMatrix<B>& b,
                   const BitMatrix<B>& c, Index inner, MultiplyMemory<B>& memory,
                   Progress& progress);
/// What was chosen for C = A B in row slices.
struct ProductPlan {
  Index inner = 0, columns = 0;
  BlockCyclic layout, b_layout;  ///< rows of A and C; of B
  bool guard = false;
  MultiplyPlan how;
  [[nodiscard]] Index a_words() const { return ceil_div(inner, 64); }
  [[nodiscard]] Index b_words() const { return ceil_div(columns, 64); }
  [[nodiscard]] Index stride() const {
    return round_up(std::max<Index>(1, b_words()), bit_row_alignment);
  }
};
/// As many levels as pay and fit, or what is wished for, or those of the run that `progress`
/// continues, where that stopped inside a panel. Throws agreed Error(usage). Collective.
template <class B>
ProductPlan plan_product(const Context<B>& context, Index rows, Index inner, Index columns,
                         const PanelWish& wish, Index levels, const Progress& progress);
/// Of the fullest of so many ranks.
template <class B>
BitMemory product_memory(const ProductPlan& plan, int ranks);

/// A, B and C in memory, with what the product takes.
template <class B>
struct Factors {
  BitMatrix<B> a, b, c;
  MultiplyMemory<B> memory;
};
/// Takes all memory and reads A and B; C is zero. Collective.
template <class B>
Factors<B> read_factors(const Context<B>& context, const ProductPlan& plan, const BitSource<B>& a,
                        const BitSource<B>& b);
/// Calls of certify_product() with the guard, on every rank.
struct AgainHooks {
  std::function<void()> begin;  ///< what does not hold is read and multiplied once more
  std::function<void()> end;    ///< that is done; throws where A or B is another one by now
};
/// Empty when C holds against the sources read again; otherwise what is broken. With the guard all
/// is done once more then, and where that holds the memory was to blame: agreed Error(fault).
template <class B>
std::string certify_product(Context<B>& context, const ProductPlan& plan, const BitSource<B>& a,
                            const BitSource<B>& b, Factors<B>& factors, Word seed,
                            Progress& progress, const AgainHooks& again);

/// A (B Z) = C Z.
template <class B>
std::string check_product(const Context<B>& context, const BitSource<B>& a, BlockCyclic a_layout,
                          const BitSource<B>& b, BlockCyclic b_layout, const BitMatrix<B>& c,
                          Index columns, Word seed);

}  // namespace terrace::gf2
