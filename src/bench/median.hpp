// The middle of measured values.
#pragma once
#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace terrace {

/// Of an even number of values: the mean of the middle two. NaN of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace terrace
