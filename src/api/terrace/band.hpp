// Symmetric positive definite band matrices: systems, Cholesky factors that solve again,
// log-determinant; in memory of the devices, or streamed through it where it does not fit.
#pragma once
#include <terrace/context.hpp>

TERRACE_API_BEGIN

namespace band {

enum class Uplo { lower, upper };

/// A band of half-bandwidth m and order n, m + 1 numbers for each column, as SciPy and LAPACK hold
/// one:
///   diagonals   number d of column j at data[d * ld + j - first]   SciPy, rows of diagonals; ld >= count
///   columns     number d of column j at data[(j - first) * ld + d] LAPACK's ab(d + 1, j + 1); ld > m
///   lower       number d of column j is A[j + d, j]
///   upper       number d of column j is A[j - m + d, j]
/// Numbers outside the matrix are not read. `columns` are this rank's, a range.
struct Matrix {
  const double* data = nullptr;
  std::int64_t half_bandwidth = 0;
  Rows columns;
  enum Layout { diagonals, by_columns } layout = diagonals;
  Uplo uplo = Uplo::lower;
  std::int64_t ld = 0;  ///< 0: the least
  Where where = Where::host;
};

struct Report {
  double residual = 0;  ///< scaled; good below 30; 0 unchecked
  double log_abs_determinant = 0;
  double log_abs_determinant_error = 0;  ///< standard error: of mixed precision alone
  double reciprocal_condition = 1;       ///< at most
  std::string method;                    ///< "tile-columns", "partition", "streamed", ...
  std::vector<std::string> warnings;
  Seconds seconds;
};

struct Options {
  std::string method = "auto";  ///< as the program's --method
  bool mixed = false;           ///< in mixed precision where that is possible
};

/// b := X with A X = B, n x b.columns. Throws Code::outcome with the leading minor when A is not
/// positive definite, and leaves b as it was.
TERRACE_API Report solve(Context& context, std::int64_t n, const Matrix& a, Local<double> b,
                         const Options& = {});

/// The Cholesky factor of a matrix, kept over the ranks where and as it was made, in parts on a
/// device, say: 8 n (m + 1) to 16 n (m + 1) bytes, and a copy of the matrix. Where memory has no room
/// for that, a solve streams the band, and the factor lies in slices on the host.
class TERRACE_API Factor {
 public:
  /// Collective, as are its members. Throws as solve().
  Factor(Context& context, std::int64_t n, const Matrix& a, const Options& = {});
  ~Factor();
  Factor(Factor&&) noexcept;
  Factor& operator=(Factor&&) noexcept;
  /// b := X with A X = B; against the matrix that is remembered where Options::check says so.
  Report solve(Local<double> b) const;
  [[nodiscard]] const Report& report() const;
  [[nodiscard]] double log_determinant() const { return report().log_abs_determinant; }
  /// This rank's columns of L, lower, by columns of m + 1 numbers, in host memory. The first call makes
  /// LAPACK's factor, which is one from one end, where that is not the one that solves.
  [[nodiscard]] Matrix view() const;

  struct Inside;

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace band

TERRACE_API_END
