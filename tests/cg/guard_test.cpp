// --guard of conjugate gradients: no false alarm, the same bits, every bit that flips in the matrix
// is reported, and one in a vector never makes a wrong solution. TERRACE_GUARD_CASES: how many
// (nightly: 100,000).
#include <fmt/core.h>

#include <cstring>

#include "src/cg/constant_guard.hpp"
#include "src/cg/preconditioning.hpp"
#include "tests/support/guard.hpp"
#include "tests/support/systems.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

constexpr Index kinds = 13;
const char* const names[kinds] = {
    "dominant",       "positive semidefinite", "graded",     "Laplace", "Lehmer",   "Hilbert",
    "differences",    "large or small",        "indefinite", "sparse",  "diagonal", "a zero row",
    "one large entry"};

struct Case {
  Index n = 1, nrhs = 1;
  Vector a, b;  ///< n x n; n x nrhs
  std::string layout, text;
  CgRequest options;
  [[nodiscard]] Entry entry() const {
    return [this](Index i, Index j) { return a[std::size_t(i * n + j)]; };
  }
};

/// a_ij for i >= j, as drawn.
void draw_matrix(Case& c, Index kind, Draw& draw) {
  const Index n = c.n;
  const auto each = [&](auto&& entry) {
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j)
        c.a[std::size_t(i * n + j)] = c.a[std::size_t(j * n + i)] = entry(i, j);
  };
  const auto now = [&](Index i, Index j) { return c.a[std::size_t(i * n + j)]; };
  const auto dominant = [&](Index i, Index j) {
    return i == j ? 0.4 * double(n) + 1 : draw.uniform();
  };
  const auto scaled = [&](double decades) {
    Vector s(static_cast<std::size_t>(n));
    for (double& x : s) x = std::pow(10.0, decades * draw.uniform());
    each([&](Index i, Index j) { return now(i, j) * s[std::size_t(i)] * s[std::size_t(j)]; });
  };
  each(dominant);
  if (kind == 1) {
    const Index rank = draw.between(1, n);
    Vector f(std::size_t(n * rank));
    for (double& x : f) x = draw.uniform();
    each([&](Index i, Index j) {
      return std::inner_product(f.begin() + i * rank, f.begin() + (i + 1) * rank,
                                f.begin() + j * rank, 0.0);
    });
  }
  if (kind == 2) scaled(draw.of({1.0, 3.0, 20.0, 70.0}));
  if (kind == 3) each(laplace(draw.between(1, 12)));
  if (kind == 4) each(lehmer);
  if (kind == 5) each([](Index i, Index j) { return 1 / double(i + j + 1); });
  if (kind == 6)
    each([](Index i, Index j) { return i - j > 2 ? 0.0 : i == j ? 6.0 : i - j == 1 ? -4.0 : 1.0; });
  if (kind == 7) {
    const double by = std::pow(10.0, draw.of({-310.0, -300.0, -160.0, 100.0, 150.0, 290.0}));
    each([&](Index i, Index j) { return by * now(i, j); });
  }
  if (kind == 8) {
    const Index at = draw.below(n);
    const double by = draw.of({-1.0, 0.01, -1e-9});
    c.a[std::size_t(at * n + at)] *= by;
  }
  if (kind == 9) each([&](Index i, Index j) { return i == j || draw.one_in(8) ? now(i, j) : 0.0; });
  if (kind == 10) {
    const double decades = double(draw.between(0, 12));
    each([&](Index i, Index j) { return i == j ? std::pow(10.0, decades * draw.uniform()) : 0.0; });
  }
  if (kind == 11) {
    const Index at = draw.below(n);
    each([&](Index i, Index j) { return i == at || j == at ? 0.0 : now(i, j); });
  }
  if (kind == 12) {
    const Index i = draw.below(n), j = draw.below(n);
    c.a[std::size_t(i * n + j)] = c.a[std::size_t(j * n + i)] = draw.of({1e8, 1e200, -1e30});
  }
  if (c.layout == "band") {
    const Index m = draw.below(n);
    each([&](Index i, Index j) { return i - j <= m ? now(i, j) : 0.0; });
  }
  if (c.layout == "csr" && draw.one_in(2))
    each([&](Index i, Index j) { return i == j || draw.one_in(6) ? now(i, j) : 0.0; });
}

Case drawn_case(Index at, Word seed) {
  Draw draw{seed + Word(at)};
  Case c;
  const Index kind = at % kinds;
  c.layout = std::string(draw.of({"triangle", "rows", "band", "csr"}));
  c.n = draw.one_in(16) ? draw.between(60, 150) : draw.between(1, 60);
  c.a.assign(std::size_t(c.n * c.n), 0.0);
  draw_matrix(c, kind, draw);
  c.nrhs = draw.one_in(3) ? draw.between(2, 5) : 1;
  for (Index i = 0; i < c.n * c.nrhs; ++i) c.b.push_back(draw.uniform());
  CgRequest& o = c.options;
  o.rtol = draw.of({1e-10, 1e-10, 1e-6, 1e-14, 1e-30});
  o.max_iterations = draw.one_in(4) ? draw.between(0, 30) : 250;
  o.preconditioner = draw.of({"none", "none", "jacobi", "block-jacobi", "chebyshev", "ic", "amg"});
  if ((o.preconditioner == "ic" || o.preconditioner == "amg") &&
      (c.layout == "triangle" || c.layout == "rows"))
    o.preconditioner = "none";
  o.degree = draw.between(1, 6);
  o.norm = draw.of({CgNorm::unpreconditioned, CgNorm::unpreconditioned, CgNorm::preconditioned,
                    CgNorm::natural});
  o.block = draw.of({32, 1, 5, 16});
  o.method = draw.of(
      {CgMethod::classic, CgMethod::classic, CgMethod::single_reduction, CgMethod::pipelined});
  o.mixed = c.layout != "rows" && o.method == CgMethod::classic && draw.one_in(4);
  c.text = fmt::format("case {}: {}, n {}, right {}, {}, {}, method {}, norm {}, rtol {}, mixed {}",
                       at, names[kind], c.n, c.nrhs, c.layout, o.preconditioner, int(o.method),
                       int(o.norm), o.rtol, o.mixed);
  return c;
}

/// What flips besides the matrix, and when.
enum class Where { nothing, solution, residual, direction, product, right, diagonal };
struct VectorFlip {
  Where where = Where::nothing;
  Index step = 1, byte = 0;
  int bit = 0;
  bool done = false;
};

struct Ended {
  bool alarm = false;
  std::vector<CgReason> reasons;
  std::vector<Index> iterations;
  Index matrix = 0;  ///< bytes that are watched, before those of the preconditioner
  Vector x;          ///< of this rank
  [[nodiscard]] Index most() const {
    return iterations.empty() ? 0 : *std::max_element(iterations.begin(), iterations.end());
  }
};

/// Flips there, once `launched` iterations are.
template <class B>
void flip_vector(const Context<B>& c, CgWork<B>& work, VectorFlip& flip, Index launched) {
  if (flip.where == Where::nothing || flip.done || launched < flip.step) return;
  const View<double, B> at = flip.where == Where::solution    ? work.x.view()
                             : flip.where == Where::residual  ? work.r.view()
                             : flip.where == Where::direction ? work.operand().memory.view()
                             : flip.where == Where::product   ? work.product()
                             : flip.where == Where::diagonal  ? work.inverse_diagonal.view()
                                                              : work.b.view();
  if (at.size == 0) return;
  flip.done = true;
  toggle_bit(c.ahead, at.data, flip.byte % (8 * at.size), flip.bit);
}

template <class B, class A>
Ended ended_with(const Context<B>& context, A op, const Case& c, bool guard, VectorFlip& flip) {
  normalise(context, op);
  Ended found;
  const Range rows = op.rows();
  CgOptions how = c.options;
  how.jacobi = c.options.preconditioner == "jacobi";
  how.guard = guard;
  op.each_array([&](const auto& array) {
    found.matrix += round_up(array.size() * Index(sizeof(array.data()[0])), 8);
  });
  std::optional<ConstantGuard<B>> sums;
  if (guard) {
    sums.emplace(context);
    op.each_array([&](const auto& array) { sums->watch(array); });
    sums->begin();
  }
  found.alarm = alarmed([&] {
    CgPreconditioning<B, A> m(context, op, c.options);
    if (sums) {
      m.each_array([&](const auto& array) { sums->watch(array); });
      sums->begin();
    }
    if (m.refused) {
      if (sums) sums->finish(0);
      return;
    }
    const Index width = c.options.lock_step() == 1 ? 1 : c.nrhs > 4 ? 8 : c.nrhs > 2 ? 4 : c.nrhs;
    CgWork<B> work(context, op, how.jacobi, width, c.options.method);
    if (m.function) work.precondition(context, m.function, m.power);
    how.between = [&](Index launched) {
      flip_vector(context, work, flip, launched);
      if (sums) sums->step(launched);
    };
    for (Index j = 0; j < c.nrhs; j += width) {
      Vector b(std::size_t(rows.count * width)), x(b.size());
      for (Index i = 0; i < rows.count; ++i)
        for (Index v = 0; v < width && j + v < c.nrhs; ++v)
          b[std::size_t(i * width + v)] = c.b[std::size_t((rows.first + i) * c.nrhs + j + v)];
      for (const CgResult& r : conjugate_gradients_columns(context, op, work, how, b, x)) {
        if (Index(found.reasons.size()) == c.nrhs) break;
        found.reasons.push_back(r.reason);
        found.iterations.push_back(r.iterations);
      }
      for (Index v = 0; v < width && j + v < c.nrhs; ++v)
        for (Index i = 0; i < rows.count; ++i) found.x.push_back(x[std::size_t(i * width + v)]);
    }
    if (sums) sums->finish(found.most());
  });
  return found;
}

template <class B>
Ended ended(const Context<B>& context, const Case& c, bool guard, VectorFlip flip = {}) {
  const Entry a = c.entry();
  if (c.layout == "rows") return ended_with(context, Dense::make(context, c.n, a), c, guard, flip);
  if (c.layout == "triangle")
    return ended_with(context, Triangle::make(context, c.n, a, c.options.mixed), c, guard, flip);
  if (c.layout == "band")
    return ended_with(context, Band::make(context, c.n, a, c.options.mixed), c, guard, flip);
  return ended_with(context, Csr::make(context, c.n, a, c.options.mixed), c, guard, flip);
}

bool alike(const Ended& a, const Ended& b) {
  return a.reasons == b.reasons && a.iterations == b.iterations && a.x.size() == b.x.size() &&
         (a.x.empty() || std::memcmp(a.x.data(), b.x.data(), 8 * a.x.size()) == 0);
}

template <class B>
void check_alarms(Context<B>& context) {
  Index solved = 0, checks = 0;
  const Index count = guard_cases(300);
  for (Index at = guard_first(); at < guard_first() + count; ++at) {
    const Case c = drawn_case(at, 31'000'000);
    INFO(c.text);
    const Ended guarded = ended(context, c, true);
    REQUIRE_ALL(!guarded.alarm);
    solved += std::count_if(guarded.reasons.begin(), guarded.reasons.end(), converged) == c.nrhs;
    checks += guarded.most() > ConstantGuard<B>::interval;
    if (at / kinds % 4 == 0) CHECK_ALL(alike(guarded, ended(context, c, false)));
  }
  if (context.rank() == 0)
    fmt::print("{} systems on {} ranks, {} solved, {} with checks on the way: no false alarm\n",
               count, context.size(), solved, checks);
}

/// Bytes of the numbers, which come first in all operators.
Index number_bytes(const Case& c) {
  if (c.layout == "band" || c.layout == "rows") return 8 * c.n;  // of any shape
  if (c.layout == "triangle") return 8 * c.n;
  Index nonzeros = 0;
  for (const double v : c.a) nonzeros += v != 0;
  return 8 * nonzeros;
}

template <class B>
void check_matrix_flips(Context<B>& context) {
  if (context.size() > 1) return;  // one rank alone would hear of it
  Index done = 0;
  const Index count = guard_cases(300);
  for (Index at = guard_first(); at < guard_first() + count; ++at) {
    const Case c = drawn_case(at, 32'000'000);
    const Ended plain = ended(context, c, false);
    const Index bytes = number_bytes(c);
    if (plain.iterations.empty() || bytes == 0) continue;
    Draw draw{Word(33'000'000 + at)};
    TestFlip& flip = next_test_flip();
    flip.rank = 0;
    flip.step = draw.between(0, plain.most());
    flip.byte = draw.below(bytes);
    const std::string& m = c.options.preconditioner;
    if (m != "none" && m != "jacobi" && draw.one_in(2))
      flip.byte = plain.matrix + draw.below(8 * c.n);
    flip.bit = int(draw.below(8));
    INFO(c.text << ", flip " << flip.step << ":" << flip.byte << ":" << flip.bit);
    const Ended flipped = ended(context, c, true);
    const bool waits = flip_waits();
    flip = {};
    CHECK(flipped.alarm != waits);
    done += flipped.alarm;
  }
  fmt::print("{} of {} flips in matrices reported\n", done, done);
  CHECK(done > count / 2);
}

/// ||b - A x|| / ||b|| of right-hand side v, and what rounding may be of it.
std::pair<double, double> residual_of(const Case& c, const Ended& e, Index v) {
  long double rest = 0, size = 0, right = 0;
  for (Index i = 0; i < c.n; ++i) {
    long double r = c.b[std::size_t(i * c.nrhs + v)], s = std::fabs(r);
    right += r * r;
    for (Index j = 0; j < c.n; ++j) {
      const long double term =
          (long double)(c.a[std::size_t(i * c.n + j)]) * e.x[std::size_t(v * c.n + j)];
      r -= term;
      s += std::fabs(term);
    }
    rest += r * r;
    size += s * s;
  }
  return {double(std::sqrt(rest / right)), double(2.3e-16L * c.n * std::sqrt(size / right))};
}

template <class B>
void check_vector_flips(Context<B>& context) {
  if (context.size() > 1) return;
  Index done = 0, caught = 0, unsolved = 0, wrong = 0;
  const Index count = guard_cases(300);
  for (Index at = guard_first(); at < guard_first() + count; ++at) {
    Case c = drawn_case(at, 34'000'000);
    c.options.norm = CgNorm::unpreconditioned;
    const Ended plain = ended(context, c, false);
    if (plain.most() == 0) continue;
    Draw draw{Word(35'000'000 + at)};
    VectorFlip flip{draw.of({Where::solution, Where::residual, Where::direction, Where::product,
                             Where::right, Where::diagonal})};
    flip.step = draw.between(1, plain.most());
    flip.byte = draw.below(Index(1) << 30);
    flip.bit = int(draw.below(8));
    if (draw.one_in(2)) flip.byte |= 7;
    INFO(c.text << ", flip in " << int(flip.where) << " " << flip.step << ":" << flip.byte << ":"
                << flip.bit);
    const Ended flipped = ended(context, c, true, flip);
    ++done;
    CHECK((!flipped.alarm || flip.where == Where::right || flip.where == Where::diagonal));
    caught += flipped.alarm;
    if (flipped.alarm) continue;
    bool all = true;
    for (Index v = 0; v < c.nrhs; ++v) {
      if (!converged(flipped.reasons[std::size_t(v)])) {
        all = all && !converged(plain.reasons[std::size_t(v)]);
        continue;
      }
      const auto [residual, rounding] = residual_of(c, flipped, v);
      INFO("residual " << residual << ", rounding " << rounding);
      const bool right = residual <= 1.01 * c.options.rtol + 10 * rounding;
      CHECK(right);
      wrong += !right;
    }
    unsolved += !all;
  }
  fmt::print(
      "{} flips in vectors: {} in b or the diagonal reported, {} wrong solutions, {} no longer "
      "solved\n",
      done, caught, wrong, unsolved);
}

}  // namespace

TEST_CASE("Conjugate gradients without errors of memory are without alarms", "[cpu]") {
  on<Cpu>([](auto& context) { check_alarms(context); });
}
TEST_CASE("Conjugate gradients without errors of memory are without alarms, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_alarms(context); });
}
TEST_CASE("Every bit that flips in the matrix of conjugate gradients is reported", "[cpu]") {
  on<Cpu>([](auto& context) { check_matrix_flips(context); });
}
TEST_CASE("Every bit that flips in the matrix of conjugate gradients is reported, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_matrix_flips(context); });
}
TEST_CASE("A bit that flips in a vector of conjugate gradients makes no wrong solution", "[cpu]") {
  on<Cpu>([](auto& context) { check_vector_flips(context); });
}
