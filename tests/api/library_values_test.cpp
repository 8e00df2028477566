// Operators that get other values, and the rows that C deals in blocks.
#include <terrace/c.h>

#include "library.hpp"

using namespace library;

namespace {

struct Csr {
  std::vector<Index> start{0}, column;
  std::vector<double> value;
};
/// Rows `rows` of the band's dense matrix.
Csr csr_of(const std::vector<double>& dense, Index n, const Rows& rows, bool descending) {
  Csr a;
  for (Index i = rows.first; i < rows.first + rows.count; ++i) {
    for (Index k = 0; k < n; ++k) {
      const Index j = descending ? n - 1 - k : k;
      if (const double v = dense[std::size_t(i * n + j)]; v != 0)
        a.column.push_back(j), a.value.push_back(v);
    }
    a.start.push_back(Index(a.column.size()));
  }
  return a;
}
/// The same places, other values: A, its sixteenth power of two, and more on the diagonal.
std::vector<double> changed(std::vector<double> a, Index n) {
  for (double& v : a) v *= 16;
  for (Index i = 0; i < n; ++i) a[std::size_t(i * n + i)] += 3.5;
  return a;
}

}  // namespace

TEST_CASE("an operator of conjugate gradients gets other values in the same places") {
  Context context = group();
  for (const Index n : {5, 97}) {
    const Index m = std::min<Index>(n - 1, 30);
    const Rows rows = share(n, 0);
    const std::vector<Index> list = held(n, rows);
    Band band = random_band(n, m, 3);
    const std::vector<double> second = changed(band.dense, n), b = random_matrix(n, 1, 8);
    const Csr first = csr_of(band.dense, n, rows, false), then = csr_of(second, n, rows, false);
    std::vector<double> rhs = part(b, 1, list, 1, 0.0), x(rhs.size());
    const Local<const double> given{rhs.data(), rows, 1};
    const auto solves = [&](terrace::cg::Operator& a, const std::vector<double>& matrix,
                            bool halves = true) {
      for (const char* const m_name : {"none", "block-jacobi"})
        for (const bool mixed : {false, true}) {
          terrace::cg::Options options;
          options.preconditioner = m_name;
          options.mixed = mixed;
          if (mixed && !halves) {
            CHECK_THROWS_AS(a.solve(given, {x.data(), rows, 1}, options), Error);
            continue;
          }
          CHECK(a.solve(given, {x.data(), rows, 1}, options)[0].converged);
          CHECK(residual(n, 1, matrix, whole(n, 1, list, x, 1), b) < 1e-7);
        }
    };
    auto csr = terrace::cg::csr(context, n, rows, first.start.data(), first.column.data(),
                                first.value.data());
    solves(csr, band.dense);
    csr.update_values(then.value.data());
    solves(csr, second);
    csr.update_values(first.value.data());
    solves(csr, band.dense);

    std::vector<double> own = part(band.dense, n, list, n, 0.0),
                        other = part(second, n, list, n, 0.0);
    auto dense = terrace::cg::dense(context, n, {own.data(), rows, n});
    solves(dense, band.dense, false);
    dense.update_values(Local<const double>{other.data(), rows, n});
    solves(dense, second, false);

    const auto lower = [&](const std::vector<double>& matrix) {
      std::vector<double> ab(std::size_t((m + 1) * rows.count), 0.0);
      for (Index d = 0; d <= m; ++d)
        for (Index j = 0; j < rows.count; ++j)
          if (const Index i = rows.first + j + d; i < n)
            ab[std::size_t(d * rows.count + j)] = matrix[std::size_t(i * n + rows.first + j)];
      return ab;
    };
    const std::vector<double> ab = lower(band.dense), ab2 = lower(second);
    auto banded = terrace::cg::band(context, n, {ab.data(), m, rows});
    solves(banded, band.dense);
    banded.update_values(terrace::band::Matrix{ab2.data(), m, rows});
    solves(banded, second);
    CHECK_THROWS_AS(banded.update_values(first.value.data()), Error);  // not a CSR operator

    // What would be wrong is refused, by all ranks alike.
    std::vector<double> bent = then.value;
    for (std::size_t i = 0; i + 1 < first.start.size(); ++i)  // the entry right of (0, 0) alone
      if (rows.first + Index(i) == 0) bent[std::size_t(first.start[i]) + 1] *= 1.5;
    CHECK_THROWS_AS(csr.update_values(bent.data()), Error);
    csr.update_values(then.value.data());
    solves(csr, second);
    bent = then.value;
    if (!bent.empty()) bent.back() = NAN;
    CHECK_THROWS_AS(csr.update_values(bent.data()), Error);
    const Csr unsorted = csr_of(band.dense, n, rows, true);
    auto reversed = terrace::cg::csr(context, n, rows, unsorted.start.data(),
                                     unsorted.column.data(), unsorted.value.data());
    solves(reversed, band.dense);
    CHECK_THROWS_AS(reversed.update_values(unsorted.value.data()), Error);
  }
}

TEST_CASE("rows that C deals in blocks") {
  terrace_context* context = nullptr;
  REQUIRE(terrace_open(MPI_COMM_WORLD, nullptr, &context) == 0);
  const Index n = 50, block = 3;
  const std::vector<Index> list = held(n, Rows::cyclic(block));
  const std::vector<double> a = random_matrix(n, n, 1), b = random_matrix(n, 2, 2);
  std::vector<double> own = part(a, n, list, n, 0.0), x = part(b, 2, list, 2, 0.0);
  CHECK(terrace_dense_solve(context, n, block, TERRACE_CYCLIC, own.data(), 0, 2, x.data(), 0,
                            nullptr) == 0);
  CHECK(residual(n, 2, a, whole(n, 2, list, x, 2), b) < 1e-8);
  const std::vector<Word> bits = random_bits(n, n, 3);
  std::vector<Word> own_bits = part(bits, 1, list, 1, Word(0)), form = bits;
  terrace_report report;
  CHECK(terrace_gf2_rank(context, n, n, block, TERRACE_CYCLIC, own_bits.data(), 0, nullptr,
                         &report) == 0);
  CHECK(report.rank == Index(eliminate(form, n, n).size()));
  CHECK(terrace_dense_invert(context, n, 0, TERRACE_CYCLIC, own.data(), 0, nullptr) ==
        TERRACE_USAGE);  // blocks of no rows
  terrace_close(context);
}
