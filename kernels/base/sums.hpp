// Sums whose bits repeat: every kernel adds within fixed pieces, then the pieces in order.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace {

/// Scratch of the kernels that return pairs of sums, or pairs of each of `columns` columns. One per
/// stream of kernels.
template <class B>
struct SumSpace {
  static constexpr Index pieces = 8192;  ///< at most so many pieces (blocks on CUDA) a launch

  explicit SumSpace(const Stream<B>& stream, Index columns = 1)
      : partials(2 * pieces * columns), ticket(1) {
    fill_zero(stream, ticket.view());
  }
  Buffer<double, B> partials;  ///< two sums a piece and column
  Buffer<Word, B> ticket;      ///< blocks that are done; zero between launches
};

/// Where a kernel leaves its two sums: result[0], result[1] (+= when `add`). Of columns: the first
/// sums of all, then the second ones.
template <class B>
struct SumTarget {
  View<double, B> partials;
  View<Word, B> ticket;
  View<double, B> result;  ///< two values a column
  bool add = false;
};
template <class B>
SumTarget<B> sums_to(const SumSpace<B>& space, View<double, B> result, bool add = false) {
  return {space.partials, space.ticket, result, add};
}

}  // namespace terrace
