// Rows of a sparse result, made one by one in threads.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/multigrid.hpp"

namespace terrace::cg {

/// One row of a result as it is summed: columns in the order in which they came.
class RowSum {
 public:
  explicit RowSum(Index columns)
      : place_(std::size_t(columns), -1),
        column_(std::size_t(columns)),
        value_(std::size_t(columns)) {}
  void add(std::int32_t column, double value) {
    const std::int32_t place = place_[std::size_t(column)];
    if (place >= 0) {
      value_[std::size_t(place)] += value;
      return;
    }
    place_[std::size_t(column)] = std::int32_t(size_);
    column_[std::size_t(size_)] = column;
    value_[std::size_t(size_++)] = value;
  }
  [[nodiscard]] Index size() const { return size_; }
  /// Appends the row, and begins the next.
  void take(LargeVector<std::int32_t>& column, LargeVector<double>& value) {
    column.insert(column.end(), column_.begin(), column_.begin() + size_);
    value.insert(value.end(), value_.begin(), value_.begin() + size_);
    for (Index k = 0; k < size_; ++k) place_[std::size_t(column_[std::size_t(k)])] = -1;
    size_ = 0;
  }

 private:
  std::vector<std::int32_t> place_;
  LargeVector<std::int32_t> column_;
  LargeVector<double> value_;
  Index size_ = 0;
};

/// Rows that fill(i, sum) makes one by one.
template <class F>
HostRows rows_of(Index rows, Index columns, const F& fill) {
  if (columns > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::resources,
                "more than 2^31 unknowns of a coarse level on one rank; --preconditioner amg; use "
                "more ranks");
  HostRows result;
  result.columns = columns;
  result.start.resize(std::size_t(rows) + 1);
  // Pieces with a table of columns each: a few a thread.
  const Index grain = std::max<Index>(2048, ceil_div(rows, 4 * Index(thread_count())));
  struct Piece {
    LargeVector<std::int32_t> column;
    LargeVector<double> value;
  };
  std::vector<Piece> pieces(std::size_t(ceil_div(rows, grain)));
  parallel_for(Index(pieces.size()), [&](Index k) {
    RowSum sum(columns);
    Piece& piece = pieces[std::size_t(k)];
    for (Index i = k * grain; i < std::min(rows, (k + 1) * grain); ++i) {
      fill(i, sum);
      result.start[std::size_t(i) + 1] = sum.size();
      sum.take(piece.column, piece.value);
    }
  });
  for (Index i = 0; i < rows; ++i) result.start[std::size_t(i) + 1] += result.start[std::size_t(i)];
  result.column.resize(std::size_t(result.nonzeros()));
  result.value.resize(std::size_t(result.nonzeros()));
  parallel_for(Index(pieces.size()), [&](Index k) {
    Piece& piece = pieces[std::size_t(k)];
    const Index to = result.start[std::size_t(k * grain)];
    std::copy(piece.column.begin(), piece.column.end(), result.column.begin() + to);
    std::copy(piece.value.begin(), piece.value.end(), result.value.begin() + to);
    piece = {};
  });
  return result;
}

}  // namespace terrace::cg
