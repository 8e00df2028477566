// Residuals of inverses and solutions against the input read again, sharing nothing with the
// solver.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "distrib/context.hpp"
#include "io/input.hpp"
#include "src/gauss_jordan.hpp"

namespace terrace {

/// Delivers rows of A (or B) of the named ranges; collective. io::DenseInput::read or a generator.
using RowReader = std::function<void(std::span<const Range>, const io::Sink<double>&)>;

/// Scaled as LAPACK's dget03: / (n ||A|| ||X|| eps).
struct InverseResidual {
  double right = 0;  ///< A X - I
  double left = 0;   ///< X A - I
  std::string kind;  ///< "exact, 1-norm" or "16 probe vectors, infinity norm"
};

/// Exact (1-norm) up to n = 4096, from 16 vectors of random signs (infinity norm) above.
/// `x` holds the inverse after run(). `scale` is about 1 / max |A|, against overflow. Collective.
template <class B>
InverseResidual check_inverse(Context<B>& context, const GaussJordan<B>& x, const RowReader& read_a,
                              double scale);

/// Largest over the right-hand sides of ||B - A X|| / (n ||A|| ||X|| eps), infinity norms.
/// `own_rows(first, count, out)` puts this rank's rows of columns [first, first + count) of X into
/// `out` (n x count, zero on entry); `ranges` are the rows whose residual this rank computes; A is
/// read once for every 64 right-hand sides. Collective.
template <class B>
double check_solution(Context<B>& context, Index n, Index right, std::span<const Range> ranges,
                      const std::function<void(Index, Index, double*)>& own_rows,
                      const RowReader& read_a, const RowReader& read_b, double scale);

/// ||X||_1 and ||X||_infinity of the n columns after run(). Collective.
template <class B>
std::pair<double, double> norms_of_inverse(Context<B>& context, const GaussJordan<B>& x);

}  // namespace terrace
