// The library as a user's program sees it: MPI is started and ended by that program, the arrays are
// its own. Oracles are a few plain loops. Compiled as C++17 against the public headers alone.
#define CATCH_CONFIG_RUNNER
#include <terrace/terrace.hpp>
#if TERRACE_CATCH_MAJOR >= 3
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#if TERRACE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

extern "C" int openblas_get_num_threads();
extern "C" void openblas_set_num_threads(int);
extern char** environ;

namespace {

using terrace::Code;
using terrace::Context;
using terrace::Error;
using terrace::Local;
using terrace::Rows;
using Index = std::int64_t;
using Word = std::uint64_t;

int me = 0, ranks = 1;
[[maybe_unused]] bool device_missing = false;

/// TERRACE_API_BACKEND=cuda: all that is tested here on a GPU.
terrace::Options wanted() {
  terrace::Options options;
  const char* const backend = std::getenv("TERRACE_API_BACKEND");
  if (backend && std::string(backend) == "cuda") options.backend = terrace::Backend::cuda;
  return options;
}
Context group() { return Context(MPI_COMM_WORLD, wanted()); }

/// This rank's share of n rows: uneven, in ascending order of the ranks, or cyclic.
Rows share(Index n, int kind) {
  if (kind == 2) return Rows::cyclic(3);
  if (kind == 1 && me < ranks - 1) return Rows::range(std::min<Index>(n, me), n > me ? 1 : 0);
  if (kind == 1) return Rows::range(std::min<Index>(n, me), std::max<Index>(0, n - me));
  const Index each = (n + ranks - 1) / ranks, first = std::min<Index>(n, each * me);
  return Rows::range(first, std::min<Index>(each, n - first));
}
/// The global numbers of this rank's rows.
std::vector<Index> held(Index n, const Rows& rows) {
  std::vector<Index> list;
  if (rows.block > 0) {
    for (Index i = 0; i < n; ++i)
      if (i / rows.block % ranks == me) list.push_back(i);
  } else {
    for (Index i = 0; i < rows.count; ++i) list.push_back(rows.first + i);
  }
  return list;
}
/// Rows `list` of a whole row-major matrix, each of `ld` numbers, the last ones a sentinel.
template <class T>
std::vector<T> part(const std::vector<T>& whole, Index columns, const std::vector<Index>& list,
                    Index ld, T sentinel) {
  std::vector<T> own(std::size_t(Index(list.size()) * ld), sentinel);
  for (std::size_t i = 0; i < list.size(); ++i)
    std::copy_n(whole.begin() + list[i] * columns, columns, own.begin() + Index(i) * ld);
  return own;
}
/// All rows, on every rank, from what the ranks hold.
template <class T>
std::vector<T> whole(Index n, Index columns, const std::vector<Index>& list,
                     const std::vector<T>& own, Index ld) {
  std::vector<T> all(std::size_t(n * columns), T(0));
  for (std::size_t i = 0; i < list.size(); ++i)
    std::copy_n(own.begin() + Index(i) * ld, columns, all.begin() + list[i] * columns);
  static_assert(sizeof(T) == 8);
  MPI_Allreduce(MPI_IN_PLACE, all.data(), int(all.size()), MPI_UINT64_T, MPI_BOR, MPI_COMM_WORLD);
  return all;
}
bool everywhere(bool mine) {
  int all = mine;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}
/// The Error that every rank must get, with the same text.
template <class F>
Error error_of(F&& call) {
  Error found(Code::internal, "nothing was thrown");
  try {
    call();
  } catch (const Error& e) {
    found = e;
  }
  std::string text = found.what();
  text.resize(300);
  std::string first = text;
  MPI_Bcast(first.data(), 300, MPI_CHAR, 0, MPI_COMM_WORLD);
  CHECK(everywhere(first == text));
  return found;
}

std::vector<double> random_matrix(Index rows, Index columns, unsigned seed) {
  std::mt19937_64 draw(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> a(std::size_t(rows * columns));
  for (double& x : a) x = uniform(draw);
  return a;
}
double residual(Index n, Index columns, const std::vector<double>& a, const std::vector<double>& x,
                const std::vector<double>& b) {
  double worst = 0;
  for (Index i = 0; i < n; ++i)
    for (Index c = 0; c < columns; ++c) {
      double sum = -b[std::size_t(i * columns + c)];
      for (Index j = 0; j < n; ++j)
        sum += a[std::size_t(i * n + j)] * x[std::size_t(j * columns + c)];
      worst = std::max(worst, std::fabs(sum));
    }
  return worst;
}

// --- over GF(2), by columns -----------------------------------------------------------------------
bool bit(const std::vector<Word>& a, Index words, Index i, Index j) {
  return (a[std::size_t(i * words + j / 64)] >> (j % 64)) & 1;
}
std::vector<Word> random_bits(Index rows, Index columns, unsigned seed) {
  std::mt19937_64 draw(seed);
  const Index words = (columns + 63) / 64;
  std::vector<Word> a(std::size_t(rows * words));
  for (Index i = 0; i < rows; ++i)
    for (Index w = 0; w < words; ++w) {
      a[std::size_t(i * words + w)] = draw();
      if (w == words - 1 && columns % 64 != 0)
        a[std::size_t(i * words + w)] &= (Word(1) << (columns % 64)) - 1;
    }
  return a;
}
std::vector<Index> eliminate(std::vector<Word>& a, Index rows, Index columns) {
  const Index words = (columns + 63) / 64;
  std::vector<Index> pivots;
  for (Index j = 0; j < columns && Index(pivots.size()) < rows; ++j) {
    const Index at = Index(pivots.size());
    Index found = at;
    while (found < rows && !bit(a, words, found, j)) ++found;
    if (found == rows) continue;
    std::swap_ranges(a.begin() + at * words, a.begin() + (at + 1) * words,
                     a.begin() + found * words);
    for (Index i = 0; i < rows; ++i)
      if (i != at && bit(a, words, i, j))
        for (Index w = 0; w < words; ++w)
          a[std::size_t(i * words + w)] ^= a[std::size_t(at * words + w)];
    pivots.push_back(j);
  }
  return pivots;
}
std::vector<Word> product(const std::vector<Word>& a, Index rows, Index inner,
                          const std::vector<Word>& b, Index columns) {
  const Index wa = (inner + 63) / 64, wb = (columns + 63) / 64;
  std::vector<Word> c(std::size_t(rows * wb), 0);
  for (Index i = 0; i < rows; ++i)
    for (Index k = 0; k < inner; ++k)
      if (bit(a, wa, i, k))
        for (Index w = 0; w < wb; ++w) c[std::size_t(i * wb + w)] ^= b[std::size_t(k * wb + w)];
  return c;
}

/// A band matrix, positive definite: dense, and in SciPy's lower form.
struct Band {
  std::vector<double> dense, lower;
};
Band random_band(Index n, Index m, unsigned seed) {
  const std::vector<double> draws = random_matrix(m + 1, n, seed);
  Band a{std::vector<double>(std::size_t(n * n), 0.0),
         std::vector<double>(std::size_t((m + 1) * n), 7e77)};
  for (Index d = 0; d <= m; ++d)
    for (Index j = 0; j + d < n; ++j) {
      const double x = d == 0 ? 2.0 * double(m) + 2 : draws[std::size_t(d * n + j)];
      a.lower[std::size_t(d * n + j)] = x;
      a.dense[std::size_t((j + d) * n + j)] = a.dense[std::size_t(j * n + j + d)] = x;
    }
  return a;
}

}  // namespace

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
  const Error none = error_of([&] {
    terrace::dense::invert(context, 10, {nullptr, share(10, 0), 10, 10});
  });
  CHECK(none.code() == Code::usage);
}

TEST_CASE("bits: forms, rank, kernel, solution, inverse and product") {
  Context context = group();
  for (const auto& [rows, columns] :
       {std::pair<Index, Index>{1, 1}, {70, 130}, {200, 64}, {129, 129}})
    for (const int kind : {0, 2}) {
      const Index words = (columns + 63) / 64, ld = words + 2;
      std::vector<Word> a = random_bits(rows, columns, unsigned(rows));
      for (Index w = 0; w < words && rows > 3; ++w)  // a row that depends on others
        a[std::size_t(3 * words + w)] = a[std::size_t(w)] ^ a[std::size_t(words + w)];
      const Rows mine = share(rows, kind);
      const std::vector<Index> list = held(rows, mine);
      std::vector<Word> form = a;
      const std::vector<Index> pivots = eliminate(form, rows, columns);
      std::vector<Word> own = part(a, words, list, ld, ~Word(0));
      if (columns % 64 != 0)  // bits behind the last column are nobody's
        for (std::size_t i = 0; i < list.size(); ++i)
          own[i * std::size_t(ld) + std::size_t(words) - 1] |= Word(1) << 63;
      const std::vector<Word> before = own;
      auto report = terrace::gf2::rank(context, rows, {own.data(), mine, columns, ld});
      CHECK(report.rank == Index(pivots.size()));
      CHECK(report.pivots == pivots);
      CHECK(report.certified);
      const terrace::gf2::Basis basis =
          terrace::gf2::kernel(context, rows, {own.data(), mine, columns, ld});
      CHECK(everywhere(own == before));
      CHECK(basis.dimension == columns - report.rank);
      std::vector<Word> k =
          whole(basis.dimension, words, held(basis.dimension, basis.rows), basis.words, basis.ld);
      for (Index i = 0; i < rows; ++i)
        for (Index f = 0; f < basis.dimension; ++f) {
          Word sum = 0;
          for (Index w = 0; w < words; ++w)
            sum ^= a[std::size_t(i * words + w)] & k[std::size_t(f * words + w)];
          if (__builtin_parityll(sum)) FAIL("not in the kernel");
        }
      CHECK(Index(eliminate(k, basis.dimension, columns).size()) == basis.dimension);
      const Index tw = (rows + 63) / 64;
      std::vector<Word> t(list.size() * std::size_t(tw));
      report = terrace::gf2::reduce(context, rows, {own.data(), mine, columns, ld},
                                    {t.data(), mine, rows, tw});
      CHECK(whole(rows, words, list, own, ld) == form);
      CHECK(product(whole(rows, tw, list, t, tw), rows, rows, a, columns) == form);
      // A X = B for a B that has a solution, and for one that has none.
      const Index right = 70, rw = 2;
      const std::vector<Word> b = product(a, rows, columns, random_bits(columns, right, 9), right);
      const Rows of_x = share(columns, 1);
      const std::vector<Index> x_list = held(columns, of_x);
      std::vector<Word> x(x_list.size() * std::size_t(rw)), own_b = part(b, rw, list, rw, Word(0));
      own = before;
      report = terrace::gf2::solve(context, rows, {own.data(), mine, columns, ld},
                                   {own_b.data(), mine, right}, {x.data(), of_x, right});
      CHECK(product(a, rows, columns, whole(columns, rw, x_list, x, rw), right) == b);
      if (rows > 3) {
        for (std::size_t i = 0; i < list.size(); ++i)
          if (list[i] == 3) own_b[i * std::size_t(rw)] ^= 1;
        const Error e = error_of([&] {
          terrace::gf2::solve(context, rows, {own.data(), mine, columns, ld},
                              {own_b.data(), mine, right}, {x.data(), of_x, right});
        });
        CHECK(e.code() == Code::outcome);
      }
      // The product itself.
      const std::vector<Word> c = random_bits(columns, right, 10);
      const std::vector<Word> own_c = part(c, rw, x_list, rw, Word(0));
      std::vector<Word> d(list.size() * std::size_t(rw));
      terrace::gf2::multiply(context, rows, {own.data(), mine, columns, ld},
                             {own_c.data(), of_x, right}, {d.data(), mine, right});
      CHECK(whole(rows, rw, list, d, rw) == product(a, rows, columns, c, right));
    }
  const Index n = 65;
  std::vector<Word> a(std::size_t(n * 2), 0), one(std::size_t(n * 2), 0);
  for (Index i = 0; i < n; ++i) {
    one[std::size_t(i * 2 + i / 64)] = Word(1) << (i % 64);
    for (Index j = i; j < n; ++j)
      if ((i * j) % 3 == 0 || i == j) a[std::size_t(i * 2 + j / 64)] |= Word(1) << (j % 64);
  }
  const Rows mine = share(n, 0);
  const std::vector<Index> list = held(n, mine);
  std::vector<Word> own = part(a, 2, list, 2, Word(0));
  terrace::gf2::inverse(context, n, {own.data(), mine, n});
  CHECK(product(whole(n, 2, list, own, 2), n, n, a, n) == one);
  for (Index w = 0; w < 2; ++w) a[std::size_t(20 * 2 + w)] = a[std::size_t(21 * 2 + w)];
  own = part(a, 2, list, 2, Word(0));
  CHECK(error_of([&] {
          terrace::gf2::inverse(context, n, {own.data(), mine, n});
        }).code() == Code::outcome);
}

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
        x = part(b, right, list, right, 0.0);
        factor.solve({x.data(), columns, right});
        CHECK(residual(n, right, a.dense, whole(n, right, list, x, right), b) < 1e-9);
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

TEST_CASE("the caller can stop a run on any rank, and go on") {
  Context context = group();
  const Index n = 600;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  const std::vector<double> a = random_matrix(n, n, 11);
  std::vector<double> own = part(a, n, list, n, 0.0);
  const std::vector<double> before = own;
  int calls = 0;
  context.options().progress = [&](double) { return !(me == ranks - 1 && ++calls == 2); };
  const Error e = error_of([&] { terrace::dense::invert(context, n, {own.data(), rows, n}); });
  CHECK(e.code() == Code::stopped);
  CHECK(everywhere(own == before));
  double most = 0;
  context.options().progress = [&](double part) {
    most = std::max(most, part);
    return true;
  };
  terrace::dense::invert(context, n, {own.data(), rows, n});
  CHECK(most > 0.9);
  // A word that comes too late for its run does not stop the next one.
  context.options().progress = [&](double part) { return part < 1 || me < ranks - 1; };
  try {
    terrace::dense::invert(context, n, {own.data(), rows, n});
  } catch (const Error& late) {
    CHECK(late.code() == Code::stopped);
  }
  context.options().progress = [](double) { return true; };
  terrace::dense::invert(context, n, {own.data(), rows, n});
}

#if TERRACE_WITH_CUDA
/// A copy in a device's memory, and back.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T>& host) : host_(host) {
    REQUIRE(cudaMalloc(&data_, std::max<std::size_t>(1, bytes())) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~OnDevice() {
    cudaMemcpy(host_.data(), data_, bytes(), cudaMemcpyDeviceToHost);
    cudaFree(data_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  std::size_t bytes() const { return host_.size() * sizeof(T); }
  std::vector<T>& host_;
  void* data_ = nullptr;
};

TEST_CASE("arrays of a device", "[gpu]") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    device_missing = true;
    return;
  }
  Context context(MPI_COMM_WORLD);
  const auto where = terrace::Where::device;
  for (const Index n : {1, 100, 777}) {
    const Rows rows = share(n, 0);
    const std::vector<Index> list = held(n, rows);
    const Index ld = n + 5, right = 2, words = (n + 63) / 64;
    const std::vector<double> a = random_matrix(n, n, 1), b = random_matrix(n, right, 2);
    std::vector<double> own = part(a, n, list, ld, 1.5), x = part(b, right, list, right, 0.0);
    {
      const OnDevice matrix(own), solution(x);
      CHECK((matrix.data() == nullptr || terrace::where_is(matrix.data()) == where));
      terrace::dense::solve(context, n, {matrix.data(), rows, n, ld, where},
                            {solution.data(), rows, right, 0, where});
      terrace::dense::invert(context, n, {matrix.data(), rows, n, ld, where});
    }
    CHECK(residual(n, right, a, whole(n, right, list, x, right), b) < 1e-8);
    std::vector<double> one(std::size_t(n * n), 0.0);
    for (Index i = 0; i < n; ++i) one[std::size_t(i * n + i)] = 1;
    CHECK(residual(n, n, a, whole(n, n, list, own, ld), one) < 1e-8);

    std::vector<Word> bits = random_bits(n, n, 3), form = bits;
    const std::vector<Index> pivots = eliminate(form, n, n);
    std::vector<Word> own_bits = part(bits, words, list, words, Word(0));
    {
      const OnDevice matrix(own_bits);
      CHECK(terrace::gf2::rank(context, n, {matrix.data(), rows, n, 0, where}).pivots == pivots);
      terrace::gf2::reduce(context, n, {matrix.data(), rows, n, 0, where});
    }
    CHECK(whole(n, words, list, own_bits, words) == form);

    const Index m = std::min<Index>(n - 1, 9);
    const Band band = random_band(n, m, 4);
    std::vector<double> lower(std::size_t((m + 1) * rows.count));
    for (Index d = 0; d <= m; ++d)
      std::copy_n(band.lower.begin() + d * n + rows.first, rows.count,
                  lower.begin() + d * rows.count);
    x = part(b, right, list, right, 0.0);
    std::vector<double> y(x.size(), 0.0);
    {
      const OnDevice matrix(lower), solution(x);
      const terrace::band::Matrix given{
          matrix.data(), m, rows, terrace::band::Matrix::diagonals, terrace::band::Uplo::lower, 0,
          where};
      const std::vector<double> before = x;
      terrace::band::solve(context, n, given, {solution.data(), rows, right, 0, where});
      auto made = terrace::cg::band(context, n, given);
      std::vector<double> copy = before;
      const OnDevice b_there(copy), y_there(y);
      const auto results = made.solve({b_there.data(), rows, right, 0, where},
                                      {y_there.data(), rows, right, 0, where});
      CHECK(results[0].converged);
    }
    CHECK(residual(n, right, band.dense, whole(n, right, list, x, right), b) < 1e-8);
    CHECK(residual(n, right, band.dense, whole(n, right, list, y, right), b) < 1e-7);
  }
}
#endif

TEST_CASE("a part of the ranks works, and settings of the process stay") {
  openblas_set_num_threads(2);
  std::vector<std::string> environment;
  for (char** e = environ; *e; ++e) environment.emplace_back(*e);
  const int three = std::min(ranks, 3);
  MPI_Comm some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me < three ? 0 : MPI_UNDEFINED, 0, &some);
  bool right = true;
  if (me < three) {
    {
      Context context(some, wanted());
      right &= context.size() == three && context.rank() == me;
      const Index n = 30, each = (n + three - 1) / three;
      const Rows rows =
          Rows::range(std::min(n, each * me), std::min(each, n - std::min(n, each * me)));
      std::vector<double> a(std::size_t(rows.count * n), 1.0);
      Code code = Code::internal;
      try {
        terrace::dense::invert(context, n, {a.data(), rows, n});
      } catch (const Error& e) {
        code = e.code();
      }
      right &= code == Code::outcome;
      for (Index i = 0; i < rows.count; ++i) a[std::size_t(i * n + rows.first + i)] += 2;
      const auto report = terrace::dense::invert(context, n, {a.data(), rows, n});
      right &= std::fabs(report.log_abs_determinant - (29 * std::log(2.0) + std::log(32.0))) < 1e-9;
      if (me == 0) {  // one process, beside the others
        Context alone;
        double x = 4;
        right &=
            std::fabs(terrace::dense::invert(alone, 1, {&x, Rows::all(1), 1}).log_abs_determinant -
                      std::log(4.0)) < 1e-15 &&
            x == 0.25;
      }
    }
    MPI_Comm_free(&some);
  }
  CHECK(everywhere(right));
  CHECK(everywhere(openblas_get_num_threads() == 2));
  std::vector<std::string> after;
  for (char** e = environ; *e; ++e) after.emplace_back(*e);
  CHECK(everywhere(environment == after));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int failed = Catch::Session().run(argc, argv);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed ? 1 : argc > 1 && device_missing ? 77 : 0;
}
