// Arrays in the memory of a device, in the library.
#include "on_device.hpp"

#if TERRACE_WITH_CUDA

using namespace library;

namespace {

int current() {
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  return device;
}

}  // namespace

TEST_CASE(
    "a Context works where its first arrays lie, else on the caller's device, and refuses others",
    "[gpu]") {
  if (!has_device()) return;
  int devices = 0, rank = 0, size = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (devices < 2 || size > devices) return;  // one GPU: nothing to choose
  const int before = current();
  const Index n = 200;
  const Rows rows = share(n, 0);
  const std::vector<double> a = random_matrix(n, n, 1);
  const auto where = terrace::Where::device;
  for (int turn = 0; turn < devices; ++turn) {
    const int mine = (rank + turn) % devices, other = (mine + 1) % devices;
    std::vector<double> own = part(a, n, held(n, rows), n, 0.0), elsewhere = own;
    REQUIRE(cudaSetDevice(mine) == cudaSuccess);
    const OnDevice matrix(own);
    REQUIRE(cudaSetDevice(other) == cudaSuccess);  // not where the arrays lie
    const OnDevice wrong(elsewhere);
    {
      Context context(MPI_COMM_WORLD);
      const auto good = terrace::dense::determinant(context, n, {matrix.data(), rows, n, n, where});
      CHECK(current() == other);
      CHECK(std::isfinite(good.log_abs_determinant));
      CHECK(error_of([&] {
              (void)terrace::dense::determinant(context, n, {wrong.data(), rows, n, n, where});
            }).code() == terrace::Code::usage);
      // Other kernels, with more shared memory than a device gives unasked.
      std::vector<Word> bits = random_bits(n, n, 3), form = bits;
      const std::vector<Index> pivots = eliminate(form, n, n);
      std::vector<Word> own_bits = part(bits, (n + 63) / 64, held(n, rows), (n + 63) / 64, Word(0));
      REQUIRE(cudaSetDevice(mine) == cudaSuccess);
      {
        const OnDevice there(own_bits);
        REQUIRE(cudaSetDevice(other) == cudaSuccess);
        CHECK(terrace::gf2::rank(context, n, {there.data(), rows, n, 0, where}).pivots == pivots);
      }
      const terrace::dense::Factor factor(context, n, {matrix.data(), rows, n, n, where});
      CHECK(error_of([&] {
              (void)factor.solve({wrong.data(), rows, n, n, where});
            }).code() == terrace::Code::usage);
      CHECK(factor.solve({matrix.data(), rows, n, n, where}).residual < 30);
    }
    REQUIRE(cudaSetDevice(mine) == cudaSuccess);
    {
      terrace::Options options;
      options.backend = terrace::Backend::cuda;
      Context context(MPI_COMM_WORLD, options);  // the first call's arrays are the host's
      std::vector<double> host = part(a, n, held(n, rows), n, 0.0);
      (void)terrace::dense::determinant(context, n, {host.data(), rows, n, n});
      const std::vector<double> same = part(a, n, held(n, rows), n, 0.0);
      std::vector<double> here = same;
      const OnDevice fresh(here);
      CHECK(std::isfinite(terrace::dense::determinant(context, n, {fresh.data(), rows, n, n, where})
                              .log_abs_determinant));
    }
  }
  REQUIRE(cudaSetDevice(before) == cudaSuccess);
}

TEST_CASE("arrays of a device", "[gpu]") {
  if (!has_device()) return;
  Context context(MPI_COMM_WORLD);
  const auto where = terrace::Where::device;
  for (const auto& [n, kind] : {std::pair<Index, int>{1, 0}, {100, 0}, {777, 0}, {777, 1}}) {
    const Rows rows = share(n, kind);
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

TEST_CASE("a dense factor of a device's matrix solves again, for arrays there and here", "[gpu]") {
  if (!has_device()) return;
  Context context(MPI_COMM_WORLD);
  const auto where = terrace::Where::device;
  for (const Index n : {1, 100, 777}) {
    const Rows rows = share(n, 0), other = Rows::cyclic(16);
    const std::vector<Index> list = held(n, rows), others = held(n, other);
    const Index ld = n + 5;
    const std::vector<double> a = random_matrix(n, n, 5);
    std::vector<double> own = part(a, n, list, ld, 1.5);
    const terrace::dense::Factor factor = [&] {
      const OnDevice matrix(own);  // gone when the factor solves
      return terrace::dense::Factor(context, n, {matrix.data(), rows, n, ld, where});
    }();
    CHECK(own == part(a, n, list, ld, 1.5));
    for (const Index right : {1, 3, 70, 0}) {
      const std::vector<double> b = random_matrix(n, right, unsigned(6 + right));
      std::vector<double> x = part(b, right, list, right, 0.0),
                          y = part(b, right, others, right, 0.0);
      {
        const OnDevice there(x);
        CHECK(factor.solve({there.data(), rows, right, 0, where}).residual < 30);
      }
      factor.solve({y.data(), other, right});
      CHECK(residual(n, right, a, whole(n, right, list, x, right), b) < 1e-8);
      CHECK(residual(n, right, a, whole(n, right, others, y, right), b) < 1e-8);
    }
    // Far from one: scaled on the way, which only the host's rows may be.
    for (double& value : own) value = std::ldexp(value, 200);
    std::vector<double> x = part(a, n, list, n, 0.0);
    {
      const OnDevice matrix(own), solution(x);
      terrace::dense::Factor(context, n, {matrix.data(), rows, n, ld, where})
          .solve({solution.data(), rows, n, 0, where});
    }
    for (double& value : x) value = std::ldexp(value, 200);
    CHECK(residual(n, n, a, whole(n, n, list, x, n), a) < 1e-8);
  }
}
#endif
