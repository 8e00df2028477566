// General dense matrices of doubles: inverse by Gauss-Jordan elimination; systems, factors that solve
// again and determinants by LU; with partial pivoting, distributed over all ranks.
#pragma once
#include <terrace/context.hpp>

TERRACE_API_BEGIN

namespace dense {

struct Report {
  double residual = 0;  ///< LAPACK's ratio, good below 30; 0 unchecked
  /// In 1-norms of an inverse; of a solution an estimate within a factor of 5.
  double reciprocal_condition = 0;
  double log_abs_determinant = 0;
  int determinant_sign = 1;
  std::vector<std::string> warnings;  ///< "the reciprocal condition is ..."
  Seconds seconds;
};

struct Options {
  std::int64_t block = 0;  ///< width of a panel; 0: chosen
  bool emulated = false;   ///< products by integers, as accurate as FP64; CUDA
};

/// a := its inverse, row i where row i of A was. 2 n^3 flops, 8 n^2 bytes over all ranks beside your
/// own. Throws Code::outcome with the column when A is singular, and leaves `a` as it was.
TERRACE_API Report invert(Context& context, std::int64_t n, Local<double> a, const Options& = {});

/// b := X with A X = B; `a` is not changed. 2/3 n^3 + 2 n^2 b.columns flops. Throws as invert().
TERRACE_API Report solve(Context& context, std::int64_t n, Local<const double> a, Local<double> b,
                         const Options& = {});

/// What a matrix is taken for: a general one; symmetric (both triangles, bit by bit) and positive
/// definite; that where a few rows, read for this, look so.
enum class Assume { general, spd, automatic };
/// The same, by Cholesky where that is assumed: half the flops. By LU with a warning where it does not
/// hold. A device's matrix passes the host. Not emulated.
TERRACE_API Report solve(Context& context, std::int64_t n, Local<const double> a, Local<double> b,
                         Assume assume, const Options& = {});

/// The determinant, as solve() finds it; a singular matrix has sign 0 and no Error.
TERRACE_API Report determinant(Context& context, std::int64_t n, Local<const double> a,
                               const Options& = {});

/// L and U with P A = L U, or L with A = L L^T, kept over the ranks where the elimination worked: on
/// the devices, or in host memory. 8 n^2 bytes, and as many for a copy of A, where A was, if
/// Options::check says so.
class TERRACE_API Factor {
 public:
  /// Collective; `a` is not changed, and not needed any more. 2/3 n^3 flops. Throws as invert().
  /// Not emulated.
  Factor(Context& context, std::int64_t n, Local<const double> a, const Options& = {});
  /// The same, by Cholesky where that is assumed, as solve(); method() says which it became.
  Factor(Context& context, std::int64_t n, Local<const double> a, Assume assume,
         const Options& = {});
  ~Factor();
  Factor(Factor&&) noexcept;
  Factor& operator=(Factor&&) noexcept;
  /// b := X with A X = B, for any number of columns, none too; rows as you like, each time. 2 n^2
  /// b.columns flops. Determinant and condition are those of report().
  Report solve(Local<double> b) const;
  /// Determinant, condition, and the residual of a test with one right-hand side.
  [[nodiscard]] const Report& report() const;
  [[nodiscard]] std::string method() const;  ///< "lu" or "cholesky"

  struct Inside;
  explicit Factor(std::unique_ptr<Inside> inside);  ///< hdf5::read_factor() makes one
  [[nodiscard]] Inside& inside() const;

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace dense

TERRACE_API_END
