// Parts of a graph by METIS, where Terrace is built with it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace::cg {

/// "5.1.0"; empty: built without METIS.
std::string metis_version();

/// The part of each row, 0 <= part < parts: about equal numbers of entries in each, few columns of
/// other parts in its rows (Karypis, Kumar 1998). The same for the same pattern. start and column as
/// RowGraph has them. Empty: without METIS, fewer than 100 rows per part, a pattern that is not
/// symmetric or too large for METIS's integers, or METIS has failed.
std::vector<std::int32_t> metis_parts(std::span<const Index> start,
                                      std::span<const std::int32_t> column, int parts);
/// Memory that it takes.
Index metis_bytes(Index rows, Index nonzeros);

}  // namespace terrace::cg
