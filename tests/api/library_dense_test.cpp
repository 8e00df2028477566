// Dense matrices in the library.
#include "library.hpp"

using namespace library;

TEST_CASE("an inverse and a solution in the caller's rows") {
  Context context = group();
  for (const Index n : {0, 1, 5, 64, 150})
    for (const int kind : {0, 1, 2}) {
      const Index ld = n + 3, columns = 4;
      const Rows rows = share(n, kind);
      const std::vector<Index> list = held(n, rows);
      const std::vector<double> a = random_matrix(n, n, 1), b = random_matrix(n, columns, 2);
      std::vector<double> own = part(a, n, list, ld, 5e55);
      const std::vector<double> before = own;
      std::vector<double> x = part(b, columns, list, columns, 0.0);
      auto report =
          terrace::dense::solve(context, n, {own.data(), rows, n, ld}, {x.data(), rows, columns});
      CHECK(report.residual < 30);
      CHECK(everywhere(own == before));
      CHECK(residual(n, columns, a, whole(n, columns, list, x, columns), b) < 1e-9);
      const double of_solve = report.log_abs_determinant;
      report = terrace::dense::invert(context, n, {own.data(), rows, n, ld});
      CHECK(std::fabs(report.log_abs_determinant - of_solve) < 1e-9);
      std::vector<double> one(std::size_t(n * n), 0.0);
      for (Index i = 0; i < n; ++i) one[std::size_t(i * n + i)] = 1;
      CHECK(residual(n, n, a, whole(n, n, list, own, ld), one) < 1e-9);
      bool kept = true;
      for (std::size_t i = 0; i < list.size(); ++i)
        for (Index j = n; j < ld; ++j) kept &= own[i * std::size_t(ld) + std::size_t(j)] == 5e55;
      CHECK(everywhere(kept));
    }
}

TEST_CASE("a singular matrix is the same error on all ranks, and the arrays are as they were") {
  Context context = group();
  const Index n = 40;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  std::vector<double> a = random_matrix(n, n, 3);
  for (Index i = 0; i < n; ++i) a[std::size_t(i * n + 17)] = 0;
  std::vector<double> own = part(a, n, list, n, 0.0);
  const std::vector<double> before = own;
  const Error e = error_of([&] { terrace::dense::invert(context, n, {own.data(), rows, n}); });
  CHECK(e.code() == Code::outcome);
  CHECK(e.position() == 17);
  CHECK(everywhere(own == before));
  const auto report = terrace::dense::determinant(context, n, {own.data(), rows, n});
  CHECK(report.determinant_sign == 0);
  // The Context goes on.
  a = random_matrix(n, n, 4);
  own = part(a, n, list, n, 0.0);
  CHECK(terrace::dense::determinant(context, n, {own.data(), rows, n}).determinant_sign != 0);
}

TEST_CASE("wrong arguments are one error on all ranks") {
  Context context = group();
  std::vector<double> a(100, 1.0);
  const auto code = [&](Rows rows, Index columns, Index ld) {
    return error_of([&] {
             terrace::dense::invert(context, 10, {a.data(), rows, columns, ld});
           })
        .code();
  };
  CHECK(code(share(10, 0), 9, 10) == Code::usage);
  CHECK(code(share(10, 0), 10, 9) == Code::usage);
  CHECK(code(share(9, 0), 10, 10) == Code::usage);
  if (ranks > 1) CHECK(code(Rows::all(10), 10, 10) == Code::usage);
  a.assign(100, 1.0);
  if (me == ranks - 1) a[7] = std::nan("");
  CHECK(code(share(10, 0), 10, 10) == Code::input);
  // Of A and of B, by either way; what is wrong is named.
  const Rows mine = share(10, 0);
  const auto refused = [&](double in_a, double in_b, terrace::dense::Assume assume) {
    std::vector<double> matrix(100, 0.0), b(30, 1.0);
    for (Index i = 0; i < mine.count; ++i) matrix[std::size_t(i * 10 + mine.first + i)] = 4;
    if (me == ranks - 1 && mine.count > 0)
      matrix[3] = in_a, b[std::size_t(3 * mine.count - 2)] = in_b;
    return error_of([&] {
      terrace::dense::solve(context, 10, {matrix.data(), mine, 10, 10}, {b.data(), mine, 3, 3},
                            assume);
    });
  };
  for (const auto assume : {terrace::dense::Assume::general, terrace::dense::Assume::spd})
    for (const double wrong : {std::nan(""), -double(INFINITY)}) {
      const Error of_b = refused(0, wrong, assume), of_a = refused(wrong, 1, assume);
      CHECK((of_b.code() == Code::input && of_a.code() == Code::input));
      CHECK(std::string(of_b.what()).find("'b'") != std::string::npos);
      CHECK(std::string(of_a.what()).find("'a'") != std::string::npos);
    }
  const Error none = error_of([&] {
    terrace::dense::invert(context, 10, {nullptr, share(10, 0), 10, 10});
  });
  CHECK(none.code() == Code::usage);
}
