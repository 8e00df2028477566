// The hierarchy of multigrid made where the matrix is, by one rank, for constants: no vector of the
// matrix's size stands on the host. The host goes on where rows are too long, and on the last level.
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
Index scratch_bytes(Cpu, Index, Index) { return 0; }
Index scratch_bytes(Cuda, Index rows, Index nonzeros) { return 14 * nonzeros + 48 * rows; }

/// P of one level, and its transpose.
template <class B>
struct Prolongation {
  SparseRows<B> p, t;
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
  const bool scattered = first.scattered;
  Scratch<B> scratch(first.rows() > coarsest_ ? scratch_bytes(B{}, first.rows(), first.column.size)
                                              : 0);
  SparseRows<B> made;  // the matrix, below the first level
  CsrRows<B> a = first;
  for (std::size_t l = 0; a.rows() > coarsest_; ++l) {
    const Index n = a.rows();
    const double threshold = std::ldexp(levels::strength, -int(l));
    const Buffer<double, B> diagonal(n);
    const RowsJudged judged = judge_rows<B>(lane, a, diagonal, scratch);
    lap("diagonals");
    if (judged.longest > coarsening_row) break;
    if (judged.bad >= 0) {
      notes_.levels.push_back({n, a.column.size});
      if (l == 0) notes_.bad_row = judged.bad;
      notes_.indefinite = true;
      return false;
    }
    if (l == patterns_.size()) patterns_.emplace_back();
    Pattern& pattern = patterns_[l];
    if (pattern.there.of.size() != n)
      pattern.there = aggregate_rows<B>(lane, a, diagonal, threshold, scratch);
    lap("aggregates");
    const Index coarse = pattern.there.count;
    const bool last = coarse == 0 || double(coarse) > levels::least_gain * double(n);
    const auto prolong = [&] {
      Prolongation<B> made_now;
      made_now.p = pattern.smooth ? smoothed_prolongation<B>(lane, a, diagonal, threshold,
                                                             pattern.there, scratch)
                                  : tentative_prolongation<B>(lane, pattern.there, scratch);
      lap("prolongations");
      made_now.t = transposed<B>(lane, made_now.p.view(), coarse, scratch);
      lap("transposes");
      return made_now;
    };
    Prolongation<B> to;
    std::optional<SparseRows<B>> next;
    if (!last) {
      to = prolong();
      if (!std::exchange(pattern.chosen, true)) {
        double nonzeros = expected_nonzeros<B>(lane, to.t.view(), a, to.p.view(), coarse, scratch) +
                          double(a.column.size);
        for (const MultigridNotes::Level& above : notes_.levels) nonzeros += double(above.nonzeros);
        pattern.smooth = nonzeros <= levels::most_nonzeros * double(first.column.size);
        lap("samples");
        if (!pattern.smooth) to = prolong();
      }
      next = coarse_product<B>(lane, to.t.view(), a, to.p.view(), coarse, scratch);
      lap("products");
      if (!next) break;
    }
    notes_.levels.push_back({n, a.column.size});
    levels_.push_back(std::make_unique<Level>());
    Level& level = *levels_.back();
    ++notes_.there;
    Product multiply = product;
    if (l > 0) {
      level.a.emplace(context, std::move(made), scattered);
      a = level.a->matrix();
      p = level.a->operand(context);
      multiply = product_of(context, *level.a);
      level.r = Buffer<double, B>(n);
    }
    level.smoother = Chebyshev<B>(context, multiply, std::exchange(p, {}), {0, n}, diagonal,
                                  last ? smoothing::last_degree : smoothing::degree,
                                  last ? 0 : smoothing::ratio, judged.bound);
    notes_.indefinite = level.smoother.notes().indefinite;
    note_cycle(n, a.column.size, last);
    lap("smoothers");
    if (last || notes_.indefinite) return false;
    notes_.bytes += 24.0 * double(to.p.nonzeros());
    notes_.indefinite = !settle_null_vectors<B>(lane, *next, to.t.view(), diagonal, scratch);
    level.prolongation = Transfer<B>(context, std::move(to.p), scattered);
    level.correction = level.prolongation.operand(context);
    level.restriction = Transfer<B>(context, std::move(to.t), scattered);
    lap("transfers");
    if (notes_.indefinite) return false;
    made = std::move(*next);
    a = made.view();
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
