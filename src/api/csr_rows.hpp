// The caller's rows of a CSR matrix, as an operator of conjugate gradients.
#pragma once
#include <memory>
#include <vector>

#include "distrib/context.hpp"
#include "src/api/inside.hpp"
#include "src/cg/operators.hpp"

namespace terrace::api::cg {

/// Starts of the ranks' rows, and n behind them. Throws an agreed Error(usage) unless the ranks agree
/// on n and these are ranges that ascend with the rank. Collective.
std::vector<Index> row_starts(const Context::Inside& ranks, Index n, const Rows& rows);

template <class B>
struct CsrMade {
  std::unique_ptr<terrace::cg::CsrOperator<B>> a;
  bool in_order = true;  ///< each row had ascending columns, none twice
};
/// `start` counts this rank's entries from zero. Throws agreed Error(input) for columns outside and for
/// NaN and Inf. Collective.
template <class B>
CsrMade<B> csr_operator(const terrace::Context<B>& on, const std::vector<Index>& first,
                        const std::vector<Index>& start, const Index* column, const double* value);

}  // namespace terrace::api::cg
