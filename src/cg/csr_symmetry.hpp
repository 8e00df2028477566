// Symmetry of a CSR matrix across ranks: entries that couple two ranks are sent to the other one.
#pragma once
#include <limits>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/halo.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {

inline constexpr Index no_position = std::numeric_limits<Index>::max();

/// Entries of a rank in columns of others, where the matrix is.
template <class B>
struct Couplings {
  const std::vector<Index>&first, &needed;  ///< as RankRows has them
  const Halo<B>& halo;                      ///< of `needed`
  CsrRows<B> rows;                          ///< columns from the own part of an operand
  View<const std::int32_t, B> column;       ///< the same as RankRows numbers them
};
/// `best`, or i n + j of an earlier pair that couples this rank to another one and is not symmetric.
/// `diagonal`: of own rows. Collective.
template <class B>
Index find_across(const Context<B>& context, const Couplings<B>& a, View<const double, B> diagonal,
                  Index best);

}  // namespace terrace::cg
