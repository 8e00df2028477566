// A near null-space of the caller's, and the preconditioner that an operator keeps.
#include <terrace/c.h>

#include "library.hpp"

using namespace library;

namespace {

/// Rows `rows` of springs along the edges and diagonals of a plane grid of p x p nodes, held below the
/// first line, the diagonal of the matrix times `more`; right-hand side, and rigid body modes.
struct Springs {
  Index n = 0;
  std::vector<Index> start{0}, column;
  std::vector<double> value, b, modes;
  Springs(Index p, const Rows& rows, double more = 1) : n(2 * p * p) {
    for (Index i = rows.first; i < rows.first + rows.count; ++i) {
      const Index x = i / 2 / p, y = i / 2 % p;
      for (Index u = std::max<Index>(0, x - 1); u <= std::min(p - 1, x + 1); ++u)
        for (Index v = std::max<Index>(0, y - 1); v <= std::min(p - 1, y + 1); ++v)
          for (Index c = 0; c < 2; ++c) {
            column.push_back(2 * (u * p + v) + c);
            value.push_back(u == x && v == y ? more * own(p, x, y, i % 2, c)
                                             : -spring(u - x, v - y, i % 2, c));
          }
      start.push_back(Index(column.size()));
      b.push_back(std::sin(double(i)));
      for (const double mode :
           {i % 2 ? 0.0 : 1.0, i % 2 ? 1.0 : 0.0, i % 2 ? double(x) : -double(y)})
        modes.push_back(mode);
    }
  }
  static double spring(Index dx, Index dy, Index a, Index c) {
    const double way[2] = {double(dx), double(dy)};
    return way[a] * way[c] / double(dx * dx + dy * dy);
  }
  static double own(Index p, Index x, Index y, Index a, Index c) {
    double sum = 0;
    for (Index dx = -1; dx <= 1; ++dx)
      for (Index dy = -1; dy <= 1; ++dy)
        if ((dx || dy) && x + dx < p && y + dy >= 0 && y + dy < p) sum += spring(dx, dy, a, c);
    return sum;
  }
};

}  // namespace

TEST_CASE("an operator keeps its preconditioner, with a near null-space too") {
  Context context = group();
  const Index p = 20, n = 2 * p * p;
  const Rows rows = share(n, 0);
  const Springs a(p, rows), then(p, rows, 1.01);
  auto made = terrace::cg::csr(context, n, rows, a.start.data(), a.column.data(), a.value.data());
  std::vector<double> x(a.b.size());
  terrace::cg::Options options;
  options.preconditioner = "amg";
  const auto solve = [&](terrace::cg::Operator& with, bool set_up) {
    x.assign(x.size(), 0.0);
    const auto result = with.solve({a.b.data(), rows, 1}, {x.data(), rows, 1}, options)[0];
    CHECK(result.converged);
    CHECK((result.setup_seconds > 0) == set_up);
    return result;
  };
  const auto constants = solve(made, true);
  CHECK(solve(made, false).iterations == constants.iterations);
  options.near_null_space = {a.modes.data(), rows, 3};
  const auto first = solve(made, true);
  const std::vector<double> kept = x;
  CHECK(first.iterations <= 22);
  CHECK(2 * first.iterations < constants.iterations);
  CHECK(solve(made, false).iterations == first.iterations);
  CHECK(x == kept);  // bit by bit
  std::vector<double> other = a.modes;
  for (double& v : other) v *= 3;
  options.near_null_space.data = other.data();
  (void)solve(made, true);
  options.near_null_space.data = a.modes.data();
  (void)solve(made, true);
  CHECK(x == kept);

  // Other values: aggregates stay, and a power of two changes no bit.
  std::vector<double> scaled = a.value;
  for (double& v : scaled) v *= 16;
  made.update_values(scaled.data());
  CHECK(solve(made, true).iterations == first.iterations);
  for (double& v : x) v *= 16;
  CHECK(x == kept);
  (void)solve(made, false);
  made.update_values(then.value.data());
  const auto updated = solve(made, true);
  const std::vector<double> changed = x;
  auto fresh =
      terrace::cg::csr(context, n, rows, then.start.data(), then.column.data(), then.value.data());
  const auto anew = solve(fresh, true);
  CHECK(std::abs(updated.iterations - anew.iterations) <= 2);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::fabs(x[i] - changed[i]) / (1 + std::fabs(x[i])));
  CHECK(worst <= 1e-6);
  made.update_values(a.value.data());
  (void)solve(made, true);
  CHECK(x == kept);
  for (const char* const name : {"ic", "chebyshev", "block-jacobi"}) {
    options.near_null_space = {};
    options.preconditioner = name;
    const auto one = solve(made, true);
    CHECK(solve(made, false).iterations == one.iterations);
    made.update_values(scaled.data());
    CHECK(solve(made, true).iterations == one.iterations);
    made.update_values(a.value.data());
  }

  // What cannot be kept, on all ranks alike; then the operator goes on.
  const auto refused = [&](const Local<const double>& vectors, const char* preconditioner,
                           Code code) {
    options.near_null_space = vectors;
    options.preconditioner = preconditioner;
    try {
      made.solve({a.b.data(), rows, 1}, {x.data(), rows, 1}, options);
      CHECK(false);
    } catch (const Error& e) {
      CHECK(e.code() == code);
    }
  };
  refused({a.modes.data(), rows, 3}, "jacobi", Code::usage);
  refused({a.modes.data(), Rows::range(rows.first, rows.count + 1), 3}, "amg", Code::usage);
  std::vector<double> wrong = a.modes;
  for (std::size_t i = 0; i < wrong.size(); i += 3) wrong[i + 2] = 2 * wrong[i];
  refused({wrong.data(), rows, 3}, "amg", Code::input);
  if (!wrong.empty()) wrong[1] = NAN;
  refused({wrong.data(), rows, 3}, "amg", Code::input);
  options.near_null_space = {a.modes.data(), rows, 3};
  options.preconditioner = "amg";
  (void)solve(made, true);
  CHECK(x == kept);

  // The same from C.
  terrace_context* ranks = nullptr;
  REQUIRE(terrace_open(MPI_COMM_WORLD, nullptr, &ranks) == 0);
  terrace_cg_operator* c = nullptr;
  REQUIRE(terrace_cg_csr(ranks, n, rows.first, rows.count, a.start.data(), a.column.data(),
                         a.value.data(), &c) == 0);
  terrace_cg_options given{};
  given.rtol = 1e-10, given.max_iterations = -1, given.preconditioner = "amg";
  given.near_null_space = a.modes.data(), given.near_columns = 3;
  for (const bool set_up : {true, false}) {
    terrace_cg_result result;
    x.assign(x.size(), 0.0);
    REQUIRE(terrace_cg_solve(c, rows.first, rows.count, 1, a.b.data(), 0, x.data(), 0, &given,
                             &result) == 0);
    CHECK((result.converged && result.iterations <= 22));
    CHECK((result.setup_seconds > 0) == set_up);
  }
  terrace_cg_free(c);
  terrace_close(ranks);
}

TEST_CASE("a band's preconditioner is kept, and gets other values") {
  Context context = group();
  const Index n = 900, m = 30;  // a plane grid
  const Rows rows = share(n, 0);
  const auto values = [&](double weak) {
    std::vector<double> ab(std::size_t((m + 1) * rows.count), 0.0);
    for (Index j = 0; j < rows.count; ++j) {
      const Index i = rows.first + j;
      ab[std::size_t(j)] = 2 + 2 * weak;
      if ((i + 1) % m != 0) ab[std::size_t(rows.count + j)] = -1;
      if (i + m < n) ab[std::size_t(m * rows.count + j)] = -weak;
    }
    return ab;
  };
  const std::vector<double> first = values(1), second = values(0.5);
  auto made = terrace::cg::band(context, n, {first.data(), m, rows});
  std::vector<double> b(std::size_t(rows.count), 1.0), x(b.size()), kept;
  terrace::cg::Options options;
  options.preconditioner = "amg";
  for (const auto* const ab : {&first, &second, &first}) {
    made.update_values(terrace::band::Matrix{ab->data(), m, rows});
    for (const bool set_up : {true, false}) {
      const auto result = made.solve({b.data(), rows, 1}, {x.data(), rows, 1}, options)[0];
      CHECK((result.converged && result.iterations <= 20));
      CHECK((result.setup_seconds > 0) == set_up);
    }
    if (kept.empty()) kept = x;
    if (ab == &first && !x.empty()) CHECK(x == kept);
  }
}
