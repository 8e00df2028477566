// Residuals of inverses and solutions against the input read again, sharing nothing with the
// solver.
#pragma once
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/input.hpp"
#include "src/frame/kept_input.hpp"

namespace terrace::dense {

/// Delivers rows of A (or B) of the named ranges; collective. io::DenseInput::read, a generator, or
/// memory of somebody's, which may be a device's.
class RowReader {
 public:
  using Read = std::function<void(std::span<const Range>, const io::Sink<double>&)>;
  RowReader() = default;
  /// To the host, always.
  template <class F, class = std::enable_if_t<
                         std::is_invocable_v<F&, std::span<const Range>, const io::Sink<double>&> &&
                         !std::is_same_v<std::decay_t<F>, RowReader>>>
  RowReader(F read) : read_(std::move(read)) {}  // NOLINT(google-explicit-constructor)
  /// `copyable`: for sinks that do nothing but copy; rows may lie on a device.
  RowReader(Read read, Read copyable) : read_(std::move(read)), copyable_(std::move(copyable)) {}

  /// Rows lie on the host.
  void operator()(std::span<const Range> ranges, const io::Sink<double>& sink) const {
    read_(ranges, sink);
  }
  /// Rows lie where copy_rows() and upload() take them from.
  void for_copying(std::span<const Range> ranges, const io::Sink<double>& sink) const {
    (copyable_ ? copyable_ : read_)(ranges, sink);
  }

 private:
  Read read_, copyable_;
};

/// LAPACK's: a residual, scaled as below, that is good.
inline constexpr double residual_limit = 30;
/// 1 / (a b), zero where that is no number.
inline double safe_reciprocal(double a, double b) {
  const double value = 1.0 / a / b;
  return std::isfinite(value) ? value : 0.0;
}

/// An inverse as its solver left it: row destination[slot] of A^-1 stands in `slot`.
template <class B>
struct InverseRows {
  Index n = 0, slots = 0, ld = 0;
  BlockCyclic rows;  ///< rows of A that a rank computes residuals for, as many as its slots
  View<double, B> data;
  std::span<const Index> destination;

  /// Of a RowElimination or TextbookInverse after run(), which must outlive this.
  template <class Solver>
  InverseRows(const Solver& x)  // NOLINT(google-explicit-constructor)
      : n(x.plan().n),
        slots(x.slots()),
        ld(x.ld()),
        rows(x.plan().rows),
        data(x.data()),
        destination(x.destination()) {}
};

/// Scaled as LAPACK's dget03: / (n ||A|| ||X|| eps).
struct InverseResidual {
  double right = 0;  ///< A X - I
  double left = 0;   ///< X A - I
  std::string kind;  ///< "exact, 1-norm" or "32 probe vectors, infinity norm"
};

/// Whether the residual is exact though nobody asks for it.
inline bool is_checked_exactly(Index n) { return n <= 1024; }
/// Exact (1-norm) where is_checked_exactly() or `exact` asks for it, 4 n^3 flops; else from 32
/// vectors of random signs (infinity norm), those of `seed`. `scale` is about 1 / max |A|, against
/// overflow. `kept`: this rank's rows of A, those of x.rows, for the latter in place of read_a.
/// Collective.
template <class B>
InverseResidual check_inverse(Context<B>& context, const std::type_identity_t<InverseRows<B>>& x,
                              const RowReader& read_a, double scale, bool exact = false,
                              Word seed = 1,
                              std::type_identity_t<const KeptInput<B>*> kept = nullptr);
/// Backend bytes that the exact one takes beside the inverse, of at most `slots` rows per rank.
Index exact_check_bytes(Index n, Index slots);

/// Largest over the right-hand sides of ||B - A X|| / (n ||A|| ||X|| eps), infinity norms.
/// `own_rows(first, count, out)` puts this rank's rows of columns [first, first + count) of X into
/// `out` (n x count, zero on entry); `ranges` are the rows whose residual this rank computes; A is
/// read once for every 64 right-hand sides; `kept` as above, those of `ranges`. Collective.
template <class B>
double check_solution(Context<B>& context, Index n, Index right, std::span<const Range> ranges,
                      const std::function<void(Index, Index, double*)>& own_rows,
                      const RowReader& read_a, const RowReader& read_b, double scale,
                      std::type_identity_t<const KeptInput<B>*> kept = nullptr);

enum class Norm { one, infinity };
/// Of A, whose rows the ranks hold, n columns. Collective.
template <class B>
double norm_of_rows(Context<B>& context, Norm norm, Index slots, Index n,
                    std::type_identity_t<View<const double, B>> a, Index ld);
template <class B>
double norm_of_inverse(Context<B>& context, Norm norm,
                       const std::type_identity_t<InverseRows<B>>& x) {
  return norm_of_rows<B>(context, norm, x.slots, x.n, x.data, x.ld);
}

}  // namespace terrace::dense
