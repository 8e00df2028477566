// The rest of a classic iteration after q = A p: three passes, or one launch on a GPU, beside the
// formulas in long double.
#include "kernels/cg/vectors.hpp"

#include <cmath>
#include <limits>

#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;

namespace {

using Numbers = std::vector<double>;
constexpr Index row_size = cg_row::size(1), history_rows = 3;

struct State {
  Numbers q, d, r, x, p;
  Numbers before = Numbers(row_size, 0.0), now = Numbers(row_size, 0.0);
  Numbers history = Numbers(history_rows * row_size, 0.0);
  Index finished = 4;  // its place in the history: 1
  double stop = 1e-300, floor = 0;
};

State state(Index n, bool scaled) {
  State s;
  for (Numbers* v : {&s.q, &s.r, &s.x, &s.p}) v->resize(std::size_t(n));
  if (scaled) s.d.resize(std::size_t(n));
  long double rr = 0, rz = 0, zz = 0;
  for (Index i = 0; i < n; ++i) {
    const auto at = std::size_t(i);
    s.p[at] = random_uniform(1, i, 0);
    s.q[at] = 2 * s.p[at] + 0.5 * random_uniform(2, i, 0);
    s.r[at] = random_uniform(3, i, 0);
    s.x[at] = random_uniform(4, i, 0);
    if (scaled) s.d[at] = 1.5 + random_uniform(5, i, 0);
    const long double z = (scaled ? s.d[at] : 1.0L) * s.r[at];
    rr += (long double)s.r[at] * s.r[at], rz += s.r[at] * z, zz += z * z;
  }
  s.before[cg_row::rr] = double(rr), s.before[cg_row::rz] = double(rz);
  s.before[cg_row::zz] = double(zz);
  return s;
}

/// The textbook's step.
State expected(State s) {
  long double pq = 0, pp = 0, rr = 0, rz = 0, zz = 0;
  const std::size_t n = s.p.size();
  for (std::size_t i = 0; i < n; ++i)
    pq += (long double)s.p[i] * s.q[i], pp += (long double)s.p[i] * s.p[i];
  const bool steps = s.before[cg_row::rr] > s.stop && pq > s.floor * pp;
  const long double alpha = steps ? s.before[cg_row::rz] / pq : 0;
  std::vector<long double> r(n), z(n);
  for (std::size_t i = 0; i < n; ++i) {
    r[i] = s.r[i] - alpha * s.q[i];
    z[i] = (s.d.empty() ? 1.0L : s.d[i]) * r[i];
    rr += r[i] * r[i], rz += r[i] * z[i], zz += z[i] * z[i];
  }
  const bool on = steps && rr > s.stop;
  for (std::size_t i = 0; i < n && steps; ++i) {
    s.r[i] = double(r[i]);
    s.x[i] = double(s.x[i] + alpha * s.p[i]);
    if (on) s.p[i] = double(z[i] + rz / s.before[cg_row::rz] * s.p[i]);
  }
  s.now = {double(pq),    double(pp), double(rr), double(rz),    double(zz),
           double(alpha), double(pq), double(pp), on ? 0.0 : 1.0};
  std::copy(s.now.begin(), s.now.end(), s.history.begin() + row_size);
  ++s.finished;
  return s;
}

/// What the passes, or cg_finish(), make of it.
template <class B>
State done(Context<B>& c, const State& from, bool finish) {
  const Stream<B>& lane = c.ahead;
  const auto there = [&](const Numbers& v) {
    Buffer<double, B> buffer{Index(v.size())};
    upload(lane, buffer.view(), v.data());
    return buffer;
  };
  State s = from;
  Buffer<double, B> q = there(s.q), d = there(s.d), r = there(s.r), x = there(s.x), p = there(s.p),
                    before = there(s.before), now = there(s.now), history = there(s.history),
                    stop = there({s.stop}), partials(CgPass<B>::partial_count);
  Buffer<Index, B> finished(1);
  Buffer<Word, B> ticket(1);
  upload(lane, finished.view(), &s.finished);
  fill_zero(lane, ticket.view());
  const CgPass<B> pass{1,
                       before.view(),
                       now.view(),
                       {},
                       stop.view(),
                       s.floor,
                       CgNorm::unpreconditioned,
                       history.view(),
                       finished.view(),
                       partials.view(),
                       ticket.view()};
  if constexpr (std::is_same_v<B, Cuda>) {
    if (finish) cg_finish(lane, pass, q, d, r, x, p);
  }
  if (!finish) {
    cg_dots<B>(lane, pass, p, q);
    cg_step<B>(lane, pass, q, d, r);
    cg_direction<B>(lane, pass, r, d, x, p);
  }
  download(lane, s.r.data(), r.view());
  download(lane, s.x.data(), x.view());
  download(lane, s.p.data(), p.view());
  download(lane, s.now.data(), now.view());
  download(lane, s.history.data(), history.view());
  download(lane, &s.finished, finished.view());
  lane.synchronize();
  return s;
}

double difference(const Numbers& a, const Numbers& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i]));
    worst = error <= worst ? worst : error;  // a NaN stays
  }
  return worst;
}
void check_equal(const State& s, const State& e) {
  const double limit = 1e-16 * (100 + std::sqrt(double(e.p.size())));
  CHECK(difference(s.r, e.r) <= limit);
  CHECK(difference(s.x, e.x) <= limit);
  CHECK(difference(s.p, e.p) <= limit);
  CHECK(difference(s.now, e.now) <= 10 * limit);
  CHECK(difference(s.history, e.history) <= 10 * limit);
  CHECK(s.finished == e.finished);
}

template <class B>
void check_steps(Context<B>& c, Index n, bool finish) {
  for (const bool scaled : {false, true}) {
    CAPTURE(n, scaled, finish);
    const State s = state(n, scaled);
    const State result = done(c, s, finish);
    check_equal(result, expected(s));
    const State again = done(c, s, finish);
    CHECK(again.p == result.p);
    CHECK(again.now == result.now);

    if (n > 20) {  // along z the step makes r smaller; it is the last one
      State last = s;
      for (std::size_t i = 0; i < s.p.size(); ++i) {
        last.p[i] = (scaled ? s.d[i] : 1.0) * s.r[i];
        last.q[i] = 2 * last.p[i] + 0.1 * s.x[i];
      }
      const double rr = expected(last).now[cg_row::rr];
      REQUIRE(rr < 0.9 * s.before[cg_row::rr]);
      last.stop = 0.95 * s.before[cg_row::rr];
      REQUIRE(expected(last).now[cg_row::halted(1)] == 1);
      check_equal(done(c, last, finish), expected(last));
    }
    State small = s;  // no step
    small.stop = 2 * s.before[cg_row::rr];
    check_equal(done(c, small, finish), expected(small));
    State singular = s;
    singular.floor = 1e6;
    check_equal(done(c, singular, finish), expected(singular));

    State over = s;  // nothing but the flag
    over.before[cg_row::halted(1)] = 1;
    State kept = over;
    kept.now[cg_row::halted(1)] = 1;
    const State left = done(c, over, finish);
    CHECK(left.r == kept.r);
    CHECK(left.x == kept.x);
    CHECK(left.p == kept.p);
    CHECK(left.now == kept.now);
    CHECK(left.history == kept.history);
    CHECK(left.finished == kept.finished);

    State broken = s;  // a NaN ends it before it reaches x
    broken.q.back() = std::numeric_limits<double>::quiet_NaN();
    const State nan = done(c, broken, finish);
    CHECK(nan.r == s.r);
    CHECK(nan.x == s.x);
    CHECK(nan.p == s.p);
    CHECK(nan.now[cg_row::halted(1)] == 1);
  }
}

}  // namespace

TEST_CASE("the passes of a classic iteration make the textbook's step") {
  for (const Index n : {1, 2, 255, 256, 257, 5000}) check_steps(*test::context<Cpu>(), n, false);
}

#if TERRACE_WITH_CUDA
TEST_CASE("the rest of a classic iteration makes the textbook's step, CUDA", "[gpu]") {
  test::on<Cuda>([](Context<Cuda>& c) {
    for (const Index n : {1, 31, 33, 1023, 1025, 8191, 8192, 8193, 16384, 16385, 24577, 32768}) {
      check_steps(c, n, false);
      if (cg_finishes(c.ahead, n)) check_steps(c, n, true);
    }
    CHECK_FALSE(cg_finishes(c.ahead, 32769));
  });
}
#endif
