#include "kernels/band/band.hpp"

#include "kernels/base/problems.hpp"
#include "tests/support/band.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

/// Host memory to the backend and back.
template <class B>
struct Both {
  Stream<B> lane;
  Buffer<double, B> put(const std::vector<double>& host) const {
    Buffer<double, B> there{Index(host.size())};
    upload(lane, there.view(), host.data());
    lane.synchronize();
    return there;
  }
  std::vector<double> get(View<double, B> there) const {
    std::vector<double> host(std::size_t(there.size));
    download(lane, host.data(), there);
    lane.synchronize();
    return host;
  }
};

template <class B>
std::vector<Index> widths() {
  if constexpr (std::is_same_v<B, Cpu>) return {1, 5, 16, 63, 100, 128, 160};
  return {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 240, 256};
}

double far(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(a[i] - b[i]);
    worst = std::isfinite(d) ? std::max(worst, d) : INFINITY;
  }
  return worst;
}

/// Entry (i, j) of a tile column in its dense view, if it is stored.
struct Tile {
  BandShape s;
  std::vector<double>& data;
  double* at(Index i, Index j) const {
    if (i < j || i - j > s.reach) return nullptr;
    return &data[std::size_t(j * s.column() + i - j)];
  }
};

std::vector<double> random(Index size, Word seed) {
  std::vector<double> v(static_cast<std::size_t>(size));
  for (Index i = 0; i < size; ++i) v[std::size_t(i)] = random_uniform(seed, i, 1);
  return v;
}

/// One tile column: a well conditioned diagonal block, random below, zero outside the band.
std::vector<double> random_tile(const BandShape& s, Word seed) {
  std::vector<double> v = random(s.tile(), seed);
  for (Index j = 0; j < s.width; ++j) {
    const auto column = v.begin() + j * s.column();
    column[0] += double(s.width) + 2;
    std::fill(column + s.half_bandwidth + 1, column + s.column(), 0.0);
  }
  return v;
}

}  // namespace

TEMPLATE_TEST_CASE("the diagonal block becomes its Cholesky factor", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  for (const Index w : widths<TestType>()) {
    INFO("width " << w);
    const BandShape s = band_shape(1000, w + 30, w);
    std::vector<double> host = random_tile(s, 3);
    const auto entry = [&](Index i, Index j) { return *Tile{s, host}.at(i, j); };
    std::vector<double> l;
    REQUIRE(dense_cholesky(w, entry, l) == 0);
    const auto tile = both.put(host);
    const auto status = both.put({-1.0});
    band_factor_diagonal(both.lane, s, 2, tile, status);
    std::vector<double> got = both.get(tile.view());
    REQUIRE(both.get(status.view())[0] == 0.0);
    for (Index j = 0; j < w; ++j)
      for (Index i = 0; i <= j + s.reach; ++i) {
        double* const have = Tile{s, got}.at(i, j);
        if (!have) continue;
        const double want = i < w ? l[std::size_t(i * w + j)] : *Tile{s, host}.at(i, j);
        if (i < w ? std::abs(*have - want) > 1e-12 : *have != want) FAIL("entry " << i << " " << j);
      }
  }
}

TEMPLATE_TEST_CASE("the first bad pivot of a diagonal block is named", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  for (const Index w : widths<TestType>())
    for (const Index bad : {Index(0), Index(1), Index(15), Index(16), Index(31), Index(32),
                            Index(33), Index(64), w - 1})
      for (const double value : {0.0, -3.0, double(NAN), double(INFINITY)}) {
        if (bad >= w) continue;
        const BandShape s = band_shape(1000, w, w);
        std::vector<double> host = random_tile(s, 3);
        for (Index j = 0; j <= bad; ++j) *Tile{s, host}.at(bad, j) = 0.0;
        *Tile{s, host}.at(bad, bad) = value;
        const auto tile = both.put(host);
        const auto status = both.put({-1.0});
        band_factor_diagonal(both.lane, s, 2, tile, status);
        INFO("width " << w << " bad " << bad << " value " << value);
        REQUIRE(both.get(status.view())[0] == double(2 * w + bad + 1));
      }
}

TEMPLATE_TEST_CASE("a panel is solved, copied and applied", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  for (const Index w : widths<TestType>())
    for (const Index m : {w, w + 1, 3 * w + 17, Index(2300)})
      for (const bool tail : {false, true}) {
        if (m > 1000 && w != 16 && w != 128 && w != 256) continue;
        const BandShape s = band_shape(100000, m, w);
        const Index rows = tail ? std::min(s.reach, round_up(s.reach / 2, w)) : s.reach;
        INFO("width " << w << " m " << m << " rows " << rows);
        std::vector<double> host = random_tile(s, 5);
        const auto tile = both.put(host);
        const auto status = both.put({-1.0});
        const auto panel = both.put(std::vector<double>(std::size_t(s.reach * w), NAN));
        band_factor_diagonal(both.lane, s, 0, tile, status);
        std::vector<double> factored = both.get(tile.view());
        band_solve_panel(both.lane, s, rows, tile, panel);
        // P L^T = what was there, and the copy agrees with the tile column.
        std::vector<double> after = both.get(tile.view());
        const std::vector<double> copied = both.get(panel.view());
        std::vector<double> p(copied.size());  // column-major
        for (Index r = 0; r < rows; ++r)
          for (Index q = 0; q < w; ++q)
            p[std::size_t(r + q * s.reach)] =
                copied[std::size_t(band_panel_at(TestType{}, s, r, q))];
        double worst = 0;
        for (Index r = 0; r < rows; ++r)
          for (Index q = 0; q < w; ++q) {
            double sum = 0;
            for (Index k = 0; k <= q; ++k)
              sum += p[std::size_t(r + k * s.reach)] * *Tile{s, factored}.at(q, k);
            const double* was = Tile{s, host}.at(w + r, q);
            worst = std::max(worst, std::abs(sum - (was ? *was : 0.0)));
            const double* now = Tile{s, after}.at(w + r, q);
            if (p[std::size_t(r + q * s.reach)] != (now ? *now : 0.0)) worst = INFINITY;
          }
        REQUIRE(worst < 1e-12);

        for (const Index step : {1, 3}) {
          const Index first = step == 1 ? 1 : 2;
          const Index count = ceil_div(ceil_div(rows, w) - first + 1, step);
          if (count <= 0) continue;
          std::vector<double> trailing = random(count * s.tile(), 9);
          const auto tiles = both.put(trailing);
          band_update(both.lane, s, rows, panel, first, step, count, tiles);
          const std::vector<double> got = both.get(tiles.view());
          for (Index t = 0; t < count; ++t)
            for (Index j = 0; j < w; ++j) {
              const Index c = (first + t * step - 1) * w + j;  // row of the panel
              if (m > 1000 && (c + t) % 37 != 0) {             // a sample of the columns is enough
                std::copy_n(got.begin() + t * s.tile() + j * s.column(), s.column(),
                            trailing.begin() + t * s.tile() + j * s.column());
                continue;
              }
              for (Index r = c; r < rows; ++r) {
                double sum = 0;
                for (Index k = 0; k < w; ++k)
                  sum += p[std::size_t(r + k * s.reach)] * p[std::size_t(c + k * s.reach)];
                trailing[std::size_t(t * s.tile() + j * s.column() + r - c)] -= sum;
              }
            }
          REQUIRE(far(got, trailing) < 1e-12);
        }
      }
}

TEMPLATE_TEST_CASE("substitution steps invert the tile column", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  for (const Index w : widths<TestType>())
    for (const Index m : {w, 2 * w + 9})
      for (const Index nrhs : {1, 2, 5, 9, 40}) {
        const BandShape s = band_shape(100000, m, w);
        for (const Index rows : {s.reach, std::min(s.reach, round_up(s.reach / 2, w)), Index(0)}) {
          INFO("width " << w << " m " << m << " nrhs " << nrhs << " rows " << rows);
          std::vector<double> l = random_tile(s, 5);
          const auto tile = both.put(l);
          const std::vector<double> b = random(w * nrhs, 1), arrived = random(w * nrhs, 2),
                                    rest = random(std::max<Index>(rows * nrhs, 1), 3);
          const auto at = [&](Index i, Index j) {
            const double* entry = Tile{s, l}.at(i, j);
            return entry && i < w + rows ? *entry : 0.0;
          };
          const auto y = both.put(b), in = both.put(arrived), below = both.put(rest);
          band_forward(both.lane, s, rows, tile, nrhs, in, y, below.view().slice(0, rows * nrhs));
          const std::vector<double> got = both.get(y.view()), out = both.get(below.view());
          double worst = 0;
          for (Index i = 0; i < w + rows; ++i)
            for (Index v = 0; v < nrhs; ++v) {
              const std::size_t here = std::size_t((i < w ? i : i - w) * nrhs + v);
              double sum = i < w ? b[here] + arrived[here] : rest[here] - out[here];
              for (Index j = 0; j < w; ++j) sum -= at(i, j) * got[std::size_t(j * nrhs + v)];
              worst = std::max(worst, std::abs(sum));
            }
          REQUIRE(worst < 1e-11);

          const auto x = both.put(b);
          band_backward(both.lane, s, rows, tile, nrhs, x, below);
          const std::vector<double> solved = both.get(x.view());
          for (Index j = 0; j < w; ++j)
            for (Index v = 0; v < nrhs; ++v) {
              double sum = b[std::size_t(j * nrhs + v)];
              for (Index i = j; i < w + rows; ++i)
                sum -= at(i, j) * (i < w ? solved[std::size_t(i * nrhs + v)]
                                         : out[std::size_t((i - w) * nrhs + v)]);
              worst = std::max(worst, std::abs(sum));
            }
          REQUIRE(worst < 1e-11);
        }
      }
}

TEMPLATE_TEST_CASE("band columns times vectors", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  for (const Index count : {1, 31, 300})
    for (const Index height : {1, 2, 70, 400})
      for (const Index nrhs : {1, 3, 6, 263000})  // more than a grid has blocks
        for (const bool symmetric : {false, true}) {
          if (nrhs > 6 && (count > 1 || height > 2)) continue;
          const Index ld = height + 3;
          const std::vector<double> a = random(count * ld, 1);
          const std::vector<double> x = random((count + height - 1) * nrhs, 2);
          const std::vector<double> start = random((count + height - 1) * nrhs, 3);
          std::vector<double> want = start, sizes = random(count + height - 1, 4);
          const auto matrix = both.put(a), in = both.put(x), y = both.put(start),
                     sums = both.put(sizes);
          const double alpha = symmetric ? 1.0 : -2.0;
          for (Index j = 0; j < count; ++j)
            for (Index d = 0; d < height; ++d) {
              const double entry = a[std::size_t(j * ld + d)];
              sizes[std::size_t(j + d)] += std::abs(entry);
              if (d > 0) sizes[std::size_t(j)] += std::abs(entry);
              for (Index v = 0; v < nrhs; ++v) {
                want[std::size_t((j + d) * nrhs + v)] +=
                    alpha * entry * x[std::size_t(j * nrhs + v)];
                if (d > 0 || !symmetric)
                  want[std::size_t(j * nrhs + v)] +=
                      alpha * entry * x[std::size_t((j + d) * nrhs + v)];
              }
            }
          const BandColumns<TestType> columns{matrix.data(), count, height, ld};
          if (symmetric) {
            band_symmetric_times(both.lane, columns, nrhs, in, y, sums);
            REQUIRE(far(both.get(sums.view()), sizes) < 1e-11);
          } else {
            band_times(both.lane, columns, alpha, nrhs, in, y);
            band_transposed_times(both.lane, columns, alpha, nrhs, in, y);
          }
          REQUIRE(far(both.get(y.view()), want) < 1e-11);
        }
}

TEMPLATE_TEST_CASE("the largest numbers of a residual, in blocks of rows", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  struct Case {
    BandRows rows;
    Index nrhs;
  };
  for (const Case& c :
       {Case{{1, 1, 1, 1}, 1}, Case{{1, 700, 700, 700}, 3}, Case{{5, 64, 192, 900}, 2},
        Case{{2, 1, 1, 2}, 70000}, Case{{5, 64, 192, 800}, 1}, Case{{3, 64, 64, 150}, 9}})
    for (const double odd : {0.0, HUGE_VAL, std::nan("")})
      for (const bool given : {false, true}) {
        const Index own = c.rows.count * c.rows.length, nrhs = c.nrhs,
                    all = (c.rows.count - 1) * c.rows.distance + c.rows.length;
        std::vector<double> b = random(own * nrhs, 1), x = random(all * nrhs, 2),
                            y = random(all * nrhs, 3), want(std::size_t(3 * nrhs), 0.25);
        const Index last = std::min(all, c.rows.end) - 1;
        if (odd != 0) y[std::size_t(last * nrhs + nrhs - 1)] = odd;
        if (c.rows.end < all) x[std::size_t((all - 1) * nrhs)] = 7;  // does not count
        for (Index i = 0; i < own; ++i) {
          const Index row = i / c.rows.length * c.rows.distance + i % c.rows.length;
          for (Index v = 0; v < nrhs && row < c.rows.end; ++v) {
            const double right = given ? b[std::size_t(i * nrhs + v)] : 0.0;
            const double rest = right - y[std::size_t(row * nrhs + v)];
            const auto most = [&](Index k, double value) {
              double& at = want[std::size_t(k * nrhs + v)];
              at = std::max(at, std::isfinite(value) ? std::abs(value) : HUGE_VAL);
            };
            most(0, rest), most(1, x[std::size_t(row * nrhs + v)]), most(2, right);
          }
        }
        const auto out = both.put(std::vector<double>(want.size(), 0.25)), right = both.put(b),
                   in = both.put(x), product = both.put(y);
        band_raise(both.lane, BandResidual<TestType>{c.rows, nrhs, given ? right.data() : nullptr,
                                                     product.data(), in.data(), out.data()});
        REQUIRE(both.get(out.view()) == want);
      }
}

TEMPLATE_TEST_CASE("generated columns are the formula's, bit for bit", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Both<TestType> both;
  const Index n = 100, m = 17, ld = 25, height = 20;
  const auto data = both.put(std::vector<double>(std::size_t(40 * ld), 0.0));
  band_generate_spd(both.lane, 5, n, m, 60, 40, height, ld, data);
  const std::vector<double> got = both.get(data.view());
  for (Index j = 0; j < 40; ++j)
    for (Index d = 0; d < ld; ++d)
      REQUIRE(got[std::size_t(j * ld + d)] ==
              (d < height ? band_spd_entry(5, n, m, 60 + j + d, 60 + j) : 0.0));
}

TEMPLATE_TEST_CASE("a band wider than one wave of blocks is factored and solved", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress(false, false);
  const Index n = std::is_same_v<TestType, Cpu> ? 1500 : 5000, m = n - 1000, width = 128;
  const BandShape s = band_shape(n, m, width);
  const BandProblem<TestType> problem{n, m,
                                      [=](Context<TestType>& who, Range columns, Index height,
                                          Index ld, View<double, TestType> to) {
                                        band_generate_spd(who.ahead, 3, n, m, columns.first,
                                                          columns.count, height, ld, to);
                                      }};
  BandTiles<TestType> a = band_tiles<TestType>(*c, s);
  for (const Range& columns : BlockCyclic{n, width, c->size()}.ranges(c->rank()))
    band_generate_spd(c->ahead, 3, n, m, columns.first, columns.count, m + 1, s.column(),
                      a.tile(columns.first / width));
  BandWork<TestType> work(s);
  REQUIRE(band_cholesky(*c, a, work, progress) == 0);
  REQUIRE(band_factor_residual(*c, problem, a, 1) < 30.0);
}
