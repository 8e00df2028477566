// Powers of two that bring a dense system near one: they change no bit of its solution, only the
// exponents, and keep every number on the way in range.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "io/output.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"
#include "src/dense/check.hpp"

namespace terrace {

/// Largest and least sizes of what a matrix holds, zeros aside, column by column.
struct InputSizes {
  std::vector<double> largest, least;

  explicit InputSizes(Index columns)
      : largest(std::size_t(columns), 0.0),
        least(std::size_t(columns), std::numeric_limits<double>::infinity()) {}
  void take(Index count, const double* rows) {
    const Index n = Index(largest.size());
    parallel_ranges(n, 512, [&](Index from, Index to) {
      for (Index i = 0; i < count; ++i)
        for (Index j = from; j < to; ++j) {
          const double size = std::fabs(rows[i * n + j]);
          const double low = size > 0 ? size : std::numeric_limits<double>::infinity();
          double& most = largest[std::size_t(j)];
          double& first = least[std::size_t(j)];
          most = most < size ? size : most;
          first = low < first ? low : first;
        }
    });
  }
  void reduce(const Control& control) {
    control.reduce(largest, Reduce::max);
    control.reduce(least, Reduce::min);
  }
};

/// p so that 2^p times numbers of these sizes are below one, or, where they are too far apart for
/// that, about the middle of the range; 0 where a power would lose some, and near one already.
inline Index power_for(double largest, double least) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  int high = 0, low = 0;
  (void)std::frexp(largest, &high);
  (void)std::frexp(least, &low);
  if (std::abs(high) <= 64 && high - low <= 200) return 0;  // the same bits, a pass less
  const int power = high - low <= 1000 ? -high : -((high + low) / 2);
  return high + power <= 1023 && low + power >= -1020 ? power : 0;
}

/// Of the columns of A, all alike, or of a right-hand side, each its own.
using Powers = std::vector<Index>;

inline Powers matrix_powers(const InputSizes& sizes) {
  const auto most = std::max_element(sizes.largest.begin(), sizes.largest.end());
  const auto first = std::min_element(sizes.least.begin(), sizes.least.end());
  Powers powers(sizes.largest.size(), 0);
  if (!powers.empty()) std::fill(powers.begin(), powers.end(), power_for(*most, *first));
  return powers;
}
inline Powers column_powers(const InputSizes& sizes) {
  Powers powers;
  for (std::size_t j = 0; j < sizes.largest.size(); ++j)
    powers.push_back(power_for(sizes.largest[j], sizes.least[j]));
  return powers;
}
inline bool scales(const Powers& powers) {
  return std::any_of(powers.begin(), powers.end(), [](Index p) { return p != 0; });
}
inline Powers opposite(Powers powers) {
  for (Index& p : powers) p = -p;
  return powers;
}

/// rows[i, j] *= 2^powers[j], on the host.
inline void scale_rows(Index count, const Powers& powers, double* rows) {
  const Index n = Index(powers.size());
  if (scales(powers))
    parallel_ranges(count, 16, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i)
        for (Index j = 0; j < n; ++j)
          rows[i * n + j] = std::ldexp(rows[i * n + j], int(powers[std::size_t(j)]));
    });
}
/// Columns [from, ...) of the solver's rows, where they are.
template <class B, class Solver>
void scale_solver(Context<B>& context, const Solver& solver, Index from, const Powers& powers) {
  if (!scales(powers) || solver.slots() == 0) return;
  const Buffer<Index, B> power(Index(powers.size()));
  upload(context.ahead, power.view(), powers.data());
  scale_columns<B>(context.ahead, solver.slots(), power.view(),
                   solver.data().slice(from, solver.data().size - from), solver.ld());
  context.ahead.synchronize();
}

/// `read`, scaled.
inline RowReader scaled(RowReader read, const Powers& powers) {
  if (!scales(powers)) return read;
  return [read = std::move(read), powers](std::span<const Range> ranges,
                                          const io::Sink<double>& sink) {
    std::vector<double> rows;
    read(ranges, [&](Index position, Index count, const double* data) {
      rows.assign(data, data + count * Index(powers.size()));
      scale_rows(count, powers, rows.data());
      sink(position, count, rows.data());
    });
  };
}
inline io::Source<double> scaled(io::Source<double> from, const Powers& powers) {
  if (!scales(powers)) return from;
  return [from = std::move(from), powers](Index position, Index count, double* out) {
    from(position, count, out);
    scale_rows(count, powers, out);
  };
}

/// Largest of the solver's columns [from, from + columns), infinity if one is not finite.
template <class B, class Solver>
double largest_of(Context<B>& context, const Solver& solver, Index from, Index columns) {
  const double mine =
      solver.slots() == 0 || columns == 0
          ? 0.0
          : max_abs<B>(context.ahead, solver.slots(), columns,
                       solver.data().slice(from, solver.data().size - from), solver.ld());
  return context.control.reduce(mine, Reduce::max);
}
/// The solution [from, from + powers.size()) gets the bits that it will have once it is multiplied
/// by 2^powers; false when that is not finite.
template <class B, class Solver>
bool settle(Context<B>& context, const Solver& solver, Index from, const Powers& powers) {
  if (!scales(powers)) return true;
  scale_solver(context, solver, from, powers);
  const bool finite = std::isfinite(largest_of(context, solver, from, Index(powers.size())));
  scale_solver(context, solver, from, opposite(powers));
  return finite;
}

}  // namespace terrace
