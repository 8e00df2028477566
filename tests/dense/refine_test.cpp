// Solutions by a factor in low precision, refined: beside a residual in long double, and FP64's own.
#include "src/dense/refine.hpp"
#include "src/dense/system.hpp"
#include "tests/support/dense_rows.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using namespace terrace::test;

namespace {

struct Answer {
  EliminationOutcome outcome;
  Refinement refinement;
  std::vector<double> x;  // n x right, on all ranks
  double reciprocal = 0, ratio = 0;
};

/// What makes the factor: one device's FP32 (of one rank), or the update in low precision.
enum class Way { fp64, low, floats };

template <class B>
Answer solved(Context<B>& context, Index n, Index right, const Entry& a, const Entry& b,
              Index block, Way way, const std::string& pivoting = "auto") {
  DenseRequest request{"lu", false, right};
  request.block = block;
  request.pivoting = pivoting;
  request.mixed = way != Way::fp64;
  DensePlan plan = plan_dense<B>(context.size(), n, request);
  if (request.mixed) {
    plan.float_block = way == Way::floats ? float_block(n, block) : 0;
    if (way == Way::low && !plan.low) keep_doubles<B>(plan);
  }
  DenseSystem<B> system(context, plan, rows_from(n, a), rows_from(right, b));
  Progress silent(false, false);
  system.read();
  Answer found;
  found.outcome = system.solve(silent);
  found.refinement = system.refinement();
  if (!found.outcome.good()) return found;
  found.reciprocal = system.reciprocal_condition();
  found.ratio = system.check(silent);
  found.x.assign(std::size_t(n * right), 0.0);
  const RowSource rows = system.rows();
  Index position = 0;
  for (const Index i : system.destination()) rows(position++, 1, found.x.data() + i * right);
  context.control.reduce(found.x, Reduce::sum);
  return found;
}

/// X after the elimination alone, its update in low precision or not; n x right, on all ranks.
template <class B>
std::vector<double> first_answer(Context<B>& context, Index n, Index right, const Entry& a,
                                 const Entry& b, Index block, bool low) {
  EliminationPlan plan =
      plan_elimination<B>(context.size(), n, right, false, block, "partial", false, true);
  if (low) keep_lower<B>(plan, true);
  RowElimination<B> method(context, plan);
  std::vector<double> row(static_cast<std::size_t>(method.ld()), 0.0), x(std::size_t(n * right));
  for (Index s = 0; s < method.slots(); ++s) {
    const Index i = plan.rows.global(s, context.rank());
    for (Index j = 0; j < n; ++j) row[std::size_t(j)] = a(i, j);
    for (Index j = 0; j < right; ++j) row[std::size_t(n + j)] = b(i, j);
    upload(context.ahead, method.data().slice(s * method.ld(), method.ld()),
           static_cast<const double*>(row.data()));
    context.ahead.synchronize();
  }
  Progress silent(false, false);
  CHECK_ALL(method.run(silent).good());
  for (Index s = 0; s < method.slots(); ++s)
    copy_rows<double>(context.ahead, x.data() + method.destination()[std::size_t(s)] * right, right,
                      method.data().data + s * method.ld() + n, method.ld(), right, 1);
  context.ahead.synchronize();
  context.control.reduce(x, Reduce::sum);
  return x;
}

/// The ways of these ranks on this backend.
template <class B>
std::vector<Way> ways(const Context<B>& context) {
  if (!emulated::available(B{})) return {};
  if (context.size() > 1) return {Way::low};
  return {Way::low, Way::floats};
}

const Entry uniform = [](Index i, Index j) { return random_uniform(3, i, j); };
const Entry sides = [](Index i, Index j) { return random_uniform(4, i, j); };

template <class B>
void check_sizes(Context<B>& context, Way way) {
  const Index block = 32;
  for (const Index n : {0, 1, 2, 31, 32, 33, 63, 64, 65, 97, 130, 200})
    for (const Index right : {1, 7}) {
      INFO("n " << n << ", right " << right);
      const Answer one = solved(context, n, right, uniform, sides, block, way);
      REQUIRE_ALL(one.outcome.good());
      CHECK_ALL(one.refinement.converged);
      CHECK_ALL(one.refinement.backward_error <= refined_limit(n) * 0x1p-53);
      CHECK_ALL(one.ratio <= 4);
      const auto b = [&](Index i, Index j) { return sides(i, j); };
      std::vector<double> largest(std::size_t(right), 0.0);
      for (Index j = 0; j < right; ++j) {  // in long double
        long double norm = 0, size = 0, residual = 0;
        for (Index i = 0; i < n; ++i) {
          long double sum = 0, row = 0;
          for (Index k = 0; k < n; ++k) {
            sum += (long double)uniform(i, k) * one.x[std::size_t(k * right + j)];
            row += std::fabs(uniform(i, k));
          }
          norm = std::max(norm, row);
          residual = std::max(residual, std::fabs(b(i, j) - sum));
          size = std::max(size, (long double)std::fabs(one.x[std::size_t(i * right + j)]));
        }
        CHECK_ALL(residual <= 2 * refined_limit(n) * 0x1p-53L * norm * size);
      }
      const Answer again = solved(context, n, right, uniform, sides, block, way);
      CHECK_ALL(again.x == one.x);
      if (n > 0) {
        const Answer other = solved(context, n, right, uniform, sides, block, Way::fp64);
        CHECK_ALL(one.reciprocal <= 1.01 * other.reciprocal);
        CHECK_ALL(one.reciprocal >= 0.99 * other.reciprocal);
      }
    }
}

template <class B>
void check_low(Context<B>& context) {
  if (!emulated::available(B{})) return;
  const Index n = 230;
  const std::vector<double> low = first_answer(context, n, 1, uniform, sides, 32, true);
  const std::vector<double> full = first_answer(context, n, 1, uniform, sides, 32, false);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < low.size(); ++i) {
    error = std::max(error, std::fabs(low[i] - full[i]));
    size = std::max(size, std::fabs(full[i]));
  }
  INFO(error / size);
  CHECK_ALL(error > 1e-11 * size);
  CHECK_ALL(error < 1e-2 * size);
  const std::vector<double> many = first_answer(context, n, 9, uniform, sides, 32, true);
  double differs = 0;
  for (Index i = 0; i < n; ++i) differs += many[std::size_t(i * 9)] != low[std::size_t(i)] ? 1 : 0;
  if (std::is_same_v<B, Cpu>) CHECK_ALL(differs == 0);
}

/// Rows and columns of sizes far beyond FP32's range.
template <class B>
void check_graded(Context<B>& context, Way way) {
  const Index n = 150;
  for (const int scale : {0, 900, -900})
    for (const bool by_rows : {true, false}) {
      INFO("scale " << scale << ", by rows " << by_rows);
      const Entry a = [=](Index i, Index j) {
        return std::ldexp(uniform(i, j), scale - int(by_rows ? i : j) * 60 / int(n));
      };
      const Answer found = solved(context, n, 2, a, sides, 32, way);
      REQUIRE_ALL(found.outcome.good());
      CHECK_ALL(found.ratio <= 4);
      CHECK_ALL(found.refinement.converged);
    }
}

template <class B>
void check_fall_back(Context<B>& context, Way way) {
  // Hilbert's matrix, and growth: 2^119 in U.
  const Entry hilbert = [](Index i, Index j) { return 1.0 / double(i + j + 1); };
  const Entry growth = [](Index i, Index j) {
    return j == 119 || i == j ? 1.0 : i > j ? -1.0 : 0.0;
  };
  for (const Entry& a : {hilbert, growth}) {
    const Answer mixed = solved(context, 120, 2, a, sides, 32, way, "partial");
    const Answer plain = solved(context, 120, 2, a, sides, 32, Way::fp64, "partial");
    CHECK_ALL(mixed.outcome.good() == plain.outcome.good());
    if (mixed.refinement.converged) continue;
    CHECK_ALL(!mixed.refinement.why.empty());
    CHECK_ALL(mixed.outcome.log_abs_determinant == plain.outcome.log_abs_determinant);
    CHECK_ALL(mixed.x == plain.x);
  }
  const Answer zero = solved(
      context, 90, 1, [](Index i, Index j) { return j == 70 ? 0.0 : uniform(i, j); }, sides, 32,
      way);
  CHECK_ALL(zero.outcome.bad_column == 70);
  CHECK_ALL(!zero.refinement.converged);
}

/// Singular values from 1 to `least`: reflections on both sides of a diagonal.
template <class B>
void check_condition(Context<B>& context, Way way, double least) {
  const Index n = 140;
  const auto vector = [n](Word seed) {
    std::vector<double> v;
    double square = 0;
    for (Index i = 0; i < n; ++i) v.push_back(random_uniform(seed, i, 0));
    for (const double x : v) square += x * x;
    for (double& x : v) x *= std::sqrt(2 / square);
    return v;
  };
  const std::vector<double> u = vector(8), v = vector(9);
  std::vector<double> d;
  double middle = 0;
  for (Index i = 0; i < n; ++i) d.push_back(std::pow(least, double(i) / double(n - 1)));
  for (std::size_t i = 0; i < d.size(); ++i) middle += u[i] * d[i] * v[i];
  const Entry a = [&](Index i, Index j) {
    const auto r = std::size_t(i), c = std::size_t(j);
    return (i == j ? d[r] : 0.0) - u[r] * u[c] * d[c] - d[r] * v[r] * v[c] + middle * u[r] * v[c];
  };
  const Answer found = solved(context, n, 3, a, sides, 32, way);
  REQUIRE_ALL(found.outcome.good());
  CHECK_ALL(found.refinement.converged);
  CHECK_ALL(found.ratio <= 4);
  CHECK_ALL(found.reciprocal < 10 * least);
  CHECK_ALL(found.reciprocal > 1e-3 * least);
  if (least > 1e-8) return;
  CHECK_ALL(found.refinement.krylov > 0);
  CHECK_ALL(found.refinement.krylov <= 16);  // 13 and 14; with a wrong rotation 18 and 47
}

template <class B, class Check>
void each_way(Context<B>& context, const Check& check) {
  for (const Way way : ways(context)) {
    INFO("floats " << (way == Way::floats));
    check(context, way);
  }
}

}  // namespace

TEST_CASE("mixed solutions have FP64's backward error", "[cpu]") {
  on<Cpu>([](auto& context) { each_way(context, check_sizes<Cpu>); });
}
TEST_CASE("mixed solutions have FP64's backward error, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { each_way(context, check_sizes<Cuda>); });
}
TEST_CASE("the update is in low precision", "[cpu]") {
  on<Cpu>([](auto& context) { check_low(context); });
}
TEST_CASE("the update is in low precision, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_low(context); });
}
TEST_CASE("no scale leaves the range of the update", "[cpu]") {
  on<Cpu>([](auto& context) { each_way(context, check_graded<Cpu>); });
}
TEST_CASE("no scale leaves the range of the update, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { each_way(context, check_graded<Cuda>); });
}
TEST_CASE("what does not converge is FP64's", "[cpu]") {
  on<Cpu>([](auto& context) { each_way(context, check_fall_back<Cpu>); });
}
TEST_CASE("what does not converge is FP64's, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { each_way(context, check_fall_back<Cuda>); });
}
TEST_CASE("a condition of a million converges", "[cpu]") {
  on<Cpu>([](auto& context) {
    each_way(context, [](auto& c, Way way) { check_condition(c, way, 1e-6); });
  });
}
TEST_CASE("a condition of a million converges, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    each_way(context, [](auto& c, Way way) { check_condition(c, way, 1e-6); });
  });
}
TEST_CASE("GMRES takes few steps at a condition of 10^10", "[cpu]") {
  on<Cpu>([](auto& context) {
    each_way(context, [](auto& c, Way way) { check_condition(c, way, 1e-10); });
  });
}
