// Without METIS.
#include "kernels/cg/graph_parts.hpp"

namespace terrace::cg {

std::string metis_version() { return {}; }
std::vector<std::int32_t> metis_parts(std::span<const Index>, std::span<const std::int32_t>, int) {
  return {};
}
Index metis_bytes(Index, Index) { return 0; }

}  // namespace terrace::cg
