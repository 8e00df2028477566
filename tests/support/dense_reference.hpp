// What LAPACK and the textbook say of a dense matrix: pivots, inverse, condition, residuals.
#pragma once
#include <lapacke.h>

#include <limits>

#include "tests/support/dense_kinds.hpp"

namespace terrace::test {

/// dgetrf, dgetri and dgecon.
struct Lapack {
  lapack_int info = 0;
  Order pivots;  ///< row of A that became the pivot of column j
  Dense inverse{0};
  double reciprocal_condition = 0;  ///< estimate, 1-norm
};
inline Lapack by_lapack(const Dense& a) {
  const auto n = static_cast<lapack_int>(a.n);
  Lapack found;
  std::vector<lapack_int> exchanged(static_cast<std::size_t>(n));
  Dense lu(a.n, [&](Index i, Index j) { return a(j, i); });  // column-major
  const double norm =
      LAPACKE_dlange(LAPACK_COL_MAJOR, '1', n, n, lu.values.data(), std::max(1, int(n)));
  found.info = LAPACKE_dgetrf(LAPACK_COL_MAJOR, n, n, lu.values.data(), n, exchanged.data());
  found.pivots = in_order(a.n);
  for (std::size_t j = 0; j < exchanged.size(); ++j)
    std::swap(found.pivots[j], found.pivots[std::size_t(exchanged[j] - 1)]);
  if (found.info != 0) return found;
  LAPACKE_dgecon(LAPACK_COL_MAJOR, '1', n, lu.values.data(), n, norm, &found.reciprocal_condition);
  found.info = LAPACKE_dgetri(LAPACK_COL_MAJOR, n, lu.values.data(), n, exchanged.data());
  found.inverse = Dense(a.n, [&](Index i, Index j) { return lu(j, i); });
  return found;
}

/// Gaussian elimination in long double without moving a row, ties to the lowest: its pivots up to
/// the first zero column, whose number is the size of the answer then.
inline Order lowest_row_pivots(const Dense& a) {
  const std::size_t n = std::size_t(a.n);
  std::vector<long double> m(a.values.begin(), a.values.end());
  std::vector<bool> used(n, false);
  Order pivots;
  for (std::size_t j = 0; j < n; ++j) {
    std::size_t best = n;
    for (std::size_t i = 0; i < n; ++i)
      if (!used[i] && (best == n || std::fabs(m[i * n + j]) > std::fabs(m[best * n + j]))) best = i;
    if (m[best * n + j] == 0) return pivots;
    used[best] = true;
    pivots.push_back(Index(best));
    for (std::size_t i = 0; i < n; ++i) {
      if (used[i] || m[i * n + j] == 0) continue;
      const long double l = m[i * n + j] / m[best * n + j];
      for (std::size_t c = j; c < n; ++c) m[i * n + c] -= l * m[best * n + c];
    }
  }
  return pivots;
}

/// Rows of a tournament (Grigori, Demmel, Xiang 2011) with panels of `block` columns: of every
/// `leaf` rows of A those that partial pivoting among them takes, then among these.
inline Order tournament_pivots(const Dense& a, Index block, Index leaf) {
  const Index n = a.n;
  using Rows = std::vector<std::vector<long double>>;
  const auto order = static_cast<std::size_t>(n);
  Rows m(order, std::vector<long double>(order));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) m[std::size_t(i)][std::size_t(j)] = a(i, j);
  std::vector<bool> used(order, false);
  const auto take = [](Rows& rows, std::vector<bool>& gone, const Order& from, Index first,
                       Index width) {  // partial pivoting; eliminates the others of `from`
    Order taken;
    for (Index j = first; j < first + width && taken.size() < from.size(); ++j) {
      Index best = -1;
      for (const Index i : from)
        if (!gone[std::size_t(i)] &&
            (best < 0 || std::fabs(rows[std::size_t(i)][std::size_t(j)]) >
                             std::fabs(rows[std::size_t(best)][std::size_t(j)])))
          best = i;
      gone[std::size_t(best)] = true;
      taken.push_back(best);
      const auto& pivot = rows[std::size_t(best)];
      for (const Index i : from) {
        auto& row = rows[std::size_t(i)];
        if (gone[std::size_t(i)] || row[std::size_t(j)] == 0) continue;
        const long double l = row[std::size_t(j)] / pivot[std::size_t(j)];
        for (std::size_t c = std::size_t(j); c < row.size(); ++c) row[c] -= l * pivot[c];
      }
    }
    return taken;
  };
  Order pivots;
  for (Index first = 0; first < n; first += block) {
    const Index width = std::min(block, n - first);
    Order players, all;
    for (Index top = 0; top < n; top += leaf) {
      Order own;
      for (Index i = top; i < std::min(n, top + leaf); ++i)
        if (!used[std::size_t(i)]) own.push_back(i);
      Rows rows = m;
      std::vector<bool> gone = used;
      const Order best = take(rows, gone, own, first, width);
      players.insert(players.end(), best.begin(), best.end());
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(players.begin(), players.end());
    Rows rows = m;
    std::vector<bool> gone = used;
    const Order winners = take(rows, gone, players, first, width);
    for (std::size_t t = 0; t < winners.size(); ++t) {  // the panel's columns of all rows
      const Index j = first + Index(t), p = winners[t];
      used[std::size_t(p)] = true;
      for (const Index i : all) {
        auto& row = m[std::size_t(i)];
        if (used[std::size_t(i)] || row[std::size_t(j)] == 0) continue;
        const long double l = row[std::size_t(j)] / m[std::size_t(p)][std::size_t(j)];
        for (std::size_t c = std::size_t(j); c < row.size(); ++c)
          row[c] -= l * m[std::size_t(p)][c];
      }
    }
    pivots.insert(pivots.end(), winners.begin(), winners.end());
  }
  return pivots;
}

/// Of an inverse, in long double: / (n ||A||_1 ||X||_1 eps) as LAPACK's dget03, and the largest
/// element / (n (|A| |X|) eps), which no scaling of rows or columns changes.
struct Ratios {
  double right = 0, left = 0;            ///< A X - I, X A - I
  double right_each = 0, left_each = 0;  ///< element by element
  double reciprocal_condition = 1;       ///< 1 / (||A||_1 ||X||_1)
};
inline double norm_one(const Dense& a) {
  double most = 0;
  for (Index j = 0; j < a.n; ++j) {
    double sum = 0;
    for (Index i = 0; i < a.n; ++i) sum += std::fabs(a(i, j));
    most = !(sum <= most) ? sum : most;
  }
  return most;
}
inline Ratios ratios(const Dense& a, const Dense& x) {
  const Index n = a.n;
  const std::size_t width = std::size_t(n);
  const long double scale = (long double)(n)*0x1.0p-53L;
  const auto side = [&](const Dense& f, const Dense& g, double& by_norm, double& each) {
    std::vector<long double> columns(width, 0.0L), row(width), size(width);
    long double worst = 0, most = 0;
    for (Index i = 0; i < n; ++i) {
      std::fill(row.begin(), row.end(), 0.0L);
      std::fill(size.begin(), size.end(), 0.0L);
      row[std::size_t(i)] = -1;
      for (Index k = 0; k < n; ++k) {
        const long double v = f(i, k);
        if (v == 0) continue;
        for (std::size_t j = 0; j < width; ++j) {
          const long double product = v * g.values[std::size_t(k) * width + j];
          row[j] += product;
          size[j] += std::fabs(product);
        }
      }
      for (std::size_t j = 0; j < width; ++j) {
        const long double error = std::fabs(row[j]);
        columns[j] += error;
        if (error == 0) continue;
        const long double relative = error / (scale * size[j]);
        if (!(relative <= worst)) worst = relative;
      }
    }
    for (const long double sum : columns)
      if (!(sum <= most)) most = sum;
    by_norm = n == 0 ? 0 : double(most / scale / norm_one(a) / norm_one(x));
    each = double(worst);
  };
  Ratios r;
  side(a, x, r.right, r.right_each);
  side(x, a, r.left, r.left_each);
  if (n > 0) r.reciprocal_condition = double(1.0L / norm_one(a) / norm_one(x));
  return r;
}

/// Largest over the columns of ||b - A x||_1 / (n ||A||_1 ||x||_1 eps), as LAPACK's dget02; x and b
/// n x columns.
inline double solution_ratio(const Dense& a, Index columns, const std::vector<double>& x,
                             const std::vector<double>& b) {
  double worst = 0;
  for (Index c = 0; c < columns; ++c) {
    long double residual = 0, size = 0;
    for (Index i = 0; i < a.n; ++i) {
      long double sum = b[std::size_t(i * columns + c)];
      for (Index k = 0; k < a.n; ++k)
        sum -= (long double)(a(i, k)) * x[std::size_t(k * columns + c)];
      residual += std::fabs(sum);
      size += std::fabs((long double)(x[std::size_t(i * columns + c)]));
    }
    if (residual == 0) continue;
    const double r = double(residual / ((long double)(a.n) * 0x1.0p-53L * norm_one(a) * size));
    if (!(r <= worst)) worst = r;
  }
  return worst;
}

}  // namespace terrace::test
