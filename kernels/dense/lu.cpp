#include "kernels/dense/lu.hpp"

namespace terrace::dense {

Moves moves_of(const std::vector<Index>& pivots, Index top) {
  const Index count = Index(pivots.size());
  Moves moves;
  std::vector<bool> rests(pivots.size());
  for (const Index p : pivots) {
    if (p < top + count)
      rests[std::size_t(p - top)] = true;
    else
      moves.to.push_back(p);
  }
  for (Index i = 0; i < count; ++i)
    if (!rests[std::size_t(i)]) moves.from.push_back(top + i);
  return moves;
}

}  // namespace terrace::dense
