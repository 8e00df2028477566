// Coarsening on the CPU: the twin of kernels/cg/cuda/coarsening.cu, step by step, in threads. Bound by
// memory and by searches in tables of columns.
#include "kernels/cg/coarsening.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "kernels/cg/coarsening_rules.hpp"
#include "kernels/cg/cpu/row_sums.hpp"

namespace terrace::cg {
namespace {

namespace rule = coarsening;
using RowState = rule::State;

constexpr Index coarsening_grain = 4096;

/// f(i) for i in [0, count), in threads.
template <class F>
void each_row(Index count, const F& f) {
  parallel_ranges(count, coarsening_grain, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) f(i);
  });
}

/// Strong neighbours of row i: column[start[i]] and `count[i]` in all.
struct StrongRows {
  View<const Index, Cpu> start;
  LargeVector<std::int32_t> column;
  LargeVector<std::int32_t> count;
  [[nodiscard]] Index rows() const { return Index(count.size()); }
  /// f(j) of each neighbour, until it says true.
  template <class F>
  bool any(Index i, const F& f) const {
    const std::int32_t* const own = column.data() + start.data[i];
    return std::any_of(own, own + count[std::size_t(i)], f);
  }
};

StrongRows strong_rows(const CsrRows<Cpu>& a, View<const double, Cpu> diagonal, double threshold) {
  StrongRows strong{a.start, LargeVector<std::int32_t>(std::size_t(a.column.size)),
                    LargeVector<std::int32_t>(std::size_t(a.rows()))};
  const double factor = threshold * threshold;
  each_row(a.rows(), [&](Index i) {
    std::int32_t* const begin = strong.column.data() + a.start.data[i];
    std::int32_t* to = begin;
    for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
      const std::int32_t j = a.column.data[e];
      if (j != i && j < a.rows() &&
          rule::is_strong(a.value.data[e], factor, diagonal.data[i], diagonal.data[j]))
        *to++ = j;
    }
    strong.count[std::size_t(i)] = std::int32_t(to - begin);
  });
  return strong;
}

/// Decides the undecided rows.
void choose_roots(const StrongRows& strong, std::vector<RowState>& state) {
  constexpr Word is_in = 0;
  LargeVector<Word> word(state.size()), least(state.size());
  std::vector<std::int32_t> open, live;  // undecided rows; rows whose `least` may change
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (state[i] != RowState::blocked) live.push_back(std::int32_t(i));
    if (state[i] == RowState::undecided) open.push_back(std::int32_t(i));
    word[i] = least[i] = rule::settled;
  }
  for (int round = 0; round < rule::most_rounds && !open.empty(); ++round) {
    each_row(Index(open.size()), [&](Index k) {
      const std::int32_t i = open[std::size_t(k)];
      word[std::size_t(i)] = rule::priority(i, round);
    });
    each_row(Index(live.size()), [&](Index k) {
      const auto i = std::size_t(live[std::size_t(k)]);
      Word smallest = word[i];
      (void)strong.any(Index(i), [&](std::int32_t j) {
        smallest = std::min(smallest, word[std::size_t(j)]);
        return false;
      });
      least[i] = smallest == is_in ? rule::settled : smallest;
    });
    each_row(Index(open.size()), [&](Index k) {
      const auto i = std::size_t(open[std::size_t(k)]);
      bool near = least[i] == rule::settled, first = least[i] == word[i];
      (void)strong.any(Index(i), [&](std::int32_t j) {
        if (state[std::size_t(j)] == RowState::blocked) return false;
        near = near || least[std::size_t(j)] == rule::settled;
        first = first && least[std::size_t(j)] == word[i];
        return near;
      });
      if (near || first) state[i] = near ? RowState::out : RowState::in;
    });
    for (const std::int32_t i : open)
      if (const RowState s = state[std::size_t(i)]; s != RowState::undecided)
        word[std::size_t(i)] = s == RowState::in ? is_in : rule::settled;
    std::erase_if(open,
                  [&](std::int32_t i) { return state[std::size_t(i)] != RowState::undecided; });
    std::erase_if(live, [&](std::int32_t i) { return least[std::size_t(i)] == rule::settled; });
  }
}

/// root[i]: the root that is row i or its first neighbour among those that are in; -1: none.
void cover(const StrongRows& strong, const std::vector<RowState>& state,
           LargeVector<std::int32_t>& root) {
  each_row(strong.rows(), [&](Index i) {
    if (root[std::size_t(i)] >= 0) return;
    if (state[std::size_t(i)] == RowState::in)
      root[std::size_t(i)] = std::int32_t(i);
    else if (state[std::size_t(i)] != RowState::blocked)
      (void)strong.any(i, [&](std::int32_t j) {
        if (state[std::size_t(j)] != RowState::in) return false;
        root[std::size_t(i)] = j;
        return true;
      });
  });
}

/// The rows that no root has, and which of them may be roots.
std::vector<RowState> free_rows(const StrongRows& strong, const LargeVector<std::int32_t>& root) {
  std::vector<RowState> state(root.size(), RowState::blocked);
  each_row(strong.rows(), [&](Index i) {
    const Index all = strong.count[std::size_t(i)];
    if (root[std::size_t(i)] >= 0 || all == 0) return;
    Index free = 0;
    (void)strong.any(i, [&](std::int32_t j) {
      free += root[std::size_t(j)] < 0;
      return false;
    });
    state[std::size_t(i)] = rule::may_begin(free, all) ? RowState::undecided : RowState::out;
  });
  return state;
}

/// What joins its neighbours; from[j] of neighbours, sizes by root.
std::int32_t joined_root(const StrongRows& strong, Index i, const LargeVector<std::int32_t>& from,
                         const std::vector<std::int32_t>& size) {
  const std::int32_t* const own = strong.column.data() + strong.start.data[i];
  const Index count = std::min<Index>(strong.count[std::size_t(i)], rule::most_looked_at);
  std::int32_t best = -1;
  Index most = 0;
  for (Index e = 0; e < count; ++e) {
    const std::int32_t root = from[std::size_t(own[e])];
    if (root < 0) continue;
    Index same = 0;
    for (Index f = 0; f < count; ++f) same += from[std::size_t(own[f])] == root;
    if (same > most || (same == most && size[std::size_t(root)] < size[std::size_t(best)])) {
      best = root;
      most = same;
    }
  }
  return best;
}

/// Columns of each row ascend.
void sort_rows(SparseRows<Cpu>& a) {
  each_row(a.rows(), [&](Index i) {
    const Index from = a.start.data()[i], count = a.start.data()[i + 1] - from;
    std::int32_t* const c = a.column.data() + from;
    double* const v = a.value.data() + from;
    constexpr Index few = 48;
    if (count <= few) {
      for (Index k = 1; k < count; ++k) {
        const std::int32_t column = c[k];
        const double value = v[k];
        Index to = k;
        for (; to > 0 && c[to - 1] > column; --to) c[to] = c[to - 1], v[to] = v[to - 1];
        c[to] = column, v[to] = value;
      }
      return;
    }
    std::vector<std::pair<std::int32_t, double>> row;
    for (Index k = 0; k < count; ++k) row.emplace_back(c[k], v[k]);
    std::sort(row.begin(), row.end(),
              [](const auto& x, const auto& y) { return x.first < y.first; });
    for (Index k = 0; k < count; ++k)
      c[k] = row[std::size_t(k)].first, v[k] = row[std::size_t(k)].second;
  });
}

bool has_long_row(const SparseRows<Cpu>& a) {
  for (Index i = 0; i < a.rows(); ++i)
    if (a.start.data()[i + 1] - a.start.data()[i] > coarsening_result) return true;
  return false;
}

template <class Rows>
Rows multiply_rows(const CsrRows<Cpu>& a, const CsrRows<Cpu>& b, Index columns) {
  return rows_of<Rows>(a.rows(), columns, [&](Index i, RowSum& row) {
    for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
      const Index k = a.column.data[e];
      const double factor = a.value.data[e];
      for (Index f = b.start.data[k]; f < b.start.data[k + 1]; ++f)
        row.add(b.column.data[f], factor * b.value.data[f]);
    }
  });
}

}  // namespace

template <>
RowsJudged judge_rows(const Stream<Cpu>& stream, const CsrRows<Cpu>& a, View<double, Cpu> diagonal,
                      Scratch<Cpu>&) {
  stream.synchronize();
  std::vector<RowsJudged> pieces(std::size_t(ceil_div(a.rows(), coarsening_grain)));
  parallel_ranges(a.rows(), coarsening_grain, [&](Index from, Index to) {
    RowsJudged& piece = pieces[std::size_t(from / coarsening_grain)];
    for (Index i = from; i < to; ++i) {
      double sum = 0, middle = 0;
      for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
        sum += std::fabs(a.value.data[e]);
        if (a.column.data[e] == i) middle = a.value.data[e];
      }
      diagonal.data[i] = middle;
      piece.longest = std::max(piece.longest, a.start.data[i + 1] - a.start.data[i]);
      if (middle > 0 && std::isfinite(1 / middle))
        piece.bound = std::max(piece.bound, sum / middle);
      else if (piece.bad < 0)
        piece.bad = i;
    }
  });
  RowsJudged all;
  for (const RowsJudged& piece : pieces) {
    if (all.bad < 0) all.bad = piece.bad;
    all.longest = std::max(all.longest, piece.longest);
    all.bound = std::max(all.bound, piece.bound);
  }
  return all;
}

template <>
RowAggregates<Cpu> aggregate_rows(const Stream<Cpu>& stream, const CsrRows<Cpu>& a,
                                  View<const double, Cpu> diagonal, double threshold,
                                  Scratch<Cpu>&) {
  stream.synchronize();
  const Index rows = a.rows();
  const StrongRows strong = strong_rows(a, diagonal, threshold);
  LargeVector<std::int32_t> root(std::size_t(rows), -1);
  std::vector<RowState> state(root.size());
  for (Index i = 0; i < rows; ++i)
    state[std::size_t(i)] =
        strong.count[std::size_t(i)] > 0 ? RowState::undecided : RowState::blocked;
  choose_roots(strong, state);
  cover(strong, state, root);
  state = free_rows(strong, root);
  choose_roots(strong, state);
  cover(strong, state, root);
  std::vector<std::int32_t> size(std::size_t(rows), 0);
  for (const std::int32_t r : root)
    if (r >= 0) ++size[std::size_t(r)];
  const LargeVector<std::int32_t> before = root;
  each_row(rows, [&](Index i) {
    if (root[std::size_t(i)] < 0) root[std::size_t(i)] = joined_root(strong, i, before, size);
  });
  RowAggregates<Cpu> result{Buffer<std::int32_t, Cpu>(rows), 0};
  std::vector<std::int32_t>& number = size;
  for (Index i = 0; i < rows; ++i)
    if (root[std::size_t(i)] == i) number[std::size_t(i)] = std::int32_t(result.count++);
  each_row(rows, [&](Index i) {
    const std::int32_t r = root[std::size_t(i)];
    result.of.data()[i] = r < 0 ? -1 : number[std::size_t(r)];
  });
  return result;
}

template <>
SparseRows<Cpu> tentative_prolongation(const Stream<Cpu>& stream, View<const std::int32_t, Cpu> of,
                                       Index count, Scratch<Cpu>&) {
  stream.synchronize();
  return rows_of<SparseRows<Cpu>>(of.size, count, [&](Index i, RowSum& row) {
    if (of.data[i] >= 0) row.add(of.data[i], 1);
  });
}

template <>
SparseRows<Cpu> smoothed_prolongation(const Stream<Cpu>& stream, const CsrRows<Cpu>& a,
                                      View<const double, Cpu> diagonal, double threshold,
                                      View<const std::int32_t, Cpu> aggregate, Index count,
                                      Scratch<Cpu>&) {
  stream.synchronize();
  const double factor = threshold * threshold;
  const std::int32_t* const of = aggregate.data;
  SparseRows<Cpu> p = rows_of<SparseRows<Cpu>>(a.rows(), count, [&](Index i, RowSum& row) {
    if (of[i] < 0) return;
    const auto strong = [&](Index e) {
      const std::int32_t j = a.column.data[e];
      return j != i && rule::is_strong(a.value.data[e], factor, diagonal.data[i], diagonal.data[j]);
    };
    double middle = diagonal.data[i], sum = 0;
    for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
      if (strong(e))
        sum += std::fabs(a.value.data[e]);
      else if (a.column.data[e] != i)
        middle += a.value.data[e];
    }
    sum += std::fabs(middle);
    const double weight = rule::prolongation_weight / sum;
    row.add(of[i], 1 - weight * middle);
    for (Index e = a.start.data[i]; e < a.start.data[i + 1]; ++e) {
      const std::int32_t other = strong(e) ? of[a.column.data[e]] : -1;
      if (other >= 0) row.add(other, -weight * a.value.data[e]);
    }
  });
  sort_rows(p);
  return p;
}

template <>
SparseRows<Cpu> transposed(const Stream<Cpu>& stream, const CsrRows<Cpu>& p, Index columns,
                           Scratch<Cpu>&) {
  stream.synchronize();
  SparseRows<Cpu> t;
  t.columns = p.rows();
  make_starts(t, columns);
  make_entries(t, p.column.size);
  Index* const start = t.start.data();
  std::fill_n(start, columns + 1, 0);
  for (Index e = 0; e < p.column.size; ++e) ++start[p.column.data[e] + 1];
  for (Index j = 0; j < columns; ++j) start[j + 1] += start[j];
  std::vector<Index> next(start, start + columns);
  for (Index i = 0; i < p.rows(); ++i)
    for (Index e = p.start.data[i]; e < p.start.data[i + 1]; ++e) {
      const Index to = next[std::size_t(p.column.data[e])]++;
      t.column.data()[to] = std::int32_t(i);
      t.value.data()[to] = p.value.data[e];
    }
  return t;
}

template <>
double expected_nonzeros(const Stream<Cpu>& stream, const CsrRows<Cpu>& t, const CsrRows<Cpu>& a,
                         const CsrRows<Cpu>& p, Index columns, Scratch<Cpu>&) {
  stream.synchronize();
  constexpr Index samples = 200;
  const Index step = std::max<Index>(1, t.rows() / samples), some = ceil_div(t.rows(), step);
  std::vector<Index> found(std::size_t(some), 0);
  parallel_for(std::min<Index>(some, thread_count()), [&](Index first) {
    std::vector<std::int32_t> seen(std::size_t(columns), -1);
    for (Index s = first; s < some; s += std::min<Index>(some, thread_count()))
      for (Index e = t.start.data[s * step]; e < t.start.data[s * step + 1]; ++e) {
        const Index i = t.column.data[e];
        for (Index f = a.start.data[i]; f < a.start.data[i + 1]; ++f) {
          const Index k = a.column.data[f];
          for (Index g = p.start.data[k]; g < p.start.data[k + 1]; ++g)
            if (std::exchange(seen[std::size_t(p.column.data[g])], std::int32_t(s)) != s)
              ++found[std::size_t(s)];
        }
      }
  });
  Index sum = 0;
  for (const Index count : found) sum += count;
  return double(sum) * double(t.rows()) / double(std::max<Index>(1, some));
}

template <>
std::optional<SparseRows<Cpu>> sparse_product(const Stream<Cpu>& stream, const CsrRows<Cpu>& a,
                                              const CsrRows<Cpu>& b, Index columns, Scratch<Cpu>&) {
  stream.synchronize();
  std::optional<SparseRows<Cpu>> result(multiply_rows<SparseRows<Cpu>>(a, b, columns));
  if (has_long_row(*result)) return {};
  sort_rows(*result);
  return result;
}

template <>
void damp_rows(const Stream<Cpu>& stream, SparseRows<Cpu>& p, const CsrRows<Cpu>& t,
               View<const double, Cpu> diagonal, double weight) {
  stream.synchronize();
  each_row(p.rows(), [&](Index i) {
    Index f = t.start.data[i];
    const Index end = t.start.data[i + 1];
    const double factor = f < end ? -weight / diagonal.data[i] : 0;
    for (Index e = p.start.data()[i]; e < p.start.data()[i + 1]; ++e) {
      double& value = p.value.data()[e];
      value *= factor;
      while (f < end && t.column.data[f] < p.column.data()[e]) ++f;
      if (f < end && t.column.data[f] == p.column.data()[e]) value += t.value.data[f];
    }
  });
}

template <>
std::optional<SparseRows<Cpu>> coarse_product(const Stream<Cpu>& stream, const CsrRows<Cpu>& t,
                                              const CsrRows<Cpu>& a, const CsrRows<Cpu>& p,
                                              Index columns, Scratch<Cpu>& scratch) {
  stream.synchronize();
  const auto ap = multiply_rows<SparseRows<Cpu>>(a, p, columns);
  if (has_long_row(ap)) return {};
  return sparse_product<Cpu>(stream, t, ap.view(), columns, scratch);
}

template <>
bool settle_null_vectors(const Stream<Cpu>& stream, const SparseRows<Cpu>& coarse,
                         const CsrRows<Cpu>& t, View<const double, Cpu> diagonal, Scratch<Cpu>&) {
  stream.synchronize();
  std::vector<char> bad(std::size_t(ceil_div(coarse.rows(), coarsening_grain)), 0);
  each_row(coarse.rows(), [&](Index i) {
    double scale = 0;  // diagonal of T D P
    for (Index e = t.start.data[i]; e < t.start.data[i + 1]; ++e)
      scale += t.value.data[e] * t.value.data[e] * diagonal.data[t.column.data[e]];
    for (Index e = coarse.start.data()[i]; e < coarse.start.data()[i + 1]; ++e) {
      if (coarse.column.data()[e] != i) continue;
      double& value = coarse.value.data()[e];
      const rule::Settled found = rule::settle(value, scale);
      if (found == rule::Settled::negative) bad[std::size_t(i / coarsening_grain)] = 1;
      if (found == rule::Settled::null) value = scale;
    }
  });
  return std::find(bad.begin(), bad.end(), 1) == bad.end();
}

template <>
RowChunks<Cpu> chunks_of(const Stream<Cpu>&, const CsrRows<Cpu>&, Scratch<Cpu>&) {
  return {};
}

template <>
void fill_uniform(const Stream<Cpu>& stream, Word seed, Index first, Index columns,
                  View<double, Cpu> v) {
  stream.run([=] {
    each_row(v.size, [&](Index i) { v.data[i] = random_uniform(seed, first + i / columns, 0); });
  });
}

}  // namespace terrace::cg
