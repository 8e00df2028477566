// The solve by conjugate gradients: true residuals, and the stages of iterations between them. The
// recurrences themselves: src/cg/engine.hpp.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "src/cg/batches.hpp"
#include "src/cg/column.hpp"
#include "src/cg/constant_guard.hpp"
#include "src/cg/scale.hpp"

namespace terrace::cg {

/// One solve for work.columns right-hand sides.
///
///   begin     2^-shift b and x to the backend
///   restart   r = b - A x: settles columns, and starts a stage from r where some are left
///   iterate   one stage: batches of iterations are launched, and read one batch behind
///   judge     one iteration of one column, as the host reads it
///
/// A stage ends once the recurrence of each column has ended. Only a restart claims success.
template <class B, class A>
class CgSolve {
 public:
  /// `b` and `x`: this rank's rows of work.columns. Collective.
  CgSolve(const Context<B>& context, A& a, CgWork<B>& work, const CgOptions& options,
          const CgRows<const double>& b, const CgRows<double>& x)
      : context_(context),
        a_(a),
        work_(work),
        options_(options),
        b_(b),
        x_(x),
        most_(options.max_iterations < 0 ? 10 * a.n() + 1000 : options.max_iterations),
        patience_(2 * a.n() + 500),
        // Preconditioners are for badly scaled matrices, where small p.q / p.p means nothing.
        floor_(options.jacobi || work.general ? 0.0 : 0.25 * eps * work.norm),
        columns_(std::size_t(work.columns)),
        scale_(context, a.scale.power, b, x, options.x_given, columns_),
        engine_(context, a, work, options.norm, floor_),
        batches_(context, a, work, engine_),
        mixed_(options.mixed) {}

  /// The solution to x, where b is a number. Collective.
  std::vector<CgResult> run() {
    if (all_done()) return scale_.store_zeros(x_), results();
    begin();
    bool inside = resume();  // a stage
    while (inside || restart()) {
      inside = false;
      iterate();
      ask_the_matrix();
      first_stage_ = false;
    }
    judge_rounded();
    conclude();
    if (options_.guard) guard_.finish(context_);
    scale_.store(work_.x, x_);
    return results();
  }

 private:
  static constexpr double eps = std::numeric_limits<double>::epsilon();
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  /// Fewer digits than heads hold, so that its error stays below the residual's fall.
  static constexpr double reliable = 1e-4;
  /// Iterations of the pipelined variant between replacements.
  static constexpr Index replacement = 48;

  void begin() {
    scale_.load_b(b_, work_.b);
    if (options_.guard) guard_.begin(context_, {work_.b, work_.inverse_diagonal});
    // r = b gives ||b|| in the norm compared
    fill_zero(lane_, work_.x.view());
    const std::vector<CgScalars> of_b = engine_.residual(true, false, !by_residual());
    for (std::size_t v = 0; v < columns_.size(); ++v)
      columns_[v].aim(of_b[v], options_, a_.scale.power, work_.general_power);
    if (!scale_.x_is_zero()) scale_.load_x(x_, work_.x);
  }

  // --- between stages ---

  /// False when all columns are settled.
  bool restart() {
    // r = b - A x with all of A. The direction of the heads goes on from it.
    engine_.head = false;
    const bool keep = mixed_ && !first_stage_;
    std::vector<CgScalars> at =
        engine_.residual(scale_.x_is_zero() && first_stage_, keep, !by_residual());
    if (by_residual() && !all_reached(at)) at = engine_.preconditioned();
    CgColumns kept{};  // beta = (r, z) / (r', z'), ' of the last step
    bool stalled = false;
    stops_.assign(columns_.size(), infinity);
    for (std::size_t v = 0; v < columns_.size(); ++v) {
      CgColumn& column = columns_[v];
      if (column.done || settle(v, at[v], stalled)) continue;
      if (keep && column.last_but_one.rz > 0) kept[v] = at[v].rz / column.last_but_one.rz;
      column.begin(at[v], engine_.norm2(at[v]));
      stops_[v] = column.end();
    }
    if (all_done()) return false;
    if (stalled) {
      mixed_ = false;
      kept = {};
    }
    if (mixed_)
      for (std::size_t v = 0; v < columns_.size(); ++v)
        if (!columns_[v].done)
          stops_[v] = std::max(stops_[v], reliable * reliable * columns_[v].smallest);

    // p = z + beta p
    for (CgColumn& column : columns_) column.ended = column.done;
    engine_.set_stops(stops_);
    if (engine_.head != mixed_ || first_stage_) batches_.forget();
    engine_.head = mixed_;
    engine_.start(kept);
    done_before_ = launched_ = since_replaced_ = 0;
    earlier_.clear();
    for (const CgColumn& column : columns_)
      if (!column.done) done_before_ = std::max(done_before_, column.result.iterations);
    return true;
  }
  /// Whether a checkpoint puts us inside a stage.
  bool resume() {
    if (!options_.checkpoints || options_.checkpoints->resume(state()) == 0) return false;
    engine_.set_stops(stops_);
    batches_.forget();
    engine_.head = mixed_;
    return true;
  }
  /// What the true residual, and what ended the last stage, mean for a column. True when it is
  /// done; `stalled` is set when the heads have done what they can.
  bool settle(std::size_t v, const CgScalars& s, bool& stalled) {
    CgColumn& column = columns_[v];
    CgResult& result = column.result;
    result.true_residual = std::sqrt(s.rr) / column.b_norm;
    if (first_stage_)
      result.initial_residual = result.true_residual;
    else
      ++result.restarts;
    std::optional<CgReason> end = verdict_of_residual(v, s);
    if (mixed_ && column.failure && column.failure != CgReason::max_iterations) {
      column.failure.reset();  // of the heads, too
      stalled = true;
    }
    if (end == CgReason::stagnation && mixed_ && !column.failure) {
      end.reset();  // of the heads; go on with A
      stalled = true;
    }
    if (end) result.reason = *end;
    if (column.failure && !(end && converged(*end))) result.reason = *column.failure;
    column.done = end || column.failure;
    return column.done;
  }
  /// What the true residual says before an iteration starts from it.
  std::optional<CgReason> verdict_of_residual(std::size_t v, const CgScalars& s) {
    const CgColumn& column = columns_[v];
    const double norm2 = engine_.norm2(s), residual = std::sqrt(std::max(norm2, 0.0));
    if (!cg_finite(s.rr) || !cg_finite(norm2)) return CgReason::nan_or_inf;
    if (reached(v, norm2)) return norm2 <= column.rtol2 ? CgReason::rtol : CgReason::atol;
    if (options_.jacobi && work_.unusable_row >= 0) return CgReason::indefinite_preconditioner;
    if (work_.negative_row >= 0) return CgReason::indefinite_matrix;
    if (s.rz < 0) return CgReason::indefinite_preconditioner;
    if (!(residual < 0.5 * column.before)) return CgReason::stagnation;
    if (column.result.iterations >= most_) return CgReason::max_iterations;
    return {};
  }
  /// Whether ||r|| alone says that a column is done, before M^-1 r is made.
  [[nodiscard]] bool by_residual() const {
    return engine_.general() && !engine_.lagged() && options_.norm == CgNorm::unpreconditioned;
  }
  bool all_reached(const std::vector<CgScalars>& at) {
    for (std::size_t v = 0; v < columns_.size(); ++v)
      if (!columns_[v].done && !(cg_finite(at[v].rr) && reached(v, at[v].rr))) return false;
    return true;
  }
  /// Whether r is as small as was asked. Squares may be zero where r is not.
  bool reached(std::size_t v, double norm2) {
    const CgColumn& column = columns_[v];
    if (!(norm2 >= 0 && norm2 <= column.stop())) return false;
    if (norm2 >= cg_faint) return true;
    const double most = scale_.largest(work_.residual())[v];
    return most == 0 ||
           (options_.norm == CgNorm::unpreconditioned &&
            std::sqrt(double(a_.n())) * most <=
                std::max(options_.rtol * column.b_norm, std::ldexp(options_.atol, -column.shift)));
  }
  /// What recurrences say of A may be their rounding: A itself is asked, and the true residual.
  void ask_the_matrix() {
    for (CgColumn& column : columns_) {
      if (!column.ended) column.failure = CgReason::max_iterations;
      const bool stepped = column.result.iterations > done_before_;
      if (engine_.lagged() && column.failure == CgReason::indefinite_matrix &&
          !engine_.bends_down(stepped ? column.last.rz / column.last_but_one.rz : 0.0))
        column.failure.reset();
    }
  }

  // --- a stage ---

  /// Batch `next` is under way while the host reads the one before it.
  void iterate() {
    const Index last = most_ - done_before_ + (engine_.lagged() ? 1 : 0);  // one more to hear of rr
    Range before;
    bool pause = false;  // a checkpoint is due: nothing is launched until the last batch was read
    heard_.reset();
    while (!all_ended()) {
      if (options_.between && launched_ > 0) options_.between(done_before_ + launched_);
      save_if_due(pause, before.count == 0);
      const Index room = std::max<Index>(0, std::min(batches_.size(), last - launched_));
      const Range next{launched_ + 1, pause ? 0 : room};
      if (next.count == 0 && before.count == 0) break;
      if (next.count > 0) launch(next, last);
      if (before.count > 0) read(before);
      before = {};
      if (next.count > 0 && !all_ended()) {
        batches_.observe(next.first, next.count);
        before = next;
      }
    }
  }
  /// A checkpoint where one is due and no batch is under way.
  void save_if_due(bool& pause, bool idle) {
    if (!pause && launched_ > 0 && options_.checkpoints) pause = options_.checkpoints->due();
    if (!pause || !idle) return;
    pause = false;
    lane_.synchronize();
    options_.checkpoints->save(done_before_ + launched_, most_, state());
  }
  /// Enqueues iterations of which `last` is the stage's last.
  void launch(Range batch, Index last) {
    if (work_.method == CgMethod::pipelined && since_replaced_ >= replacement) {
      engine_.replace(launched_);
      since_replaced_ = 0;
    }
    const bool ends = engine_.lagged() && launched_ + batch.count == last;
    if (batch.count > (ends ? 1 : 0)) batches_.launch(batch.first, batch.count - (ends ? 1 : 0));
    if (ends) {  // a row more, to hear of the last residual; no step
      engine_.set_stops(std::vector<double>(columns_.size(), infinity));
      batches_.launch(batch.end() - 1, 1);
    }
    launched_ += batch.count;
    since_replaced_ += batch.count;
  }
  void read(Range batch) {
    batches_.wait(batch.first, batch.count);
    for (Index i = batch.first; i < batch.end() && !all_ended(); ++i) read_row(i);
    CgResult& timed = columns_.front().result;
    if (heard_) {
      timed.timed_seconds = std::chrono::duration<double>(Clock::now() - *heard_).count();
      timed.timed_iterations = batch.end() - 1 - heard_of_;
    } else {
      heard_ = Clock::now();
      heard_of_ = batch.end() - 1;
    }
  }
  /// The scalars of iteration i. Those of a variant hold the step i and the residual before it.
  void read_row(Index i) {
    const std::vector<CgScalars> now = engine_.columns_of(batches_.row(i));
    for (std::size_t v = 0; v < columns_.size(); ++v) {
      if (engine_.lagged() && !earlier_.empty()) {
        CgScalars step = now[v];
        step.pq = earlier_[v].pq;
        step.pp = earlier_[v].pp;
        judge(v, i - 1, step);
      }
      if (!engine_.lagged() || now[v].alpha == 0) judge(v, i, now[v]);
    }
    earlier_ = now;
    if (!options_.observe) return;
    const Index number = done_before_ + i - (engine_.lagged() ? 1 : 0);
    const std::optional<double> worst = largest_residual(columns_, number);
    if (worst && number > done_before_) options_.observe(number, *worst);
  }
  /// Iteration i of one column; `now` after the step.
  void judge(std::size_t v, Index i, const CgScalars& now) {
    CgColumn& column = columns_[v];
    if (column.ended) return;
    const CgLimits limits{stops_[v], floor_};
    std::optional<CgReason> reason = cg_verdict(column.last, now, options_.norm, limits);
    // alpha = (r, z) / (p, q)
    if (cg_step_length(engine_.norm2(column.last), column.last.rz, now.pq, now.pp, limits) != 0) {
      column.step(done_before_ + i, now, engine_.norm2(now), first_stage_);
      const Index iterations = column.result.iterations;
      if (!reason && iterations - column.best >= patience_) reason = CgReason::stagnation;
      if (!reason && iterations >= most_) reason = CgReason::max_iterations;
    }
    if (reason) {
      column.ended = true;
      if (!converged(*reason)) column.failure = reason;
    }
  }

  // --- after the last stage ---

  /// Where x meets an end of the range of doubles in the user's units, it is judged once more as it
  /// will stand there.
  void judge_rounded() {
    x_most_ = scale_.largest(work_.x.view());
    if (!scale_.near_an_end(x_most_)) return;
    std::vector<double> exact(static_cast<std::size_t>(x_.size));
    download(lane_, exact.data(), work_.x.view());
    lane_.synchronize();
    const auto rounded = scale_.rounded(exact);
    if (!rounded.any()) return;

    // r = b - A x
    upload(lane_, work_.x.view(), rounded.x.data());
    const std::vector<CgScalars> at = engine_.residual(false, false, !by_residual());
    for (std::size_t v = 0; v < columns_.size(); ++v) {
      CgResult& result = columns_[v].result;
      const bool infinite = rounded.lost[v] > 1;
      if (rounded.lost[v] == 0) continue;
      result.beyond_range = infinite;
      result.true_residual = infinite ? infinity : std::sqrt(at[v].rr) / columns_[v].b_norm;
      if (!converged(result.reason)) continue;
      if (!infinite && reached(v, engine_.norm2(at[v]))) continue;
      result.reason = infinite ? CgReason::nan_or_inf : CgReason::stagnation;
      result.beyond_range = true;
    }
    x_most_ = scale_.largest(work_.x.view());
    upload(lane_, work_.x.view(), exact.data());
    lane_.synchronize();
  }
  /// What results say besides the reason.
  void conclude() {
    const std::vector<double> r_most = scale_.largest(work_.residual());
    for (std::size_t v = 0; v < columns_.size(); ++v) {
      CgResult& result = columns_[v].result;
      if (scale_.largest_of_b(v) == 0) continue;
      result.recurrence_residual =
          result.history.empty() ? result.true_residual : result.history.back();
      // By |A| |x|; by |b| where that is zero.
      result.scaled_residual = x_most_[v] > 0 && work_.norm > 0
                                   ? r_most[v] / (double(a_.n()) * eps) / work_.norm / x_most_[v]
                                   : r_most[v] / (double(a_.n()) * eps) /
                                         std::ldexp(scale_.largest_of_b(v), -columns_[v].shift);
      if (!cg_finite(result.true_residual)) result.scaled_residual = infinity;
      if (result.reason == CgReason::indefinite_matrix) result.position = work_.negative_row;
      if (result.reason == CgReason::indefinite_preconditioner)
        result.position = work_.unusable_row;
    }
  }
  std::vector<CgResult> results() {
    std::vector<CgResult> all;
    for (CgColumn& column : columns_) all.push_back(std::move(column.result));
    return all;
  }
  /// What a checkpoint holds.
  std::function<void(Archive&)> state() {
    return [this](Archive& at) { archive(at); };
  }
  void archive(Archive& archive) {
    for (std::size_t v = 0; v < columns_.size(); ++v)
      archive_column(archive, "column " + std::to_string(v), columns_[v]);
    archive.list("stops", stops_);
    archive.value("mixed", mixed_);
    archive.value("first_stage", first_stage_);
    archive.value("launched", launched_);
    archive.value("since_replaced", since_replaced_);
    archive.value("done_before", done_before_);
    Index held = Index(earlier_.size());
    archive.value("earlier", held);
    earlier_.resize(std::size_t(held));
    for (std::size_t v = 0; v < earlier_.size(); ++v)
      archive_scalars(archive, "earlier " + std::to_string(v), earlier_[v]);
    work_.archive(archive, context_, a_, launched_);
    if (options_.archive) options_.archive(archive);
  }
  [[nodiscard]] bool all_done() const {
    return std::all_of(columns_.begin(), columns_.end(), [](const auto& c) { return c.done; });
  }
  [[nodiscard]] bool all_ended() const {
    return std::all_of(columns_.begin(), columns_.end(), [](const auto& c) { return c.ended; });
  }

  const Context<B>& context_;
  const Stream<B>& lane_ = context_.ahead;
  A& a_;
  CgWork<B>& work_;
  const CgOptions& options_;
  const CgRows<const double> b_;
  const CgRows<double> x_;
  const Index most_;      // iterations
  const Index patience_;  // iterations without a new smallest residual
  const double floor_;    // CgLimits::floor
  std::vector<CgColumn> columns_;
  CgScale<B> scale_;
  CgEngine<B, A> engine_;
  Batches<B, A> batches_;
  VectorGuard<B> guard_;  // of --guard

  bool mixed_;  // iterations read the heads only
  bool first_stage_ = true;
  std::vector<double> stops_;       // CgLimits::stop per column
  std::vector<double> x_most_;      // largest |x_i| per column, at the end
  std::vector<CgScalars> earlier_;  // of variants: the step whose residual comes a row later
  Index done_before_ = 0, launched_ = 0, since_replaced_ = 0;  // iterations; of this stage
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> heard_;  // of the stage's first batch
  Index heard_of_ = 0;
};

}  // namespace terrace::cg
