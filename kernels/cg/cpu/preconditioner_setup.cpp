// Set-up of preconditioners on the host, in threads: n b^2 flops for the blocks; for the factor a
// merge of two rows an entry of the triangle, level by level.
#include <lapacke.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/preconditioner.hpp"

namespace terrace::cg {
namespace {

constexpr double eps = std::numeric_limits<double>::epsilon();

std::size_t at(Index i) { return std::size_t(i); }

void lower_to(std::atomic<Index>& least, Index value) {
  Index seen = least.load();
  while (value < seen && !least.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

Index invert_diagonal_blocks(const LocalRows& a, Index block, double* value) {
  const Index n = a.rows();
  std::atomic<Index> bad{n};
  parallel_for(ceil_div(n, block), [&](Index k) {
    const Index first = k * block, h = std::min(block, n - first);
    std::vector<double> m(at(h * h), 0.0);  // lower triangle, column-major
    for (Index i = 0; i < h; ++i)
      for (Index e = a.start[at(first + i)]; e < a.start[at(first + i + 1)]; ++e) {
        const Index j = a.column[at(e)] - first;
        if (j >= 0 && j <= i) m[at(i + j * h)] = a.value[at(e)];
      }
    const auto unusable = [](double v) { return !std::isfinite(v); };
    const auto hole = std::find_if(m.begin(), m.end(), unusable);
    if (hole != m.end()) return lower_to(bad, first + (hole - m.begin()) % h);
    const lapack_int order = lapack_int(h);
    const lapack_int minor = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', order, m.data(), order);
    if (minor != 0) return lower_to(bad, first + std::max<Index>(minor, 1) - 1);
    const lapack_int zero = LAPACKE_dpotri(LAPACK_COL_MAJOR, 'L', order, m.data(), order);
    if (zero != 0 || std::any_of(m.begin(), m.end(), unusable)) return lower_to(bad, first);
    double* const out = value + k * DiagonalBlocks<Cpu>::stride(block);
    for (Index d = 0; d <= h / 2; ++d)
      for (Index i = 0; i < h; ++i) {
        const Index j = (i + d) % h;
        out[d * h + i] = m[at(std::max(i, j) + std::min(i, j) * h)];
      }
  });
  return bad < n ? bad.load() : -1;
}

// --- incomplete Cholesky -------------------------------------------------------------------------

namespace {

/// Strict lower triangle, columns ascending, and the diagonal.
struct Lower {
  std::vector<Index> start;
  std::vector<std::int32_t> column;
  std::vector<double> value, diagonal;
  [[nodiscard]] Index rows() const { return Index(diagonal.size()); }
};

Lower lower_triangle(const LocalRows& a) {
  const Index n = a.rows();
  Lower l;
  l.start.assign(at(n + 1), 0);
  l.diagonal.assign(at(n), 0.0);
  parallel_ranges(n, 1024, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      for (Index e = a.start[at(i)]; e < a.start[at(i + 1)]; ++e) {
        l.start[at(i + 1)] += Index(a.column[at(e)] < i);
        if (a.column[at(e)] == i) l.diagonal[at(i)] = a.value[at(e)];
      }
  });
  for (Index i = 0; i < n; ++i) l.start[at(i + 1)] += l.start[at(i)];
  l.column.resize(at(l.start[at(n)]));
  l.value.resize(l.column.size());
  parallel_ranges(n, 1024, [&](Index from, Index to) {
    std::vector<std::pair<std::int32_t, double>> row;
    for (Index i = from; i < to; ++i) {
      row.clear();
      for (Index e = a.start[at(i)]; e < a.start[at(i + 1)]; ++e)
        if (a.column[at(e)] < i) row.emplace_back(std::int32_t(a.column[at(e)]), a.value[at(e)]);
      std::sort(row.begin(), row.end());
      for (std::size_t k = 0; k < row.size(); ++k)
        std::tie(l.column[at(l.start[at(i)]) + k], l.value[at(l.start[at(i)]) + k]) = row[k];
    }
  });
  return l;
}

/// Rows in the order of their levels, and where each level starts.
void sort_levels(const Lower& a, IncompleteFactor& f) {
  const Index n = a.rows();
  std::vector<std::int32_t> level(at(n), 0);
  std::int32_t most = -1;
  for (Index i = 0; i < n; ++i) {
    std::int32_t mine = 0;
    for (Index e = a.start[at(i)]; e < a.start[at(i + 1)]; ++e)
      mine = std::max(mine, level[at(a.column[at(e)])] + 1);
    level[at(i)] = mine;
    most = std::max(most, mine);
  }
  f.level.assign(at(most) + 2, 0);
  for (const std::int32_t l : level) ++f.level[at(l) + 1];
  for (std::size_t l = 1; l < f.level.size(); ++l) f.level[l] += f.level[l - 1];
  f.order.resize(at(n));
  std::vector<Index> next(f.level.begin(), f.level.end());
  for (Index i = 0; i < n; ++i) f.order[at(next[at(level[at(i)])]++)] = std::int32_t(i);
}

/// Entries that two ascending rows have in common: the sum of their products.
double common_products(const std::int32_t* p, const double* u, Index p_count, const std::int32_t* q,
                       const double* v, Index q_count) {
  if (p_count == 0 || q_count == 0) return 0;
  double sum[4] = {};
  if (p[p_count - 1] - p[0] == p_count - 1 && q[q_count - 1] - q[0] == q_count - 1) {
    // Both without gaps, as in a band.
    const Index first = std::max(p[0], q[0]), last = std::min(p[p_count - 1], q[q_count - 1]);
    u += first - p[0];
    v += first - q[0];
    for (Index k = 0; k <= last - first; ++k) sum[k & 3] += u[k] * v[k];
  } else {
    for (Index i = 0, j = 0; i < p_count && j < q_count;) {
      if (p[i] == q[j])
        sum[0] += u[i++] * v[j++];
      else if (p[i] < q[j])
        ++i;
      else
        ++j;
    }
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// Row i of the factor of A + shift diag(A) from the rows before it; false when its pivot is not
/// positive.
bool factor_row(const Lower& a, double shift, Index i, double* l, double* inverse) {
  const Index from = a.start[at(i)], to = a.start[at(i + 1)];
  double pivot = a.diagonal[at(i)] * (1 + shift);
  const double least = eps * pivot;
  for (Index e = from; e < to; ++e) {
    const Index j = a.column[at(e)], begin = a.start[at(j)];
    const double known =
        common_products(a.column.data() + from, l + from, e - from, a.column.data() + begin,
                        l + begin, a.start[at(j + 1)] - begin);
    l[e] = (a.value[at(e)] - known) * inverse[j];
    pivot -= l[e] * l[e];
  }
  inverse[i] = 1 / std::sqrt(pivot);
  return pivot > least && std::isfinite(inverse[i]);
}

/// The first row without a positive pivot, or -1.
Index factor(const Lower& a, double shift, const IncompleteFactor& f, std::vector<double>& l,
             std::vector<double>& inverse) {
  const Index n = a.rows(), levels = Index(f.level.size()) - 1;
  if (thread_count() == 1 || n < 256 * levels) {
    for (Index i = 0; i < n; ++i)
      if (!factor_row(a, shift, i, l.data(), inverse.data())) return i;
    return -1;
  }
  for (Index k = 0; k < levels; ++k) {
    std::atomic<Index> bad{n};
    parallel_ranges(f.level[at(k + 1)] - f.level[at(k)], 64, [&](Index begin, Index end) {
      for (Index s = f.level[at(k)] + begin; s < f.level[at(k)] + end; ++s)
        if (!factor_row(a, shift, f.order[at(s)], l.data(), inverse.data()))
          lower_to(bad, f.order[at(s)]);
    });
    if (bad < n) return bad;
  }
  return -1;
}

/// CSR to slices of `height` rows.
HostTriangle to_slices(HostTriangle csr, Index height) {
  if (height == 1) return csr;
  const Index n = Index(csr.start.size()) - 1, slices = ceil_div(n, height);
  HostTriangle t;
  t.start.assign(at(slices + 1), 0);
  for (Index s = 0; s < slices; ++s) {
    Index width = 0;
    for (Index i = s * height; i < std::min(n, (s + 1) * height); ++i)
      width = std::max(width, csr.start[at(i + 1)] - csr.start[at(i)]);
    t.start[at(s + 1)] = t.start[at(s)] + width * height;
  }
  t.column.assign(at(t.start[at(slices)]), -1);
  t.value.assign(t.column.size(), 0.0);
  parallel_ranges(n, 1024, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      for (Index e = csr.start[at(i)]; e < csr.start[at(i + 1)]; ++e) {
        const Index place = t.start[at(i / height)] + (e - csr.start[at(i)]) * height + i % height;
        t.column[at(place)] = csr.column[at(e)];
        t.value[at(place)] = csr.value[at(e)];
      }
  });
  return t;
}

/// Rows in the order given, columns renumbered alike.
HostTriangle renumber(HostTriangle a, const std::vector<std::int32_t>& order) {
  const Index n = Index(order.size());
  std::vector<std::int32_t> place(at(n));
  for (Index i = 0; i < n; ++i) place[at(order[at(i)])] = std::int32_t(i);
  HostTriangle t;
  t.start.assign(at(n + 1), 0);
  for (Index i = 0; i < n; ++i)
    t.start[at(i + 1)] = t.start[at(i)] + a.start[at(order[at(i)]) + 1] - a.start[at(order[at(i)])];
  t.column.resize(a.column.size());
  t.value.resize(a.value.size());
  parallel_ranges(n, 1024, [&](Index from, Index to) {
    std::vector<std::pair<std::int32_t, double>> row;
    for (Index i = from; i < to; ++i) {
      row.clear();
      for (Index e = a.start[at(order[at(i)])]; e < a.start[at(order[at(i)]) + 1]; ++e)
        row.emplace_back(place[at(a.column[at(e)])], a.value[at(e)]);
      std::sort(row.begin(), row.end());
      for (std::size_t k = 0; k < row.size(); ++k)
        std::tie(t.column[at(t.start[at(i)]) + k], t.value[at(t.start[at(i)]) + k]) = row[k];
    }
  });
  return t;
}

HostTriangle transpose(const HostTriangle& a) {
  const Index n = Index(a.start.size()) - 1;
  HostTriangle t;
  t.start.assign(at(n + 1), 0);
  t.column.resize(a.column.size());
  t.value.resize(a.value.size());
  for (const std::int32_t j : a.column) ++t.start[at(j) + 1];
  for (Index i = 0; i < n; ++i) t.start[at(i + 1)] += t.start[at(i)];
  std::vector<Index> next(t.start.begin(), t.start.end());
  for (Index i = 0; i < n; ++i)
    for (Index e = a.start[at(i)]; e < a.start[at(i + 1)]; ++e) {
      const Index place = next[at(a.column[at(e)])]++;
      t.column[at(place)] = std::int32_t(i);
      t.value[at(place)] = a.value[at(e)];
    }
  return t;
}

}  // namespace

IncompleteFactor incomplete_cholesky(const LocalRows& a,
                                     const std::function<bool(Index, Index)>& sort_by_level,
                                     Index height) {
  constexpr Index most_attempts = 42;  // a last shift of 10^9
  const Index n = a.rows();
  if (n > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::usage,
                "incomplete Cholesky takes up to 2^31 - 1 rows per rank; use more ranks");
  IncompleteFactor f;
  Lower lower = lower_triangle(a);
  f.nonzeros = lower.start[at(n)] + n;
  for (Index i = 0; i < n && f.bad_row < 0; ++i)
    if (!(lower.diagonal[at(i)] > 0) || !std::isfinite(lower.diagonal[at(i)])) f.bad_row = i;
  if (f.bad_row >= 0) return f;
  sort_levels(lower, f);

  std::vector<double> l(lower.value.size());
  f.inverse_diagonal.resize(at(n));
  do {
    f.shift = f.attempts == 0 ? 0 : std::ldexp(1e-3, int(f.attempts) - 1);
    f.bad_row = factor(lower, f.shift, f, l, f.inverse_diagonal);
  } while (++f.attempts < most_attempts && f.bad_row >= 0);
  if (f.bad_row >= 0) return f;

  HostTriangle csr{std::move(lower.start), std::move(lower.column), std::move(l)};
  if (sort_by_level(n, Index(f.level.size()) - 1)) {
    csr = renumber(std::move(csr), f.order);
    std::vector<double> inverse(at(n));
    for (Index i = 0; i < n; ++i) inverse[at(i)] = f.inverse_diagonal[at(f.order[at(i)])];
    f.inverse_diagonal = std::move(inverse);
  } else {
    f.order.clear();
  }
  f.upper = to_slices(transpose(csr), height);
  f.lower = to_slices(std::move(csr), height);
  return f;
}

}  // namespace terrace::cg
