#include "src/cg/reorder.hpp"

#include <algorithm>
#include <cstdlib>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "src/cg/coarse_rows.hpp"

namespace terrace::cg {
namespace {

class Adjacency {
 public:
  Adjacency(const std::vector<Index>& start, std::span<const Index> column)
      : start_(start), column_(column), level_(start.size() - 1, 0) {}

  [[nodiscard]] Index degree(Index i) const {
    return start_[std::size_t(i) + 1] - start_[std::size_t(i)];
  }
  /// Appends the nodes of root's component, nearest first, a node's new neighbours by degree; the
  /// number of levels. Nodes whose mark is `round` are taken.
  Index search(Index root, Index round, std::vector<Index>& order) {
    const std::size_t first = order.size();
    order.push_back(root);
    level_[std::size_t(root)] = round;
    Index levels = 0;
    for (std::size_t from = first, end = order.size(); from < end; end = order.size(), ++levels) {
      last_ = from;
      for (; from < end; ++from) {
        const std::size_t i = std::size_t(order[from]), begin = order.size();
        for (Index k = start_[i]; k < start_[i + 1]; ++k) {
          const Index j = column_[std::size_t(k)];
          if (level_[std::size_t(j)] == round) continue;
          level_[std::size_t(j)] = round;
          order.push_back(j);
        }
        std::sort(order.begin() + std::ptrdiff_t(begin), order.end(), [&](Index a, Index b) {
          return degree(a) != degree(b) ? degree(a) < degree(b) : a < b;
        });
      }
    }
    return levels;
  }
  /// Where the last level of the last search begins in its order.
  [[nodiscard]] std::size_t last_level() const { return last_; }

 private:
  const std::vector<Index>& start_;
  std::span<const Index> column_;
  std::vector<Index> level_;  // the last round that reached a node
  std::size_t last_ = 0;
};

}  // namespace

std::vector<Index> reverse_cuthill_mckee(const std::vector<Index>& start,
                                         std::span<const Index> column) {
  const Index n = Index(start.size()) - 1;
  std::vector<Index> order, trial;
  std::vector<bool> done(std::size_t(n), false);
  order.reserve(std::size_t(n));
  Adjacency graph(start, column);
  Index round = 0;
  for (Index i = 0; i < n; ++i) {
    if (done[std::size_t(i)]) continue;
    // From a node of least degree in the last level on, while that makes the search deeper.
    Index root = i, levels = 0;
    for (;;) {
      trial.clear();
      const Index found = graph.search(root, ++round, trial);
      if (found <= levels) break;
      levels = found;
      const auto last = trial.begin() + std::ptrdiff_t(graph.last_level());
      root = *std::min_element(last, trial.end(), [&](Index a, Index b) {
        return graph.degree(a) != graph.degree(b) ? graph.degree(a) < graph.degree(b) : a < b;
      });
    }
    for (const Index k : trial) done[std::size_t(k)] = true;
    order.insert(order.end(), trial.begin(), trial.end());
  }
  std::reverse(order.begin(), order.end());
  return order;
}

namespace {

/// rows(i, r) for each own row i of A that goes to rank r of the caller's, or comes from there, ascending.
template <class F>
void each_own(const RowOrder& order, int rank, const F& f) {
  for (Index i = order.first[at(rank)]; i < order.first[at(rank) + 1]; ++i)
    f(i, owner_of(order.callers, order.old[at(i)]));
}
/// The same for the caller's own rows: row i of A, and its rank.
template <class F>
void each_of_callers(const RowOrder& order, int rank, const F& f) {
  const Index begin = order.callers[at(rank)], end = order.callers[at(rank) + 1];
  for (std::size_t r = 0; r + 1 < order.first.size(); ++r)
    for (Index i = order.first[r]; i < order.first[r + 1]; ++i)
      if (order.old[at(i)] >= begin && order.old[at(i)] < end) f(i, int(r));
}

/// Of all ranks, one after the other, on rank 0; of one rank those that are given. Collective.
template <class T, class Numbers>
std::vector<T> gathered(const Control& control, const Numbers& own) {
  std::vector<std::vector<T>> parts(at(control.size()));
  collectively(control, [&] { parts[0].assign(own.begin(), own.end()); });
  parts = deal(control, std::move(parts));
  return collectively(control, [&] {
    std::vector<T> all = std::move(parts[0]);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      all.insert(all.end(), parts[r].begin(), parts[r].end());
      parts[r] = {};
    }
    return all;
  });
}

/// The order of all rows, and their starts on the ranks.
RowOrder ordered(const Control& control, std::vector<Index> first, const CsrSlice& own) {
  const Index n = first.back();
  const std::vector<Index> starts = gathered<Index>(
      control, std::span(own.start).subspan(1));  // each from the first own nonzero on
  std::vector<Index> columns;
  if (control.size() > 1) columns = gathered<Index>(control, own.column);
  RowOrder order{{}, std::move(first), {}};
  std::vector<Index> pointers{0};  // of A's rows, in the new order
  collectively(control, [&] {
    if (control.rank() > 0) return order.old.resize(at(n));
    std::vector<Index> start(1, 0);
    start.reserve(at(n) + 1);
    for (std::size_t r = 0; r + 1 < order.callers.size(); ++r) {
      const Index before = start.back();
      for (Index i = order.callers[r]; i < order.callers[r + 1]; ++i)
        start.push_back(before + starts[at(i)]);
    }
    const std::span<const Index> all =
        control.size() > 1 ? std::span<const Index>(columns) : std::span(own.column);
    order.old = reverse_cuthill_mckee(start, all);
    pointers.reserve(at(n) + 1);
    for (const Index i : order.old)
      pointers.push_back(pointers.back() + start[at(i) + 1] - start[at(i)]);
  });
  control.broadcast(order.old.data(), n * Index(sizeof(Index)), 0);
  const Index nonzeros = control.reduce(pointers.back(), Reduce::max);
  order.first = balanced_rows(control, n, nonzeros, 0, pointers);
  return order;
}

}  // namespace

RowOrder reorder(const Control& control, std::vector<Index>& first, CsrSlice& own) {
  RowOrder order = ordered(control, first, own);
  const Index begin = first[at(control.rank())];
  std::vector<std::vector<Index>> lines(at(control.size()));  // of each row its length and columns
  std::vector<std::vector<double>> values(at(control.size()));
  collectively(control, [&] {
    std::vector<Index> place(order.old.size());
    for (std::size_t i = 0; i < place.size(); ++i) place[at(order.old[i])] = Index(i);
    each_of_callers(order, control.rank(), [&](Index i, int r) {
      const Index row = order.old[at(i)] - begin;
      const Index from = own.start[at(row)], to = own.start[at(row) + 1];
      lines[at(r)].push_back(to - from);
      for (Index k = from; k < to; ++k) lines[at(r)].push_back(place[at(own.column[at(k)])]);
      values[at(r)].insert(values[at(r)].end(), own.value.begin() + from, own.value.begin() + to);
    });
    own = CsrSlice();
  });
  lines = deal(control, std::move(lines));
  values = deal(control, std::move(values));
  collectively(control, [&] {
    std::size_t entries = 0;
    for (const std::vector<double>& part : values) entries += part.size();
    own.column.reserve(entries);
    own.value.reserve(entries);
    std::vector<std::size_t> line(lines.size()), value(lines.size());
    each_own(order, control.rank(), [&](Index, int r) {
      const auto count = lines[at(r)][line[at(r)]++];
      const auto column = lines[at(r)].begin() + std::ptrdiff_t(line[at(r)]);
      const auto number = values[at(r)].begin() + std::ptrdiff_t(value[at(r)]);
      own.column.insert(own.column.end(), column, column + count);
      own.value.insert(own.value.end(), number, number + count);
      line[at(r)] += std::size_t(count), value[at(r)] += std::size_t(count);
      own.start.push_back(Index(own.column.size()));
    });
  });
  first = order.first;
  return order;
}

Index reorder_bytes(Index n, Index nonzeros, int ranks) {
  const Index entries = ceil_div(nonzeros, ranks), rows = ceil_div(n, ranks);
  const Index pattern = ranks > 1 ? 8 * nonzeros + 16 * entries : 0;  // on rank 0; and its messages
  const Index search = 8 * 6 * n;  // starts, levels, two orders, the starts of rows in order
  const Index moved =
      16 * n + 32 * entries + 16 * rows;  // messages out and in, or in and the new rows
  return 16 * entries + 8 * rows + std::max(pattern + search, moved);
}

std::vector<double> permuted(const Control& control, const RowOrder& order, Index columns,
                             const std::vector<double>& rows, bool back) {
  const int me = control.rank();
  const Index of_a = order.first[at(me)], of_callers = order.callers[at(me)];
  const auto in_a = [&](Index i) { return (i - of_a) * columns; };
  const auto in_callers = [&](Index i) { return (order.old[at(i)] - of_callers) * columns; };
  std::vector<std::vector<double>> parts(at(control.size()));
  const auto send = [&](Index from, int r) {
    parts[at(r)].insert(parts[at(r)].end(), rows.begin() + from, rows.begin() + from + columns);
  };
  collectively(control, [&] {
    if (back)
      each_own(order, me, [&](Index i, int r) { send(in_a(i), r); });
    else
      each_of_callers(order, me, [&](Index i, int r) { send(in_callers(i), r); });
  });
  parts = deal(control, std::move(parts));
  return collectively(control, [&] {
    const std::vector<Index>& first = back ? order.callers : order.first;
    std::vector<double> result(at((first[at(me) + 1] - first[at(me)]) * columns));
    std::vector<std::ptrdiff_t> next(parts.size(), 0);
    const auto take = [&](Index to, int r) {
      std::copy_n(parts[at(r)].begin() + next[at(r)], columns, result.begin() + to);
      next[at(r)] += columns;
    };
    if (back)
      each_of_callers(order, me, [&](Index i, int r) { take(in_callers(i), r); });
    else
      each_own(order, me, [&](Index i, int r) { take(in_a(i), r); });
    return result;
  });
}

}  // namespace terrace::cg
