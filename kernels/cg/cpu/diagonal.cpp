#include "kernels/cg/diagonal.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

constexpr Index few_numbers = 1 << 15;

}  // namespace

template <>
void judge_diagonal(const Stream<Cpu>& stream, View<const double, Cpu> d, View<Index, Cpu> first) {
  stream.run([=] {
    std::mutex joining;
    parallel_ranges(d.size, few_numbers, [&](Index from, Index to) {
      const double* const end = d.data + to;
      const Index negative =
          std::find_if(d.data + from, end, [](double v) { return v < 0; }) - d.data;
      const Index unusable =
          std::find_if(d.data + from, end,
                       [](double v) { return !(v > 0) || !std::isfinite(1 / v); }) -
          d.data;
      const std::lock_guard lock(joining);
      if (negative < to) first.data[0] = std::min(first.data[0], negative);
      if (unusable < to) first.data[1] = std::min(first.data[1], unusable);
    });
  });
}

template <>
void invert_each(const Stream<Cpu>& stream, View<const double, Cpu> d, View<double, Cpu> to) {
  stream.run([=] {
    parallel_ranges(d.size, few_numbers, [&](Index from, Index end) {
      for (Index i = from; i < end; ++i) to.data[i] = 1 / d.data[i];
    });
  });
}

template <>
void fill(const Stream<Cpu>& stream, View<double, Cpu> v, double value) {
  stream.run([=] {
    parallel_ranges(v.size, few_numbers,
                    [&](Index from, Index end) { std::fill(v.data + from, v.data + end, value); });
  });
}

}  // namespace terrace::cg
