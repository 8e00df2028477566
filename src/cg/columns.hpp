// Blocks of a few columns on the host, row-major: element (i, v) at i * width + v. By the threads
// of parallel_for.
#pragma once
#include <span>
#include <type_traits>
#include <vector>

#include "distrib/control.hpp"

namespace terrace::cg {

/// This rank's rows of b or x, row-major: on the host, or, `there`, in memory of the backend.
template <class T>
struct CgRows {
  T* data = nullptr;
  Index size = 0;
  bool there = false;
  CgRows(T* numbers, Index count, bool on_backend)
      : data(numbers), size(count), there(on_backend) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  CgRows(const std::vector<double>& rows) requires std::is_const_v<T> : data(rows.data()),
                                                                        size(Index(rows.size())) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  CgRows(std::vector<double>& rows) requires(!std::is_const_v<T>)
      : data(rows.data()), size(Index(rows.size())) {}
  [[nodiscard]] std::span<T> on_host() const { return {data, std::size_t(size)}; }
};

/// Largest magnitude of each column over all ranks; infinite for a NaN. Collective.
std::vector<double> largest_of_columns(const Control& control, std::span<const double> block,
                                       Index width);
/// Columns j0 .. j0 + width - 1 of `all` (`total` wide), zeros beyond its last.
std::vector<double> take_columns(std::span<const double> all, Index total, Index j0, Index width);
/// The first `count` columns of `block` (`width` wide) to columns j0 .. j0 + count - 1 of `all`.
void put_columns(const std::vector<double>& block, Index width, Index j0, Index count,
                 std::span<double> all, Index total);
/// to(i, v) = from(i, v) 2^power[v] in the columns with chosen[v]; the others stay as they are.
void scale_columns(std::span<const double> from, const std::vector<int>& power,
                   const std::vector<bool>& chosen, std::span<double> to);

}  // namespace terrace::cg
