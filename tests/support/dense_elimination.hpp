// One elimination by RowElimination from a whole matrix to a whole result, and what it reports.
#pragma once
#include "src/dense/check.hpp"
#include "src/dense/elimination.hpp"
#include "tests/support/bits.hpp"
#include "tests/support/dense.hpp"
#include "tests/support/dense_reference.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

using Values = std::vector<double>;

inline constexpr Index usual_block = 16;
inline const std::vector<std::string> both{"partial", "tournament"};

/// Every fifth of the cases under ThreadSanitizer: the order of work is the same in all.
template <class T>
std::vector<T> some(std::vector<T> all) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!fewer_cases || i % 5 == 2 || all.size() < 3) all[kept++] = all[i];
  all.resize(kept, all.front());
  return all;
}

struct Found {
  dense::EliminationOutcome outcome;
  Values x;      // n x columns, on all ranks; empty unless good
  Order pivots;  // row that became the pivot of column j
  double reciprocal_condition = 0;
  dense::InverseResidual residual;  // as dense_check reports it

  bool operator==(const Found& other) const {
    return x == other.x && pivots == other.pivots &&
           outcome.bad_column == other.outcome.bad_column &&
           outcome.overflow == other.outcome.overflow &&
           outcome.log_abs_determinant == other.outcome.log_abs_determinant &&
           outcome.determinant_sign == other.outcome.determinant_sign;
  }
};

inline dense::RowReader rows_of(const Dense& a) {
  return [&a](std::span<const Range> ranges, const io::Sink<double>& sink) {
    Index position = 0;
    for (const Range& range : ranges) {
      if (range.count > 0) sink(position, range.count, a.values.data() + range.first * a.n);
      position += range.count;
    }
  };
}

/// Inverse, or the solution for `right` columns b.
template <class B>
Found eliminated(Context<B>& context, const Dense& a, Index block, const std::string& pivoting,
                 Index right = 0, const Values& b = {}) {
  const Index n = a.n;
  const bool inverse = right == 0;
  dense::RowElimination<B> method(
      context, dense::plan_elimination<B>(context.size(), n, right, inverse, block, pivoting));
  Values row(static_cast<std::size_t>(method.ld()), 0.0);
  const auto global = [&](Index slot) { return method.plan().rows.global(slot, context.rank()); };
  for (Index s = 0; s < method.slots(); ++s) {
    std::copy_n(a.values.begin() + global(s) * n, n, row.begin());
    std::copy_n(b.begin() + global(s) * right, right, row.begin() + n);
    upload(context.ahead, method.data().slice(s * method.ld(), method.ld()),
           static_cast<const double*>(row.data()));
    context.ahead.synchronize();
  }
  Progress silent(false, false);
  Found found;
  found.outcome = method.run(silent);
  if (!found.outcome.good()) return found;
  const Index columns = inverse ? n : right, from = inverse ? 0 : n;
  found.x.assign(std::size_t(n * columns), 0.0);
  found.pivots.assign(std::size_t(n), 0);
  for (Index s = 0; s < method.slots(); ++s) {
    const Index place = method.destination()[std::size_t(s)];
    found.pivots[std::size_t(place)] = global(s);
    download(context.ahead, row.data(), method.data().slice(s * method.ld(), method.ld()));
    context.ahead.synchronize();
    std::copy_n(row.begin() + from, columns, found.x.begin() + place * columns);
  }
  context.control.reduce(found.x, Reduce::sum);
  context.control.reduce(found.pivots, Reduce::sum);
  if (inverse && n > 0) {
    found.reciprocal_condition =
        1.0 / norm_of_inverse(context, dense::Norm::one, dense::InverseRows<B>(method)) /
        norm_one(a);
    double largest = 0;
    for (const double v : a.values) largest = std::max(largest, std::fabs(v));
    found.residual = check_inverse(context, dense::InverseRows<B>(method), rows_of(a),
                                   std::ldexp(1.0, -std::ilogb(largest)));
  }
  return found;
}

inline Dense as_dense(Index n, const Values& x) {
  Dense d(n);
  d.values = x;
  return d;
}

}  // namespace terrace::test
