// X with A X = B over GF(2), and its check against the input read again. Checks return an empty
// string, or what is broken; 64 random vectors each.
#pragma once
#include <string>
#include <vector>

#include "src/gf2/certificate.hpp"

namespace terrace {

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

}  // namespace terrace
