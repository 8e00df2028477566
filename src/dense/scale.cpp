#include "src/dense/scale.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernels/base/parallel.hpp"

namespace terrace::dense {

namespace {

/// p so that 2^p times numbers of these sizes are below one, or, where they are too far apart for
/// that, about the middle of the range; 0 where a power would lose some, and near one already.
Index power_for(double largest, double least) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  int high = 0, low = 0;
  (void)std::frexp(largest, &high);
  (void)std::frexp(least, &low);
  if (std::abs(high) <= 64 && high - low <= 200) return 0;  // the same bits, a pass less
  const int power = high - low <= 1000 ? -high : -((high + low) / 2);
  return high + power <= 1023 && low + power >= -1020 ? power : 0;
}

}  // namespace

ColumnSizes::ColumnSizes(Index columns)
    : largest(std::size_t(columns), 0.0),
      least(std::size_t(columns), std::numeric_limits<double>::infinity()) {}

void ColumnSizes::take(Index count, const double* rows) {
  const Index n = Index(largest.size());
  parallel_ranges(n, 512, [&](Index from, Index to) {
    for (Index i = 0; i < count; ++i)
      for (Index j = from; j < to; ++j) {
        const double number = std::fabs(rows[i * n + j]);
        const double size = number <= std::numeric_limits<double>::max()
                                ? number
                                : std::numeric_limits<double>::infinity();
        const double low = size > 0 ? size : std::numeric_limits<double>::infinity();
        double& most = largest[std::size_t(j)];
        double& first = least[std::size_t(j)];
        most = most < size ? size : most;
        first = low < first ? low : first;
      }
  });
}

void ColumnSizes::reduce(const Control& control) {
  control.reduce(largest, Reduce::max);
  control.reduce(least, Reduce::min);
}

bool ColumnSizes::finite() const {
  return std::all_of(largest.begin(), largest.end(), [](double l) { return std::isfinite(l); });
}

bool scales(const Powers& powers) {
  return std::any_of(powers.begin(), powers.end(), [](Index p) { return p != 0; });
}
Powers opposite(Powers powers) {
  for (Index& p : powers) p = -p;
  return powers;
}

SystemPowers::SystemPowers(Index n, const Sizes& of_a)
    : a(std::size_t(n), power_for(of_a.largest, of_a.least)), result(a) {}
SystemPowers::SystemPowers(Index n, const Sizes& of_a, const ColumnSizes& of_b)
    : SystemPowers(n, power_for(of_a.largest, of_a.least), of_b) {}
SystemPowers::SystemPowers(Index n, Index power, const ColumnSizes& of_b)
    : a(std::size_t(n), power) {
  for (std::size_t j = 0; j < of_b.largest.size(); ++j)
    b.push_back(power_for(of_b.largest[j], of_b.least[j]));
  result = opposite(b);
  if (!a.empty())
    for (Index& power : result) power += a[0];
}
double SystemPowers::log_determinant(double scaled) const {
  return a.empty() ? scaled : scaled - double(a[0]) * double(Index(a.size())) * std::log(2.0);
}

void scale_rows(Index count, const Powers& powers, double* rows) {
  const Index n = Index(powers.size());
  if (scales(powers))
    parallel_ranges(count, 16, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i)
        for (Index j = 0; j < n; ++j)
          rows[i * n + j] = std::ldexp(rows[i * n + j], int(powers[std::size_t(j)]));
    });
}

RowReader scaled(RowReader read, const Powers& powers) {
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
RowSource scaled(RowSource from, const Powers& powers) {
  if (!scales(powers)) return from;
  return {[from = std::move(from.give), powers](Index position, Index count, double* out) {
    from(position, count, out);
    scale_rows(count, powers, out);
  }};
}

}  // namespace terrace::dense
