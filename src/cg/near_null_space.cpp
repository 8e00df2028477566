#include "src/cg/near_null_space.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "src/cg/coarse_rows.hpp"

namespace terrace::cg {
namespace {

/// Blocks of B x B are those of nodes where so many of their places are stored.
constexpr double least_filled = 0.57;
/// Larger ones are taken where about as many are: nodes of four unknowns fill blocks of two too.
constexpr double as_filled = 0.98;

/// Columns by powers of two, so that their squares are in range. `most` of each over all ranks.
void scale_columns(Index k, const std::vector<double>& most, std::vector<double>& values) {
  for (std::size_t e = 0; e < values.size(); ++e) {
    int power = 0;
    (void)std::frexp(most[e % at(k)], &power);
    values[e] = std::ldexp(values[e], -power);
  }
}

/// The first column that is zero, or depends on those before; -1: none. Of V' V, k x k.
Index dependent_column(Index k, std::vector<double> gram) {
  constexpr double rounding = 1e-13;  // of squares
  std::vector<double> scale(at(k));
  for (Index j = 0; j < k; ++j) {
    const double length = std::sqrt(gram[at(j * k + j)]);
    if (!(length > 0)) return j;
    scale[at(j)] = 1 / length;
  }
  for (Index i = 0; i < k; ++i)
    for (Index j = 0; j < k; ++j) gram[at(i * k + j)] *= scale[at(i)] * scale[at(j)];
  for (Index j = 0; j < k; ++j) {
    const double pivot = gram[at(j * k + j)];
    if (!(pivot > rounding * double(k))) return j;
    for (Index i = j + 1; i < k; ++i)
      for (Index l = j + 1; l < k; ++l)
        gram[at(i * k + l)] -= gram[at(i * k + j)] * gram[at(j * k + l)] / pivot;
  }
  return -1;
}

/// The number, before `order`, of an own row or a needed column.
struct CallersRow {
  const RankRows& a;
  const RowOrder& order;
  Index begin;
  Index operator()(Index local) const {
    const Index own = a.rows.rows();
    const Index row = local < own ? begin + local : a.needed[at(local - own)];
    return order.empty() ? row : order.old[at(row)];
  }
};

/// Nodes of `unknowns` rows each, by the first of their rows on this rank.
Nodes nodes_of(Index rows, const CallersRow& row, Index unknowns) {
  std::vector<std::pair<Index, Index>> labels(at(rows));
  for (Index i = 0; i < rows; ++i) labels[at(i)] = {row(i) / unknowns, i};
  if (!std::is_sorted(labels.begin(), labels.end())) std::sort(labels.begin(), labels.end());
  Nodes nodes;
  nodes.of.resize(at(rows));
  std::vector<std::pair<Index, Index>> first;  // row, label's position
  for (Index k = 0; k < rows; ++k)
    if (k == 0 || labels[at(k)].first != labels[at(k - 1)].first)
      first.emplace_back(labels[at(k)].second, k);
  if (!std::is_sorted(first.begin(), first.end())) std::sort(first.begin(), first.end());
  for (const auto& [of_row, from] : first) {
    for (Index k = from; k < rows && labels[at(k)].first == labels[at(from)].first; ++k)
      nodes.of[at(labels[at(k)].second)] = std::int32_t(nodes.count);
    ++nodes.count;
  }
  return nodes;
}

/// Entries of A by places of the blocks that hold them, on all ranks; of some nodes where there are many.
double filled(const Control& control, const RankRows& a, const CallersRow& row, Index unknowns) {
  constexpr Index samples = 4096;
  std::vector<double> sums(2, 0.0);  // entries, places
  collectively(control, [&] {
    const Index rows = a.rows.rows();
    const Nodes nodes = nodes_of(rows, row, unknowns);
    const Index step = ceil_div(std::max<Index>(1, nodes.count), samples);
    std::vector<std::vector<Index>> blocks(at(ceil_div(nodes.count, step)));
    const auto each = [&](const auto& f) {
      for (Index i = 0; i < rows; ++i)
        if (nodes.of[at(i)] % step == 0) f(i, blocks[at(nodes.of[at(i)] / step)]);
    };
    each([&](Index i, std::vector<Index>& seen) {
      for (Index e = a.rows.start[at(i)]; e < a.rows.start[at(i) + 1]; ++e) {
        const Index label = row(a.rows.column[at(e)]) / unknowns;
        if (std::find(seen.begin(), seen.end(), label) == seen.end()) seen.push_back(label);
      }
    });
    each([&](Index i, const std::vector<Index>& seen) {
      sums[0] += double(a.rows.start[at(i) + 1] - a.rows.start[at(i)]);
      sums[1] += double(Index(seen.size()) * unknowns);
    });
  });
  control.reduce(sums, Reduce::sum);
  return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

}  // namespace

NodeVectors node_vectors(const Control& control, const NearNullSpace& given, const RankRows& a,
                         const RowOrder& order) {
  const Index k = given.columns, rows = a.rows.rows(), n = a.first.back();
  if (n == 0) return {};
  const CallersRow row{a, order, a.first[at(control.rank())]};
  if (k > std::min(n, NearNullSpace::most_columns))
    fail_together(Exit::input,
                  fmt::format("the near null-space has {} vectors; {}; give {} at most", k,
                              given.where, std::min(n, NearNullSpace::most_columns)));
  NodeVectors result;
  result.columns = k;
  std::vector<double> most(at(k), 0.0), gram(at(k * k), 0.0);
  if (!order.empty()) result.values = permuted(control, order, k, given.values, false);
  collectively(control, [&] {
    if (order.empty()) result.values.assign(given.values.begin(), given.values.begin() + rows * k);
    for (std::size_t e = 0; e < result.values.size(); ++e)
      most[e % at(k)] = std::max(most[e % at(k)], std::fabs(result.values[e]));
  });
  control.reduce(most, Reduce::max);
  scale_columns(k, most, result.values);
  for (Index i = 0; i < rows; ++i)
    for (Index c = 0; c < k; ++c)
      for (Index d = 0; d < k; ++d)
        gram[at(c * k + d)] += result.values[at(i * k + c)] * result.values[at(i * k + d)];
  control.reduce(gram, Reduce::sum);
  if (const Index bad = dependent_column(k, gram); bad >= 0)
    fail_together(
        Exit::input,
        fmt::format("column {} of the near null-space is zero, or depends on those before "
                    "it; {}; give vectors that do not depend on one another",
                    bad, given.where));
  double most_filled = least_filled;
  for (Index unknowns = 2; unknowns <= k; ++unknowns) {
    const double part = n % unknowns == 0 ? filled(control, a, row, unknowns) : 0.0;
    if (part < as_filled * most_filled) continue;
    result.unknowns = unknowns;
    most_filled = std::max(most_filled, part);
  }
  result.nodes = collectively(control, [&] { return nodes_of(rows, row, result.unknowns); });
  return result;
}

NodeVectors whole_vectors(const Control& control, const NodeVectors& own) {
  const auto ranks = at(control.size());
  const auto from_all = [&](const auto& list) {
    return deal(control, std::vector<std::decay_t<decltype(list)>>(ranks, list));
  };
  const auto values = from_all(own.values);
  const auto nodes = from_all(own.nodes.of);
  const std::vector<Index> counts = control.gather_all(own.nodes.count);
  return collectively(control, [&] {
    NodeVectors all{own.columns, own.unknowns, {}, {}};
    for (std::size_t r = 0; r < ranks; ++r) {
      all.values.insert(all.values.end(), values[r].begin(), values[r].end());
      for (const std::int32_t node : nodes[r])
        all.nodes.of.push_back(std::int32_t(all.nodes.count + node));
      all.nodes.count += counts[r];
    }
    return all;
  });
}

NodeAggregates aggregate_nodes(const Control& control, const RankRows& a,
                               const std::vector<double>& diagonal, double threshold,
                               const NodeVectors& vectors) {
  NodeAggregates result;
  result.next.columns = vectors.columns;
  RankRows& t = result.prolongation;
  collectively(control, [&] {
    const HostRows graph = strong_nodes(a.rows, diagonal, vectors.nodes, threshold);
    const LargeVector<char> strong(at(graph.nonzeros()), 1);
    TentativeBasis basis = tentative_basis(vectors.nodes, aggregate(graph.view(), strong),
                                           vectors.values, vectors.columns);
    t.rows = std::move(basis.prolongation);
    result.next.nodes = std::move(basis.nodes);
    result.next.values = std::move(basis.values);
  });
  t.first.push_back(0);
  for (const Index count : control.gather_all(t.rows.columns))
    t.first.push_back(t.first.back() + count);
  return result;
}

RankRows smoothed_nodes(const Control& control, const RankRows& a,
                        const std::vector<double>& diagonal, const RankRows& t, double weight) {
  const RankRows all = control.size() == 1 ? RankRows{} : with_needed_rows(control, a, t);
  const RankRows& from = control.size() == 1 ? t : all;
  return collectively(control, [&] {
    return RankRows{t.first, from.needed, smoothed_basis(a.rows, diagonal, from.rows, weight)};
  });
}

}  // namespace terrace::cg
