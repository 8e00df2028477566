#include "kernels/band/parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "tests/support/band_part.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

template <class B>
std::vector<Index> widths() {
  if constexpr (std::is_same_v<B, Cpu>) return {64, 48};
  return {64};
}

std::vector<double> random(Index size, Word seed) {
  std::vector<double> v(static_cast<std::size_t>(size));
  for (Index i = 0; i < size; ++i) v[std::size_t(i)] = random_uniform(seed, i, 1);
  return v;
}

/// Largest difference; infinite for different sizes or a NaN in one of them only.
double far(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const double d = std::abs(a[i] - b[i]);
    worst = std::isfinite(d) ? std::max(worst, d) : INFINITY;
  }
  return worst;
}

template <class B>
Buffer<double, B> put(const Stream<B>& lane, const std::vector<double>& host) {
  Buffer<double, B> there{Index(host.size())};
  if (!host.empty()) upload(lane, there.view(), host.data());
  lane.synchronize();
  return there;
}
template <class B>
std::vector<double> get(const Stream<B>& lane, const Buffer<double, B>& there) {
  std::vector<double> host(std::size_t(there.size()));
  if (!host.empty()) download(lane, host.data(), there.view());
  lane.synchronize();
  return host;
}

/// A host part in the memory of a backend.
template <class B>
struct DevicePart {
  Buffer<double, B> band, inverse, spike, block, coupling;
  BandPart<B> part;

  DevicePart(const Stream<B>& lane, const HostPart& h)
      : band(put(lane, h.band)),
        inverse(put(lane, h.inverse)),
        spike(put(lane, start_of(h))),
        block(put(lane, h.block)),
        coupling(put(lane, h.coupling)) {
    part.tiles = h.tiles;
    part.window = h.window;
    part.ring = h.tiles + h.window;
    part.band = band.data();
    part.inverse = inverse.data();
    part.arrow = h.arrow;
    part.spike = spike.data();
    part.arrow_block = block.data();
    part.coupling = coupling.data();
  }
  /// Its spike; before it is factored with nothing behind E.
  static std::vector<double> start_of(const HostPart& h) {
    std::vector<double> numbers = h.spike;
    const auto rest = numbers.begin() + h.arrow * h.begin_of_rest();
    if (std::all_of(rest, numbers.end(), [](double x) { return x == 0; }))
      std::fill(rest, numbers.end(), NAN);
    return numbers;
  }
  /// Largest difference of what the elimination leaves (the lower part of the arrow's block).
  double difference(const Stream<B>& lane, const HostPart& h) const {
    std::vector<double> lower = get(lane, block);
    for (Index q = 0; q < h.arrow; ++q)
      for (Index r = 0; r < q; ++r)
        lower[std::size_t(q * h.arrow + r)] = h.block[std::size_t(q * h.arrow + r)];
    std::vector<double> inverses = get(lane, inverse);
    const std::size_t eliminated = std::size_t(h.own() * h.s.width);
    std::copy(h.inverse.begin() + std::ptrdiff_t(eliminated), h.inverse.end(),
              inverses.begin() + std::ptrdiff_t(eliminated));
    return std::max({far(get(lane, band), h.band), far(inverses, h.inverse),
                     far(get(lane, spike), h.spike), far(lower, h.block),
                     far(get(lane, coupling), h.coupling)});
  }
};

template <class B>
std::vector<Index> factor(const Stream<B>& lane, const BandShape& s,
                          const std::vector<BandPart<B>>& parts) {
  const Index count = Index(parts.size());
  Buffer<Index, B> status{count};
  std::vector<Index> host(parts.size(), -1);
  upload(lane, status.view(), host.data());
  Buffer<Word, B> scratch{band_factor_scratch(B{}, s, parts)};
  band_factor_parts(lane, s, parts, status, scratch);
  download(lane, host.data(), status.view());
  lane.synchronize();
  return host;
}

struct Shape {
  Index m, tiles;
  bool window;
  Index arrow;  ///< tiles of it
};

/// Around every edge: reach below, at and above multiples of the width; parts shorter than the
/// reach and longer; with and without window and arrow.
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const Index m : {10, 64, 80, 100, 129, 200}) {
    const Index reach_tiles = (std::max<Index>(m, 64) + 63) / 64;
    for (const Index tiles :
         {Index(1), Index(2), reach_tiles, reach_tiles + 1, 3 * reach_tiles + 2})
      all.push_back({m, tiles, (m + tiles) % 2 == 0, (m / 10 + tiles) % 3});
    all.push_back({m, reach_tiles + 1, true, reach_tiles});
    all.push_back({m, 2, false, 0});
    all.push_back({m, 0, true, 1});
  }
  return all;
}

std::string describe(const HostPart& h) {
  return "width " + std::to_string(h.s.width) + " reach " + std::to_string(h.s.reach) + " tiles " +
         std::to_string(h.tiles) + " window " + std::to_string(h.window) + " arrow " +
         std::to_string(h.arrow);
}

}  // namespace

TEMPLATE_TEST_CASE("a part is eliminated: factor, inverses, window, spike and blocks", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Shape& shape : shapes()) {
      HostPart h(shape.m, w, shape.tiles, shape.window, shape.arrow * w, 5);
      INFO(describe(h));
      const DevicePart<TestType> d(lane, h);
      REQUIRE(factor<TestType>(lane, h.s, {d.part}) == std::vector<Index>{0});
      h.eliminate();
      REQUIRE(h.failed == 0);
      REQUIRE(d.difference(lane, h) < 1e-11);
    }
}

TEMPLATE_TEST_CASE("parts of different shapes are eliminated at once", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>()) {
    std::vector<HostPart> hosts;
    std::vector<DevicePart<TestType>> devices;
    std::vector<BandPart<TestType>> parts;
    for (Index p = 0; p < 7; ++p)
      hosts.emplace_back(150, w, (p * 5 + 1) % 8, p % 2 == 0, p % 3 * w, Word(p));
    hosts[1].at(w + 2, w + 2) = -1.0;
    for (HostPart& h : hosts) {
      devices.emplace_back(lane, h);
      parts.push_back(devices.back().part);
    }
    const std::vector<Index> status = factor<TestType>(lane, hosts[0].s, parts);
    for (std::size_t p = 0; p < hosts.size(); ++p) {
      INFO(describe(hosts[p]));
      REQUIRE(status[p] == (p == 1 ? w + 3 : 0));
      if (p == 1) continue;
      hosts[p].eliminate();
      REQUIRE(devices[p].difference(lane, hosts[p]) < 1e-11);
    }
  }
}

TEMPLATE_TEST_CASE("the first bad pivot of a part is named", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Index bad : {Index(0), Index(1), w - 1, w, w + 31, w + 32, 3 * w + 5, 5 * w - 1})
      for (const double value : {0.0, -2.0, double(NAN), double(INFINITY)}) {
        HostPart h(100, w, 5, bad % 2 == 0, bad % 3 == 0 ? w : 0, 7);
        h.at(bad, bad) = value;
        INFO(describe(h) << " bad " << bad << " value " << value);
        const DevicePart<TestType> d(lane, h);
        REQUIRE(factor<TestType>(lane, h.s, {d.part}) == std::vector<Index>{bad + 1});
      }
}

TEMPLATE_TEST_CASE("a part is eliminated piece by piece", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Index m : {64, 129, 200}) {
      HostPart h(m, w, 11, m != 64, m == 129 ? 2 * w : 0, 3);
      INFO(describe(h));
      DevicePart<TestType> d(lane, h);
      const std::vector<Index> ends = {1, 4, 5, 11};
      Index from = 0;
      for (const Index to : ends) {
        d.part.from = from;
        d.part.to = to == 11 ? -1 : to;
        REQUIRE(factor<TestType>(lane, h.s, {d.part}) == std::vector<Index>{0});
        from = to;
      }
      h.eliminate();
      REQUIRE(d.difference(lane, h) < 1e-11);
    }
}

TEMPLATE_TEST_CASE("a part is eliminated in a ring that turns over", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Index m : {64, 129, 200}) {
      HostPart h(m, w, 13, m != 129, 0, 3);
      const HostPart start = h;
      INFO(describe(h));
      h.eliminate();
      const Index reach_tiles = band_reach_tiles(h.s), all = h.tiles + h.window, piece = 3;
      DevicePart<TestType> d(lane, h);
      d.part.ring = std::min(all, 2 * reach_tiles + piece);
      const Buffer<double, TestType> slots =
          put(lane, std::vector<double>(std::size_t(band_part_doubles(h.s, d.part.ring)), NAN));
      d.part.band = slots.data();
      const auto slot = [&](Index k) {
        return slots.view().slice(k % d.part.ring * h.s.tile(), h.s.tile());
      };
      double worst = 0;
      Index there = 0;
      const auto check = [&](Index k) {
        std::vector<double> got(std::size_t(h.s.tile()));
        download(lane, got.data(), slot(k));
        lane.synchronize();
        const auto begin = h.band.begin() + k * h.s.tile();
        worst = std::max(worst, far(got, {begin, begin + h.s.tile()}));
      };
      for (Index from = 0; from < h.tiles; from += piece) {
        const Index to = std::min(h.tiles, from + piece);
        for (; there < std::min(all, to + reach_tiles); ++there)
          upload(lane, slot(there), start.band.data() + there * h.s.tile());
        lane.synchronize();
        d.part.from = from;
        d.part.to = to;
        REQUIRE(factor<TestType>(lane, h.s, {d.part}) == std::vector<Index>{0});
        for (Index k = from; k < to; ++k) check(k);
      }
      for (Index k = h.tiles; k < all; ++k) check(k);
      REQUIRE(worst < 1e-11);
    }
}

TEMPLATE_TEST_CASE("inverses of the diagonal blocks of a factor", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>()) {
    HostPart h(100, w, 5, true, 0, 9);
    HostPart want = h;
    want.inverse.assign(want.inverse.size(), NAN);
    for (Index k = 0; k < 5; ++k)  // any lower triangle with a safe diagonal
      for (Index j = k * w; j < (k + 1) * w; ++j) h.at(j, j) = 3.0 + random_uniform(1, j, j);
    want.band = h.band;
    want.invert();
    for (std::size_t i = 0; i < want.inverse.size(); ++i)
      if (Index(i) < w * w || Index(i) >= 4 * w * w) want.inverse[i] = NAN;
    DevicePart<TestType> d(lane, h);
    d.part.from = 1;
    d.part.to = 4;
    band_invert_diagonals(lane, h.s, d.part);
    const std::vector<double> got = get(lane, d.inverse);
    double size = 1, worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      REQUIRE(std::isnan(got[i]) == std::isnan(want.inverse[i]));
      if (std::isnan(got[i])) continue;
      const Index column = Index(i) / w % w, row = Index(i) % w;
      if (row < column) REQUIRE(got[i] == 0.0);
      size = std::max(size, std::abs(want.inverse[i]));
      worst = std::max(worst, std::abs(got[i] - want.inverse[i]));
    }
    REQUIRE(worst < 1e-12 * size);
  }
}

namespace {

/// Forward and backward substitution with factors made by the textbook.
template <class B>
void require_substitution(const Stream<B>& lane, std::vector<HostPart> hosts, Index nrhs) {
  std::vector<DevicePart<B>> devices;
  std::vector<BandPart<B>> parts;
  std::vector<std::vector<double>> rows, above;
  std::vector<Buffer<double, B>> there, there_above;
  std::vector<BandPartVectors<B>> x;
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    HostPart& h = hosts[p];
    h.eliminate();
    REQUIRE(h.failed == 0);
    devices.emplace_back(lane, h);
    parts.push_back(devices.back().part);
    rows.push_back(random(h.rows() * nrhs, 11 + Word(p)));
    above.push_back(random(h.arrow * nrhs, 91 + Word(p)));
    there.push_back(put(lane, rows.back()));
    there_above.push_back(put(lane, above.back()));
    x.push_back({there.back().data(), there_above.back().data()});
  }
  const Buffer<Word, B> scratch{band_substitute_scratch(B{}, hosts[0].s, parts, nrhs)};
  band_forward_parts(lane, hosts[0].s, parts, x, nrhs, scratch);
  lane.synchronize();
  std::vector<std::vector<double>> solved;
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    INFO(describe(hosts[p]) << " part " << p << " nrhs " << nrhs << " forward");
    hosts[p].forward(nrhs, rows[p], above[p]);
    solved.push_back(get(lane, there[p]));
    REQUIRE(far(solved[p], rows[p]) < 1e-12);
    REQUIRE(far(get(lane, there_above[p]), above[p]) < 1e-12);
  }
  band_backward_parts(lane, hosts[0].s, parts, x, nrhs, scratch);
  lane.synchronize();
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    INFO(describe(hosts[p]) << " part " << p << " nrhs " << nrhs << " backward");
    hosts[p].backward(nrhs, rows[p], above[p]);
    REQUIRE(far(get(lane, there[p]), rows[p]) < 1e-12);
    REQUIRE(far(get(lane, there_above[p]), above[p]) < 1e-12);
  }
  // The same bits again.
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    const std::vector<double> again = random(hosts[p].rows() * nrhs, 11 + Word(p));
    if (!again.empty()) upload(lane, there[p].view(), again.data());
    lane.synchronize();
  }
  band_forward_parts(lane, hosts[0].s, parts, x, nrhs, scratch);
  lane.synchronize();
  for (std::size_t p = 0; p < hosts.size(); ++p) REQUIRE(get(lane, there[p]) == solved[p]);
}

}  // namespace

TEMPLATE_TEST_CASE("substitution with one part", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Shape& shape : shapes()) {
      const HostPart h(shape.m, w, shape.tiles, shape.window, shape.arrow * w, 5);
      for (const Index nrhs : {1, 3, 9}) require_substitution<TestType>(lane, {h}, nrhs);
    }
}

TEMPLATE_TEST_CASE("substitution with any number of right-hand sides", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Index nrhs : {1, 2, 4, 5, 8, 9, 63, 64, 65, 70, 256, 600}) {
      if (fewer_cases && nrhs > 70) break;
      require_substitution<TestType>(lane, {HostPart(100, w, 7, true, 2 * w, 5)}, nrhs);
    }
}

TEMPLATE_TEST_CASE("substitution with parts of different shapes at once", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index w : widths<TestType>())
    for (const Index nrhs : {1, 8, 70}) {
      std::vector<HostPart> hosts;
      for (Index p = 0; p < 7; ++p)
        hosts.emplace_back(150, w, (p * 5 + 1) % 8, p % 2 == 0, p % 3 * w, Word(p));
      require_substitution<TestType>(lane, hosts, nrhs);
    }
}

TEMPLATE_TEST_CASE("substitution with more parts than one launch takes", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index nrhs : {1, 9}) {
    std::vector<HostPart> hosts;
    for (Index p = 0; p < 130; ++p) hosts.emplace_back(64, 64, 1 + p % 3, false, 0, Word(p));
    require_substitution<TestType>(lane, hosts, nrhs);
  }
}

TEMPLATE_TEST_CASE("substitution with a long part and a wide band", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index nrhs : {1, 8, 64}) {
    if (fewer_cases && nrhs > 1) break;
    require_substitution<TestType>(lane, {HostPart(64, 64, 150, true, 64, 5)}, nrhs);
    require_substitution<TestType>(lane, {HostPart(700, 64, 20, true, 0, 6)}, nrhs);
  }
}

TEMPLATE_TEST_CASE("a band is reversed", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index n : {1, 31, 64, 200})
    for (const Index height : {1, 2, 32, 33, 70, 300})
      for (const Index count : {Index(1), Index(33), Index(64), n}) {
        const Index first = std::max<Index>(0, n / 2 - count), from_ld = height + 3,
                    to_ld = height + 1, columns = std::min(count, n - first);
        INFO("n " << n << " height " << height << " first " << first << " count " << columns);
        const std::vector<double> from = random(columns * from_ld, 2);
        std::vector<double> want = random(n * to_ld, 3);
        const Buffer<double, TestType> in = put(lane, from), out = put(lane, want);
        for (Index j = first; j < first + columns; ++j)
          for (Index d = 0; d < height && j + d < n; ++d)
            want[std::size_t((n - 1 - j - d) * to_ld + d)] =
                from[std::size_t((j - first) * from_ld + d)];
        band_reverse(lane, n, first, columns, height, in.data(), from_ld, out.data(), to_ld);
        REQUIRE(get(lane, out) == want);
        // Rows from `top` on only.
        for (const Index top : {Index(0), first, first + 1, first + 40, n - 1, n}) {
          std::vector<double> some = random(n * to_ld, 3);
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
      const std::vector<double> numbers = random(count * height, 7);
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
        const Buffer<double, TestType> out = put(lane, random((count + rows) * ld, 3));
        const BandForm from = at(in, form);
        const BandRun runs[] = {{from, count + height, count, out.data()},
                                {from.behind(second), rows, rows, out.data() + count * ld}};
        lower_columns(lane, runs, height, ld, flag.data());
        REQUIRE(get(lane, out) == want);

        // From row `top` on; `n` rows in all.
        const Index n = count + height / 2, top = count / 3;
        std::vector<double> turned = random(n * ld, 5);
        const Buffer<double, TestType> reversed = put(lane, turned);
        for (Index j = 0; j < count; ++j)
          for (Index d = std::max<Index>(0, top - j); d < height && j + d < n; ++d)
            turned[std::size_t((n - 1 - j - d) * ld + d)] = of(j, d);
        band_reverse(lane, n, 0, count, height, from, reversed.data(), ld, top, flag.data());
        REQUIRE(get(lane, reversed) == turned);

        // More spikes than one launch takes.
        const Index arrow = count + 2, end = 40, each = arrow * end, several = 50;
        std::vector<double> spikes = random(several * each, 6);
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
        REQUIRE(seen(flag) == (count > 0 ? 1 : 0));
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
  std::vector<double> numbers = random(60 * room * ld, 4);
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
          const std::vector<double> from = random(count * from_ld, 2);
          std::vector<double> want = random(arrow * std::max<Index>(end, 1), 3);
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
