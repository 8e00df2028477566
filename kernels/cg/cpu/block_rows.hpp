// Products of sparse matrices whose rows come in groups with the same columns: unknowns of a node. Small
// dense blocks are multiplied, and a column is looked up once a block. Sums have the order of product().
#pragma once
#include <vector>

#include "kernels/cg/multigrid.hpp"

namespace terrace::cg {

constexpr Index most_group_rows = 8;

/// Consecutive rows with the same columns in the same order.
struct RowGroups {
  std::vector<Index> first;      ///< row of each group, and the number of rows
  std::vector<std::int32_t> of;  ///< the group of each row
  [[nodiscard]] Index count() const { return Index(first.size()) - 1; }
};
/// Of at most `most` rows: most_group_rows where they are summed. `also`: another matrix whose rows, as many at least, agree in a group too.
RowGroups row_groups(const HostRows& a, Index most, const HostRows* also = nullptr);

/// Whether blocks are worth it: groups have 3/2 rows or more in the mean.
bool has_company(const RowGroups& groups);
/// A B.
HostRows block_product(const HostRows& a, const RowGroups& a_groups, const HostRows& b,
                       const RowGroups& b_groups);
/// T + F A T for a diagonal F; empty rows of T stay so. `a_groups` agree in T.
HostRows block_smoothed(const HostRows& a, const RowGroups& a_groups,
                        const std::vector<double>& factor, const HostRows& t,
                        const RowGroups& t_groups);

}  // namespace terrace::cg
