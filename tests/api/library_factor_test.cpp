// Factors of dense matrices in the library: they solve again, in C++ and in C, and come back from files.
#include <terrace/hdf5.h>
#include <terrace/hdf5.hpp>

#include "file_name.hpp"
#include "library.hpp"

using namespace library;
using terrace::dense::Factor;

namespace {

/// log |det| and sign by plain elimination.
std::pair<double, int> determinant(Index n, std::vector<double> a) {
  double log = 0;
  int sign = 1;
  for (Index k = 0; k < n; ++k) {
    Index p = k;
    for (Index i = k; i < n; ++i)
      if (std::fabs(a[std::size_t(i * n + k)]) > std::fabs(a[std::size_t(p * n + k)])) p = i;
    if (p != k) {
      std::swap_ranges(a.begin() + p * n, a.begin() + (p + 1) * n, a.begin() + k * n);
      sign = -sign;
    }
    const double pivot = a[std::size_t(k * n + k)];
    log += std::log(std::fabs(pivot));
    if (pivot < 0) sign = -sign;
    for (Index i = k + 1; i < n; ++i) {
      const double f = a[std::size_t(i * n + k)] / pivot;
      for (Index j = k; j < n; ++j) a[std::size_t(i * n + j)] -= f * a[std::size_t(k * n + j)];
    }
  }
  return {log, sign};
}

/// Solves for rows dealt by `kind` with a leading dimension; holds X against A and B.
void check_solve(const Factor& factor, Index n, const std::vector<double>& a, Index right, int kind,
                 unsigned seed) {
  const Rows rows = share(n, kind);
  const std::vector<Index> list = held(n, rows);
  const Index ld = right + 2;
  const std::vector<double> b = random_matrix(n, right, seed);
  std::vector<double> x = part(b, right, list, ld, 5e55);
  const auto report = factor.solve({x.data(), rows, right, ld});
  CHECK(report.residual < 30);
  CHECK(residual(n, right, a, whole(n, right, list, x, ld), b) < 1e-9);
  bool kept = true;
  for (std::size_t i = 0; i < list.size(); ++i)
    for (Index j = right; j < ld; ++j) kept &= x[i * std::size_t(ld) + std::size_t(j)] == 5e55;
  CHECK(everywhere(kept));
}

}  // namespace

TEST_CASE("a dense factor solves again, whoever holds the rows") {
  Context context = group();
  for (const Index n : {0, 1, 5, 64, 150})
    for (const int kind : {0, 1, 2}) {
      const Rows rows = share(n, kind);
      const std::vector<Index> list = held(n, rows);
      const std::vector<double> a = random_matrix(n, n, 21);
      std::vector<double> own = part(a, n, list, n + 3, 1.5);
      Factor factor(context, n, {own.data(), rows, n, n + 3});
      own.assign(own.size(), 9e99);  // not needed any more
      own.shrink_to_fit();
      const auto [log, sign] = determinant(n, a);
      CHECK(std::fabs(factor.report().log_abs_determinant - log) < 1e-9);
      CHECK(factor.report().determinant_sign == sign);
      const auto whole_report = [&] {
        const std::vector<double> again = part(a, n, list, n, 0.0);
        std::vector<double> x(list.size(), 1.0);
        return terrace::dense::solve(context, n, {again.data(), rows, n}, {x.data(), rows, 1});
      }();
      CHECK(factor.report().reciprocal_condition == whole_report.reciprocal_condition);
      // More than are solved at once, where that is quick.
      for (const Index right :
           n == 64 && kind == 1 ? std::vector<Index>{0, 1, 64, 65, 150} : std::vector<Index>{3})
        check_solve(factor, n, a, right, int((kind + right) % 3), unsigned(right));
      Factor moved = std::move(factor);
      check_solve(moved, n, a, 2, kind, 7);
    }
}

TEST_CASE("a factor scales what is far from one") {
  Context context = group();
  const Index n = 70, right = 3;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  std::vector<double> a = random_matrix(n, n, 31);
  const std::vector<double> plain = a, b = random_matrix(n, right, 32);
  for (double& x : a) x = std::ldexp(x, 700);
  const std::vector<double> own = part(a, n, list, n, 0.0);
  const Factor factor(context, n, {own.data(), rows, n});
  CHECK(std::fabs(factor.report().log_abs_determinant -
                  (determinant(n, plain).first + 700.0 * double(n) * std::log(2.0))) < 1e-6);
  std::vector<double> x = part(b, right, list, right, 0.0);
  for (double& value : x) value = std::ldexp(value, 300);
  factor.solve({x.data(), rows, right});
  for (double& value : x) value = std::ldexp(value, 400);
  CHECK(residual(n, right, plain, whole(n, right, list, x, right), b) < 1e-9);
}

TEST_CASE("a factor's errors are those of all ranks, and leave arrays as they were") {
  Context context = group();
  const Index n = 40;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  std::vector<double> a = random_matrix(n, n, 41);
  std::vector<double> own = part(a, n, list, n, 0.0);
  context.options().check = false;
  const Factor unchecked(context, n, {own.data(), rows, n});
  std::vector<double> x(list.size() * 70, 1.0);
  CHECK(unchecked.solve({x.data(), rows, 70}).residual == 0);
  context.options().check = true;
  const std::vector<double> before = x;
  CHECK(error_of([&] { unchecked.solve({x.data(), rows, 70}); }).code() == Code::usage);
  const Factor factor(context, n, {own.data(), rows, n});
  if (me == ranks - 1 && !list.empty()) x[69] = std::nan("");
  CHECK(error_of([&] { factor.solve({x.data(), rows, 70}); }).code() == Code::input);
  if (me == ranks - 1 && !list.empty()) x[69] = before[69];
  CHECK(error_of([&] { factor.solve({x.data(), share(n - 1, 0), 70}); }).code() == Code::usage);
  CHECK(error_of([&] { factor.solve({x.data(), rows, 70, 69}); }).code() == Code::usage);
  if (ranks > 1)
    CHECK(error_of([&] { factor.solve({x.data(), rows, me == 0 ? 1 : 2}); }).code() == Code::usage);
  CHECK(everywhere(x == before));
  terrace::dense::Options emulated;
  emulated.emulated = true;
  CHECK(error_of([&] {
          Factor(context, n, {own.data(), rows, n}, emulated);
        }).code() == Code::usage);
  for (Index i = 0; i < n; ++i) a[std::size_t(i * n + 17)] = 0;
  own = part(a, n, list, n, 0.0);
  const Error singular = error_of([&] { Factor(context, n, {own.data(), rows, n}); });
  CHECK(singular.code() == Code::outcome);
  CHECK(singular.position() == 17);
  CHECK(everywhere(own == part(a, n, list, n, 0.0)));
}

TEST_CASE("a factor with check sums, and one on a part of the ranks") {
  terrace::Options guarded = wanted();
  guarded.guard = true;
  Context context(MPI_COMM_WORLD, guarded);
  const Index n = 90;
  const std::vector<double> a = random_matrix(n, n, 51);
  {
    const Rows rows = share(n, 2);
    const std::vector<double> own = part(a, n, held(n, rows), n, 0.0);
    const Factor factor(context, n, {own.data(), rows, n});
    check_solve(factor, n, a, 70, 1, 52);
  }
  MPI_Comm alone = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me, 0, &alone);
  {
    Context single(alone, wanted());
    const Factor factor(single, n, {a.data(), Rows::all(n), n});
    std::vector<double> x = random_matrix(n, 2, 53);
    const std::vector<double> b = x;
    factor.solve({x.data(), Rows::all(n), 2});
    CHECK(residual(n, 2, a, x, b) < 1e-9);
  }
  MPI_Comm_free(&alone);
}

TEST_CASE("what a matrix is taken for: by Cholesky where that holds, by LU where not") {
  using terrace::dense::Assume;
  Context context = group();
  for (const auto& [n, kind] : {std::pair<Index, int>{0, 0}, {1, 1}, {30, 0}, {130, 2}}) {
    const Rows rows = share(n, kind);
    const std::vector<Index> list = held(n, rows);
    const Index right = 3;
    const std::vector<double> m = random_matrix(n, n, 81), b = random_matrix(n, right, 82);
    std::vector<double> spd(m.size(), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j)
        spd[std::size_t(i * n + j)] = (m[std::size_t(i * n + j)] + m[std::size_t(j * n + i)]) +
                                      (i == j ? 2.0 * double(n) : 0);
    std::vector<double> unsymmetric = spd, indefinite = spd;
    if (n > 1) unsymmetric[std::size_t(n - 1)] += 1e-9;
    for (Index i = n / 2; i < n; ++i) indefinite[std::size_t(i * n + i)] -= 4.0 * double(n);
    for (const auto assume : n == 30 ? std::vector<Assume>{Assume::spd, Assume::automatic}
                                     : std::vector<Assume>{Assume::spd})
      for (const auto* const a : {&spd, &unsymmetric, &indefinite}) {
        const std::vector<double> own = part(*a, n, list, n + 1, 1e300);
        std::vector<double> x = part(b, right, list, right, 0.0);
        const auto report = terrace::dense::solve(context, n, {own.data(), rows, n, n + 1},
                                                  {x.data(), rows, right}, assume);
        CHECK(residual(n, right, *a, whole(n, right, list, x, right), b) < 1e-9);
        CHECK(std::fabs(report.log_abs_determinant - determinant(n, *a).first) < 1e-8);
        CHECK(report.determinant_sign == determinant(n, *a).second);
        CHECK(report.residual < 30);
        CHECK(report.reciprocal_condition > 1e-3);
        const bool fell =
            assume == Assume::spd && n > 0 && (a == &indefinite || (a == &unsymmetric && n > 1));
        if (assume != Assume::automatic) CHECK(report.warnings.size() == (fell ? 1 : 0));
        if (fell)
          CHECK(report.warnings[0].find(a == &unsymmetric
                                            ? "not symmetric"
                                            : "not positive definite") != std::string::npos);
      }
  }
  terrace::dense::Options emulated;
  emulated.emulated = true;
  double a = 1, x = 1;
  const Rows rows = share(1, 0);
  CHECK(error_of([&] {
          terrace::dense::solve(context, 1, {&a, rows, 1}, {&x, rows, 1}, Assume::spd, emulated);
        }).code() == Code::usage);
}

TEST_CASE("a factor is saved, and solves with what was read") {
  Context context = group();
  for (const Index n : {1, 61}) {
    const FileName name("library_factor");
    const Rows rows = share(n, 0), other = Rows::cyclic(4);
    const std::vector<double> a = random_matrix(n, n, 61), b = random_matrix(n, 67, 62);
    const std::vector<double> own = part(a, n, held(n, rows), n, 0.0);
    const std::vector<double> others = part(a, n, held(n, other), n + 1, 0.0);
    const Factor factor(context, n, {own.data(), rows, n});
    std::vector<double> x = part(b, 67, held(n, rows), 67, 0.0), y = x;
    factor.solve({x.data(), rows, 67});
    terrace::hdf5::Output file(context, *name);
    file.write_factor("factor", factor, "made.h5:/A");  // after it has solved
    file.commit();
    const Factor again =
        terrace::hdf5::read_factor(context, name.at("/factor"), {others.data(), other, n, n + 1});
    CHECK(again.report().log_abs_determinant == factor.report().log_abs_determinant);
    CHECK(again.report().determinant_sign == factor.report().determinant_sign);
    CHECK(again.report().reciprocal_condition > 0);
    CHECK(std::fabs(std::log(again.report().reciprocal_condition /
                             factor.report().reciprocal_condition)) < std::log(25.0));
    again.solve({y.data(), rows, 67});
    CHECK(residual(n, 67, a, whole(n, 67, held(n, rows), y, 67), b) < 1e-9);
    CHECK(error_of([&] {
            terrace::hdf5::read_factor(context, name.at("/factor"), {own.data(), rows, n + 1});
          }).code() == Code::usage);
    const Factor bare = terrace::hdf5::read_factor(context, name.at("/factor"));
    CHECK(error_of([&] { bare.solve({y.data(), rows, 67}); }).code() == Code::usage);
    context.options().check = false;
    y = part(b, 67, held(n, rows), 67, 0.0);
    CHECK(bare.solve({y.data(), rows, 67}).residual == 0);
    CHECK(residual(n, 67, a, whole(n, 67, held(n, rows), y, 67), b) < 1e-9);
    context.options().check = true;
    CHECK(error_of([&] { terrace::hdf5::read_factor(context, name.at("/pivots")); }).code() ==
          Code::input);
  }
}

TEST_CASE("files and factors in C") {
  const FileName name("library_factor_c");
  terrace_options options = {};
  const char* const backend = std::getenv("TERRACE_API_BACKEND");
  options.backend = backend && std::string(backend) == "cuda" ? TERRACE_CUDA : TERRACE_AUTOMATIC;
  terrace_context* context = nullptr;
  REQUIRE(terrace_open(MPI_COMM_WORLD, &options, &context) == TERRACE_DONE);
  const Index n = 33, right = 2, columns = 70, words = 2, m = 3;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  const std::vector<double> a = random_matrix(n, n, 71), b = random_matrix(n, right, 72);
  const std::vector<Word> bits = random_bits(n, columns, 73);
  const Band band = random_band(n, m, 74);
  const std::vector<double> own = part(a, n, list, n, 0.0);
  const std::vector<Word> own_bits = part(bits, words, list, words, Word(0));
  std::vector<Index> start{0}, column;
  std::vector<double> value;
  for (const Index i : list) {
    for (Index j = 0; j < n; ++j)
      if (const double v = band.dense[std::size_t(i * n + j)]; v != 0)
        column.push_back(j), value.push_back(v);
    start.push_back(Index(column.size()));
  }
  terrace_dense_factor* factor = nullptr;
  terrace_report report;
  REQUIRE(terrace_dense_factor_make(context, n, rows.first, rows.count, own.data(), 0, &factor,
                                    &report) == TERRACE_DONE);
  CHECK(std::fabs(report.log_abs_determinant - determinant(n, a).first) < 1e-9);

  terrace_hdf5_output* file = nullptr;
  REQUIRE(terrace_hdf5_create(context, (*name).c_str(), 0, &file) == TERRACE_DONE);
  CHECK(terrace_hdf5_write(file, "A", n, rows.first, rows.count, n, own.data(), 0, 0) == 0);
  CHECK(terrace_hdf5_write_bits(file, "bits", n, rows.first, rows.count, columns, own_bits.data(),
                                0) == 0);
  CHECK(terrace_hdf5_write_band(file, "band", n, m, rows.first, rows.count,
                                band.lower.data() + rows.first, n, 0, 0) == 0);
  CHECK(terrace_hdf5_write_csr(file, "csr", n, rows.first, rows.count, start.data(), column.data(),
                               value.data()) == 0);
  CHECK(terrace_hdf5_write_factor(file, "factor", factor, nullptr) == 0);
  CHECK(terrace_hdf5_commit(file) == TERRACE_DONE);
  terrace_hdf5_close(file);
  terrace_dense_factor_free(factor);
  CHECK(terrace_hdf5_create(context, (*name).c_str(), 0, &file) == TERRACE_USAGE);

  terrace_shape shape;
  CHECK(terrace_hdf5_look(context, name.at("/bits").c_str(), &shape) == TERRACE_DONE);
  CHECK((shape.kind == TERRACE_BITS && shape.rows == n && shape.columns == columns));
  CHECK(terrace_hdf5_look(context, name.at("/csr").c_str(), &shape) == TERRACE_DONE);
  CHECK((shape.kind == TERRACE_CSR && shape.nonzeros == n * (2 * m + 1) - m * (m + 1)));
  CHECK(terrace_hdf5_look(context, name.at("/none").c_str(), &shape) == TERRACE_INPUT);
  std::vector<double> back(own.size()), ab(std::size_t(rows.count * (m + 1)));
  CHECK(terrace_hdf5_read(context, name.at("/A").c_str(), rows.first, rows.count, n, back.data(),
                          0) == TERRACE_DONE);
  CHECK(everywhere(back == own));
  std::vector<Word> bits_back(own_bits.size());
  CHECK(terrace_hdf5_read_bits(context, name.at("/bits").c_str(), rows.first, rows.count, columns,
                               bits_back.data(), 0) == TERRACE_DONE);
  CHECK(everywhere(bits_back == own_bits));
  CHECK(terrace_hdf5_read_band(context, name.at("/band").c_str(), rows.first, rows.count,
                               ab.data()) == TERRACE_DONE);
  bool same = true;
  for (Index j = 0; j < rows.count; ++j)
    for (Index d = 0; d <= m; ++d) {
      const Index i = rows.first + j + d;
      same &= ab[std::size_t(j * (m + 1) + d)] ==
              (i < n ? band.dense[std::size_t(i * n + rows.first + j)] : 0.0);
    }
  CHECK(everywhere(same));
  Index *starts = nullptr, *places = nullptr;
  double* values = nullptr;
  REQUIRE(terrace_hdf5_read_csr(context, name.at("/csr").c_str(), rows.first, rows.count, &starts,
                                &places, &values) == TERRACE_DONE);
  CHECK(everywhere(std::equal(start.begin(), start.end(), starts) &&
                   std::equal(column.begin(), column.end(), places) &&
                   std::equal(value.begin(), value.end(), values)));
  for (void* const memory : {(void*)starts, (void*)places, (void*)values}) terrace_free(memory);

  REQUIRE(terrace_hdf5_read_factor(context, name.at("/factor").c_str(), n, rows.first, rows.count,
                                   own.data(), 0, &factor, nullptr) == TERRACE_DONE);
  std::vector<double> x = part(b, right, list, right, 0.0);
  CHECK(terrace_dense_factor_solve(factor, rows.first, rows.count, right, x.data(), 0, &report) ==
        TERRACE_DONE);
  CHECK(report.residual < 30);
  CHECK(residual(n, right, a, whole(n, right, list, x, right), b) < 1e-9);
  terrace_dense_factor_free(factor);
  terrace_close(context);
}
