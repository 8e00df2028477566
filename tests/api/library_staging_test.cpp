// Arrays of a device stay there: nothing that is as large as a matrix goes through the host, and a
// stream of the caller's is waited for.
#include <chrono>
#include <thread>

#include "on_device.hpp"

namespace terrace {
inline namespace api {
TERRACE_API std::int64_t staged_bytes();  // src/api/held.hpp
}
}  // namespace terrace

using namespace library;

#if TERRACE_WITH_CUDA

namespace {

constexpr auto there = terrace::Where::device;

template <class F>
std::int64_t staged(F&& call) {
  const std::int64_t before = terrace::staged_bytes();
  call();
  return terrace::staged_bytes() - before;
}

/// A band in each of its forms: lower and upper, by diagonals and by columns, with room between.
struct Form {
  terrace::band::Matrix::Layout layout;
  terrace::band::Uplo uplo;
  Index extra;
};
std::vector<double> in_form(const Band& band, Index n, Index m, const Form& form, Index ld) {
  const bool diagonals = form.layout == terrace::band::Matrix::diagonals;
  std::vector<double> to(std::size_t(ld * (diagonals ? m + 1 : n)), NAN);
  for (Index d = 0; d <= m; ++d)
    for (Index j = 0; j + d < n; ++j) {
      const bool upper = form.uplo == terrace::band::Uplo::upper;
      const Index row = upper ? m - d : d, column = upper ? j + d : j;
      to[std::size_t(diagonals ? row * ld + column : column * ld + row)] =
          band.lower[std::size_t(d * n + j)];
    }
  return to;
}

}  // namespace

TEST_CASE("dense matrices and bits of a device do not go through the host", "[gpu]") {
  if (!has_device()) return;
  Context context(MPI_COMM_WORLD);
  if (context.size() > 1) return;  // ranks exchange rows through their hosts
  for (const Index extra : {0, 3}) {
    const Index n = 1100, ld = n + extra;
    const Rows all = Rows::all(n);
    const std::vector<Index> list = held(n, all);
    const std::vector<double> a = random_matrix(n, n, 1), b = random_matrix(n, 2, 2);
    std::vector<double> own = part(a, n, list, ld, 1.5), x = b;
    {
      const OnDevice matrix(own), solution(x);
      CHECK(staged([&] {
              terrace::dense::determinant(context, n, {matrix.data(), all, n, ld, there});
            }) == 0);
      CHECK(staged([&] {  // the right-hand sides alone
              terrace::dense::solve(context, n, {matrix.data(), all, n, ld, there},
                                    {solution.data(), all, 2, 0, there});
            }) <= 4 * 16 * n);
      CHECK(staged([&] {
              terrace::dense::invert(context, n, {matrix.data(), all, n, ld, there});
            }) == 0);
    }
    CHECK(residual(n, 2, a, x, b) < 1e-8);
    std::vector<double> one(std::size_t(n * n), 0.0);
    for (Index i = 0; i < n; ++i) one[std::size_t(i * n + i)] = 1;
    CHECK(residual(n, n, a, whole(n, n, list, own, ld), one) < 1e-7);

    const Index words = (n + 63) / 64, stride = words + extra;
    std::vector<Word> bits = random_bits(n, n, 3), form = bits;
    const std::vector<Index> pivots = eliminate(form, n, n);
    std::vector<Word> dirty = bits;  // bits behind the last column
    for (Index i = 0; i < n; ++i) dirty[std::size_t((i + 1) * words - 1)] |= ~Word(0) << (n % 64);
    std::vector<Word> own_bits = part(dirty, words, list, stride, Word(7));
    std::vector<Word> product(std::size_t(n * words)), t(product);
    {
      const OnDevice matrix(own_bits), times(product), transform(t);
      const Local<const Word> given{matrix.data(), all, n, stride, there};
      const Local<Word> changed{matrix.data(), all, n, stride, there};
      CHECK(staged([&] {
              CHECK(terrace::gf2::rank(context, n, given).pivots == pivots);
              terrace::gf2::multiply(context, n, given, given, {times.data(), all, n, 0, there});
              terrace::gf2::reduce(context, n, changed, {transform.data(), all, n, 0, there});
            }) == 0);
    }
    CHECK(whole(n, words, list, own_bits, stride) == form);
    for (Index i = 0; i < n; ++i)
      for (Index w = words; w < stride; ++w) REQUIRE(own_bits[std::size_t(i * stride + w)] == 7);
  }
}

TEST_CASE("a band of a device does not go through the host, in any form", "[gpu]") {
  if (!has_device()) return;
  Context context(MPI_COMM_WORLD);
  const bool alone = context.size() == 1;
  using terrace::band::Uplo;
  for (const Form form : {Form{terrace::band::Matrix::diagonals, Uplo::lower, 0},
                          Form{terrace::band::Matrix::diagonals, Uplo::upper, 5},
                          Form{terrace::band::Matrix::by_columns, Uplo::lower, 0},
                          Form{terrace::band::Matrix::by_columns, Uplo::lower, 2},
                          Form{terrace::band::Matrix::by_columns, Uplo::upper, 1}})
    for (const Index n : {3, 200, 1500}) {
      if (!alone) continue;
      const Index m = std::min<Index>(n - 1, 37);
      const bool diagonals = form.layout == terrace::band::Matrix::diagonals;
      const Index ld = (diagonals ? n : m + 1) + form.extra;
      const Band band = random_band(n, m, 4);
      std::vector<double> ab = in_form(band, n, m, form, ld);
      const std::vector<double> b = random_matrix(n, 1, 2);
      std::vector<double> x = b, y = b, z(b.size(), 0.0), right = b;
      {
        const OnDevice matrix(ab), first(x), second(y), third(z), given(right);
        const Rows all = Rows::all(n);
        const terrace::band::Matrix a{matrix.data(), m, all, form.layout, form.uplo, ld, there};
        CHECK(staged([&] {  // read, checked and given back: the right-hand sides of the band
                terrace::band::solve(context, n, a, {first.data(), all, 1, 0, there});
                const terrace::band::Factor factor(context, n, a);
                factor.solve({second.data(), all, 1, 0, there});
                auto made = terrace::cg::band(context, n, a);
                CHECK(made.solve({given.data(), all, 1, 0, there},
                                 {third.data(), all, 1, 0, there})[0]
                          .converged);
              }) <= 6 * 8 * n);
      }
      CHECK(residual(n, 1, band.dense, x, b) < 1e-8);
      CHECK(residual(n, 1, band.dense, y, b) < 1e-8);
      CHECK(residual(n, 1, band.dense, z, b) < 1e-7);
    }
}

namespace {

/// X with (3 on the diagonal, -1 beside it) X = B, by elimination in order.
std::vector<double> tridiagonal(Index n, Index columns, const std::vector<double>& b) {
  std::vector<double> x = b, factor(static_cast<std::size_t>(n));
  for (Index v = 0; v < columns; ++v) {
    const auto at = [&](Index i) -> double& { return x[std::size_t(i * columns + v)]; };
    double pivot = 3;
    for (Index i = 1; i < n; ++i) {
      factor[std::size_t(i)] = 1 / pivot;
      at(i) += at(i - 1) / pivot;
      pivot = 3 - 1 / pivot;
    }
    at(n - 1) /= pivot;
    for (Index i = n - 1; i > 0; --i) at(i - 1) = (at(i - 1) + at(i)) * factor[std::size_t(i)];
  }
  return x;
}

}  // namespace

TEST_CASE("right-hand sides of a device, any number of them, do not go through the host", "[gpu]") {
  if (!has_device()) return;
  Context context(MPI_COMM_WORLD);
  context.options().backend = terrace::Backend::cuda;  // small as it is
  if (context.size() > 1) return;
  const Index n = 3001;
  std::vector<Index> start{0}, column;
  std::vector<double> value;
  for (Index i = 0; i < n; ++i) {
    for (Index j = std::max<Index>(0, i - 1); j <= std::min(n - 1, i + 1); ++j) {
      column.push_back(j);
      value.push_back(i == j ? 3 : -1);
    }
    start.push_back(Index(column.size()));
  }
  auto a = terrace::cg::csr(context, n, Rows::all(n), start.data(), column.data(), value.data());
  for (const Index columns : {1, 2, 3, 4, 5, 16, 17, 20})
    for (const int way : {0, 1, 2, 3}) {
      INFO(columns << " columns, way " << way);
      terrace::cg::Options options;
      options.start_given = way == 1;
      options.mixed = way == 2;
      if (way == 3) options.preconditioner = "jacobi";
      std::vector<double> b = random_matrix(n, columns, 7), x = random_matrix(n, columns, 8);
      for (Index i = 0; i < n; ++i)  // of different sizes; the second is zero
        for (Index v = 0; v < columns; ++v)
          b[std::size_t(i * columns + v)] *= v == 1 ? 0 : std::pow(10.0, double(3 * v - 20));
      const std::vector<double> right = b, expected = tridiagonal(n, columns, b);
      std::vector<terrace::cg::Result> results;
      {
        const OnDevice there_b(b), there_x(x);
        CHECK(staged([&] {
                results = a.solve({there_b.data(), Rows::all(n), columns, 0, there},
                                  {there_x.data(), Rows::all(n), columns, 0, there}, options);
              }) == 0);
      }
      CHECK(b == right);
      REQUIRE(Index(results.size()) == columns);
      for (Index v = 0; v < columns; ++v) {
        double error = 0, most = 0;
        for (Index i = 0; i < n; ++i) {
          const auto k = std::size_t(i * columns + v);
          error = std::max(error, std::fabs(x[k] - expected[k]));
          most = std::max(most, std::fabs(expected[k]));
        }
        CHECK(results[std::size_t(v)].converged);
        CHECK(error <= 1e-8 * most);
      }
    }
}

TEST_CASE("what is enqueued on the caller's stream comes first", "[gpu]") {
  if (!has_device()) return;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  {
    Context context(MPI_COMM_WORLD);
    context.options().stream = stream;
    const Index n = 130;
    const Rows rows = share(n, 0);
    const std::vector<Index> list = held(n, rows);
    const std::vector<double> a = random_matrix(n, n, 1), b = random_matrix(n, 1, 2);
    const std::vector<double> own = part(a, n, list, n, 0.0);
    std::vector<double> unset(own.size(), 0.0), x = part(b, 1, list, 1, 0.0);  // singular
    void* pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, std::max<std::size_t>(8, 8 * own.size())) == cudaSuccess);
    std::copy(own.begin(), own.end(), static_cast<double*>(pinned));
    {
      const OnDevice matrix(unset), solution(x);
      const auto late = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
      REQUIRE(cudaLaunchHostFunc(stream, late, nullptr) == cudaSuccess);
      REQUIRE(cudaMemcpyAsync(matrix.data(), pinned, 8 * own.size(), cudaMemcpyDefault, stream) ==
              cudaSuccess);
      terrace::dense::solve(context, n, {matrix.data(), rows, n, 0, there},
                            {solution.data(), rows, 1, 0, there});
    }
    cudaFreeHost(pinned);
    CHECK(residual(n, 1, a, whole(n, 1, list, x, 1), b) < 1e-8);
  }
  cudaStreamDestroy(stream);
}
#endif

TEST_CASE("arrays of the host are not counted as a device's") {
  Context context(MPI_COMM_WORLD);
  const Index n = 40;
  const Rows rows = share(n, 0);
  std::vector<double> own = part(random_matrix(n, n, 1), n, held(n, rows), n, 0.0);
  const std::int64_t before = terrace::staged_bytes();
  terrace::dense::invert(context, n, {own.data(), rows, n});
  CHECK(terrace::staged_bytes() == before);
}
