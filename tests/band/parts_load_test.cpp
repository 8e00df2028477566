// How a band comes into its parts, and what is read off them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/band/parts.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

TEMPLATE_TEST_CASE("a band is reversed", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index n : {1, 31, 64, 200})
    for (const Index height : {1, 2, 32, 33, 70, 300})
      for (const Index count : {Index(1), Index(33), Index(64), n}) {
        const Index first = std::max<Index>(0, n / 2 - count), from_ld = height + 3,
                    to_ld = height + 1, columns = std::min(count, n - first);
        INFO("n " << n << " height " << height << " first " << first << " count " << columns);
        const std::vector<double> from = random_numbers(columns * from_ld, 2);
        std::vector<double> want = random_numbers(n * to_ld, 3);
        const Buffer<double, TestType> in = put(lane, from), out = put(lane, want);
        for (Index j = first; j < first + columns; ++j)
          for (Index d = 0; d < height && j + d < n; ++d)
            want[std::size_t((n - 1 - j - d) * to_ld + d)] =
                from[std::size_t((j - first) * from_ld + d)];
        band_reverse(lane, n, first, columns, height, in.data(), from_ld, out.data(), to_ld);
        REQUIRE(get(lane, out) == want);
        // Rows from `top` on only.
        for (const Index top : {Index(0), first, first + 1, first + 40, n - 1, n}) {
          std::vector<double> some = random_numbers(n * to_ld, 3);
          const Buffer<double, TestType> lower = put(lane, some);
          for (Index j = first; j < first + columns; ++j)
            for (Index d = std::max<Index>(0, top - j); d < height && j + d < n; ++d)
              some[std::size_t((n - 1 - j - d) * to_ld + d)] =
                  from[std::size_t((j - first) * from_ld + d)];
          band_reverse(lane, n, first, columns, height, in.data(), from_ld, lower.data(), to_ld,
                       top);
          REQUIRE(get(lane, lower) == some);
        }
      }
}

namespace {

/// The columns `columns` (height numbers each, one every height) as four owners hold them: lower and
/// upper, by columns and by diagonals; NaN where a form has no number. Of a matrix of `rows` rows.
struct Form {
  std::string name;
  std::vector<double> numbers;
  Index column, diagonal, offset;
};
std::vector<Form> forms(const std::vector<double>& columns, Index count, Index height,
                        Index gap = 3) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto of = [&](Index j, Index d) { return columns[std::size_t(j * height + d)]; };
  const Index wide = count + height + gap, tall = height + gap;
  Form lower{"lower columns", std::vector<double>(std::size_t(count * tall), none), tall, 1, 0};
  Form upper{"upper columns", std::vector<double>(std::size_t(wide * tall), none), tall, tall - 1,
             height - 1};
  Form lower_diagonals{"lower diagonals", std::vector<double>(std::size_t(height * wide), none), 1,
                       wide, 0};
  Form upper_diagonals{"upper diagonals", std::vector<double>(std::size_t(height * wide), none), 1,
                       1 - wide, (height - 1) * wide};
  for (Index j = 0; j < count; ++j)
    for (Index d = 0; d < height; ++d) {
      lower.numbers[std::size_t(j * tall + d)] = of(j, d);
      upper.numbers[std::size_t((j + d) * tall + height - 1 - d)] = of(j, d);
      lower_diagonals.numbers[std::size_t(d * wide + j)] = of(j, d);
      upper_diagonals.numbers[std::size_t((height - 1 - d) * wide + j + d)] = of(j, d);
    }
  return {lower, upper, lower_diagonals, upper_diagonals};
}
template <class B>
BandForm at(const Buffer<double, B>& memory, const Form& form) {
  return {memory.data() + form.offset, form.column, form.diagonal};
}

}  // namespace

TEMPLATE_TEST_CASE("every form of a band becomes lower columns, reversed columns and spikes", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  const auto seen = [&](const Buffer<Index, TestType>& flag) {
    Index value = 0;
    download(lane, &value, View<const Index, TestType>(flag.view()));
    lane.synchronize();
    return value;
  };
  for (const Index count : {1, 31, 64, 100})
    for (const Index height : {1, 33, 70}) {
      const std::vector<double> numbers = random_numbers(count * height, 7);
      for (const Form& form : forms(numbers, count, height)) {
        INFO(form.name << ", count " << count << " height " << height);
        const auto of = [&](Index j, Index d) { return numbers[std::size_t(j * height + d)]; };
        const Buffer<double, TestType> in = put(lane, form.numbers);
        const Buffer<Index, TestType> flag(1);
        fill_zero(lane, flag.view());

        // Two runs: the second one's matrix ends within it.
        const Index ld = height + 5, second = count / 2, rows = count - second;
        std::vector<double> want(std::size_t((count + rows) * ld), 0.0);
        for (Index j = 0; j < count; ++j)
          for (Index d = 0; d < height; ++d) want[std::size_t(j * ld + d)] = of(j, d);
        for (Index j = 0; j < rows; ++j)
          for (Index d = 0; d < height && j + d < rows; ++d)
            want[std::size_t((count + j) * ld + d)] = of(second + j, d);
        const Buffer<double, TestType> out = put(lane, random_numbers((count + rows) * ld, 3));
        const BandForm from = at(in, form);
        const BandRun runs[] = {{from, count + height, count, out.data()},
                                {from.behind(second), rows, rows, out.data() + count * ld}};
        lower_columns(lane, runs, height, ld, flag.data());
        REQUIRE(get(lane, out) == want);

        // From row `top` on; `n` rows in all.
        const Index n = count + height / 2, top = count / 3;
        std::vector<double> turned = random_numbers(n * ld, 5);
        const Buffer<double, TestType> reversed = put(lane, turned);
        for (Index j = 0; j < count; ++j)
          for (Index d = std::max<Index>(0, top - j); d < height && j + d < n; ++d)
            turned[std::size_t((n - 1 - j - d) * ld + d)] = of(j, d);
        band_reverse(lane, n, 0, count, height, from, reversed.data(), ld, top, flag.data());
        REQUIRE(get(lane, reversed) == turned);

        // More spikes than one launch takes.
        const Index arrow = count + 2, end = 40, each = arrow * end, several = 50;
        std::vector<double> spikes = random_numbers(several * each, 6);
        const Buffer<double, TestType> filled = put(lane, spikes);
        std::vector<BandSpike> entries;
        for (Index k = 0; k < several; ++k) {
          const Index gap = std::max<Index>(1, count - k % 2), here = end - k % 3;
          entries.push_back({from, count, gap, here, 2, filled.data() + k * each});
          for (Index c = 0; c < count; ++c)
            for (Index d = 0; d < height; ++d)
              if (c + d >= gap && c + d - gap < here)
                spikes[std::size_t(k * each + 2 + c + (c + d - gap) * arrow)] = of(c, d);
        }
        band_spikes(lane, entries, height, arrow, flag.data());
        REQUIRE(get(lane, filled) == spikes);
        // What a form has outside is not looked at.
        REQUIRE(seen(flag) == 0);

        // An infinite number in the last column is found, once for each.
        Form bad = form;
        bad.numbers[std::size_t(form.offset + (count - 1) * form.column)] =
            std::numeric_limits<double>::infinity();
        const Buffer<double, TestType> wrong = put(lane, bad.numbers);
        const BandForm infinite = at(wrong, bad);
        const BandRun all{infinite, count + height, count, out.data()};
        lower_columns(lane, {&all, 1}, height, ld, flag.data());
        REQUIRE(seen(flag) == 1);
        fill_zero(lane, flag.view());
        band_reverse(lane, n, 0, count, height, infinite, reversed.data(), ld, 0, flag.data());
        REQUIRE(seen(flag) == 1);
        fill_zero(lane, flag.view());
        const BandSpike entry{infinite, count, count - 1, end, 0, filled.data()};
        band_spikes(lane, {&entry, 1}, height, arrow, flag.data());
        REQUIRE(seen(flag) == 1);
      }
    }
}

#if TERRACE_WITH_CUDA
TEST_CASE("diagonals are multiplied in groups, CUDA", "[gpu]") {
  if (!context<Cuda>()) return;
  const Stream<Cuda> lane;
  const Index ld = 3;
  std::vector<BandDiagonal> diagonals;
  const Index room = 700;
  std::vector<double> numbers = random_numbers(60 * room * ld, 4);
  const Buffer<double, Cuda> in = put(lane, numbers);
  std::vector<std::pair<Index, Index>> places;
  for (Index k = 0; k < 60; ++k) {
    const Index count = k % 4 == 0 ? 0 : k == 1 ? 256 : k == 2 ? 257 : 1 + k * 37 % 699;
    places.emplace_back(k * room * ld, count);
    diagonals.push_back({in.data() + k * room * ld, ld, count});
  }
  Index groups = 0;
  for (const BandDiagonal& d : diagonals) groups += ceil_div(d.count, band_product_group);
  const Buffer<double, Cuda> out = put(lane, std::vector<double>(std::size_t(2 * groups)));
  band_products(lane, diagonals, out.data());
  const std::vector<double> got = get(lane, out);
  std::size_t group = 0;
  for (const auto& [first, count] : places)
    for (Index at = 0; at < count; at += band_product_group, ++group) {
      double want = 0;
      for (Index i = at; i < std::min(count, at + band_product_group); ++i)
        want += std::log(std::abs(numbers[std::size_t(first + i * ld)]));
      REQUIRE(std::log(got[2 * group]) + got[2 * group + 1] * std::log(2.0) ==
              Approx(want).margin(1e-12));
    }
  REQUIRE(Index(group) == groups);
}
#endif

TEMPLATE_TEST_CASE("entries of a separator become a spike", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index count : {1, 31, 64, 100})
    for (const Index height : {1, 33, 101, 200})
      for (const Index gap : {Index(1), count / 2, count})
        for (const Index end : {0, 5, 64, 300}) {
          const Index r0 = 3, arrow = count + 7, from_ld = height + 2;
          INFO("count " << count << " height " << height << " gap " << gap << " end " << end);
          const std::vector<double> from = random_numbers(count * from_ld, 2);
          std::vector<double> want = random_numbers(arrow * std::max<Index>(end, 1), 3);
          const Buffer<double, TestType> in = put(lane, from), out = put(lane, want);
          for (Index c = 0; c < count; ++c)
            for (Index d = 0; d < height; ++d)
              if (c + d >= gap && c + d - gap < end)
                want[std::size_t(r0 + c + (c + d - gap) * arrow)] =
                    from[std::size_t(d + c * from_ld)];
          const BandSpike entries{{in.data(), from_ld, 1}, count, gap, end, r0, out.data()};
          band_spikes(lane, {&entries, 1}, height, arrow);
          REQUIRE(get(lane, out) == want);
        }
}
