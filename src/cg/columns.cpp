#include "src/cg/columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::cg {

namespace {

constexpr Index grain = Index(1) << 15;  // rows

Index rows_of(std::span<const double> block, Index width) {
  return width > 0 ? Index(block.size()) / width : 0;
}

}  // namespace

std::vector<double> largest_of_columns(const Control& control, std::span<const double> block,
                                       Index width) {
  const View<const double, Cpu> all{block.data(), Index(block.size())};
  std::vector<double> most;
  if (width == 1)  // at the rate of memory
    most = {max_abs<Cpu>(Stream<Cpu>(), 1, all.size, all, std::max<Index>(1, all.size))};
  else
    most =
        terrace::largest_of_columns<Cpu>(Stream<Cpu>(), rows_of(block, width), width, all, width);
  control.reduce(most, Reduce::max);
  return most;
}

std::vector<double> take_columns(std::span<const double> all, Index total, Index j0, Index width) {
  const Index rows = rows_of(all, total), used = std::min(width, total - j0);
  std::vector<double> block(std::size_t(rows * width), 0.0);
  parallel_ranges(rows, grain, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      std::copy_n(all.begin() + i * total + j0, used, block.begin() + i * width);
  });
  return block;
}

void put_columns(const std::vector<double>& block, Index width, Index j0, Index count,
                 std::span<double> all, Index total) {
  parallel_ranges(rows_of(block, width), grain, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      std::copy_n(block.begin() + i * width, count, all.begin() + i * total + j0);
  });
}

void scale_columns(std::span<const double> from, const std::vector<int>& power,
                   const std::vector<bool>& chosen, std::span<double> to) {
  const Index width = Index(power.size());
  // A product with a power of two rounds as ldexp does, where that power is a number.
  const bool plain =
      std::all_of(power.begin(), power.end(), [](int p) { return std::abs(p) <= 1000; });
  std::vector<double> factor(power.size());
  for (std::size_t v = 0; v < power.size(); ++v) factor[v] = plain ? std::ldexp(1.0, power[v]) : 0;
  parallel_ranges(rows_of(from, width), grain, [&](Index first, Index end) {
    for (Index v = 0; v < width; ++v) {
      const auto at = std::size_t(v);
      if (!chosen[at]) continue;
      for (Index i = first; i < end; ++i) {
        const auto k = std::size_t(i * width + v);
        to[k] = plain ? from[k] * factor[at] : std::ldexp(from[k], power[at]);
      }
    }
  });
}

}  // namespace terrace::cg
