// What the checks of results over the reals share: blocks of vectors, products with a stored matrix
// of any size of numbers, residuals scaled as LAPACK scales them.
#pragma once
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "distrib/agree.hpp"
#include "src/commands/verify.hpp"

namespace terrace {

inline constexpr double threshold = 30;
inline constexpr double eps = std::numeric_limits<double>::epsilon();
inline constexpr Index probes = 16;

/// n x k, row-major, whole on every rank.
struct Block {
  Index n = 0, k = 0;
  std::vector<double> data;
  Block(const ResultFile& result, Index rows, Index columns) : n(rows), k(columns) {
    data = collectively(result.control, [&] { return std::vector<double>(std::size_t(n * k)); });
  }
  double* row(Index i) { return data.data() + i * k; }
  [[nodiscard]] const double* row(Index i) const { return data.data() + i * k; }
};

/// The largest size, or NaN.
double largest(const std::vector<double>& v);
/// The Block of a stored vector or matrix.
Block read_block(const ResultFile& result, const io::DenseInput& input);
Block random_block(const ResultFile& result, Index n, Index k);
/// to += factor from, k numbers.
void add_scaled(double* to, const double* from, double factor, Index k);

/// y = 2^power A x for any kind of matrix, y whole on every rank, and the infinity norm of
/// 2^power A.
struct Product {
  Block y;
  long double norm = 0;  // rows of large entries add up to more than doubles hold
  double largest = 0;    // of A itself
  Index power = 0;
};
Product dense_times(const ResultFile& result, const io::DenseInput& a, const Block& x,
                    Index power = 0);
/// Symmetric A from its lower band.
Product band_times(const ResultFile& result, const io::BandInput& a, const Block& x,
                   Index power = 0);

double times_power(double value, Index power);
/// The power of two that brings `largest` near one.
Index power_to_one(double largest);
/// times(power), with numbers far from one once more by the power that brings them there.
template <class Times>
Product in_range(const Times& times) {
  Product p = times(Index(0));
  const Index power = power_to_one(p.largest);
  return power < -300 || power > 300 ? times(power) : p;
}

/// visit(j, column) for this rank's columns of a lower band.
template <class F>
void each_column(const ResultFile& result, const io::BandInput& a, const F& visit) {
  const Range slice = result.slice(a.n());
  const Index height = a.half_bandwidth() + 1;
  result.read(a, slice, [&](Index position, Index count, const double* data) {
    for (Index c = 0; c < count; ++c) visit(slice.first + position + c, data + c * height);
  });
}

/// Largest over the columns of |b - y| / (n eps (norm |x| + |b|)), infinity norms; not a number
/// counts as infinite.
double residual_ratio(const Block& b, const Product& ax, const Block& x);
Verdict judge(double ratio, const std::string& what);

}  // namespace terrace
