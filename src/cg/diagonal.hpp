// What a diagonal says of a matrix, on all ranks.
#pragma once
#include <limits>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "kernels/cg/diagonal.hpp"

namespace terrace::cg {

/// The first global rows whose diagonal entry is negative, and not positive or without an inverse; -1:
/// there is none.
struct DiagonalFaults {
  Index negative = -1, unusable = -1;
};
/// `diagonal`: of own rows. Waits. Collective.
template <class B>
DiagonalFaults faults_of(const Context<B>& context, View<const double, B> diagonal, Range rows) {
  constexpr Index none = std::numeric_limits<Index>::max();
  std::vector<Index> found(2, none);
  const Buffer<Index, B> there =
      collectively(context.control, [&] { return Buffer<Index, B>(Index(found.size())); });
  upload(context.ahead, there.view(), found.data());
  judge_diagonal<B>(context.ahead, diagonal, there.view());
  download(context.ahead, found.data(), there.view());
  context.ahead.synchronize();
  for (Index& row : found)
    if (row != none) row += rows.first;
  context.control.reduce(found, Reduce::min);
  for (Index& row : found)
    if (row == none) row = -1;
  return {found[0], found[1]};
}

}  // namespace terrace::cg
