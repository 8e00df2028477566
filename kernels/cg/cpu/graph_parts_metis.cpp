#include <metis.h>

#include <algorithm>
#include <limits>

#include "kernels/cg/graph_parts.hpp"

namespace terrace::cg {
namespace {

struct Neighbours {
  std::vector<idx_t> start, column;
};

/// Which rows have each column: ascending, without the diagonal, each once.
template <class Start, class Column>
Neighbours transposed(const Start& start, const Column& column) {
  const std::size_t n = start.size() - 1;
  Neighbours to;
  const auto each = [&](const auto& f) {
    for (std::size_t i = 0; i < n; ++i)
      for (auto k = std::size_t(start[i]); k < std::size_t(start[i + 1]); ++k)
        if (std::size_t(column[k]) != i) f(std::size_t(column[k]), idx_t(i));
  };
  std::vector<idx_t> last(n, -1);
  to.start.assign(n + 1, 0);
  each([&](std::size_t j, idx_t i) {
    if (last[j] != i) ++to.start[j + 1];
    last[j] = i;
  });
  for (std::size_t j = 0; j < n; ++j) to.start[j + 1] += to.start[j];
  to.column.resize(std::size_t(to.start[n]));
  std::fill(last.begin(), last.end(), -1);
  std::vector<idx_t> next(to.start.begin(), to.start.end() - 1);
  each([&](std::size_t j, idx_t i) {
    if (last[j] != i) to.column[std::size_t(next[j]++)] = i;
    last[j] = i;
  });
  return to;
}

}  // namespace

std::string metis_version() {
  return std::to_string(METIS_VER_MAJOR) + "." + std::to_string(METIS_VER_MINOR) + "." +
         std::to_string(METIS_VER_SUBMINOR);
}

std::vector<std::int32_t> metis_parts(std::span<const Index> start,
                                      std::span<const std::int32_t> column, int parts) {
  const Index rows = Index(start.size()) - 1;
  constexpr Index most = std::numeric_limits<idx_t>::max();
  if (rows < 100 * Index(parts) || Index(column.size()) > most) return {};
  Neighbours graph = transposed(start, column);
  {
    const Neighbours again = transposed(graph.start, graph.column);
    if (again.start != graph.start || again.column != graph.column) return {};
  }
  std::vector<idx_t> weight, part(std::size_t(rows), 0);
  for (std::size_t i = 0; i < std::size_t(rows); ++i)
    weight.push_back(idx_t(std::max<Index>(1, start[i + 1] - start[i])));
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = 1;
  options[METIS_OPTION_UFACTOR] = 10;  // a part has up to 1.01 times its share
  idx_t n = idx_t(rows), constraints = 1, wanted = parts, cut = 0;
  const int status =
      METIS_PartGraphKway(&n, &constraints, graph.start.data(), graph.column.data(), weight.data(),
                          nullptr, nullptr, &wanted, nullptr, nullptr, options, &cut, part.data());
  if (status != METIS_OK) return {};
  return {part.begin(), part.end()};
}

Index metis_bytes(Index rows, Index nonzeros) {
  return Index(sizeof(idx_t)) * (6 * nonzeros + 30 * rows);
}

}  // namespace terrace::cg
