// The kernel of a matrix over GF(2), and its check against the input read again. Checks return an
// empty string, or what is broken; 64 random vectors each.
#pragma once
#include <string>
#include <vector>

#include "src/gf2/certificate.hpp"

namespace terrace {

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

}  // namespace terrace
