// The calls of a user of the library: plan, read, solve, check; beside the textbook in long double.
#include "src/dense/system.hpp"
#include "src/dense/cramer.hpp"
#include "tests/support/dense_rows.hpp"
#include "tests/support/guard.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using namespace terrace::test;

namespace {

struct Answer {
  EliminationOutcome outcome;
  std::vector<double> x;  ///< n x columns, on all ranks
  double reciprocal = 0, ratio = 0;
  int seen = 0;  ///< residuals of an inverse that were told
};

template <class System, class B>
Answer answered(Context<B>& context, const DensePlan& plan, const Entry& a, const Entry& b) {
  Answer found;
  System system(context, plan, rows_from(plan.n, a), rows_from(plan.rhs, b));
  Progress silent(false, false);
  system.read();
  found.outcome = system.solve(silent);
  if (!found.outcome.good()) return found;
  found.reciprocal = system.reciprocal_condition();
  found.ratio = system.check(silent, [&](const InverseResidual&) { ++found.seen; });
  const Index columns = plan.inverse ? plan.n : plan.rhs;
  found.x.assign(std::size_t(plan.n * columns), 0.0);
  const io::Source<double> rows = system.rows();
  Index position = 0;
  for (const Index i : system.destination()) rows(position++, 1, found.x.data() + i * columns);
  context.control.reduce(found.x, Reduce::sum);
  return found;
}

double norm(Index n, const std::function<long double(Index, Index)>& a, bool by_columns) {
  long double most = 0;
  for (Index i = 0; i < n; ++i) {
    long double sum = 0;
    for (Index j = 0; j < n; ++j) sum += std::fabs(by_columns ? a(j, i) : a(i, j));
    most = std::max(most, sum);
  }
  return double(most);
}

template <class B>
Answer answered(Context<B>& context, const DensePlan& plan, const Entry& a, const Entry& b) {
  if constexpr (std::is_same_v<B, Cpu>)
    if (plan.method == "cramer") return answered<CramerSystem>(context, plan, a, b);
  return answered<DenseSystem<B>>(context, plan, a, b);
}

/// 2^scale A, and right-hand sides of sizes far apart: nothing of the answer depends on that.
template <class B>
void check_scales(Context<B>& context, DenseRequest request, Index n, int scale) {
  const Entry plain = problems(n)[0].entry;
  const Entry a = [&](Index i, Index j) { return std::ldexp(plain(i, j), scale); };
  const Index columns = request.inverse ? n : 3;
  const auto size_of = [&](Index j) { return request.inverse ? 0 : int(scale / 3 * j); };
  const Entry right = [&](Index i, Index j) { return random_uniform(5, i, j); };
  const Entry b = [&](Index i, Index j) { return std::ldexp(right(i, j), size_of(j)); };
  request.right = request.inverse ? 0 : columns;
  const DensePlan plan = plan_dense<B>(context.size(), n, request);
  INFO(plan.method << ", n " << n << ", inverse " << plan.inverse << ", 2^" << scale);
  const Answer mine = answered(context, plan, a, b);
  const Oracle oracle = textbook_inverse(n, plain);
  REQUIRE_ALL(mine.outcome.good());
  CHECK_ALL(mine.ratio < residual_limit);
  CHECK_ALL(mine.seen == int(plan.inverse));
  std::vector<double> x = mine.x;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < columns; ++j)
      x[std::size_t(i * columns + j)] =
          std::ldexp(x[std::size_t(i * columns + j)], scale - size_of(j));
  CHECK_ALL(residual_ratio(n, columns, plain, x, request.inverse ? identity() : right) < 30);
  CHECK_ALL(mine.outcome.determinant_sign == oracle.sign);
  CHECK_ALL(mine.outcome.log_abs_determinant ==
            Approx(double(oracle.log_abs_determinant + n * scale * std::log(2.0L))).margin(1e-6));
  const double reciprocal =
      1 / norm(n, plain, plan.inverse) /
      norm(
          n, [&](Index i, Index j) { return oracle.inverse[std::size_t(i * n + j)]; },
          plan.inverse);
  const double slack = plan.inverse || plan.method == "cramer" ? 1.0001 : 10;  // or an estimate
  CHECK_ALL(mine.reciprocal < slack * reciprocal);
  CHECK_ALL(mine.reciprocal > reciprocal / slack);
}

template <class B>
void check_methods(Context<B>& context) {
  std::vector<DenseRequest> requests(4);
  requests[1].inverse = false;
  requests[1].guard = true;
  requests[2].method = "textbook";
  requests[3].method = "cramer";
  requests[3].inverse = false;
  for (const DenseRequest& request : requests)
    for (const Index n : {1, 7, 30})
      for (const int scale : {0, 900, -900}) {
        if (request.method == "textbook" && context.size() > 1) continue;
        if (request.method == "cramer" && (!std::is_same_v<B, Cpu> || n > 20)) continue;
        check_scales(context, request, n, scale);
      }
}

template <class B>
void check_outcomes(Context<B>& context) {
  for (const char* method : {"gauss-jordan", "cramer"}) {
    if (!std::is_same_v<B, Cpu> && std::string(method) == "cramer") continue;
    DenseRequest request{method, false, 1};
    const Entry one = [](Index, Index) { return 1.0; };
    const Entry zero_column = [](Index i, Index j) {
      return j == 2 ? 0.0 : random_uniform(3, i, j);
    };
    DensePlan plan = plan_dense<B>(context.size(), 5, request);
    CHECK_ALL(answered(context, plan, zero_column, one).outcome.bad_column == 2);
    plan = plan_dense<B>(context.size(), 1, request);
    const Entry tiny = [](Index, Index) { return 1e-200; };
    const Entry huge = [](Index, Index) { return 1e200; };
    CHECK_ALL(answered(context, plan, tiny, huge).outcome.overflow);  // 1e400
    plan = plan_dense<B>(context.size(), 0, request);
    CHECK_ALL(answered(context, plan, one, one).ratio == 0);
  }
}

/// A matrix that is another one when it is read again: without the guard the check says so; with
/// it all is done once more, and then holds.
template <class B>
void check_second_try(Context<B>& context) {
  for (const bool inverse : {true, false})
    for (const bool guard : {false, true}) {
      DenseRequest request;
      request.inverse = inverse;
      request.right = inverse ? 0 : 2;
      request.guard = guard;
      const Index n = 40;
      double more = 0;
      const Entry a = [&](Index i, Index j) {
        return random_uniform(7, i, j) + (i == 3 && j == 5 ? more : 0.0);
      };
      const Entry b = [](Index i, Index j) { return random_uniform(8, i, j); };
      const DensePlan plan = plan_dense<B>(context.size(), n, request);
      CHECK(plan.right == request.right + plan.probes + (guard ? 1 : 0));
      DenseSystem<B> system(context, plan, rows_from(n, a), rows_from(request.right, b));
      Progress silent(false, false);
      system.read();
      REQUIRE_ALL(system.solve(silent).good());
      CHECK_ALL(system.check(silent) < residual_limit);
      more = 1e-3;
      int seen = 0;
      double ratio = 0;
      CHECK_ALL(alarmed([&] {
                  ratio = system.check(silent, [&](const InverseResidual&) { ++seen; });
                }) == guard);
      if (!guard) CHECK_ALL(ratio > residual_limit);
      CHECK_ALL(seen == (!inverse ? 0 : guard ? 2 : 1));
    }
}

/// Products with 12 moduli: kept where the residual is small, else made again with 14.
template <class B>
void check_few_moduli(Context<B>& context) {
  if (!emulated::available(B{})) return;
  for (const bool inverse : {true, false})
    for (const bool grows : {false, true}) {
      INFO("inverse " << inverse << ", grows " << grows);
      DenseRequest request;
      request.inverse = inverse;
      request.right = inverse ? 0 : 3;
      request.method = "gauss-jordan";
      request.emulated = true;
      request.block = grows ? 8 : 64;
      const Index n = grows ? 100 : 300;
      // Each of the first columns nearly doubles what is right of it.
      const Entry a = [&](Index i, Index j) {
        const double any = random_uniform(7, i, j);
        if (!grows || j >= 12) return any;
        return i < j ? 0.0 : i == j ? 1.0 : -0.9 + 0.01 * any;
      };
      const Entry b = [](Index i, Index j) { return random_uniform(10, i, j); };
      const Answer full = answered(context, plan_dense<B>(context.size(), n, request), a, b);
      request.moduli = 12;
      const DensePlan plan = plan_dense<B>(context.size(), n, request);
      DenseSystem<B> system(context, plan, rows_from(n, a), rows_from(plan.rhs, b));
      Progress silent(false, false);
      system.read();
      REQUIRE_ALL(system.solve(silent).good());
      CHECK_ALL(system.moduli() == (grows ? 14 : 12));
      int seen = 0;
      const double ratio = system.check(silent, [&](const InverseResidual&) { ++seen; });
      INFO("residual ratio " << ratio << ", of 14 moduli " << full.ratio);
      CHECK_ALL(seen == (inverse ? 1 : 0));
      CHECK_ALL(ratio < (grows ? residual_limit : 1));
      CHECK_ALL((ratio == full.ratio) == grows);
    }
}

}  // namespace

TEST_CASE("systems of any scale have the textbook's answer", "[cpu]") {
  on<Cpu>([](auto& context) { check_methods(context); });
}
TEST_CASE("systems of any scale have the textbook's answer, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_methods(context); });
}
TEST_CASE("singular and overflowing systems are outcomes", "[cpu]") {
  on<Cpu>([](auto& context) { check_outcomes(context); });
}
TEST_CASE("singular and overflowing systems are outcomes, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_outcomes(context); });
}
TEST_CASE("a result by few moduli is kept for its residual, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_few_moduli(context); });
}
TEST_CASE("the guard tries again before it accuses", "[cpu]") {
  on<Cpu>([](auto& context) { check_second_try(context); });
}
TEST_CASE("the guard tries again before it accuses, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_second_try(context); });
}
