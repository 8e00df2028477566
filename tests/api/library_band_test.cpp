// Bands, and conjugate gradients, in the library.
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "on_device.hpp"

using namespace library;

TEST_CASE("bands in all four forms, factors that solve again") {
  using terrace::band::Matrix;
  using terrace::band::Uplo;
  Context context = group();
  for (const auto& [n, m] : {std::pair<Index, Index>{1, 0}, {50, 3}, {333, 20}, {30, 40}}) {
    const Band a = random_band(n, m, 5);
    const Rows columns = share(n, 0);
    const Index first = columns.first, count = columns.count, right = 3;
    const std::vector<double> b = random_matrix(n, right, 6);
    const std::vector<Index> list = held(n, columns);
    std::vector<double> reference;
    for (const bool upper : {false, true})
      for (const bool diagonals : {false, true}) {
        const Index ld = (diagonals ? count : m + 1) + 2;
        std::vector<double> own(std::size_t(ld * (diagonals ? m + 1 : count)), 9e99);
        for (Index j = 0; j < count; ++j)
          for (Index d = 0; d <= m; ++d) {
            const Index row = upper ? first + j - m + d : first + j + d;
            if (row < 0 || row >= n) continue;
            own[std::size_t(diagonals ? d * ld + j : j * ld + d)] =
                a.dense[std::size_t(row * n + first + j)];
          }
        const Matrix given{own.data(),
                           m,
                           columns,
                           diagonals ? Matrix::diagonals : Matrix::by_columns,
                           upper ? Uplo::upper : Uplo::lower,
                           ld};
        std::vector<double> x = part(b, right, list, right, 0.0);
        const auto report = terrace::band::solve(context, n, given, {x.data(), columns, right});
        CHECK(report.residual < 30);
        const std::vector<double> all = whole(n, right, list, x, right);
        CHECK(residual(n, right, a.dense, all, b) < 1e-9);
        if (reference.empty()) reference = all;
        CHECK(reference == all);  // whatever the form
        terrace::band::Factor factor(context, n, given);
        own.assign(own.size(), 0.0);  // nothing of it is needed any more
        CHECK(std::fabs(factor.log_determinant() - report.log_abs_determinant) < 1e-9);
        for (int again = 0; again < 2; ++again) {
          x = part(b, right, list, right, 0.0);
          factor.solve({x.data(), columns, right});
          CHECK(residual(n, right, a.dense, whole(n, right, list, x, right), b) < 1e-9);
        }
        const std::vector<double> l = whole(
            n, m + 1, list,
            std::vector<double>(factor.view().data, factor.view().data + count * (m + 1)), m + 1);
        double determinant = 0;
        for (Index j = 0; j < n; ++j) determinant += 2 * std::log(l[std::size_t(j * (m + 1))]);
        CHECK(std::fabs(determinant - report.log_abs_determinant) < 1e-9);
      }
  }
  Band bad = random_band(60, 2, 7);
  bad.lower[33] = -1;
  const Rows columns = share(60, 0);
  std::vector<double> x(std::size_t(columns.count), 1.0);
  const Error e = error_of([&] {
    terrace::band::solve(
        context, 60,
        {bad.lower.data() + columns.first, 2, columns, Matrix::diagonals, Uplo::lower, 60},
        {x.data(), columns, 1});
  });
  CHECK(e.code() == Code::outcome);
  CHECK(e.position() == 33);
  CHECK(everywhere(x == std::vector<double>(std::size_t(columns.count), 1.0)));
}

namespace {

/// `own` where the calls of this run look for it: on the device, or in the host's memory.
class There {
 public:
  explicit There(std::vector<double>& own) : own_(own) {
#if TERRACE_WITH_CUDA
    const char* const backend = std::getenv("TERRACE_API_BACKEND");
    if (backend && std::string(backend) == "cuda" && has_device()) device_.emplace(own);
#endif
  }
  [[nodiscard]] double* data() const {
#if TERRACE_WITH_CUDA
    if (device_) return device_->data();
#endif
    return own_.data();
  }
  [[nodiscard]] terrace::Where where() const {
    return data() == own_.data() ? terrace::Where::host : terrace::Where::device;
  }

 private:
  std::vector<double>& own_;
#if TERRACE_WITH_CUDA
  std::optional<OnDevice<double>> device_;
#endif
};

}  // namespace

TEST_CASE("a band of parts: X of every form, and NaN is found wherever it stands") {
  using terrace::band::Matrix;
  using terrace::band::Uplo;
  Context context = group();
  const double nan = std::nan("");
  const Index n = 700, m = 40, right = 2;
  const auto entry = [](Index i, Index j) {
    return i == j ? 100.0 + double(i % 7)
                  : std::cos(double(3 * std::max(i, j) + 5 * std::min(i, j)));
  };
  const Rows columns = share(n, 0);
  const Index first = columns.first, count = columns.count;
  std::vector<double> b(std::size_t(count * right));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::sin(double(i));
  std::vector<double> reference, lapack;
  // Solves again and again for as many columns as they come, and shows LAPACK's factor.
  const auto judge_factor = [&](const terrace::band::Factor& factor,
                                const terrace::band::Report& report, const std::vector<double>& x) {
    CHECK(factor.report().method == report.method);
    CHECK(factor.report().residual < 30);
    CHECK(std::fabs(factor.log_determinant() - report.log_abs_determinant) < 1e-9);
    for (const Index some : {right, Index(1), Index(1), Index(9)}) {
      std::vector<double> y(std::size_t(count * some));
      const auto far_from = [&](const std::vector<double>& from) {
        double far = 0;
        for (Index i = 0; i < count; ++i)
          for (Index v = 0; v < some; ++v)
            far = std::max(far, std::abs(y[std::size_t(i * some + v)] -
                                         from[std::size_t(i * right + v % right)]));
        return far;
      };
      for (Index i = 0; i < count; ++i)
        for (Index v = 0; v < some; ++v)
          y[std::size_t(i * some + v)] = b[std::size_t(i * right + v % right)];
      {
        const There there(y);
        CHECK(factor.solve({there.data(), columns, some, 0, there.where()}).residual < 30);
      }
      CHECK(far_from(x) < 1e-13);
    }
    const double* const l = factor.view().data;
    const std::vector<double> found(l, l + count * (m + 1));
    if (lapack.empty()) lapack = found;
    double far = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      far = std::max(far, std::abs(found[i] - lapack[i]));
    CHECK(far < 1e-12);
  };
  for (const std::string method :
       {"auto", "tile-columns", "one-end", "two-ends", "partition", "streamed"})
    for (const bool upper : {false, true})
      for (const bool diagonals : {false, true}) {
        INFO(method << ", upper " << upper << ", diagonals " << diagonals);
        const Index ld = (diagonals ? count : m + 1) + 2;
        const auto place = [&](Index j,
                               Index d) {  // of column j of this rank, as the form counts d
          return std::size_t(diagonals ? d * ld + j : j * ld + d);
        };
        std::vector<double> own(std::size_t(ld * (diagonals ? m + 1 : count)), nan);
        for (Index j = 0; j < count; ++j)
          for (Index d = 0; d <= m; ++d) {
            const Index row = upper ? first + j - m + d : first + j + d;
            if (row >= 0 && row < n) own[place(j, d)] = entry(row, first + j);
          }
        terrace::band::Options options;
        options.method = method;
        const auto form = [&](const There& matrix) {
          return Matrix{matrix.data(),
                        m,
                        columns,
                        diagonals ? Matrix::diagonals : Matrix::by_columns,
                        upper ? Uplo::upper : Uplo::lower,
                        ld,
                        matrix.where()};
        };
        const auto solve = [&](std::vector<double>& x) {
          const There matrix(own), there(x);
          return terrace::band::solve(context, n, form(matrix),
                                      {there.data(), columns, right, 0, there.where()}, options);
        };
        std::vector<double> x = b;
        const auto report = solve(x);
        std::optional<terrace::band::Factor> factor;
        {
          const There matrix(own);
          factor.emplace(context, n, form(matrix), options);
        }
        const std::vector<double> saved = std::exchange(own, std::vector<double>(own.size(), nan));
        judge_factor(*factor, report, x);
        own = saved;
        if (method != "auto") CHECK(report.method.find(method) == 0);
        CHECK(report.residual < 30);
        if (reference.empty()) reference = x;
        double far = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
          far = std::max(far, std::abs(x[i] - reference[i]));
        CHECK(far < 1e-13);
        // Of lower forms every 53rd column, and every place down.
        for (Index j = 7; j < n; j += 53)
          for (const Index d : {Index(0), Index(1), m / 2, m}) {
            const Index row = j + d, at = upper ? row : j, down = upper ? m - d : d;
            if (row >= n) continue;
            const bool here = at >= first && at < first + count;
            double before = 0;
            if (here) before = std::exchange(own[place(at - first, down)], j % 2 ? nan : HUGE_VAL);
            x = b;
            const Error e = error_of([&] { solve(x); });
            if (here) own[place(at - first, down)] = before;
            CHECK(e.code() == Code::input);
            const std::string text = e.what();
            CHECK(text.find("row " + std::to_string(row) + ", column " + std::to_string(j)) !=
                  std::string::npos);
            CHECK(everywhere(x == b));
          }
        // Of B.
        x = b;
        const bool mine = first <= n / 2 && n / 2 < first + count;
        if (mine) x[std::size_t((n / 2 - first) * right + 1)] = -HUGE_VAL;
        const Error e = error_of([&] { solve(x); });
        CHECK(e.code() == Code::input);
        CHECK(std::string(e.what()).find("'b'") != std::string::npos);
      }
}

TEST_CASE("gradients on CSR, dense and band matrices") {
  Context context = group();
  const Index n = 300, m = 2, right = 2;
  const Band a = random_band(n, m, 8);
  const std::vector<double> b = random_matrix(n, right, 9);
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  const std::vector<double> own_b = part(b, right, list, right, 0.0);
  const auto judge = [&](terrace::cg::Operator& made, const char* preconditioner) {
    terrace::cg::Options options;
    options.preconditioner = preconditioner;
    std::vector<double> x(own_b.size(), 3.0);
    const auto results = made.solve({own_b.data(), rows, right}, {x.data(), rows, right}, options);
    CHECK(results.size() == 2);
    for (const auto& r : results) CHECK((r.converged && r.residual <= 1e-10));
    CHECK(residual(n, right, a.dense, whole(n, right, list, x, right), b) < 1e-8);
    options.start_given = true;
    const auto again = made.solve({own_b.data(), rows, right}, {x.data(), rows, right}, options);
    CHECK(again[0].iterations <= 1);
  };
  std::vector<std::int32_t> start{5}, column(5);
  std::vector<double> value(5);
  for (const Index i : list) {
    for (Index j = n - 1; j >= 0; --j)  // unsorted
      if (const double v = a.dense[std::size_t(i * n + j)]; v != 0) {
        column.push_back(std::int32_t(j));
        value.push_back(v);
      }
    start.push_back(std::int32_t(column.size()));
  }
  auto sparse =
      terrace::cg::csr(context, n, rows, start.data(), column.data() + 5, value.data() + 5);
  judge(sparse, "none");
  judge(sparse, "ic");
  judge(sparse, "amg");
  const std::vector<double> own = part(a.dense, n, list, n, 0.0);
  auto full = terrace::cg::dense(context, n, {own.data(), rows, n});
  judge(full, "jacobi");
  auto band = terrace::cg::band(context, n,
                                {a.lower.data() + rows.first, m, rows,
                                 terrace::band::Matrix::diagonals, terrace::band::Uplo::lower, n});
  judge(band, "block-jacobi");
  // The caller's own product: all of p is gathered.
  if (!std::getenv("TERRACE_API_BACKEND")) {
    std::vector<double> diagonal(list.size(), a.dense[0]);
    int calls = 0;
    auto own_product = terrace::cg::user(
        context, n, rows,
        [&](const double* p, double* q) {
          ++calls;
          const std::vector<double> all =
              whole(n, 1, list, std::vector<double>(p, p + list.size()), 1);
          for (std::size_t i = 0; i < list.size(); ++i) {
            q[i] = 0;
            for (Index j = 0; j < n; ++j)
              q[i] += a.dense[std::size_t(list[i] * n + j)] * all[std::size_t(j)];
          }
        },
        diagonal.data());
    judge(own_product, "none");
    judge(own_product, "jacobi");
    judge(own_product, "chebyshev");
    CHECK(calls > 20);
    terrace::cg::Options blocks;
    blocks.preconditioner = "block-jacobi";
    std::vector<double> x(own_b.size());
    CHECK(error_of([&] {
            own_product.solve({own_b.data(), rows, right}, {x.data(), rows, right}, blocks);
          }).code() == Code::usage);
  }
  // Rows that are sorted go another way.
  std::vector<Index> starts{0}, columns;
  std::vector<double> values;
  for (const Index i : list) {
    for (Index j = 0; j < n; ++j)
      if (const double v = a.dense[std::size_t(i * n + j)]; v != 0)
        columns.push_back(j), values.push_back(v);
    starts.push_back(Index(columns.size()));
  }
  auto sorted = terrace::cg::csr(context, n, rows, starts.data(), columns.data(), values.data());
  judge(sorted, "chebyshev");
  // Not symmetric; outside; too few iterations are a result.
  if (me == 0) values[1] += 1;
  CHECK(error_of([&] {
          terrace::cg::csr(context, n, rows, starts.data(), columns.data(), values.data());
        }).code() == Code::input);
  if (me == 0) values[1] -= 1, columns[0] = n;
  CHECK(error_of([&] {
          terrace::cg::csr(context, n, rows, starts.data(), columns.data(), values.data());
        }).code() == Code::input);
  terrace::cg::Options few;
  few.max_iterations = 1;
  std::vector<double> x(own_b.size());
  const auto results = sorted.solve({own_b.data(), rows, right}, {x.data(), rows, right}, few);
  CHECK((!results[0].converged && results[0].reason == "max-iterations"));
}

TEST_CASE("one rank has all rows, and solves twice with the others") {
  Context context = group();
  const Index n = 50, own = me == ranks - 1 ? n : 0;
  const Rows rows = Rows::range(n - own, own);
  const auto times = [&](const double* p, double* q) {  // 3 p_i - p_(i-1) - p_(i+1)
    for (Index i = 0; i < own; ++i)
      q[i] = 3 * p[i] - (i > 0 ? p[i - 1] : 0) - (i + 1 < n ? p[i + 1] : 0);
  };
  std::vector<Index> start{0}, column;
  std::vector<double> value;
  for (Index i = 0; i < own; ++i) {
    for (Index j = std::max<Index>(0, i - 1); j < std::min(n, i + 2); ++j)
      column.push_back(j), value.push_back(i == j ? 3 : -1);
    start.push_back(Index(column.size()));
  }
  const auto judge = [&](terrace::cg::Operator made) {
    for (const char* preconditioner : {"none", "jacobi"})
      for (int again = 0; again < 2; ++again) {
        terrace::cg::Options options;
        options.preconditioner = preconditioner;
        const std::vector<double> b = random_matrix(own, 1, 21 + again);
        std::vector<double> x(b.size()), product(b.size());
        const auto results = made.solve({b.data(), rows, 1}, {x.data(), rows, 1}, options);
        CHECK(results[0].converged);
        times(x.data(), product.data());
        for (std::size_t i = 0; i < b.size(); ++i) product[i] = std::abs(product[i] - b[i]);
        CHECK(everywhere(
            std::all_of(product.begin(), product.end(), [](double far) { return far < 1e-9; })));
      }
  };
  judge(terrace::cg::csr(context, n, rows, start.data(), column.data(), value.data()));
  if (std::getenv("TERRACE_API_BACKEND")) return;
  const std::vector<double> diagonal(std::size_t(own), 3.0);
  judge(terrace::cg::user(context, n, rows, times, diagonal.data()));
}

TEST_CASE("a band's factor stays where one rank has no columns, and one a copy of its own") {
  Context context = group();
  const Index n = 40, m = 3;
  const Band a = random_band(n, m, 12);
  // Lower form by columns. The last rank has the last half, with numbers outside the matrix; the
  // first the first half; any other one nothing.
  const Index half = n / 2, last = ranks - 1;
  const Index first = ranks == 1 || me == 0 ? 0 : me == last ? half : me < last ? half : n;
  const Index count = ranks == 1 ? n : me == 0 || me == last ? half : 0;
  std::vector<double> own(std::size_t(count * (m + 1)), 7.0), b(std::size_t(count), 1.0);
  for (Index j = 0; j < count; ++j)
    for (Index d = 0; d <= m && first + j + d < n; ++d)
      own[std::size_t(j * (m + 1) + d)] = a.dense[std::size_t((first + j + d) * n + first + j)];
  const Rows columns = Rows::range(first, count);
  terrace::band::Factor factor(
      context, n,
      {count > 0 ? own.data() : nullptr, m, columns, terrace::band::Matrix::by_columns,
       terrace::band::Uplo::lower, m + 1});
  for (int again = 0; again < 2; ++again) {
    std::vector<double> x = b;
    factor.solve({x.data(), columns, 1});
    std::vector<Index> list(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) list[std::size_t(i)] = first + i;
    CHECK(residual(n, 1, a.dense, whole(n, 1, list, x, 1),
                   std::vector<double>(std::size_t(n), 1.0)) < 1e-10);
  }
}
