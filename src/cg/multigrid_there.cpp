// The hierarchy of multigrid made where the matrix is. For constants no vector of the matrix's size stands
// on the host; for given vectors it finds aggregates and their bases there, the rest is products. The host
// goes on where rows are too long, and on the last level.
#include <algorithm>
#include <cmath>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/clock.hpp"
#include "src/cg/coarse_rows.hpp"
#include "src/cg/multigrid.hpp"
#include "src/cg/rows_there.hpp"

namespace terrace::cg {
namespace {

/// Rows on the host.
template <class B>
RankRows downloaded_rows(const Stream<B>& lane, const RowsThere<B>& a, const CsrRows<B>& from) {
  RankRows all{a.first, a.needed, {}};
  HostRows& rows = all.rows;
  rows.columns = from.rows() + Index(a.needed.size());
  rows.start.resize(at(from.start.size));
  rows.column.resize(at(from.column.size));
  rows.value.resize(at(from.value.size));
  download_by_threads(lane, rows.start.data(), from.start);
  download_by_threads(lane, rows.column.data(), from.column);
  download_by_threads(lane, rows.value.data(), from.value);
  return all;
}

/// Bytes of Scratch that a first level takes: strong entries and states, or A P.
template <class B>
Index scratch_bytes(Index rows, Index nonzeros) {
  return std::is_same_v<B, Cpu> ? 0 : 14 * nonzeros + 48 * rows;
}

/// Of own rows, by a greedy walk over them on the CPU. Threads of a device choose roots at random
/// instead: on the CPU that takes six times as long, and lines of strong entries then take 12 iterations
/// in place of 8.
template <class B>
RowAggregates<B> own_aggregates(const Stream<B>& lane, const CsrRows<B>& a,
                                View<const double, B> diagonal, double threshold,
                                Scratch<B>& scratch) {
  if constexpr (std::is_same_v<B, Cpu>) {
    lane.synchronize();
    const Aggregates found = aggregate(a, strong_entries(a, diagonal, threshold));
    RowAggregates<B> result{Buffer<std::int32_t, B>(a.rows()), found.count};
    std::copy(found.of.begin(), found.of.end(), result.of.data());
    return result;
  } else {
    return aggregate_rows<B>(lane, a, diagonal, threshold, scratch);
  }
}

}  // namespace

/// One level on its way to the next.
template <class B>
struct Multigrid<B>::LevelThere {
  const Context<B>& context;
  Scratch<B>& scratch;
  std::function<void(const char*)> lap;  // notes the time since the last call
  RowsThere<B>& which;                   // where the columns of A are
  CsrRows<B> a;
  AskedRows<B> asked{context, which};
  double threshold;
  double weight = 0;                   // of smoothing, for given vectors
  Buffer<double, B> diagonal{};        // of all columns of A, after aggregate()
  Buffer<std::int32_t, B> of{};        // aggregates of all of them, local numbers; of several ranks
  std::vector<Index> reached{};        // the global numbers of other ranks' aggregates in `of`
  RowsThere<B> p{}, turned{}, next{};  // P, P' and P' A P
  bool definite = true;

  [[nodiscard]] const Stream<B>& lane() const { return context.ahead; }

  /// The largest of all ranks, and the first bad row of all.
  RowsJudged judge() {
    const Control& control = context.control;
    RowsJudged judged = collectively(control, [&] {
      diagonal = Buffer<double, B>(a.rows());
      return judge_rows<B>(lane(), a, diagonal.view(), scratch);
    });
    judged.longest = control.reduce(judged.longest, Reduce::max);
    judged.bound = control.reduce(judged.bound, Reduce::max);
    const Index all = which.first.back(), first = which.first[at(control.rank())];
    const Index bad = control.reduce(judged.bad < 0 ? all : first + judged.bad, Reduce::min);
    judged.bad = bad == all ? -1 : bad;
    lap("diagonals");
    return judged;
  }

  /// Aggregates, unless there are some, and their numbers on all ranks. `vectors`: given ones, or null;
  /// `rows`: A's on the host, or empty.
  void aggregate(Pattern& pattern, NodeVectors* vectors, RankRows& rows) {
    const Control& control = context.control;
    if (vectors && pattern.first.empty()) {
      if (rows.first.empty())
        rows = collectively(control, [&] { return downloaded_rows(lane(), which, a); });
      const std::vector<double> there = downloaded(lane(), diagonal.view());
      pattern.nodes = aggregate_nodes(control, rows, there, threshold, *vectors);
      pattern.first = pattern.nodes.prolongation.first;
      *vectors = {};
    }
    rows = {};
    if (control.size() > 1) diagonal = asked.joined(context, diagonal);
    if (pattern.first.empty()) {
      RowAggregates<B>& found = pattern.there;
      found = collectively(
          control, [&] { return own_aggregates<B>(lane(), a, diagonal, threshold, scratch); });
      pattern.first.push_back(0);
      for (const Index count : control.gather_all(found.count))
        pattern.first.push_back(pattern.first.back() + count);
    }
    if (control.size() > 1 && !vectors) reach(pattern);
    lap("aggregates");
  }
  /// The aggregates of other ranks' rows that are columns of A.
  void reach(const Pattern& pattern) {
    const RowAggregates<B>& found = pattern.there;
    const Index rows = found.of.size(), first = pattern.first[at(context.rank())];
    Buffer<Index, B> global;
    collectively(context.control, [&] {
      global = Buffer<Index, B>(rows);
      shift_numbers<B>(lane(), found.of, first, global.view());
    });
    const Buffer<Index, B> all = asked.joined(context, global);
    collectively(context.control, [&] {
      const View<const Index, B> others = all.view().slice(rows, all.size() - rows);
      const DistinctNumbers<B> numbers = distinct_numbers<B>(lane(), {others}, {}, scratch);
      of = Buffer<std::int32_t, B>(all.size());
      copy<std::int32_t, B>(lane(), of.view().slice(0, rows), found.of);
      locate<B>(lane(), numbers, {first, found.count}, others, of.view().slice(rows, others.size));
      reached = downloaded(lane(), View<const Index, B>(numbers.ascending));
    });
  }

  [[nodiscard]] Index own(const Pattern& pattern) const {
    const auto me = at(context.rank());
    return pattern.first[me + 1] - pattern.first[me];
  }
  /// P; and its transpose, whose rows are own aggregates and behind them p.needed. Nothing where rows are
  /// too long.
  std::optional<SparseRows<B>> prolong(const Pattern& pattern) {
    const Index own = this->own(pattern);
    if (weight > 0) {
      if (!prolong_nodes(pattern)) return {};
    } else {
      prolong_constants(pattern, own);
    }
    lap("prolongations");
    return collectively(context.control, [&] {
      SparseRows<B> t = transposed<B>(lane(), p.rows.view(), own + Index(p.needed.size()), scratch);
      lap("transposes");
      return t;
    });
  }
  /// P = T - weight D^-1 A T.
  bool prolong_nodes(const Pattern& pattern) {
    const Control& control = context.control;
    RowsThere<B> t = collectively(
        control, [&] { return uploaded_rows<B>(lane(), RankRows(pattern.nodes.prolongation)); });
    if (!pattern.smooth) return p = std::move(t), true;
    const RowsThere<B> fetched = with_needed_rows(t);
    const RowsThere<B>& all = control.size() > 1 ? fetched : t;
    std::optional<SparseRows<B>> product = collectively(control, [&] {
      return sparse_product<B>(lane(), a, all.rows.view(), all.rows.columns, scratch);
    });
    if (control.reduce(Index(product.has_value()), Reduce::min) == 0) return false;
    collectively(control, [&] {
      p = {t.first, all.needed, std::move(*product)};
      damp_rows<B>(lane(), p.rows, t.rows.view(), diagonal, weight);
      drop_unused(lane(), p, own(pattern));
    });
    return true;
  }
  void prolong_constants(const Pattern& pattern, Index own) {
    collectively(context.control, [&] {
      p = {pattern.first, {}, {}};
      if (pattern.smooth) {
        p.needed = reached;
        p.rows = smoothed_prolongation<B>(lane(), a, diagonal, threshold,
                                          context.size() > 1 ? of : pattern.there.of,
                                          own + Index(p.needed.size()), scratch);
        drop_unused(lane(), p, own);
      } else {
        p.rows = tentative_prolongation<B>(lane(), pattern.there.of, own, scratch);
      }
    });
  }
  /// With `choose` P becomes smooth where all levels keep to `room` nonzeros together with the next.
  /// False where rows are too long.
  bool coarsen(Pattern& pattern, bool choose, double room) {
    const Control& control = context.control;
    const Index own = this->own(pattern);
    std::optional<SparseRows<B>> t = prolong(pattern);
    if (!t) return false;
    RowsThere<B> fetched = with_needed_rows(p);
    if (choose) {
      const double mine = collectively(control, [&] {
        CsrRows<B> some = t->view();
        some.start = some.start.slice(0, own + 1);
        return expected_nonzeros<B>(lane(), some, a, whole(fetched).rows.view(),
                                    whole(fetched).rows.columns, scratch);
      });
      pattern.smooth = control.reduce(mine, Reduce::sum) <= room;
      lap("samples");
      if (!pattern.smooth) t = prolong(pattern), fetched = with_needed_rows(p);
    }
    std::optional<SparseRows<B>> product = collectively(control, [&] {
      return coarse_product<B>(lane(), t->view(), a, whole(fetched).rows.view(),
                               whole(fetched).rows.columns, scratch);
    });
    if (control.reduce(Index(product.has_value()), Reduce::min) == 0) return false;
    lap("products");
    next =
        gathered(context, pattern.first, p.needed,
                 RowsThere<B>{pattern.first, whole(fetched).needed, std::move(*product)}, scratch);
    const bool positive = collectively(control, [&] {
      return settle_null_vectors<B>(lane(), next.rows, t->view(), diagonal, scratch);
    });
    definite = control.reduce(Index(positive), Reduce::min) > 0;
    turned = gathered(context, pattern.first, p.needed,
                      RowsThere<B>{which.first, {}, std::move(*t)}, scratch);
    if (control.size() > 1) lap("between ranks");
    return true;
  }
  /// P and P' to a level, ready for products; P with all of a vector where the next level is `whole`.
  void hand_over(Level& level, bool scattered, bool whole) {
    level.prolongation = whole ? Transfer<B>::of_whole(context, std::move(p), scattered, scratch)
                               : Transfer<B>(context, std::move(p), scattered, scratch);
    level.correction = level.prolongation.operand(context);
    level.restriction = Transfer<B>(context, std::move(turned), scattered, scratch);
    if (level.restriction.crosses()) level.rest = level.restriction.operand(context);
  }
  /// T or P with rows of other ranks, where there are some.
  RowsThere<B> with_needed_rows(const RowsThere<B>& t) {
    if (context.size() == 1) return {};
    RowsThere<B> fetched = asked.with_needed_rows(context, t, scratch);
    lap("between ranks");
    return fetched;
  }
  [[nodiscard]] const RowsThere<B>& whole(const RowsThere<B>& fetched) const {
    return context.size() == 1 ? p : fetched;
  }
};

/// The level that comes next, and what is left for it and those behind it.
template <class B>
struct Multigrid<B>::Coming {
  Scratch<B>& scratch;
  const std::function<void(const char*)> lap;
  RowsThere<B> made;
  CsrRows<B> a;
  bool scattered;
  double share;  // nonzeros of A, of a rank
  double room;   // nonzeros that levels may have, of all ranks
};

template <class B>
bool Multigrid<B>::build_there(const Context<B>& context, const Product& product, Operand<B>& p,
                               RowsThere<B>&& made, const CsrRows<B>& first, RankRows& rest) {
  const Stream<B>& lane = context.ahead;
  const Control& control = context.control;
  auto start = Clock::now();
  Scratch<B> scratch = collectively(control, [&] {
    return Scratch<B>(
        made.first.back() > coarsest_ ? scratch_bytes<B>(first.rows(), first.column.size) : 0);
  });
  const double all = double(control.reduce(first.column.size, Reduce::sum));
  Coming next{.scratch = scratch,
              .lap =
                  [&](const char* part) {
                    lane.synchronize();
                    const auto now = Clock::now();  // the next part starts where this one ends
                    const std::chrono::duration<double> spent = now - std::exchange(start, now);
                    note_time(part, spent.count());
                  },
              .made = std::move(made),
              .a = first,
              .scattered = first.scattered,
              .share = all / double(control.size()),
              .room = levels::most_nonzeros * all};
  return go_on_there(context, product, p, next, rest);
}

template <class B>
bool Multigrid<B>::choose_whole(const Control& control, std::size_t l, const RowsThere<B>& next,
                                double share) {
  if (control.size() == 1) return false;
  const auto nonzeros = double(control.reduce(next.rows.nonzeros(), Reduce::sum));
  const bool known = patterns_.size() > l;  // from other values
  if (!known && nonzeros <= std::max(levels::whole_nonzeros<B>, levels::whole_part<B> * share))
    whole_from_ = l;
  return whole_from_ == l;
}

template <class B>
bool Multigrid<B>::go_on_there(const Context<B>& context, const Product& product, Operand<B>& p,
                               Coming& next, RankRows& rest) {
  const Stream<B>& lane = context.ahead;
  const Control& control = context.control;
  RowsThere<B>& made = next.made;
  CsrRows<B>& a = next.a;
  for (std::size_t l = levels_.size(); made.first.back() > coarsest_; ++l) {
    const Index n = made.first.back();
    const Index nonzeros = control.reduce(a.column.size, Reduce::sum);
    LevelThere now{.context = context,
                   .scratch = next.scratch,
                   .lap = next.lap,
                   .which = made,
                   .a = a,
                   .threshold = std::ldexp(levels::strength, -int(l))};
    const RowsJudged judged = now.judge();
    if (judged.longest > coarsening_row) break;
    if (judged.bad >= 0) {
      notes_.levels.push_back({n, nonzeros});
      if (l == 0) notes_.bad_row = judged.bad;
      notes_.indefinite = true;
      return false;
    }
    if (l == patterns_.size()) patterns_.emplace_back();
    Pattern& pattern = patterns_[l];
    now.aggregate(pattern, notes_.vectors > 0 ? &vectors_of(l) : nullptr, rest);
    next.room -= double(nonzeros);
    const Index coarse = pattern.first.back();
    const bool last = coarse == 0 || double(coarse) > levels::least_gain * double(n);
    levels_.push_back(std::make_unique<Level>());
    Level& level = *levels_.back();
    const Range own{made.first[at(control.rank())], a.rows()};
    Product multiply = product;
    if (l > 0) {
      level.a.emplace(context, made, next.scattered, next.scratch);
      now.a = level.a->matrix();
      if (!made.needed.empty()) now.a.column = made.rows.column;
      p = level.a->operand(context);
      multiply = product_of(context, *level.a);
      collectively(control, [&] { level.r = Buffer<double, B>(own.count); });
    }
    level.smoother = Chebyshev<B>(context, multiply, std::exchange(p, {}), own,
                                  now.diagonal.view().slice(0, own.count),
                                  last ? smoothing::last_degree : smoothing::degree,
                                  last ? 0 : smoothing::ratio, judged.bound);
    notes_.indefinite = level.smoother.notes().indefinite;
    now.lap("smoothers");
    if (notes_.vectors > 0) now.weight = levels::damping / level.smoother.notes().high;
    if (!last && !notes_.indefinite &&
        !now.coarsen(pattern, !std::exchange(pattern.chosen, true), next.room)) {
      rest = collectively(control, [&] { return downloaded_rows(lane, made, now.a); });
      levels_.pop_back();
      now.lap("download");
      return true;
    }
    notes_.levels.push_back({n, nonzeros});
    ++notes_.there;
    note_cycle(own.count, now.a.column.size, last);
    if (last || notes_.indefinite) return false;
    notes_.bytes += 24.0 * double(now.p.rows.nonzeros());
    notes_.indefinite = !now.definite;
    const bool whole = choose_whole(control, l + 1, now.next, next.share);
    now.hand_over(level, next.scattered, whole);
    made = std::move(now.next);
    a = made.rows.view();
    now.lap("transfers");
    if (notes_.indefinite) return false;
    if (!whole) continue;
    made = whole_rows(context, made, next.scratch);
    a = made.rows.view();
    NodeVectors& vectors = pattern.nodes.next;
    if (vectors.columns > 0 && patterns_.size() == l + 1) vectors = whole_vectors(control, vectors);
    now.lap("between ranks");
    return collectively_alone(
        control, [&] { return go_on_there(alone_on(context), product, p, next, rest); });
  }
  rest = collectively(control, [&] { return downloaded_rows(lane, made, a); });
  next.lap("download");
  return true;
}

#define TERRACE_INSTANTIATE(B)                                                            \
  template bool Multigrid<B>::build_there(const Context<B>&, const Product&, Operand<B>&, \
                                          RowsThere<B>&&, const CsrRows<B>&, RankRows&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
