// What an elimination over GF(2) is turned into: solutions, the kernel, the inverse; and their
// checks against the input read again, which return an empty string, or what is broken: 64 random
// vectors each.
#pragma once
#include <string>
#include <vector>

#include "src/gf2/certificate.hpp"

namespace terrace::gf2 {

// --- X with A X = B ------------------------------------------------------------------------------

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

// --- T with T A = the form -----------------------------------------------------------------------

/// T at words [word, ...) of the eliminated matrix: T (A Z) = R Z for 64 random vectors Z, and T
/// leaves alone what lies on rows without a pivot, so that it is regular where the rows of the
/// pivots are (check_rank()).
template <class B>
std::string check_transform(const Context<B>& context, const BitSource<B>& source,
                            const BitMatrix<B>& form, const Pivots& pivots, Index word, Word seed);

// --- the kernel ----------------------------------------------------------------------------------

/// Columns without a pivot, ascending.
std::vector<Index> free_columns(const Pivots& pivots, Index columns);
/// Layout of the basis: rows of `words` words, in blocks that fit the staging of the exchange.
BlockCyclic kernel_layout(Index rows, Index words, int ranks);
/// Basis of {x : A x = 0}, (columns - rank) x columns, from the reduced form of A: row f has a one
/// in the f-th free column, zeros in the other free columns. Block rows are assembled on all ranks,
/// each from the pivot rows it holds, and met by one reduce-scatter per block. Result: n (n - r) / 64
/// words.
template <class B>
BitMatrix<B> kernel_basis(const Context<B>& context, const BitMatrix<B>& reduced,
                          const Pivots& pivots, Index columns);
/// A (G K)^T = 0 for 64 random combinations G of the basis, and G K is G in the free columns.
template <class B>
std::string check_kernel(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                         const BitMatrix<B>& basis, const Pivots& pivots, Word seed);

// --- the inverse, from the elimination in place --------------------------------------------------

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

}  // namespace terrace::gf2
