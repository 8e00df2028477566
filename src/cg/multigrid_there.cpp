// The hierarchy of multigrid made where the matrix is, by one rank, for constants: no vector of the
// matrix's size stands on the host. The host goes on where rows are too long, and on the last level.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/clock.hpp"
#include "src/cg/multigrid.hpp"

namespace terrace::cg {
namespace {

/// Rows on the host.
template <class B>
RankRows downloaded_rows(const Stream<B>& lane, const CsrRows<B>& a) {
  RankRows all{{0, a.rows()}, {}, {}};
  HostRows& rows = all.rows;
  rows.columns = a.rows();
  rows.start.resize(std::size_t(a.start.size));
  rows.column.resize(std::size_t(a.column.size));
  rows.value.resize(std::size_t(a.value.size));
  download(lane, rows.start.data(), a.start);
  download(lane, rows.column.data(), a.column);
  download(lane, rows.value.data(), a.value);
  lane.synchronize();
  return all;
}

/// Bytes of Scratch that a first level takes: strong entries and states, or A P.
template <class B>
Index scratch_bytes(Index rows, Index nonzeros) {
  return std::is_same_v<B, Cpu> ? 0 : 14 * nonzeros + 48 * rows;
}

/// By a greedy walk over the rows on the CPU. Threads of a device choose roots at random instead: on the
/// CPU that takes six times as long, and lines of strong entries then take 12 iterations in place of 8.
template <class B>
RowAggregates<B> level_aggregates(const Stream<B>& lane, const CsrRows<B>& a,
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

/// One level on its way to the next.
template <class B>
struct LevelThere {
  const Stream<B>& lane;
  Scratch<B>& scratch;
  std::function<void(const char*)> lap;  // notes the time since the last call
  CsrRows<B> a;
  View<const double, B> diagonal;
  double threshold;
  SparseRows<B> p, t;                 // P, P'
  std::optional<SparseRows<B>> next;  // P' A P

  void prolong(const RowAggregates<B>& aggregates, bool smooth) {
    p = smooth ? smoothed_prolongation<B>(lane, a, diagonal, threshold, aggregates, scratch)
               : tentative_prolongation<B>(lane, aggregates, scratch);
    lap("prolongations");
    t = transposed<B>(lane, p.view(), aggregates.count, scratch);
    lap("transposes");
  }
  /// `smooth`: whether P is, and with `choose` it becomes so where all levels keep to `room` nonzeros
  /// together with the next. False where rows are too long.
  bool coarsen(const RowAggregates<B>& aggregates, bool choose, double room, bool& smooth) {
    prolong(aggregates, smooth);
    if (choose) {
      const double nonzeros =
          expected_nonzeros<B>(lane, t.view(), a, p.view(), aggregates.count, scratch);
      smooth = nonzeros <= room;
      lap("samples");
      if (!smooth) prolong(aggregates, smooth);
    }
    next = coarse_product<B>(lane, t.view(), a, p.view(), aggregates.count, scratch);
    lap("products");
    return next.has_value();
  }
};

}  // namespace

template <class B>
bool Multigrid<B>::build_there(const Context<B>& context, const Product& product, Operand<B>&& p,
                               const CsrRows<B>& first, RankRows& rest) {
  const Stream<B>& lane = context.ahead;
  auto start = Clock::now();
  const auto lap = [&](const char* part) {
    lane.synchronize();
    note_time(part, since(std::exchange(start, Clock::now())));
  };
  Scratch<B> scratch(first.rows() > coarsest_ ? scratch_bytes<B>(first.rows(), first.column.size)
                                              : 0);
  SparseRows<B> made;  // the matrix, below the first level
  CsrRows<B> a = first;
  double room = levels::most_nonzeros * double(first.column.size);
  for (std::size_t l = 0; a.rows() > coarsest_; ++l) {
    const Index n = a.rows(), nonzeros = a.column.size;
    const Buffer<double, B> diagonal(n);
    LevelThere<B> now{lane, scratch, lap, a, diagonal, std::ldexp(levels::strength, -int(l)),
                      {},   {},      {}};
    const RowsJudged judged = judge_rows<B>(lane, a, diagonal, scratch);
    now.lap("diagonals");
    if (judged.longest > coarsening_row) break;
    if (judged.bad >= 0) {
      notes_.levels.push_back({n, nonzeros});
      if (l == 0) notes_.bad_row = judged.bad;
      notes_.indefinite = true;
      return false;
    }
    if (l == patterns_.size()) patterns_.emplace_back();
    Pattern& pattern = patterns_[l];
    RowAggregates<B>& aggregates = pattern.there;
    if (aggregates.of.size() != n)
      aggregates = level_aggregates<B>(lane, a, diagonal, now.threshold, scratch);
    now.lap("aggregates");
    room -= double(nonzeros);
    const bool last =
        aggregates.count == 0 || double(aggregates.count) > levels::least_gain * double(n);
    if (!last &&
        !now.coarsen(aggregates, !std::exchange(pattern.chosen, true), room, pattern.smooth))
      break;
    notes_.levels.push_back({n, nonzeros});
    ++notes_.there;
    levels_.push_back(std::make_unique<Level>());
    Level& level = *levels_.back();
    Product multiply = product;
    if (l > 0) {
      level.a.emplace(context, std::move(made), first.scattered, scratch);
      p = level.a->operand(context);
      multiply = product_of(context, *level.a);
      level.r = Buffer<double, B>(n);
    }
    level.smoother = Chebyshev<B>(context, multiply, std::exchange(p, {}), {0, n}, diagonal,
                                  last ? smoothing::last_degree : smoothing::degree,
                                  last ? 0 : smoothing::ratio, judged.bound);
    notes_.indefinite = level.smoother.notes().indefinite;
    note_cycle(n, nonzeros, last);
    now.lap("smoothers");
    if (last || notes_.indefinite) return false;
    notes_.bytes += 24.0 * double(now.p.nonzeros());
    notes_.indefinite = !settle_null_vectors<B>(lane, *now.next, now.t.view(), diagonal, scratch);
    level.prolongation = Transfer<B>(context, std::move(now.p), first.scattered, scratch);
    level.correction = level.prolongation.operand(context);
    level.restriction = Transfer<B>(context, std::move(now.t), first.scattered, scratch);
    made = std::move(*now.next);
    a = made.view();
    now.lap("transfers");
    if (notes_.indefinite) return false;
  }
  rest = downloaded_rows(lane, a);
  lap("download");
  return true;
}

#define TERRACE_INSTANTIATE(B)                                                             \
  template bool Multigrid<B>::build_there(const Context<B>&, const Product&, Operand<B>&&, \
                                          const CsrRows<B>&, RankRows&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
