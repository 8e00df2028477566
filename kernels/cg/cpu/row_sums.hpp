// Rows of a sparse result, made one by one in threads.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/coarsening.hpp"
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

inline void make_starts(HostRows& a, Index rows) { a.start.resize(std::size_t(rows) + 1); }
inline void make_entries(HostRows& a, Index count) {
  a.column.resize(std::size_t(count));
  a.value.resize(std::size_t(count));
}
inline void make_starts(SparseRows<Cpu>& a, Index rows) { a.start = Buffer<Index, Cpu>(rows + 1); }
inline void make_entries(SparseRows<Cpu>& a, Index count) {
  a.column = Buffer<std::int32_t, Cpu>(count);
  a.value = Buffer<double, Cpu>(count);
}

/// Rows that fill(i, sum) makes one by one.
template <class Rows = HostRows, class F>
Rows rows_of(Index rows, Index columns, const F& fill) {
  if (columns > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::resources,
                "more than 2^31 unknowns of a coarse level on one rank; --preconditioner amg; use "
                "more ranks");
  Rows result;
  result.columns = columns;
  make_starts(result, rows);
  Index* const start = result.start.data();
  start[0] = 0;
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
      start[i + 1] = sum.size();
      sum.take(piece.column, piece.value);
    }
  });
  for (Index i = 0; i < rows; ++i) start[i + 1] += start[i];
  make_entries(result, start[rows]);
  parallel_for(Index(pieces.size()), [&](Index k) {
    Piece& piece = pieces[std::size_t(k)];
    const Index to = start[k * grain];
    std::copy(piece.column.begin(), piece.column.end(), result.column.data() + to);
    std::copy(piece.value.begin(), piece.value.end(), result.value.data() + to);
    piece = {};
  });
  return result;
}

}  // namespace terrace::cg
