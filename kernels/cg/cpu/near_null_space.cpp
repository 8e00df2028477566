// About k^2 operations a row for the bases, k times those of A's nonzeros for P.
#include "kernels/cg/near_null_space.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cg/cpu/block_rows.hpp"
#include "kernels/cg/cpu/row_sums.hpp"

namespace terrace::cg {
namespace {

std::size_t at(Index i) { return std::size_t(i); }
constexpr Index few_nodes = 1024;

/// Members of each group, ascending; of[i] < 0: in none.
struct Groups {
  std::vector<Index> start, member;
  Groups(const std::vector<std::int32_t>& of, Index count) : start(at(count) + 1, 0) {
    for (const std::int32_t g : of)
      if (g >= 0) ++start[at(g) + 1];
    for (Index g = 0; g < count; ++g) start[at(g) + 1] += start[at(g)];
    member.resize(at(start.back()));
    std::vector<Index> next(start.begin(), start.end() - 1);
    for (std::size_t i = 0; i < of.size(); ++i)
      if (of[i] >= 0) member[at(next[at(of[i])]++)] = Index(i);
  }
  [[nodiscard]] Index count() const { return Index(start.size()) - 1; }
  template <class F>
  void each(Index g, const F& f) const {
    for (Index k = start[at(g)]; k < start[at(g) + 1]; ++k) f(member[at(k)]);
  }
};

/// f(other node, a_ij^2 / (a_ii a_jj)) of the entries in own columns; true: there are others.
template <class F>
bool each_entry(const HostRows& a, const std::vector<double>& diagonal, const Nodes& nodes,
                const Groups& rows, Index node, const F& f) {
  bool others = false;
  rows.each(node, [&](Index i) {
    for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) {
      const Index j = a.column[at(e)];
      const double v = a.value[at(e)];
      if (v == 0) continue;
      if (j >= a.rows())
        others = true;
      else
        f(nodes.of[at(j)], v / diagonal[at(i)] * (v / diagonal[at(j)]));
    }
  });
  return others;
}

/// An orthonormal basis of the columns of q (rows x k), in place, and r (rank x k, rows of k numbers)
/// with basis times r = q as it was. The rank. Gram-Schmidt, twice.
Index orthonormalise(Index rows, Index k, double* q, double* r) {
  constexpr double dependent = 1e-8;  // what is left of a column's length
  Index rank = 0;
  const auto inner = [&](Index c, Index d) {
    double sum = 0;
    for (Index i = 0; i < rows; ++i) sum += q[i * k + c] * q[i * k + d];
    return sum;
  };
  std::fill(r, r + k * k, 0.0);
  for (Index c = 0; c < k; ++c) {
    const double before = std::sqrt(inner(c, c));
    for (int pass = 0; pass < 2; ++pass)
      for (Index d = 0; d < rank; ++d) {
        const double part = inner(d, c);
        r[d * k + c] += part;
        for (Index i = 0; i < rows; ++i) q[i * k + c] -= part * q[i * k + d];
      }
    const double after = std::sqrt(inner(c, c));
    if (rank == rows || !(after > dependent * before)) continue;
    for (Index i = 0; i < rows; ++i) {
      const double value = q[i * k + c] / after;
      q[i * k + c] = q[i * k + rank];
      q[i * k + rank] = value;
    }
    r[rank * k + c] = after;
    ++rank;
  }
  return rank;
}

}  // namespace

HostRows strong_nodes(const HostRows& a, const std::vector<double>& diagonal, const Nodes& nodes,
                      double threshold) {
  const Groups rows(nodes.of, nodes.count);
  std::vector<double> own(at(nodes.count), 0.0);
  parallel_ranges(nodes.count, few_nodes, [&](Index from, Index to) {
    for (Index node = from; node < to; ++node)
      each_entry(a, diagonal, nodes, rows, node, [&](Index other, double square) {
        if (other == node) own[at(node)] += square;
      });
  });
  HostRows sums = rows_of(nodes.count, nodes.count + 1, [&](Index node, RowSum& row) {
    const bool others = each_entry(a, diagonal, nodes, rows, node, [&](Index other, double square) {
      row.add(std::int32_t(other), square);
    });
    if (others) row.add(std::int32_t(nodes.count), 1);
  });
  return rows_of(nodes.count, nodes.count + 1, [&](Index node, RowSum& row) {
    for (Index e = sums.start[at(node)]; e < sums.start[at(node) + 1]; ++e) {
      const Index other = sums.column[at(e)];
      if (other == node) continue;
      const double least = other == nodes.count
                               ? 0.0
                               : threshold * threshold * std::sqrt(own[at(node)] * own[at(other)]);
      if (sums.value[at(e)] >= least) row.add(std::int32_t(other), 1);
    }
  });
}

TentativeBasis tentative_basis(const Nodes& nodes, const Aggregates& aggregates,
                               const std::vector<double>& values, Index k) {
  const Index rows = Index(nodes.of.size()), count = aggregates.count;
  std::vector<std::int32_t> of(at(rows));
  for (Index i = 0; i < rows; ++i) of[at(i)] = aggregates.of[at(nodes.of[at(i)])];
  const Groups groups(of, count);
  // Bases of all aggregates, one after the other, each in rows of k numbers.
  std::vector<double> q(at(Index(groups.member.size()) * k)), r(at(count * k * k));
  std::vector<Index> first(at(count) + 1, 0);
  parallel_ranges(count, few_nodes, [&](Index from, Index to) {
    for (Index g = from; g < to; ++g) {
      const Index begin = groups.start[at(g)], size = groups.start[at(g) + 1] - begin;
      for (Index i = 0; i < size; ++i)
        std::copy_n(values.begin() + groups.member[at(begin + i)] * k, k,
                    q.begin() + (begin + i) * k);
      first[at(g) + 1] = orthonormalise(size, k, q.data() + begin * k, r.data() + g * k * k);
    }
  });
  TentativeBasis result;
  for (Index g = 0; g < count; ++g) {
    const Index rank = first[at(g) + 1];
    first[at(g) + 1] += first[at(g)];
    if (rank == 0) continue;
    for (Index c = 0; c < rank; ++c) result.nodes.of.push_back(std::int32_t(result.nodes.count));
    ++result.nodes.count;
    result.values.insert(result.values.end(), r.begin() + g * k * k,
                         r.begin() + (g * k + rank) * k);
  }
  std::vector<Index> place(at(rows), 0);
  for (Index p = 0; p < Index(groups.member.size()); ++p) place[at(groups.member[at(p)])] = p;
  result.prolongation = rows_of(rows, first.back(), [&](Index i, RowSum& row) {
    const std::int32_t g = of[at(i)];
    if (g < 0) return;
    for (Index c = first[at(g)]; c < first[at(g) + 1]; ++c)
      row.add(std::int32_t(c), q[at(place[at(i)] * k + c - first[at(g)])]);
  });
  return result;
}

HostRows smoothed_basis(const HostRows& a, const std::vector<double>& diagonal, const HostRows& t,
                        double weight) {
  if (const RowGroups groups = row_groups(a, most_group_rows, &t); has_company(groups))
    if (const RowGroups inner = row_groups(t, t.rows()); has_company(inner)) {
      std::vector<double> factor(at(a.rows()));
      for (Index i = 0; i < a.rows(); ++i) factor[at(i)] = -weight / diagonal[at(i)];
      return block_smoothed(a, groups, factor, t, inner);
    }
  return rows_of(a.rows(), t.columns, [&](Index i, RowSum& row) {
    if (t.start[at(i)] == t.start[at(i) + 1]) return;
    for (Index f = t.start[at(i)]; f < t.start[at(i) + 1]; ++f)
      row.add(t.column[at(f)], t.value[at(f)]);
    const double factor = -weight / diagonal[at(i)];
    for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e) {
      const Index j = a.column[at(e)];
      for (Index f = t.start[at(j)]; f < t.start[at(j) + 1]; ++f)
        row.add(t.column[at(f)], factor * a.value[at(e)] * t.value[at(f)]);
    }
  });
}

}  // namespace terrace::cg
