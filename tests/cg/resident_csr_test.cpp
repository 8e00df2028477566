// Iterations on CSR rows in one launch, beside the textbook's.
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "kernels/base/random.hpp"
#include "kernels/cg/resident.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

using Values = std::vector<double>;

struct Row {
  double pq = 0, pp = 0, rr = 0, rz = 0;
};
struct State {
  Values x, r, p;
  std::vector<Row> rows{Row{}};
};

/// A symmetric matrix by rows, its diagonal `shift` more than the sum of the others' sizes.
struct System {
  Index n;
  std::vector<Index> start{0};
  std::vector<std::int32_t> column;
  Values value, d, b;

  /// `offsets`: of neighbours to the right; or, negative, so many at random.
  System(Index order, const std::vector<Index>& offsets, bool jacobi, double shift) : n(order) {
    std::vector<std::map<Index, double>> rows(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i)
      for (std::size_t k = 0; k < offsets.size(); ++k) {
        const Index o = offsets[k];
        const Index j = o > 0 ? i + o : Index(random_word(9, i, Index(k)) % Word(n));
        if (j >= n || j == i) continue;
        const double v = random_uniform(3, std::min(i, j), std::max(i, j));
        rows[std::size_t(i)][j] = rows[std::size_t(j)][i] = v;
      }
    for (Index i = 0; i < n; ++i) {
      double sum = shift;
      for (const auto& [j, v] : rows[std::size_t(i)]) sum += std::fabs(v);
      rows[std::size_t(i)][i] = sum * (1 + 0.5 * std::fabs(random_uniform(5, i, 0)));
      for (const auto& [j, v] : rows[std::size_t(i)]) {
        column.push_back(std::int32_t(j));
        value.push_back(v);
      }
      start.push_back(Index(column.size()));
      if (jacobi) d.push_back(1 / rows[std::size_t(i)][i]);
      b.push_back(random_uniform(4, i, 0));
    }
  }
  [[nodiscard]] double scale(std::size_t i) const { return d.empty() ? 1.0 : d[i]; }
  [[nodiscard]] State begin() const {
    State s{Values(b.size()), b, b};
    for (std::size_t i = 0; i < b.size(); ++i) {
      s.p[i] *= scale(i);
      s.rows[0].rr += s.r[i] * s.r[i];
      s.rows[0].rz += s.r[i] * s.p[i];
    }
    return s;
  }
  [[nodiscard]] Values times(const Values& p) const {
    Values q(p.size(), 0.0);
    for (std::size_t i = 0; i < q.size(); ++i)
      for (Index e = start[i]; e < start[i + 1]; ++e)
        q[i] += value[std::size_t(e)] * p[std::size_t(column[std::size_t(e)])];
    return q;
  }
  void step(State& s) const {
    Row now;
    const Values q = times(s.p);
    for (std::size_t i = 0; i < q.size(); ++i) {
      now.pq += s.p[i] * q[i];
      now.pp += s.p[i] * s.p[i];
    }
    const double alpha = s.rows.back().rz / now.pq;
    for (std::size_t i = 0; i < q.size(); ++i) {
      s.x[i] += alpha * s.p[i];
      s.r[i] -= alpha * q[i];
      now.rr += s.r[i] * s.r[i];
      now.rz += s.r[i] * scale(i) * s.r[i];
    }
    const double beta = now.rz / s.rows.back().rz;
    for (std::size_t i = 0; i < q.size(); ++i) s.p[i] = scale(i) * s.r[i] + beta * s.p[i];
    s.rows.push_back(now);
  }
};

template <class B>
class Launches {
 public:
  Launches(Context<B>& c, const System& s)
      : lane_(c.ahead),
        start_(put(lane_, s.start)),
        column_(put(lane_, s.column)),
        value_(put(lane_, s.value)),
        d_(put(lane_, s.d)),
        size_(resident_csr_size(B{}, s.n, Index(s.value.size()))) {
    if (size_.shares == 0) return;
    list_ = Buffer<std::int32_t, B>(size_.shares * size_.room);
    place_ = Buffer<std::uint16_t, B>(size_.places);
    bounds_ = Buffer<Index, B>(size_.bounds);
    scratch_ = Buffer<double, B>(size_.scratch);
    deal_shares(lane_, matrix());
    bounds_seen = get(lane_, bounds_);
    fits = resident_csr_fits(B{}, size_, bounds_seen);
  }
  bool fits = false;
  std::vector<Index> bounds_seen;
  [[nodiscard]] Index shares() const { return size_.shares; }
  [[nodiscard]] std::vector<Index> columns() const {  ///< of each entry, by its place in the list
    const auto list = get(lane_, list_);
    const auto place = get(lane_, place_);
    const auto start = get(lane_, start_);
    std::vector<Index> found;
    for (Index s = 0; s < size_.shares; ++s)
      for (Index e = start[std::size_t(bounds_seen[std::size_t(s)])];
           e < start[std::size_t(bounds_seen[std::size_t(s) + 1])]; ++e)
        found.push_back(list[std::size_t(s * size_.room + place[std::size_t(e)])]);
    return found;
  }
  void begin(const State& s, Index ring) {
    ring_ = ring;
    Values rows(std::size_t(ring * stride), -7.0);
    std::fill_n(rows.begin(), stride, 0.0);
    rows[cg_row::rr] = s.rows[0].rr;
    rows[cg_row::rz] = s.rows[0].rz;
    rows_ = put(lane_, rows);
    x_ = put(lane_, s.x), r_ = put(lane_, s.r), p_ = put(lane_, s.p);
  }
  void run(Index first, Index count, CgLimits limits) {
    resident_cg(lane_, matrix(), View<const double, B>(d_), p_.view(), x_.view(), r_.view(),
                {rows_.view(), ring_, stride}, first, count, limits, scratch_.view());
  }
  [[nodiscard]] State get_state() const {
    State s{get(lane_, x_), get(lane_, r_), get(lane_, p_)};
    const Values rows = get(lane_, rows_);
    s.rows.clear();
    for (std::size_t k = 0; k < rows.size(); k += stride)
      s.rows.push_back(
          {rows[k + cg_row::pq], rows[k + cg_row::pp], rows[k + cg_row::rr], rows[k + cg_row::rz]});
    return s;
  }

 private:
  [[nodiscard]] ResidentCsr<B> matrix() const {
    return {{start_, column_, value_, View<const Index, B>{}}, size_, list_, place_, bounds_};
  }
  static constexpr Index stride = cg_row::size(1);
  const Stream<B>& lane_;
  Buffer<Index, B> start_;
  Buffer<std::int32_t, B> column_;
  Buffer<double, B> value_, d_;
  ResidentSize size_;
  Buffer<std::int32_t, B> list_;
  Buffer<std::uint16_t, B> place_;
  Buffer<Index, B> bounds_;
  Buffer<double, B> scratch_, x_, r_, p_, rows_;
  Index ring_ = 0;
};

double distance(const Values& u, const Values& v) {
  double most = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double error = std::fabs(u[i] - v[i]);
    most = error <= most ? most : error;
  }
  return most;
}
bool same(const State& u, const State& v) { return u.x == v.x && u.r == v.r && u.p == v.p; }
bool near(double u, double v, double floor) {
  return std::fabs(u - v) <= 1e-11 * std::fabs(v) + floor;
}

/// The first iterations, in two launches, beside the textbook's.
template <class B>
void check_steps(Launches<B>& device, const System& system, const State& start, CgLimits limits) {
  State plain = start;
  while (plain.rows.size() < 9 && plain.rows.back().rr > limits.stop) system.step(plain);
  const Index done = Index(plain.rows.size()) - 1;
  device.begin(start, 16);
  device.run(1, std::min<Index>(3, done), limits);
  if (done > 3) device.run(4, done - 3, limits);
  const State found = device.get_state();
  CHECK(distance(found.x, plain.x) < 1e-12);
  CHECK(distance(found.r, plain.r) < 1e-12);
  // After the last iteration p stays as it was; the textbook's goes on.
  if (plain.rows.back().rr > limits.stop) CHECK(distance(found.p, plain.p) < 1e-12);
  const double faint = 1e-28 * start.rows[0].rr;
  for (std::size_t k = 1; k < plain.rows.size(); ++k) {
    const Row &u = found.rows[k], &v = plain.rows[k];
    CHECK((near(u.pq, v.pq, faint) && near(u.pp, v.pp, faint)));
    CHECK((near(u.rr, v.rr, faint) && near(u.rz, v.rz, faint)));
  }
}

/// To the end, in one launch and in two: the same bits, a solution, and nothing moves after it.
template <class B>
void check_end(Launches<B>& device, const System& system, const State& start, CgLimits limits) {
  constexpr Index most = 400;
  device.begin(start, 5);  // the ring goes around
  device.run(1, most, limits);
  const State end = device.get_state();
  device.begin(start, 5);
  device.run(1, 2, limits);
  device.run(3, most - 2, limits);
  CHECK(same(device.get_state(), end));
  for (const Row& row : end.rows) CHECK(row.rr <= limits.stop);
  const Values ax = system.times(end.x);
  double residual = 0;
  for (std::size_t i = 0; i < ax.size(); ++i)
    residual += (system.b[i] - ax[i]) * (system.b[i] - ax[i]);
  CHECK(residual <= 1e-20 * start.rows[0].rr);
  device.run(most + 1, 5, limits);
  CHECK(same(device.get_state(), end));
}

struct Shape {
  Index n;
  std::vector<Index> offsets;
};
/// Stencils of 7 and 27 points on p^3, numbered around.
std::vector<Index> points(Index p, bool all) {
  if (!all) return {1, p, p * p};
  std::vector<Index> offsets{1};
  for (Index dx = -1; dx <= 1; ++dx) {
    offsets.push_back(p + dx);
    for (Index dy = -1; dy <= 1; ++dy) offsets.push_back(p * p + p * dy + dx);
  }
  return offsets;
}
/// `large`: those that fill shared memory, and registers.
std::vector<Shape> shapes(bool large) {
  std::vector<Shape> all;
  for (const Index n : {1, 2, 3, 31, 32, 33, 511, 512, 513, 5000}) {
    all.push_back({n, {}});
    all.push_back({n, {1}});
    all.push_back({n, {1, 2, 7}});
    all.push_back({n, {0, 0, 0, 0}});
  }
  all.push_back({20 * 20 * 20, points(20, false)});
  all.push_back({20 * 20 * 20, points(20, true)});
  if (!large || fewer_cases) return all;
  all.push_back({40 * 40 * 40, points(40, true)});
  all.push_back({47 * 47 * 47, points(47, true)});    // shared memory is full
  all.push_back({20000, std::vector<Index>(12, 0)});  // columns everywhere
  all.push_back({4000, std::vector<Index>(70, 0)});   // a wide group of lanes
  all.push_back({60 * 60 * 60, points(60, true)});    // more than shared memory holds
  all.push_back({400000, {1, 633}});                  // many rows a thread
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("iterations on CSR rows in one launch are those of the textbook", "",
                   TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    if (resident_csr_size(TestType{}, 1, 1).shares == 0) {
      WARN("this device takes no system");
      return;
    }
    for (const Shape& shape : shapes(!std::is_same_v<TestType, Cpu>))
      for (const bool jacobi : {false, true}) {
        CAPTURE(shape.n, shape.offsets.size(), jacobi);
        const System system(shape.n, shape.offsets, jacobi, 0.5);
        const State start = system.begin();
        const CgLimits limits{1e-22 * start.rows[0].rr, 0};
        Launches<TestType> device(c, system);
        REQUIRE(device.fits);
        check_steps(device, system, start, limits);
        check_end(device, system, start, limits);
      }
  });
}

TEMPLATE_TEST_CASE("shares name the columns of their rows", "", TERRACE_BACKENDS) {
  if constexpr (!std::is_same_v<TestType, Cpu>)
    on<TestType>([](Context<TestType>& c) {
      for (const Shape& shape : shapes(true)) {
        CAPTURE(shape.n, shape.offsets.size());
        const System system(shape.n, shape.offsets, false, 0.5);
        const Launches<TestType> device(c, system);
        if (device.shares() == 0) continue;
        const auto& bounds = device.bounds_seen;
        CHECK(bounds[0] == 0);
        CHECK(bounds[std::size_t(device.shares())] == shape.n);
        const std::vector<Index> columns = device.columns();
        CHECK(
            std::equal(columns.begin(), columns.end(), system.column.begin(), system.column.end()));
      }
    });
}

TEMPLATE_TEST_CASE("large systems, and rows that are too long, are not taken", "",
                   TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    CHECK(resident_csr_size(TestType{}, 0, 0).shares == 0);
    CHECK(resident_csr_size(TestType{}, 1000, 20'000'000).shares == 0);
    CHECK(resident_csr_size(TestType{}, 20'000'000, 5'000'000).shares == 0);
    if constexpr (!std::is_same_v<TestType, Cpu>) {
      System arrow(5000, {}, false, 1);
      arrow.start = {0};
      arrow.column.clear(), arrow.value.clear();
      for (Index i = 0; i < arrow.n; ++i) {
        const Index from = i == 0 ? 0 : i, to = i == 0 ? arrow.n : i + 1;
        if (i > 0) arrow.column.push_back(0), arrow.value.push_back(1);
        for (Index j = from; j < to; ++j)
          arrow.column.push_back(std::int32_t(j)), arrow.value.push_back(i == j ? 6000 : 1);
        arrow.start.push_back(Index(arrow.column.size()));
      }
      CHECK_FALSE(Launches<TestType>(c, arrow).fits);
    }
  });
}

TEMPLATE_TEST_CASE("iterations on CSR rows leave x where they may not step", "", TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    if (resident_csr_size(TestType{}, 1, 1).shares == 0) return;
    for (const Index n : {1, 65, 300, 20000}) {
      CAPTURE(n);
      System indefinite(n, {1, 5}, false, 0.5);
      for (double& v : indefinite.value) v = -v;
      State start = indefinite.begin();
      start.x[0] = 0.5;
      Launches<TestType> device(c, indefinite);
      device.begin(start, 8);
      device.run(1, 4, {0, 0});
      State found = device.get_state();
      CHECK(same(found, start));
      for (std::size_t k = 1; k <= 4; ++k) {
        CHECK(found.rows[k].pq < 0);
        CHECK(near(found.rows[k].rr, start.rows[0].rr, 0));
        CHECK(near(found.rows[k].rz, start.rows[0].rz, 0));
      }
      CHECK(found.rows[5].rr == -7.0);  // later rows are not touched

      // Singular by its limit, and a residual that is not a number.
      device.begin(start, 8);
      device.run(1, 1, {0, std::numeric_limits<double>::max()});
      CHECK(same(device.get_state(), start));
      start.rows[0].rz = std::nan("");
      device.begin(start, 8);
      device.run(1, 2, {0, 0});
      CHECK(same(device.get_state(), start));
    }
  });
}
