// The inverse over GF(2) from the elimination in place, and its check against the input read
// again. Checks return an empty string, or what is broken;
// 64 random vectors each.
#pragma once
#include <string>
#include <vector>

#include "src/gf2/certificate.hpp"

namespace terrace {

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

}  // namespace terrace
