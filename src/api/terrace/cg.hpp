// Conjugate gradients for symmetric positive definite matrices: dense, band, CSR, or your own
// product.
#pragma once
#include <terrace/band.hpp>
#include <terrace/context.hpp>

TERRACE_API_BEGIN

namespace cg {

struct Options {
  double rtol = 1e-10, atol = 0;          ///< ||b - A x|| <= max(rtol ||b||, atol)
  std::int64_t max_iterations = -1;       ///< negative: 10 n + 1000
  std::string preconditioner = "none";    ///< jacobi, block-jacobi, chebyshev; ic, amg (CSR, band)
  std::int64_t block = 32;                ///< of block-jacobi
  std::int64_t degree = 8;                ///< of chebyshev
  std::string norm = "unpreconditioned";  ///< preconditioned, natural
  bool start_given = false;               ///< x holds a start; else it is zero
  /// Of amg: vectors that A takes near zero, n x k on the host, in place of constants; as the rigid body
  /// modes of an elastic body, 3 in the plane, 6 in space. Not dependent; k up to 32; 0: constants.
  Local<const double> near_null_space;
  /// After each iteration, on every rank; false stops: Code::stopped. Called on all ranks alike.
  std::function<bool(std::int64_t iteration, double relative_residual)> observe;
  /// Of csr() and band(): iterations read half of each entry, 4 bytes that are kept beside it; residuals
  /// on the way are of A, and so is what is promised.
  bool mixed = false;
};

struct Result {
  bool converged = false;
  std::string reason;  ///< "rtol", "max-iterations", "indefinite-matrix", ...
  std::int64_t iterations = 0;
  double residual = 0;         ///< ||b - A x|| / ||b||, computed from the matrix at the end
  double scaled_residual = 0;  ///< ||b - A x|| / (n ||A|| ||x|| eps), maximum norms
  double setup_seconds = 0;    ///< to make the preconditioner; 0 where it was there
};

/// A matrix ready for products, with all that was found about it. Made on all ranks together. It keeps
/// the preconditioner of its last solve for the next one that asks for the same.
class TERRACE_API Operator {
 public:
  ~Operator();
  Operator(Operator&&) noexcept;
  Operator& operator=(Operator&&) noexcept;
  [[nodiscard]] std::int64_t n() const;
  /// b and x: n x columns; x := the solution, one result for each column.
  std::vector<Result> solve(Local<const double> b, Local<double> x, const Options& = {});

  /// Other values in the same places: what was found about the places stays, the aggregates of amg among
  /// it, whose coarse matrices are made again by the next solve. Throws as the maker; then
  /// the values are unknown, and have to be given again. Of csr(): this rank's, in the order in which
  /// its rows were given, each of which had ascending columns, none twice (else Code::usage).
  void update_values(const double* value);
  void update_values(Local<const double> a);  ///< of dense()
  void update_values(const band::Matrix& a);  ///< of band(): of the same half-bandwidth

  struct Inside;
  explicit Operator(std::unique_ptr<Inside> inside);

 private:
  std::unique_ptr<Inside> inside_;
};

/// Rows `rows` (a range) of a CSR matrix of order n in host memory: row i's entries are
/// start[i] - start[0] .. start[i + 1] - start[0] - 1 of `column` (zero-based, of the whole matrix, in
/// any order, duplicates added) and `value`. Both triangles; throws Code::input where they differ.
TERRACE_API Operator csr(Context& context, std::int64_t n, Rows rows, const std::int64_t* start,
                         const std::int64_t* column, const double* value);
TERRACE_API Operator csr(Context& context, std::int64_t n, Rows rows, const std::int32_t* start,
                         const std::int32_t* column, const double* value);
TERRACE_API Operator dense(Context& context, std::int64_t n, Local<const double> a);
TERRACE_API Operator band(Context& context, std::int64_t n, const band::Matrix& a);

/// Your own product: product(p, q) sets q to this rank's rows (a range) of A p, of which it gets this
/// rank's rows. It is called on all ranks at the same time, in the calling thread, and may
/// communicate. Host memory, CPU backend. `diagonal`: this rank's part, for jacobi; or null. A is not
/// looked at: it has to be symmetric and positive definite, and not of extreme scale.
using Product = std::function<void(const double* p, double* q)>;
TERRACE_API Operator user(Context& context, std::int64_t n, Rows rows, Product product,
                          const double* diagonal = nullptr);

}  // namespace cg

TERRACE_API_END
