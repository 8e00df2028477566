// Factors over the reals, multiplied out on random vectors.
#include <fmt/core.h>

#include <algorithm>

#include "src/commands/verify_reals.hpp"

namespace terrace {

Verdict verify_factor(const ResultFile& result) {
  const io::BandInput a = io::open_band(result.control, result.input("input"));
  const io::BandInput l = result.band("factor");
  const Index n = a.n(), m = l.half_bandwidth();
  if (l.n() != n || m != a.half_bandwidth())
    return {false, "the shapes of the matrix and its factor do not fit"};
  const Block z = random_block(result, n, probes);
  const Product az = in_range([&](Index power) { return band_times(result, a, z, power); });
  // u = L^T z, then w = L u.
  Block u(result, n, probes), w(result, n, probes);
  Index not_positive = 0;
  each_column(result, l, [&](Index j, const double* column) {
    if (!(column[0] > 0)) ++not_positive;
    for (Index i = j; i <= std::min(n - 1, j + m); ++i)
      add_scaled(u.row(j), z.row(i), column[i - j], probes);
  });
  result.control.reduce(u.data, Reduce::sum);
  not_positive = result.control.reduce(not_positive, Reduce::sum);
  if (not_positive > 0)
    return {false,
            fmt::format("{} diagonal elements of the factor are not positive", not_positive)};
  const Index by = power_to_one(largest(u.data));
  for (double& value : u.data) value = times_power(value, by);
  each_column(result, l, [&](Index j, const double* column) {
    for (Index i = j; i <= std::min(n - 1, j + m); ++i)
      add_scaled(w.row(i), u.row(j), column[i - j], probes);
  });
  result.control.reduce(w.data, Reduce::sum);
  for (double& value : w.data) value = times_power(value, az.power - by);
  return judge(residual_ratio(w, az, z),
               fmt::format("L (L^T z) = A z on {} random vectors", probes));
}

namespace {

/// visit(j, row) for this rank's rows of a stored factor.
template <class F>
void each_row(const ResultFile& result, const io::DenseInput& factor, const F& visit) {
  const Range own = result.slice(factor.rows());
  if (result.show)
    result.show(factor.location(), ResultFile::bytes_of(factor, own.count),
                ResultFile::bytes_of(factor, factor.rows()));
  factor.read(result.control, {&own, 1}, [&](Index position, Index count, const double* rows) {
    for (Index i = 0; i < count; ++i) visit(own.first + position + i, rows + i * factor.columns());
  });
}

/// U z by the upper triangle of `factor`; `norm`: the infinity norm of U.
Block upper_times(const ResultFile& result, const io::DenseInput& factor, const Block& z,
                  double* norm = nullptr) {
  Block u(result, z.n, z.k);
  double most = 0;
  each_row(result, factor, [&](Index j, const double* row) {
    double sum = 0;
    for (Index k = j; k < z.n; ++k) {
      add_scaled(u.row(j), z.row(k), row[k], z.k);
      sum += std::abs(row[k]);
    }
    most = std::max(most, sum);
  });
  if (norm) *norm = result.control.reduce(most, Reduce::max);
  result.control.reduce(u.data, Reduce::sum);
  return u;
}

/// A = U^T U, U the upper triangle of `f`.
Verdict verify_dense_cholesky(const ResultFile& result, const io::DenseInput& a,
                              const io::DenseInput& f) {
  const Index n = a.rows();
  if (a.columns() != n || f.rows() != n || f.columns() != n)
    return {false, "the shapes of the matrix and its factor do not fit"};
  const Block z = random_block(result, n, probes);
  const Product az = in_range([&](Index power) { return dense_times(result, a, z, power); });
  Block u = upper_times(result, f, z), w(result, n, probes);
  const Index by = power_to_one(largest(u.data));
  for (double& value : u.data) value = times_power(value, by);
  Index not_positive = 0;
  each_row(result, f, [&](Index j, const double* row) {
    if (!(row[j] > 0)) ++not_positive;
    for (Index k = j; k < n; ++k) add_scaled(w.row(k), u.row(j), row[k], probes);
  });
  result.control.reduce(w.data, Reduce::sum);
  not_positive = result.control.reduce(not_positive, Reduce::sum);
  if (not_positive > 0)
    return {false,
            fmt::format("{} diagonal elements of the factor are not positive", not_positive)};
  for (double& value : w.data) value = times_power(value, az.power - by);
  return judge(residual_ratio(w, az, z),
               fmt::format("L (L^T z) = A z on {} random vectors", probes));
}

}  // namespace

Verdict verify_dense_factor(const ResultFile& result) {
  const io::DenseInput a = io::open_dense(result.control, result.input("input"));
  const io::DenseInput f = io::open_dense(result.control, result.at("factor"));
  const io::Attributes stored = io::read_attributes(result.control, f.location());
  if (const auto content = stored.find("content");
      content != stored.end() && content->second == io::Attribute(std::string("Cholesky factor")))
    return verify_dense_cholesky(result, a, f);
  const io::DenseInput pivots = io::open_dense(result.control, result.at("pivots"));
  const Index n = a.rows();
  if (a.columns() != n || f.rows() != n || f.columns() != n || pivots.rows() != n)
    return {false, "the shapes of the matrix, its factor and the pivots do not fit"};
  const auto power = stored.find("power");
  if (power == stored.end() || !std::holds_alternative<Index>(power->second))
    return {false, "the factor does not say which power of two it has"};
  const Block z = random_block(result, n, probes), p = read_block(result, pivots);
  const Product az = in_range([&](Index by) { return dense_times(result, a, z, by); });
  // u = U z, then w = L u; row j is row p(j) of A z.
  double norm = 0;
  const Block u = upper_times(result, f, z, &norm);
  Block w(result, n, probes);
  each_row(result, f, [&](Index j, const double* row) {
    add_scaled(w.row(j), u.row(j), 1, probes);
    for (Index k = 0; k < j; ++k) add_scaled(w.row(j), u.row(k), row[k], probes);
  });
  result.control.reduce(w.data, Reduce::sum);
  Block b(result, n, probes);
  for (Index j = 0; j < n; ++j) {
    const double row = p.row(j)[0];
    if (!(row >= 0 && row < double(n))) return {false, "a pivot is no row of the matrix"};
    for (Index c = 0; c < probes; ++c)
      b.row(Index(row))[c] = times_power(w.row(j)[c], az.power - std::get<Index>(power->second));
  }
  const std::string what = fmt::format("P^-1 L (U z) = A z on {} random vectors", probes);
  const double ratio = residual_ratio(b, az, z);
  const Verdict plain = judge(ratio, what);
  // Rounding is of the size of |L| |U| (Higham, Accuracy and Stability, theorem 9.3).
  const auto growth =
      double(times_power(norm, az.power - std::get<Index>(power->second)) / az.norm);
  if (plain.pass || !(growth > 1) || std::isinf(growth)) return plain;
  return judge(ratio / growth,
               fmt::format("{}, divided by the growth {:.2g} of the elements", what, growth));
}

}  // namespace terrace
