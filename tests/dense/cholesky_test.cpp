// Whether a dense matrix is Cholesky's, and its lower half.
#include "src/dense/cholesky.hpp"

#include <cmath>
#include <vector>

#include "distrib/layout.hpp"
#include "kernels/base/random.hpp"
#include "kernels/dense/probes.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;

namespace {

using Matrix = std::vector<double>;

Matrix symmetric_matrix(Index n) {
  Matrix a(std::size_t(n * n));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      a[std::size_t(i * n + j)] =
          random_uniform(7, std::max(i, j), std::min(i, j)) + (i == j ? double(n) : 0.0);
  return a;
}

/// Pieces of five rows.
RowReader reader(const Matrix& a, Index n, Index* rows_read = nullptr) {
  return [&a, n, rows_read](std::span<const Range> ranges, const io::Sink<double>& sink) {
    Index position = 0;
    for (const Range& range : ranges)
      for (Index first = range.first; first < range.end(); first += 5) {
        const Index count = std::min<Index>(5, range.end() - first);
        sink(position, count, a.data() + first * n);
        position += count;
        if (rows_read) *rows_read += count;
      }
  };
}

/// Reads the columns of this rank, dealt in blocks of three; counts those that are wrong.
Index read_columns(const Control& control, const RowReader& columns, const Matrix& a, Index n) {
  const BlockCyclic own{n, 3, control.size()};
  Index wrong = 0;
  columns(own.ranges(control.rank()), [&](Index position, Index count, const double* data) {
    for (Index k = 0; k < count; ++k) {
      const Index j = own.global(position + k, control.rank());
      for (Index d = 0; d < n; ++d)
        wrong += data[k * n + d] != (j + d < n ? a[std::size_t(j * n + j + d)] : 0.0);
    }
  });
  return control.reduce(wrong, Reduce::sum);
}

}  // namespace

TEST_CASE("columns of the lower half come from rows, and symmetry is seen on the way") {
  const Control& control = test::world();
  for (const Index n : {1, 2, 7, 8, 15, 16, 17, 31, 33, 100}) {
    Matrix a = symmetric_matrix(n);
    if (n > 2) a[std::size_t(n + 2)] = -0.0, a[std::size_t(2 * n + 1)] = 0.0;  // equal numbers
    Index rows_read = 0;
    SymmetricMatrix good(control, n, reader(a, n, &rows_read));
    CHECK_ALL(read_columns(control, good.columns(), a, n) == 0);
    CHECK_ALL(good.is_symmetric());
    CHECK_ALL(control.reduce(rows_read, Reduce::sum) == n);
    CHECK_ALL(read_columns(control, good.columns(), a, n) == 0);  // as a check does
    CHECK_ALL(good.is_symmetric());
    CHECK_ALL(!good.refused(0) && good.refused(n)->minor == n);
    for (const auto& [i, j] : {std::pair<Index, Index>{0, n - 1}, {n - 1, 0}, {n / 2, n - 1}}) {
      if (i == j) continue;
      Matrix off = a;
      double& entry = off[std::size_t(i * n + j)];
      entry = std::nextafter(entry, 1e9);
      SymmetricMatrix bad(control, n, reader(off, n));
      (void)read_columns(control, bad.columns(), off, n);
      CHECK_ALL(!bad.is_symmetric());
      CHECK_ALL(bad.refused(5)->minor == 0 && bad.refused(0)->words() == "not symmetric");
    }
  }
}

TEST_CASE("what was read in part is read once more for symmetry") {
  const Control& control = test::world();
  for (const Index n : {2, 5, 40}) {  // ranks without rows, too
    Matrix a = symmetric_matrix(n);
    a[std::size_t(n - 1)] += 1;
    Index rows_read = 0;
    SymmetricMatrix bad(control, n, reader(a, n, &rows_read));
    const Range some{0, control.rank() == 0 ? n / 2 : 0};
    bad.columns()({&some, 1}, [](Index, Index, const double*) {});
    CHECK_ALL(!bad.is_symmetric());
    CHECK_ALL(control.reduce(rows_read, Reduce::sum) == n / 2 + n);
  }
}

TEST_CASE("a few rows tell general matrices") {
  const Control& control = test::world();
  for (const Index n : {1, 5, 60}) {
    Matrix a = symmetric_matrix(n);
    CHECK_ALL(SymmetricMatrix(control, n, reader(a, n)).looks_definite());
    a[0] = 0;
    CHECK_ALL(!SymmetricMatrix(control, n, reader(a, n)).looks_definite());
    for (double& x : a) x = random_uniform(9, &x - a.data(), 0);
    if (n > 1) CHECK_ALL(!SymmetricMatrix(control, n, reader(a, n)).looks_definite());
  }
}

TEST_CASE("the condition of a diagonal matrix of any size comes from solves") {
  const Control& control = test::world();
  const Index n = 50;
  for (const double scale : {1.0, 0x1p-1000, 0x1p1015, 1e-200, 1e300}) {
    Matrix a(std::size_t(n * n), 0.0);
    for (Index i = 0; i < n; ++i) a[std::size_t(i * n + i)] = scale * std::exp2(-double(i));
    SymmetricMatrix matrix(control, n, reader(a, n));
    CHECK_ALL(read_columns(control, matrix.columns(), a, n) == 0);
    const BlockCyclic own{n, 3, control.size()};
    const std::vector<Range> ranges = own.ranges(control.rank());
    const double found = matrix.reciprocal_condition(ranges, [&](std::vector<double>& rows) {
      for (Index s = 0; s < Index(rows.size()); ++s) {
        const Index i = own.global(s / condition_probes, control.rank());
        rows[std::size_t(s)] /= a[std::size_t(i * n + i)];
      }
    });
    CAPTURE(scale, found * std::exp2(n - 1));
    CHECK_ALL(found > std::exp2(1 - n) / 6 && found < std::exp2(1 - n) * 6);
  }
}
