// What the gf2 commands compute beyond the reduced form, each with its check against the input read
// again. Checks return an empty string, or what is broken; 64 random vectors each.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/backend_choice.hpp"
#include "src/bit_strassen.hpp"
#include "src/gf2_certificate.hpp"

namespace terrace {

/// How a candidates option reads; in the program's commands.
inline constexpr const char* candidates_help =
    "Rows tried first for a panel's pivots, times its columns (means tables; 0: the method's "
    "choice)";

// --- backend -------------------------------------------------------------------------------------

/// For --backend auto: an elimination of a rows x columns matrix; a product of rows x inner and
/// inner x columns.
BackendHint elimination_hint(Index rows, Index columns);
BackendHint product_hint(Index rows, Index inner, Index columns);

// --- kernel --------------------------------------------------------------------------------------

/// Columns without a pivot, ascending.
std::vector<Index> free_columns(const Pivots& pivots, Index columns);
/// Layout of the basis: rows of `words` words, in blocks that fit the staging of the exchange.
BlockCyclic kernel_layout(Index rows, Index words, int ranks);
/// Basis of {x : A x = 0}, (columns - rank) x columns, from the reduced form of A: row f has a one
/// in the f-th free column, zeros in the other free columns. Block rows are assembled on all ranks,
/// each from the pivot rows it holds, and met by one reduce-scatter a block. Result: n (n - r) / 64
/// words.
template <class B>
BitMatrix<B> kernel_basis(const Context<B>& context, const BitMatrix<B>& reduced,
                          const Pivots& pivots, Index columns);
/// A (G K)^T = 0 for 64 random combinations G of the basis, and G K is G in the free columns.
template <class B>
std::string check_kernel(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                         const BitMatrix<B>& basis, const Pivots& pivots, Word seed);

// --- inverse -------------------------------------------------------------------------------------

/// From what the in-place elimination left to rows of the inverse: the bits of every row are put
/// into order, in place; row i_q is then row c_q of the inverse for pivot (c_q, i_q).
template <class B>
void order_inverse(const Context<B>& context, const BitMatrix<B>& matrix, const Pivots& pivots);
/// The words A^-1 B, B the witness vectors of `seed` (see Witness::x), equal on all ranks.
template <class B>
std::vector<Word> witness_of_inverse(const Context<B>& context, const BitMatrix<B>& matrix,
                                     const Pivots& pivots, Word seed);
/// A (A^-1 B) = B.
template <class B>
std::string check_inverse(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                          const std::vector<Word>& witness, Word seed);

// --- solve ---------------------------------------------------------------------------------------

/// This rank's rows of a solution: row i of `rows` is row destination[i] of X.
template <class B>
struct BitSolution {
  BitMatrix<B> rows;  ///< layout void
  std::vector<Index> destination;
};
/// False when a row without a pivot has a one among words [word, word + words): no solution.
template <class B>
bool consistent(const Context<B>& context, const BitMatrix<B>& reduced, const Pivots& pivots,
                Index word, Index words);
/// X from the reduced [A | B], B at words [word, word + words): free unknowns zero. Pivot rows stay
/// on their ranks; the free ones are dealt.
template <class B>
BitSolution<B> solution_of_reduced(const Context<B>& context, const BitMatrix<B>& reduced,
                                   const Pivots& pivots, Index columns, Index word, Index words);
/// A (X G) = B G for 64 random combinations of the right-hand sides.
template <class B>
std::string check_solution(const Context<B>& context, const BitSource<B>& a, const BitSource<B>& b,
                           BlockCyclic layout, const BitSolution<B>& solution, Word seed);

// --- multiply ------------------------------------------------------------------------------------

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
/// From --levels, --block and --method. Collective.
MultiplyWish multiply_wish(const Control& control, const PanelWish& wish, Index levels);
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
/// The plan of the run that --restart continues, where that stopped inside a panel.
void adopt_multiply_plan(const Progress& progress, MultiplyPlan& plan);
/// A (B Z) = C Z.
template <class B>
std::string check_product(const Context<B>& context, const BitSource<B>& a, BlockCyclic a_layout,
                          const BitSource<B>& b, BlockCyclic b_layout, const BitMatrix<B>& c,
                          Index columns, Word seed);

}  // namespace terrace
