// Arrays in the memory of a device, in the library.
#include "on_device.hpp"

#if TERRACE_WITH_CUDA

using namespace library;

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
