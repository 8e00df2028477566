// Sparse rows on their way between ranks: each rank's in one message, packed and read by threads, and the
// numbers of the columns that come with them.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/base/large_vector.hpp"
#include "src/cg/coarse_rows.hpp"

namespace terrace::cg {

/// Rows for one rank, or from one; of nobody's, none.
class RowParcel {
 public:
  RowParcel() = default;
  /// To be filled; start()[0] is 0 already.
  RowParcel(Index rows, Index entries);
  explicit RowParcel(LargeVector<char>&& bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] Index rows() const { return bytes_.empty() ? 0 : *word(0); }
  [[nodiscard]] Index entries() const { return bytes_.empty() ? 0 : *word(1); }
  // Of a parcel with rows; null of one without. As a span's, what they show may be changed.
  /// Global numbers.
  [[nodiscard]] Index* row() const { return word(2); }
  /// rows() + 1 places in column() and value().
  [[nodiscard]] Index* start() const { return word(2 + rows()); }
  /// Global numbers.
  [[nodiscard]] Index* column() const { return word(3 + 2 * rows()); }
  [[nodiscard]] double* value() const {
    return reinterpret_cast<double*>(word(3 + 2 * rows() + entries()));
  }
  [[nodiscard]] LargeVector<char> take() { return std::move(bytes_); }

 private:
  [[nodiscard]] Index* word(Index k) const {
    if (bytes_.empty()) return nullptr;
    return reinterpret_cast<Index*>(const_cast<char*>(bytes_.data())) + k;
  }
  LargeVector<char> bytes_;
};

/// `count` rows from row `begin` on; start[0] is where `column` and `value` begin. Global numbers of
/// columns by `number`; row() is the caller's.
RowParcel parcel_of(const Index* start, Index begin, Index count, const std::int32_t* column,
                    const double* value, const ColumnNumbers& number);
/// To the ranks, and from each. Collective.
std::vector<RowParcel> exchanged(const Control& control, std::vector<RowParcel> parcels);
/// As parcel_of for each owner of `rows`, which ascend; start[k] is of rows[k]. Collective.
std::vector<RowParcel> sent_to_owners(const Control& control, const std::vector<Index>& first_row,
                                      const std::vector<Index>& rows, const Index* start,
                                      const std::int32_t* column, const double* value,
                                      const ColumnNumbers& number);

/// Columns of other ranks: those that were needed before, and those of parcels.
class MoreColumns {
 public:
  MoreColumns(const ColumnNumbers& number, const std::vector<RowParcel>& parcels);
  /// Global numbers, ascending. `number`'s are among them.
  [[nodiscard]] const std::vector<Index>& needed() const { return needed_; }
  /// Local numbers, as RankRows has them.
  [[nodiscard]] std::int32_t local(Index global) const {
    if (number_.owns(global)) return std::int32_t(global - number_.first);
    const Index at = global - lowest_;
    const std::uint64_t below = (std::uint64_t(1) << (at % 64)) - 1;
    const auto word = std::size_t(at / 64);
    return std::int32_t(number_.own + before_[word] + __builtin_popcountll(set_[word] & below));
  }

  /// Of all columns of a parcel.
  void locate(const RowParcel& rows, std::int32_t* to) const;
  /// Where each of `number`'s needed columns stands in needed().
  [[nodiscard]] std::vector<std::int32_t> places() const;

 private:
  ColumnNumbers number_;
  Index lowest_ = 0;
  std::vector<std::uint64_t> set_;  // bit k: column lowest_ + k
  std::vector<Index> before_;       // of each word, how many are set in those before it
  std::vector<Index> needed_;
};

/// Rows that other ranks sent parts of: own numbers, each once, ascending; columns are local ones and
/// ascend.
struct SummedRows {
  std::vector<Index> start{0}, row;
  LargeVector<std::int32_t> column;
  LargeVector<double> value;
};
/// Adds in the order of the ranks. `begin`: the first own row.
SummedRows summed(const std::vector<RowParcel>& parcels, const MoreColumns& columns, Index begin);

}  // namespace terrace::cg
