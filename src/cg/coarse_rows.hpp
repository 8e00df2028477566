// One level of smoothed aggregation over the ranks, on the host: the prolongation P, its transpose and
// P' A P. Aggregates are of one rank's rows; rows of P reach aggregates of other ranks.
#pragma once
#include "src/cg/operators.hpp"

namespace terrace::cg {

/// An index of the standard containers.
inline std::size_t at(Index i) { return std::size_t(i); }

/// The numbers, ascending, each once.
std::vector<Index> distinct(std::vector<Index> numbers);

/// The global number of a local column.
struct ColumnNumbers {
  Index own, first;
  const std::vector<Index>& needed;
  [[nodiscard]] Index operator()(Index c) const {
    return c < own ? first + c : needed[at(c - own)];
  }
  [[nodiscard]] bool owns(Index global) const { return global >= first && global < first + own; }
};
/// Of this rank; `needed` must outlive them.
ColumnNumbers columns_of(const Control& control, const std::vector<Index>& first,
                         const std::vector<Index>& needed);

// All are collective. Of rectangular ones first[r] .. first[r + 1] are the columns of rank r.

/// P: a rank's rows of A by aggregates of all ranks. Entries are strong from `threshold` on; `diagonal`
/// of own rows. Not `smooth`: one in the column of the row's aggregate, own ones alone. `aggregates` of
/// own rows are made where there are none.
RankRows prolongation_of(const Control& control, const RankRows& a,
                         const std::vector<double>& diagonal, double threshold,
                         Aggregates& aggregates, bool smooth = true);
/// P of own rows, and behind them of the rows that A's columns need.
RankRows with_needed_rows(const Control& control, const RankRows& a, const RankRows& p);
/// About as many nonzeros as P' A P has on all ranks, from some of its rows. `all`: with_needed_rows().
double expected_nonzeros(const Control& control, const RankRows& a, const RankRows& p,
                         const HostRows& turned, const RankRows& all);
/// P': a rank's aggregates by rows of all ranks, which are dealt as first[r] .. first[r + 1]. `turned`:
/// the transpose of p.rows, here and below.
RankRows restriction_of(const Control& control, const RankRows& p, const HostRows& turned,
                        const std::vector<Index>& first);
/// P' A P: a rank's aggregates by those of all ranks. Where a column of P is a null vector of A, a
/// diagonal entry that is zero to rounding becomes that of P' D P; where one is negative, `definite` is
/// false.
RankRows coarse_rows(const Control& control, const RankRows& a, const RankRows& p,
                     const HostRows& turned, const RankRows& all,
                     const std::vector<double>& diagonal, bool& definite);

/// The same rows with local column numbers.
RankRows numbered(std::vector<Index> first, int rank, const CsrSlice& a);

}  // namespace terrace::cg
