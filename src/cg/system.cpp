#include "src/cg/system.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/clock.hpp"
#include "src/cg/columns.hpp"
#include "src/cg/constant_guard.hpp"
#include "src/cg/operators_user.hpp"
#include "src/cg/preconditioning.hpp"

namespace terrace::cg {
namespace {

/// A checkpoint's vectors are in the order of A's rows, which another build may find otherwise.
void archive_order(Archive& archive, const RowOrder& order) {
  Word sum = 0;
  for (const Index row : order.old) sum = (sum + Word(row) + 1) * 0x9e3779b97f4a7c15;
  Index stored = Index(sum);
  archive.value("order", stored);
  if (stored != Index(sum))
    fail_together(Exit::input,
                  "the checkpoint has its rows in another order than --reorder finds here; "
                  "--restart; restart with the build that wrote it, or without --restart");
}

/// Columns j .. j + width - 1 of `all`, which has `total` of them, zeros beyond its last: a copy, where
/// that lies.
template <class B>
class ColumnBlock {
 public:
  ColumnBlock(const Context<B>& c, const CgRows<const double>& all, Index total, Index j,
              Index width)
      : width_(width), used_(std::min(width, total - j)) {
    if (!all.there) {
      here_ = take_columns(all.on_host(), total, j, width);
      return;
    }
    there_ = Buffer<double, B>(all.size / total * width);
    fill_zero(c.ahead, there_.view());
    copy_rows<double>(c.ahead, there_.data(), width, all.data + j, total, used_, all.size / total);
    c.ahead.synchronize();
  }
  template <class T>
  [[nodiscard]] CgRows<T> rows() {
    if (here_.empty() && there_.size() > 0) return {there_.data(), there_.size(), true};
    return {here_.data(), Index(here_.size()), false};
  }
  /// Back to those of `all`.
  void put(const Context<B>& c, const CgRows<double>& all, Index total, Index j) const {
    if (!all.there) return put_columns(here_, width_, j, used_, all.on_host(), total);
    copy_rows<double>(c.ahead, all.data + j, total, there_.data(), width_, used_, all.size / total);
    c.ahead.synchronize();
  }

 private:
  Index width_, used_;
  std::vector<double> here_;
  Buffer<double, B> there_;
};

/// All right-hand sides, group by group. `own`: as in CgSolution.
template <class B, class A>
std::vector<CgResult> solve_groups(const Context<B>& c, A& a, const CgRequest& request,
                                   CgOptions how, const CgPreconditioning<B, A>& m, Index nrhs,
                                   const CgRows<const double>& b, const CgRows<double>& x,
                                   Range own, Progress& progress, const CgHooks& hooks) {
  std::vector<CgResult> results;
  std::optional<CgWork<B>> work;
  const Index at_once = request.lock_step();
  Index j = 0;
  how.checkpoints = progress.checkpoints;
  how.archive = [&](Archive& archive) {
    if (!request.order.empty()) archive_order(archive, request.order);
    archive.value("first_column", j);
    Index count = Index(results.size());
    archive.value("results", count);
    results.resize(std::size_t(count));
    for (Index i = 0; i < count; ++i)
      archive_result(archive, "result " + std::to_string(i), results[std::size_t(i)]);
    const Range rows = archive.loading() ? a.rows() : own;
    double* const first = x.data + (rows.first - a.rows().first) * nrhs;
    if (x.there)
      archive.rows<double, B>(c.ahead, "solutions", a.n(), nrhs, {&rows, 1}, first, nrhs);
    else
      archive.rows<double, Cpu>(Stream<Cpu>(), "solutions", a.n(), nrhs, {&rows, 1}, first, nrhs);
  };
  if (how.checkpoints) j = how.checkpoints->value("first_column", 0);
  while (j < nrhs) {
    Index width = Index(std::min(std::bit_ceil(Word(nrhs - j)), std::bit_floor(Word(at_once))));
    // On a GPU a small system takes one launch, but two columns of it many.
    if (std::is_same_v<B, Cuda> && !A::replicated && width == 2 && a.bytes() < 16e6) width = 1;
    const Index used = std::min(width, nrhs - j);
    if (!work || work->columns != width) {
      work.reset();
      work.emplace(c, a, how.jacobi, width, request.method);
      if (m.function) work->precondition(c, m.function, m.power);
      if (how.checkpoints) work->resident = {};  // iterations in one launch are never seen
      // Nor do they read the matrix from memory; on the CPU they do.
      if (std::is_same_v<B, Cuda> && work->resident.on) how.mixed = false;
      if (how.mixed) work->resident = {};
    }
    const bool whole = width == nrhs;
    std::optional<ColumnBlock<B>> b_part, x_part;
    if (!whole) {
      b_part.emplace(c, b, nrhs, j, width);
      x_part.emplace(c, CgRows<const double>(x.data, x.size, x.there), nrhs, j, width);
    }
    const std::string what = nrhs == 1 ? "cg"
                             : used > 1
                                 ? fmt::format("cg, columns {} to {} of {}", j + 1, j + used, nrhs)
                                 : fmt::format("cg, column {} of {}", j + 1, nrhs);
    progress.begin(what, 100);  // digits gained
    const double digits = std::max(-std::log10(std::max(how.rtol, 1e-16)), 1.0);
    double most = 0;  // residuals rise on the way, the bar does not fall
    how.observe = [&](Index k, double residual) {
      most = std::max(most, std::clamp(-std::log10(residual) / digits, 0.0, 1.0));
      progress.tick(100 * most, k);
      if (hooks.observe) hooks.observe(what, k, residual);
    };
    std::vector<CgResult> done =
        whole ? conjugate_gradients_columns(c, a, *work, how, b, x)
              : conjugate_gradients_columns(c, a, *work, how, b_part->template rows<const double>(),
                                            x_part->template rows<double>());
    for (Index v = 0; v < used; ++v) results.push_back(std::move(done[std::size_t(v)]));
    if (!whole) x_part->put(c, x, nrhs, j);
    progress.end();
    j += used;
  }
  return results;
}

}  // namespace

template <class B, class A>
CgKept<B, A>::CgKept() = default;
template <class B, class A>
CgKept<B, A>::~CgKept() = default;

template <class B, class A>
CgPreconditioning<B, A>& CgKept<B, A>::get(const Context<B>& c, A& a, const CgRequest& request) {
  const auto start = Clock::now();
  const NearNullSpace none;
  const NearNullSpace& vectors = request.near_null_space ? *request.near_null_space : none;
  const bool here = made_ && name_ == request.preconditioner && block_ == request.block &&
                    degree_ == request.degree && near_null_space_ == vectors;
  const bool same = c.control.reduce(Index(here), Reduce::min) > 0;
  seconds_ = 0;
  if (same && !stale_) return *made_;
  std::unique_ptr<CgPreconditioning<B, A>> made = std::move(made_);  // let go where this throws
  if (!same || !made->update(c, a)) {
    made.reset();
    collectively(c.control, [&] { near_null_space_ = vectors; });
    made = std::make_unique<CgPreconditioning<B, A>>(c, a, request);
    name_ = request.preconditioner;
    block_ = request.block;
    degree_ = request.degree;
  }
  made_ = std::move(made);
  stale_ = false;
  if (request.general()) seconds_ = c.control.reduce(since(start), Reduce::max);
  return *made_;
}

template <class B, class A>
CgSolution solve_system(const Context<B>& c, A& a, const CgRequest& request, Index nrhs,
                        std::vector<double> b, std::vector<double>& x, Progress& progress,
                        const CgHooks& hooks, CgKept<B, A>* kept) {
  const RowOrder& order = request.order;
  const auto permute = [&](std::vector<double>& rows, bool back) {
    if (!order.empty()) rows = permuted(c.control, order, nrhs, rows, back);
  };
  permute(b, false), permute(x, false);
  CgSolution solution = solve_system(c, a, request, nrhs, CgRows<const double>(b),
                                     CgRows<double>(x), progress, hooks, kept);
  permute(x, true);
  if (order.empty()) return solution;
  for (CgResult& r : solution.results)
    if (r.position >= 0) r.position = order.old[std::size_t(r.position)];
  solution.own = order.callers_rows(c.rank());
  return solution;
}

template <class B, class A>
CgSolution solve_system(const Context<B>& c, A& a, const CgRequest& request, Index nrhs,
                        const CgRows<const double>& b, const CgRows<double>& x, Progress& progress,
                        const CgHooks& hooks, CgKept<B, A>* kept) {
  normalise(c, a);
  if constexpr (requires { a.keep_heads(c); })
    if (request.mixed) a.keep_heads(c);
  if constexpr (requires { a.shorten_columns(c, nrhs); })
    a.shorten_columns(c, std::min(nrhs, request.lock_step()), request.general());
  CgOptions how = request;
  how.jacobi = request.preconditioner == "jacobi";
  CgKept<B, A> own;
  CgKept<B, A>& place = kept ? *kept : own;
  std::optional<ConstantGuard<B>> guard;  // goes before what it watches
  const auto watch = [&](const auto& numbers) {
    numbers.each_array([&](const auto& array) { guard->watch(array); });
    guard->begin();
  };
  if (request.guard) {
    guard.emplace(c);
    watch(a);
    how.between = [&](Index launched) { guard->step(launched); };
  }
  const CgPreconditioning<B, A>* const m = &place.get(c, a, request);
  if (hooks.prepared && request.general())
    hooks.prepared(m->local.notes(), m->polynomial.notes(), m->multigrid.notes());
  if (guard) watch(*m);
  CgSolution solution;
  solution.setup = place.seconds();
  solution.own = a.rows();
  if (A::replicated) {
    const Index n = a.n(), block = contiguous(n, c.size()).block;
    solution.own.first = std::min(n, block * c.rank());
    solution.own.count = std::min(n, solution.own.first + block) - solution.own.first;
  }
  solution.bytes = a.bytes(request.mixed) + (how.jacobi ? 88.0 : 80.0) * double(a.n()) + m->bytes;
  solution.power = (request.preconditioner == "none" ? a.scale.power : 0) - m->power;
  std::vector<CgResult>& results = solution.results;
  if (m->refused) {  // x is zero, or a start whose residual nobody computed
    CgResult r;
    r.reason = *m->refused;
    r.position = m->bad_row;
    r.true_residual = r.initial_residual = request.x_given ? NAN : 1.0;
    r.scaled_residual = r.true_residual / (double(a.n()) * std::numeric_limits<double>::epsilon());
    results.assign(std::size_t(nrhs), r);
  } else {
    results = solve_groups(c, a, request, how, *m, nrhs, b, x, solution.own, progress, hooks);
  }
  Index most = 0;
  for (const CgResult& r : results) most = std::max(most, r.iterations);
  if (guard) guard->finish(most);
  return solution;
}

#define TERRACE_INSTANTIATE_FOR(B, A)                                                             \
  template class CgKept<B, A<B>>;                                                                 \
  template CgSolution solve_system(const Context<B>&, A<B>&, const CgRequest&, Index,             \
                                   std::vector<double>, std::vector<double>&, Progress&,          \
                                   const CgHooks&, CgKept<B, A<B>>*);                             \
  template CgSolution solve_system(const Context<B>&, A<B>&, const CgRequest&, Index,             \
                                   const CgRows<const double>&, const CgRows<double>&, Progress&, \
                                   const CgHooks&, CgKept<B, A<B>>*);
#define TERRACE_INSTANTIATE(B) TERRACE_FOR_EACH_OPERATOR(TERRACE_INSTANTIATE_FOR, B)
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
TERRACE_INSTANTIATE_FOR(Cpu, UserOperator)
#undef TERRACE_INSTANTIATE
#undef TERRACE_INSTANTIATE_FOR

}  // namespace terrace::cg
