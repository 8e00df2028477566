// Factors by Cholesky of dense matrices in the library, what they fall back to, their files, and in C.
#include <terrace/c.h>
#include <terrace/hdf5.hpp>

#include <cmath>
#include <limits>

#include "file_name.hpp"
#include "library.hpp"

using namespace library;
using terrace::dense::Assume;
using terrace::dense::Factor;

namespace {

/// Symmetric bit by bit, with a diagonal that outweighs each row.
std::vector<double> definite(Index n, unsigned seed) {
  std::vector<double> a = random_matrix(n, n, seed);
  for (Index i = 0; i < n; ++i) {
    a[std::size_t(i * n + i)] = double(n) + 1;
    for (Index j = 0; j < i; ++j) a[std::size_t(i * n + j)] = a[std::size_t(j * n + i)];
  }
  return a;
}

/// log det by plain Cholesky.
double log_determinant(Index n, std::vector<double> a) {
  double log = 0;
  for (Index k = 0; k < n; ++k) {
    for (Index j = 0; j < k; ++j)
      a[std::size_t(k * n + k)] -= a[std::size_t(k * n + j)] * a[std::size_t(k * n + j)];
    const double pivot = std::sqrt(a[std::size_t(k * n + k)]);
    log += 2 * std::log(pivot);
    for (Index i = k + 1; i < n; ++i) {
      for (Index j = 0; j < k; ++j)
        a[std::size_t(i * n + k)] -= a[std::size_t(i * n + j)] * a[std::size_t(k * n + j)];
      a[std::size_t(i * n + k)] /= pivot;
    }
  }
  return log;
}

void check_solve(const Factor& factor, Index n, const std::vector<double>& a, Index right, int kind,
                 bool checked = true) {
  const Rows rows = share(n, kind);
  const std::vector<Index> list = held(n, rows);
  const Index ld = right + 1;
  const std::vector<double> b = random_matrix(n, right, unsigned(right));
  std::vector<double> x = part(b, right, list, ld, 5e55);
  const auto report = factor.solve({x.data(), rows, right, ld});
  CHECK(report.residual < 30);
  if (n > 1) CHECK((report.residual > 0) == (checked && right > 0));
  CHECK(residual(n, right, a, whole(n, right, list, x, ld), b) < 1e-10);
  bool kept = true;
  for (std::size_t i = 0; i < list.size(); ++i) kept &= x[(i + 1) * std::size_t(ld) - 1] == 5e55;
  CHECK(everywhere(kept));
}

}  // namespace

TEST_CASE("a positive definite matrix has Cholesky's factor, whoever holds the rows") {
  Context context = group();
  for (const Index n : {0, 1, 2, 5, 64, 130})
    for (const int kind : {0, 1, 2}) {
      const Rows rows = share(n, kind);
      const std::vector<Index> list = held(n, rows);
      const std::vector<double> a = definite(n, 81);
      std::vector<double> own = part(a, n, list, n + 3, 1.5);
      Factor factor(context, n, {own.data(), rows, n, n + 3},
                    kind == 0 ? Assume::automatic : Assume::spd);
      own.assign(own.size(), 9e99);  // not needed any more
      CHECK(factor.method() == (n == 0 ? "lu" : "cholesky"));
      CHECK(factor.report().warnings.empty());
      CHECK(std::fabs(factor.report().log_abs_determinant - log_determinant(n, a)) < 1e-9);
      CHECK(factor.report().determinant_sign == 1);
      for (const Index right :
           n == 64 ? std::vector<Index>{0, 1, 64, 65, 150} : std::vector<Index>{3})
        check_solve(factor, n, a, right, int((kind + right) % 3));
      const Factor moved = std::move(factor);
      check_solve(moved, n, a, 2, kind);
    }
}

TEST_CASE("what is not Cholesky's has LU's factor, with a warning") {
  Context context = group();
  const Index n = 70;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  std::vector<double> a = definite(n, 82);
  const auto made = [&](Assume assume) {
    const std::vector<double> own = part(a, n, list, n, 0.0);
    return Factor(context, n, {own.data(), rows, n}, assume);
  };
  a[std::size_t(60 * n + 3)] += 1e-9;
  const Factor bent = made(Assume::spd);
  CHECK(bent.method() == "lu");
  REQUIRE(!bent.report().warnings.empty());
  CHECK(bent.report().warnings[0] == "the matrix is not symmetric; LU goes on");
  check_solve(bent, n, a, 3, 1);
  a = definite(n, 82);
  a[std::size_t(41 * n + 41)] = -1;
  const Factor indefinite = made(Assume::spd);
  CHECK(indefinite.method() == "lu");
  REQUIRE(!indefinite.report().warnings.empty());
  CHECK(indefinite.report().warnings[0].find("leading minor of order 42") != std::string::npos);
  CHECK(indefinite.report().determinant_sign == -1);
  check_solve(indefinite, n, a, 3, 2);
  a = random_matrix(n, n, 83);
  const Factor general = made(Assume::automatic);
  CHECK((general.method() == "lu" && general.report().warnings.empty()));
  check_solve(general, n, a, 2, 0);
  a = definite(n, 82);
  for (Index i = 0; i < n; ++i) a[std::size_t(i * n + 17)] = a[std::size_t(17 * n + i)] = 0;
  const Error singular = error_of([&] { made(Assume::spd); });
  CHECK((singular.code() == Code::outcome && singular.position() == 17));
  a[std::size_t((n - 1) * n + 2)] = std::nan("");
  CHECK(error_of([&] { made(Assume::spd); }).code() == Code::input);
}

TEST_CASE("Cholesky's factor: any scale, no check, wrong arguments") {
  Context context = group();
  const Index n = 50, right = 2;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  const std::vector<double> plain = definite(n, 84), b = random_matrix(n, right, 85);
  for (const int power : {600, -600}) {
    std::vector<double> own = part(plain, n, list, n, 0.0);
    for (double& v : own) v = std::ldexp(v, power);
    const Factor factor(context, n, {own.data(), rows, n}, Assume::spd);
    CHECK(factor.method() == "cholesky");
    std::vector<double> x = part(b, right, list, right, 0.0);
    CHECK(factor.solve({x.data(), rows, right}).residual < 30);
    for (double& v : x) v = std::ldexp(v, power);
    CHECK(residual(n, right, plain, whole(n, right, list, x, right), b) < 1e-10);
  }
  const std::vector<double> own = part(plain, n, list, n, 0.0);
  context.options().check = false;
  const Factor unchecked(context, n, {own.data(), rows, n}, Assume::spd);
  CHECK(unchecked.report().residual == 0);
  check_solve(unchecked, n, plain, 66, 1, false);
  context.options().check = true;
  std::vector<double> x(list.size() * 2, 1.0);
  const std::vector<double> before = x;
  CHECK(error_of([&] { unchecked.solve({x.data(), rows, 2}); }).code() == Code::usage);
  const Factor factor(context, n, {own.data(), rows, n}, Assume::spd);
  if (me == ranks - 1 && !x.empty()) x[0] = std::nan("");
  CHECK(error_of([&] { factor.solve({x.data(), rows, 2}); }).code() == Code::input);
  if (me == ranks - 1 && !x.empty()) x[0] = 1;
  CHECK(error_of([&] { factor.solve({x.data(), share(n - 1, 0), 2}); }).code() == Code::usage);
  CHECK(everywhere(x == before));
  terrace::dense::Options emulated;
  emulated.emulated = true;
  CHECK(error_of([&] {
          Factor(context, n, {own.data(), rows, n}, Assume::spd, emulated);
        }).code() == Code::usage);
}

TEST_CASE("Cholesky's factor goes to a file and comes back") {
  const FileName name("library_cholesky");
  Context context = group();
  const Index n = 60;
  const Rows rows = share(n, 1), other = share(n, 2);
  const std::vector<double> a = definite(n, 86);
  const std::vector<double> own = part(a, n, held(n, rows), n, 0.0);
  const std::vector<double> others = part(a, n, held(n, other), n, 0.0);
  const Factor factor(context, n, {own.data(), rows, n}, Assume::spd);
  terrace::hdf5::Output output(context, *name);
  output.write_factor("factor", factor, "somewhere");
  output.commit();
  const Factor again =
      terrace::hdf5::read_factor(context, name.at("/factor"), {others.data(), other, n});
  CHECK(again.method() == "cholesky");
  CHECK(again.report().log_abs_determinant == factor.report().log_abs_determinant);
  CHECK(again.report().reciprocal_condition == factor.report().reciprocal_condition);
  check_solve(again, n, a, 67, 0);
  std::vector<double> wrong = others;
  for (double& v : wrong) v *= 2;
  const Factor of_another =
      terrace::hdf5::read_factor(context, name.at("/factor"), {wrong.data(), other, n});
  std::vector<double> x(held(n, rows).size(), 1.0);
  CHECK(error_of([&] { of_another.solve({x.data(), rows, 1}); }).code() == Code::outcome);
  CHECK(everywhere(std::all_of(x.begin(), x.end(), [](double v) { return v == 1; })));
  context.options().check = false;
  check_solve(terrace::hdf5::read_factor(context, name.at("/factor")), n, a, 3, 2, false);
}

TEST_CASE("Cholesky's factor in C, with rows dealt in blocks") {
  terrace_options options = {};
  const char* const backend = std::getenv("TERRACE_API_BACKEND");
  options.backend = backend && std::string(backend) == "cuda" ? TERRACE_CUDA : TERRACE_AUTOMATIC;
  terrace_context* context = nullptr;
  REQUIRE(terrace_open(MPI_COMM_WORLD, &options, &context) == TERRACE_DONE);
  const Index n = 45, right = 3, block = 3;
  const std::vector<Index> list = held(n, Rows::cyclic(block));
  std::vector<double> a = definite(n, 87);
  const std::vector<double> b = random_matrix(n, right, 88);
  for (const bool good : {true, false}) {
    if (!good) a[0] = -3;
    const std::vector<double> own = part(a, n, list, n, 0.0);
    terrace_dense_factor* factor = nullptr;
    terrace_report report;
    REQUIRE(terrace_dense_factor_make_assuming(context, TERRACE_SPD, n, block, TERRACE_CYCLIC,
                                               own.data(), 0, &factor, &report) == TERRACE_DONE);
    CHECK(terrace_dense_factor_is_cholesky(factor) == int(good));
    CHECK((std::string(report.warning).find("not positive definite") == std::string::npos) == good);
    std::vector<double> x = part(b, right, list, right, 0.0);
    CHECK(terrace_dense_factor_solve(factor, block, TERRACE_CYCLIC, right, x.data(), 0, &report) ==
          TERRACE_DONE);
    CHECK(residual(n, right, a, whole(n, right, list, x, right), b) < 1e-10);
    terrace_dense_factor_free(factor);
  }
  terrace_release_memory(context);
  terrace_close(context);
}

TEST_CASE("memory is given back, and calls go on") {
  Context context = group();
  const Index n = 300;
  const Rows rows = share(n, 0);
  const std::vector<double> a = definite(n, 89), b = random_matrix(n, 1, 90);
  const std::vector<double> own = part(a, n, held(n, rows), n, 0.0);
  const Factor factor(context, n, {own.data(), rows, n}, Assume::spd);
  for (int k = 0; k < 3; ++k) {
    std::vector<double> x = part(b, 1, held(n, rows), 1, 0.0);
    terrace::dense::solve(context, n, {own.data(), rows, n}, {x.data(), rows, 1});
    CHECK(residual(n, 1, a, whole(n, 1, held(n, rows), x, 1), b) < 1e-9);
    context.release_memory();
    check_solve(factor, n, a, 2, 0);
  }
}

TEST_CASE("numbers outside a band are not looked at, those inside are") {
  Context context = group();
  const double nan = std::nan("");
  for (const auto layout : {terrace::band::Matrix::diagonals, terrace::band::Matrix::by_columns})
    for (const auto uplo : {terrace::band::Uplo::lower, terrace::band::Uplo::upper}) {
      const Index n = 83, m = 6, right = 2;
      const bool upper = uplo == terrace::band::Uplo::upper;
      const Rows rows = share(n, 0);
      const Band band = random_band(n, m, 91);
      const bool diagonals = layout == terrace::band::Matrix::diagonals;
      const Index ld = diagonals ? rows.count + 2 : m + 3;
      std::vector<double> ab(std::size_t(ld * (diagonals ? m + 1 : rows.count)), nan);
      const auto place = [&](Index j, Index d) -> double& {
        return ab[std::size_t(diagonals ? d * ld + j - rows.first : (j - rows.first) * ld + d)];
      };
      for (Index j = rows.first; j < rows.first + rows.count; ++j)
        for (Index d = 0; d <= m; ++d)
          if (const Index i = upper ? j - m + d : j + d; i >= 0 && i < n)
            place(j, d) = band.dense[std::size_t(i * n + j)];
      const terrace::band::Matrix given{ab.data(), m, rows, layout, uplo, ld};
      const std::vector<double> b = random_matrix(n, right, 92);
      const std::vector<Index> list = held(n, rows);
      std::vector<double> x = part(b, right, list, right, 0.0);
      const auto report = terrace::band::solve(context, n, given, {x.data(), rows, right});
      CHECK((report.residual > 0 && report.residual < 30));
      CHECK(residual(n, right, band.dense, whole(n, right, list, x, right), b) < 1e-9);
      const terrace::band::Factor factor(context, n, given);
      std::vector<double> y = part(b, right, list, right, 0.0);
      context.options().check = false;
      x = y;
      terrace::band::solve(context, n, given, {x.data(), rows, right});
      factor.solve({y.data(), rows, right});
      CHECK(residual(n, right, band.dense, whole(n, right, list, y, right), b) < 1e-9);
      CHECK(residual(n, right, band.dense, whole(n, right, list, x, right), b) < 1e-9);
      context.options().check = true;
      if (me == ranks - 1)
        place(n - 2, upper ? m - 1 : 1) = std::numeric_limits<double>::infinity();
      const std::vector<double> before = x;
      const Error wrong = error_of([&] {
        terrace::band::solve(context, n, given, {x.data(), rows, right});
      });
      CHECK(wrong.code() == Code::input);
      CHECK(std::string(wrong.what()).find("'ab'") != std::string::npos);
      CHECK(error_of([&] { terrace::band::Factor(context, n, given); }).code() == Code::input);
      CHECK(everywhere(x == before));
    }
}
