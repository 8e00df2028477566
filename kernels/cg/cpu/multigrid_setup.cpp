// Set-up of multigrid on the host. Bound by memory and by searches in tables of columns: about 20
// operations an entry of A for the strong ones and aggregates, 60 for the two products.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/cpu/sums.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/coarsening_rules.hpp"
#include "kernels/cg/cpu/block_rows.hpp"
#include "kernels/cg/cpu/row_sums.hpp"
#include "kernels/cg/multigrid.hpp"

namespace terrace::cg {
namespace {

std::size_t at(Index i) { return std::size_t(i); }

constexpr Index few_rows = 4096;

}  // namespace

std::vector<double> diagonal_of(const HostRows& a) {
  std::vector<double> diagonal(at(a.rows()), 0.0);
  parallel_ranges(a.rows(), few_rows, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e)
        if (a.column[at(e)] == i) diagonal[at(i)] = a.value[at(e)];
  });
  return diagonal;
}

double gershgorin_bound(const HostRows& a, const std::vector<double>& diagonal) {
  std::vector<double> most(at(ceil_div(a.rows(), few_rows)), 0.0);
  parallel_ranges(a.rows(), few_rows, [&](Index from, Index to) {
    double& here = most[at(from / few_rows)];
    for (Index i = from; i < to; ++i) {
      double sum = 0;
      for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) sum += std::fabs(a.value[at(e)]);
      here = std::max(here, sum / diagonal[at(i)]);
    }
  });
  double result = 0;
  for (const double v : most) result = std::max(result, v);
  return result;
}

LargeVector<char> strong_entries(const CsrRows<Cpu>& a, View<const double, Cpu> diagonal,
                                 double threshold) {
  LargeVector<char> strong(at(a.column.size));
  const Index rows = a.rows();
  const double factor = threshold * threshold;
  parallel_ranges(rows, few_rows, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
        const Index j = a.column.data[e];
        const double v = a.value.data[e];
        strong[at(e)] =
            char(j != i && coarsening::is_strong(v, factor, diagonal.data[i], diagonal.data[j]));
      }
  });
  return strong;
}

Aggregates aggregate(const CsrRows<Cpu>& a, const LargeVector<char>& strong) {
  constexpr std::int32_t free = -2, alone = -1;
  const Index rows = a.rows();
  Aggregates result;
  std::vector<std::int32_t>& of = result.of;
  of.assign(at(rows), free);
  const auto neighbours = [&](Index i, const auto& f) {  // f(j) until it says true
    for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
      const Index j = a.column.data[e];
      if (strong[at(e)] && j < rows && of[at(j)] != alone && f(j)) return true;
    }
    return false;
  };
  parallel_ranges(rows, few_rows, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      if (std::none_of(strong.begin() + a.start.data[i], strong.begin() + a.start.data[i + 1],
                       [](char s) { return s != 0; }))
        of[at(i)] = alone;
  });
  const auto begin_at = [&](Index i) {
    const auto number = std::int32_t(result.count++);
    of[at(i)] = number;
    neighbours(i, [&](Index j) {
      if (of[at(j)] == free) of[at(j)] = number;
      return false;
    });
  };
  for (Index i = 0; i < rows; ++i)
    if (of[at(i)] == free && !neighbours(i, [&](Index j) { return of[at(j)] >= 0; })) begin_at(i);
  const std::vector<std::int32_t> first = of;
  for (Index i = 0; i < rows; ++i)
    if (of[at(i)] == free)
      neighbours(i, [&](Index j) {
        if (first[at(j)] >= 0) of[at(i)] = first[at(j)];
        return first[at(j)] >= 0;
      });
  for (Index i = 0; i < rows; ++i)
    if (of[at(i)] == free) begin_at(i);
  return result;
}

HostRows tentative_prolongation(const Aggregates& aggregates) {
  return rows_of(Index(aggregates.of.size()), aggregates.count, [&](Index i, RowSum& row) {
    if (aggregates.of[at(i)] >= 0) row.add(aggregates.of[at(i)], 1);
  });
}

HostRows smoothed_prolongation(const HostRows& a, const LargeVector<char>& strong,
                               const std::vector<double>& diagonal, const Aggregates& aggregates) {
  return rows_of(a.rows(), aggregates.count, [&](Index i, RowSum& row) {
    const std::int32_t own = aggregates.of[at(i)];
    if (own < 0) return;
    double middle = diagonal[at(i)], sum = 0;
    for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) {
      if (strong[at(e)])
        sum += std::fabs(a.value[at(e)]);
      else if (a.column[at(e)] != i)
        middle += a.value[at(e)];
    }
    sum += std::fabs(middle);
    const double weight = 4.0 / 3.0 / sum;
    row.add(own, 1 - weight * middle);
    for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) {
      const std::int32_t other = strong[at(e)] ? aggregates.of[at(a.column[at(e)])] : -1;
      if (other >= 0) row.add(other, -weight * a.value[at(e)]);
    }
  });
}

HostRows transposed(const HostRows& a) {
  // Each piece of rows has a count of its entries in each column: few pieces where columns are many.
  const Index rows = a.rows(), columns = a.columns;
  const Index pieces = std::clamp<Index>(a.nonzeros() / (8 * columns + 4 * few_rows), 1, 16);
  const Index grain = std::max<Index>(1, ceil_div(rows, pieces));
  HostRows t;
  t.columns = rows;
  t.start.assign(at(columns) + 1, 0);
  t.column.resize(at(a.nonzeros()));
  t.value.resize(at(a.nonzeros()));
  std::vector<Index> next(at(pieces * columns), 0);  // per piece: counts, then places
  const auto each = [&](const auto& f) {
    parallel_ranges(rows, grain, [&](Index from, Index to) {
      Index* const mine = next.data() + from / grain * columns;
      for (Index i = from; i < to; ++i)
        for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) f(mine[a.column[at(e)]], i, e);
    });
  };
  each([](Index& count, Index, Index) { ++count; });
  Index place = 0;
  for (Index j = 0; j < columns; ++j) {
    for (Index k = 0; k < pieces; ++k) place += std::exchange(next[at(k * columns + j)], place);
    t.start[at(j) + 1] = place;
  }
  each([&](Index& to, Index i, Index e) {
    t.column[at(to)] = std::int32_t(i);
    t.value[at(to++)] = a.value[at(e)];
  });
  return t;
}

HostRows product(const HostRows& a, const HostRows& b) {
  if (const RowGroups groups = row_groups(a, most_group_rows); has_company(groups))
    if (const RowGroups inner = row_groups(b, b.rows()); has_company(inner))
      return block_product(a, groups, b, inner);
  return rows_of(a.rows(), b.columns, [&](Index i, RowSum& row) {
    for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) {
      const Index k = a.column[at(e)];
      for (Index f = b.start[at(k)]; f < b.start[at(k) + 1]; ++f)
        row.add(b.column[at(f)], a.value[at(e)] * b.value[at(f)]);
    }
  });
}

bool settle_null_vectors(HostRows& coarse, const HostRows& prolongation,
                         const std::vector<double>& diagonal) {
  constexpr double rounding = 1e-12;
  std::vector<double> scale(at(coarse.rows()), 0.0);  // diagonal of P' D P
  for (Index i = 0; i < prolongation.rows(); ++i)
    for (Index e = prolongation.start[at(i)]; e < prolongation.start[at(i) + 1]; ++e) {
      const double v = prolongation.value[at(e)];
      if (prolongation.column[at(e)] >= coarse.rows()) continue;
      scale[at(prolongation.column[at(e)])] += v * v * diagonal[at(i)];
    }
  for (Index i = 0; i < coarse.rows(); ++i)
    for (Index e = coarse.start[at(i)]; e < coarse.start[at(i) + 1]; ++e) {
      if (coarse.column[at(e)] != i) continue;
      double& value = coarse.value[at(e)];
      if (value < -rounding * scale[at(i)]) return false;
      if (value <= rounding * scale[at(i)]) value = scale[at(i)];
    }
  return true;
}

namespace {

/// row -= factor * pivot
TERRACE_VECTOR_CLONES
void subtract_row(Index n, double factor, const double* pivot, double* row) {
  for (Index j = 0; j < n; ++j) row[j] -= factor * pivot[j];
}

}  // namespace

bool invert_definite(Index n, std::vector<double>& a) {
  // A coarse matrix is as exact as the entries of A that cancelled in it.
  constexpr double negative = 1e-8;
  const double rounding = double(n) * std::numeric_limits<double>::epsilon();
  std::vector<double> original(at(n)), column(at(n)), row(at(n));
  std::vector<char> kept(at(n), 0);
  for (Index k = 0; k < n; ++k) original[at(k)] = a[at(k * n + k)];
  // Rows swept hold the negative of the inverse of what was swept. The lower triangle alone is there.
  for (Index k = 0; k < n; ++k) {
    const double pivot = a[at(k * n + k)];
    if (!std::isfinite(pivot) || pivot < -negative * std::fabs(original[at(k)])) return false;
    if (!(pivot > rounding * original[at(k)])) continue;
    kept[at(k)] = 1;
    const auto entry = [&](Index j) -> double& { return a[at(j < k ? k * n + j : j * n + k)]; };
    for (Index j = 0; j < n; ++j) column[at(j)] = entry(j), row[at(j)] = entry(j) / pivot;
    for (Index i = 0; i < n; ++i)
      if (i != k) subtract_row(i + 1, column[at(i)], row.data(), a.data() + i * n);
    for (Index j = 0; j < n; ++j) entry(j) = row[at(j)];
    entry(k) = -1 / pivot;
  }
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j <= i; ++j) {
      const double found = kept[at(i)] && kept[at(j)] ? -a[at(i * n + j)] : 0.0;
      a[at(i * n + j)] = a[at(j * n + i)] = found;
    }
  return true;
}

}  // namespace terrace::cg
