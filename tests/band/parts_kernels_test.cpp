#include "kernels/band/parts.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/support/band_part.hpp"
#include "tests/support/numbers.hpp"
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
    rows.push_back(random_numbers(h.rows() * nrhs, 11 + Word(p)));
    above.push_back(random_numbers(h.arrow * nrhs, 91 + Word(p)));
    there.push_back(put(lane, rows.back()));
    there_above.push_back(put(lane, above.back()));
    x.push_back({there.back().data(), there_above.back().data()});
  }
  const Buffer<Word, B> scratch{band_substitute_scratch(B{}, hosts[0].s, parts, nrhs)};
  band_forward_parts(lane, hosts[0].s, parts, x, nrhs, scratch);
  lane.synchronize();
  std::vector<std::vector<double>> solved, solved_above;
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    INFO(describe(hosts[p]) << " part " << p << " nrhs " << nrhs << " forward");
    hosts[p].forward(nrhs, rows[p], above[p]);
    solved.push_back(get(lane, there[p]));
    solved_above.push_back(get(lane, there_above[p]));
    REQUIRE(far(solved[p], rows[p]) < 1e-12);
    REQUIRE(far(get(lane, there_above[p]), above[p]) < 1e-12);
  }
  band_backward_parts(lane, hosts[0].s, parts, x, nrhs, scratch);
  lane.synchronize();
  std::vector<std::vector<double>> found;
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    INFO(describe(hosts[p]) << " part " << p << " nrhs " << nrhs << " backward");
    hosts[p].backward(nrhs, rows[p], above[p]);
    found.push_back(get(lane, there[p]));
    REQUIRE(far(found[p], rows[p]) < 1e-12);
    REQUIRE(far(get(lane, there_above[p]), above[p]) < 1e-12);
  }
  // The same bits again, by what is prepared.
  Index numbers = 0;
  for (const BandPart<B>& part : parts) numbers += band_prepared_doubles(B{}, hosts[0].s, part);
  const Buffer<double, B> prepared(numbers);
  double* next = prepared.data();
  for (BandPart<B>& part : parts)
    part.prepared = std::exchange(next, next + band_prepared_doubles(B{}, hosts[0].s, part));
  band_prepare(lane, hosts[0].s, parts);
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    const std::vector<double> again = random_numbers(hosts[p].rows() * nrhs, 11 + Word(p));
    if (!again.empty()) upload(lane, there[p].view(), again.data());
    lane.synchronize();
  }
  const Buffer<Word, B> less{band_substitute_scratch(B{}, hosts[0].s, parts, nrhs)};
  REQUIRE(less.size() <= scratch.size());
  band_forward_parts(lane, hosts[0].s, parts, x, nrhs, less);
  lane.synchronize();
  for (std::size_t p = 0; p < hosts.size(); ++p) REQUIRE(get(lane, there[p]) == solved[p]);
  for (std::size_t p = 0; p < hosts.size(); ++p)
    if (hosts[p].arrow > 0) upload(lane, there_above[p].view(), solved_above[p].data());
  lane.synchronize();
  band_backward_parts(lane, hosts[0].s, parts, x, nrhs, less);
  lane.synchronize();
  for (std::size_t p = 0; p < hosts.size(); ++p) REQUIRE(get(lane, there[p]) == found[p]);
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
