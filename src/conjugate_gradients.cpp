#include "src/conjugate_gradients.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "distrib/agree.hpp"
#include "kernels/matrix.hpp"
#include "src/cg_batches.hpp"
#include "src/columns.hpp"
#include "src/guard.hpp"
#include "src/operators_triangle.hpp"

namespace terrace {

std::string to_string(CgReason reason) {
  switch (reason) {
    case CgReason::rtol:
      return "rtol";
    case CgReason::atol:
      return "atol";
    case CgReason::max_iterations:
      return "max-iterations";
    case CgReason::indefinite_matrix:
      return "indefinite-matrix";
    case CgReason::indefinite_preconditioner:
      return "indefinite-preconditioner";
    case CgReason::nan_or_inf:
      return "nan-or-inf";
    case CgReason::breakdown:
      return "breakdown";
    case CgReason::stagnation:
      return "stagnation";
  }
  return "";
}

void archive_result(Archive& archive, const std::string& name, CgResult& r) {
  int reason = int(r.reason);
  archive.value(name + " reason", reason);
  r.reason = CgReason(reason);
  archive.value(name + " iterations", r.iterations);
  archive.value(name + " true_residual", r.true_residual);
  archive.value(name + " recurrence_residual", r.recurrence_residual);
  archive.value(name + " initial_residual", r.initial_residual);
  archive.value(name + " scaled_residual", r.scaled_residual);
  archive.value(name + " position", r.position);
  archive.value(name + " restarts", r.restarts);
  archive.list(name + " history", r.history);
  archive.list(name + " alpha", r.alpha);
  archive.list(name + " beta", r.beta);
}

namespace {

constexpr double eps = std::numeric_limits<double>::epsilon();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Squares this small are next to the end of the range: differences between them mean nothing.
constexpr double faint = 0x1p-960;
/// Squares of norms that the recurrence may fall to, by that of b. Beyond it p.A p and others leave
/// the range; the true residual says what is left.
constexpr int deepest = -900;

/// Why an iteration may not be followed by another; nothing when it may. rtol: it has ended, and
/// the true residual says how.
std::optional<CgReason> verdict(const CgScalars& before, const CgScalars& now, CgNorm norm,
                                CgLimits limits) {
  const auto norm2 = [&](const CgScalars& s) { return cg_norm2(norm, s.rr, s.rz, s.zz); };
  if (!cg_finite(now.pq) || !cg_finite(now.pp)) return CgReason::nan_or_inf;
  if (std::abs(now.pq) < faint && (before.rz < faint || now.pp < faint)) return CgReason::rtol;
  if (now.pq <= 0) return CgReason::indefinite_matrix;
  if (cg_step_length(norm2(before), before.rz, now.pq, now.pp, limits) == 0)
    return CgReason::breakdown;
  if (!cg_finite(now.rr) || !cg_finite(now.rz) || !cg_finite(norm2(now)))
    return CgReason::nan_or_inf;
  if (now.rz < 0) return CgReason::indefinite_preconditioner;
  if (norm2(now) <= limits.stop) return CgReason::rtol;
  if (now.rz == 0) return CgReason::breakdown;
  return {};
}

/// What the host knows of one right-hand side.
struct Column {
  CgResult result;
  int shift = 0;                     // b was divided by 2^shift
  double b_norm = 0;                 // ||b||
  double b_norm2 = 0;                // square of the norm of b that is compared
  double rtol2 = 0, atol2 = 0;       // squares of that norm at which the iteration has converged
  double before = infinity;          // norm of the true residual at the last restart
  bool done = false, ended = false;  // for good; until the next restart
  std::optional<CgReason> failure;
  CgScalars last, last_but_one;
  double smallest = 0;
  Index best = 0;
  [[nodiscard]] double stop() const { return std::max(rtol2, atol2); }
  /// Where the recurrence ends.
  [[nodiscard]] double end() const {
    return std::max(stop(), std::max(std::ldexp(b_norm2, deepest), faint));
  }
};

void archive_scalars(Archive& archive, const std::string& name, CgScalars& s) {
  std::vector<double> all{s.pq, s.pp, s.rr, s.rz, s.zz, s.alpha};
  for (std::size_t i = 0; i < all.size(); ++i)
    archive.value(name + " " + std::to_string(i), all[i]);
  s = {all[0], all[1], all[2], all[3], all[4], all[5]};
}

void archive_column(Archive& archive, const std::string& name, Column& c) {
  archive_result(archive, name, c.result);
  archive.value(name + " before", c.before);
  archive.value(name + " done", c.done);
  archive.value(name + " ended", c.ended);
  int failure = c.failure ? int(*c.failure) : -1;
  archive.value(name + " failure", failure);
  if (failure >= 0) c.failure = CgReason(failure);
  archive_scalars(archive, name + " last", c.last);
  archive_scalars(archive, name + " last_but_one", c.last_but_one);
  archive.value(name + " smallest", c.smallest);
  archive.value(name + " best", c.best);
}

/// The vectors and scalars on the backend, between two batches.
template <class B, class A>
void archive_work(Archive& archive, const Context<B>& c, const A& a, CgWork<B>& w, Index launched) {
  const Stream<B>& lane = c.ahead;
  Range own = a.rows();
  Index from = 0;
  if (A::replicated && !archive.loading()) {  // whole on every rank, written in slices
    const Index block = contiguous(a.n(), c.size()).block,
                first = std::min(a.n(), block * c.rank());
    own = {first, std::min(a.n(), first + block) - first};
    from = first * w.columns;
  }
  const auto vector = [&](const char* name, View<double, B> v) {
    if (v.size > 0) archive.rows(lane, name, a.n(), w.columns, {&own, 1}, v.data + from, w.columns);
  };
  vector("p", w.p.own());
  vector("x", w.x), vector("r", w.r), vector("q", w.q), vector("z", w.z), vector("s", w.s);
  vector("t", w.t), vector("u", w.u), vector("v", w.v), vector("w", w.w);
  // Sums that the next iteration reduces still differ between the ranks.
  const Index size = w.scalars.size();
  Index ranks = c.size();
  archive.value("ranks", ranks);
  std::vector<double> scalars(static_cast<std::size_t>(size));
  std::vector<double> all(static_cast<std::size_t>(ranks * size));
  std::vector<Index> finished(1);
  download(lane, scalars.data(), w.scalars.view());
  download(lane, finished.data(), w.finished.view());
  lane.synchronize();
  const Range row = archive.loading() ? Range{0, ranks} : Range{c.rank(), 1};
  archive.rows<double, Cpu>(Stream<Cpu>(), "scalars", ranks, size, {&row, 1},
                            archive.loading() ? all.data() : scalars.data(), size);
  archive.list("finished", finished);
  if (!archive.loading()) return;
  const Index same = ranks == c.size() ? c.rank() : 0;
  std::copy_n(all.begin() + same * size, size, scalars.begin());
  if (ranks != c.size() && w.method != CgMethod::classic && !A::replicated) {
    const Index at = (launched + 1) % 4 * cg_row::size(w.columns) + cg_row::pq * w.columns;
    for (Index i = at; i < at + 5 * w.columns; ++i) {
      double sum = 0;
      for (Index r = 0; r < ranks; ++r) sum += all[std::size_t(r * size + i)];
      scalars[std::size_t(i)] = c.rank() == 0 ? sum : 0.0;
    }
  }
  upload(lane, w.scalars.view(), scalars.data());
  upload(lane, w.finished.view(), finished.data());
  lane.synchronize();
}

}  // namespace

template <class B, class A>
std::vector<CgResult> conjugate_gradients_columns(const Context<B>& context, A& a, CgWork<B>& work,
                                                  const CgOptions& options,
                                                  const std::vector<double>& b,
                                                  std::vector<double>& x) {
  const Control& control = context.control;
  const Stream<B>& lane = context.ahead;
  const Index n = a.n(), k = work.columns;
  const std::size_t width = std::size_t(k);
  const Index most = options.max_iterations < 0 ? 10 * n + 1000 : options.max_iterations;
  const Index patience = 2 * n + 500;  // iterations without a new smallest residual
  // Fewer digits than the head plane holds, so that its error stays below the residual's fall.
  constexpr double reliable = 1e-4;
  constexpr Index replacement = 48;  // iterations of the pipelined variant between replacements
  const bool preconditioned = options.jacobi || work.general;
  std::vector<Column> columns(width);

  const std::vector<double> b_most = largest_of_columns(control, b, k),
                            x_most = largest_of_columns(control, x, k);
  bool x_is_zero = true;
  for (std::size_t v = 0; v < width; ++v) {
    Column& column = columns[v];
    if (b_most[v] == 0) {  // the solution is zero
      column.result.reason = CgReason::rtol;
      column.done = true;
    } else if (!cg_finite(b_most[v]) || !cg_finite(x_most[v])) {
      column.result.reason = CgReason::nan_or_inf;
      column.done = true;
    } else {
      column.shift = std::ilogb(b_most[v]);
      if (x_most[v] > 0) x_is_zero = false;
      if (!cg_finite(std::ldexp(x_most[v], a.scale.power - column.shift))) {
        column.result.reason = CgReason::nan_or_inf;  // A x0 is that much larger than b
        column.result.true_residual = column.result.initial_residual = infinity;
        column.done = true;
      }
    }
  }
  // The system solved is (2^-power A) (2^(power - shift) x) = 2^-shift b.
  std::vector<int> b_down(width), x_down(width), x_up(width);
  std::vector<bool> open(width), told(width);  // told: x is ours to say
  for (std::size_t v = 0; v < width; ++v) {
    b_down[v] = -columns[v].shift;
    x_down[v] = a.scale.power - columns[v].shift;
    x_up[v] = -x_down[v];
    open[v] = !columns[v].done;
    told[v] = open[v] || b_most[v] == 0;
  }
  // One column goes up and down as it is, and is scaled there.
  const auto scaled_there = [&](const std::vector<int>& power) {
    return width == 1 && open[0] && std::abs(power[0]) <= 1000;
  };
  std::vector<double> host;
  const auto scaled = [&](const std::vector<double>& from, const std::vector<int>& power,
                          View<double, B> to) {
    const bool there = scaled_there(power);
    if (!there) {
      host.assign(from.size(), 0.0);
      scale_columns(from, power, open, host);
    }
    upload(lane, to, there ? from.data() : host.data());
    lane.synchronize();
    if (there) multiply_by_power<B>(context, to, power[0]);
  };
  const auto all = [&](auto&& what) { return std::all_of(columns.begin(), columns.end(), what); };
  const auto collect = [&] {
    std::vector<CgResult> results;
    for (Column& column : columns) results.push_back(std::move(column.result));
    return results;
  };
  const auto over = [](const Column& column) { return column.done; };
  if (all(over)) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (b_most[i % width] == 0) x[i] = 0;
    return collect();
  }
  scaled(b, b_down, work.b.view());
  // Residuals would be those of the wrong b.
  const auto right = [&] {
    std::vector<double> there(options.guard ? std::size_t(work.b.size()) : 0);
    if (options.guard) download(lane, there.data(), View<const double, B>(work.b));
    lane.synchronize();
    return there;
  };
  const std::vector<double> right_before = right();
  fill_zero(lane, work.x.view());

  // Preconditioners are for badly scaled matrices, where small p.q / p.p means nothing.
  const double floor = preconditioned ? 0.0 : 0.25 * eps * work.norm;
  CgEngine<B, A> engine(context, a, work, options.norm, floor);
  Batches<B, A> batches(context, a, work, engine);
  {
    const std::vector<CgScalars> start = engine.residual(true, false);
    for (std::size_t v = 0; v < width; ++v) {
      Column& column = columns[v];
      column.b_norm = std::sqrt(start[v].rr);
      column.b_norm2 = std::max(0.0, engine.norm2(start[v]));
      column.rtol2 = options.rtol * options.rtol * column.b_norm2;
      // The square compared is 2^-units that of the user's units.
      const int of_b = 2 * column.shift, of_m = a.scale.power + work.general_power;
      const int units = options.norm == CgNorm::unpreconditioned ? of_b
                        : options.norm == CgNorm::preconditioned ? of_b - 2 * of_m
                                                                 : of_b - of_m;
      const double atol = std::ldexp(options.atol, -(units >> 1));
      column.atol2 = units % 2 == 0 ? atol * atol : 0.5 * atol * atol;
    }
  }
  if (!x_is_zero) scaled(x, x_down, work.x.view());

  const auto most_of = [&](View<const double, B> block) -> std::vector<double> {
    if (k == 1)
      return {control.reduce(max_abs<B>(lane, 1, block.size, block, std::max<Index>(1, block.size)),
                             Reduce::max)};
    host.resize(std::size_t(block.size));
    download(lane, host.data(), block);
    lane.synchronize();
    return largest_of_columns(control, host, k);
  };
  // Whether r is as small as was asked. Squares may be zero where r is not.
  const auto reached = [&](std::size_t v, double norm2) {
    const Column& column = columns[v];
    if (!(norm2 >= 0 && norm2 <= column.stop())) return false;
    if (norm2 >= faint) return true;
    const double most = most_of(engine.residual_vector())[v];
    return most == 0 ||
           (options.norm == CgNorm::unpreconditioned &&
            std::sqrt(double(n)) * most <=
                std::max(options.rtol * column.b_norm, std::ldexp(options.atol, -column.shift)));
  };

  // What the true residual says before an iteration starts from it.
  const auto settled = [&](std::size_t v, const CgScalars& s) -> std::optional<CgReason> {
    const Column& column = columns[v];
    const double norm2 = engine.norm2(s), residual = std::sqrt(std::max(norm2, 0.0));
    if (!cg_finite(s.rr) || !cg_finite(norm2)) return CgReason::nan_or_inf;
    if (reached(v, norm2)) return norm2 <= column.rtol2 ? CgReason::rtol : CgReason::atol;
    if (options.jacobi && work.unusable_row >= 0) return CgReason::indefinite_preconditioner;
    if (work.negative_row >= 0) return CgReason::indefinite_matrix;
    if (s.rz < 0) return CgReason::indefinite_preconditioner;
    if (!(residual < 0.5 * column.before)) return CgReason::stagnation;
    if (column.result.iterations >= most) return CgReason::max_iterations;
    return {};
  };

  bool mixed = options.mixed, first_stage = true, x_start_zero = x_is_zero;
  Index launched = 0, since_replaced = 0, done_before = 0;
  std::vector<CgScalars> earlier;  // of the variants: the step whose residual comes a row later
  std::vector<double> stops;
  const auto archive = [&](Archive& ar) {
    for (std::size_t v = 0; v < width; ++v)
      archive_column(ar, "column " + std::to_string(v), columns[v]);
    ar.list("stops", stops);
    ar.value("mixed", mixed);
    ar.value("first_stage", first_stage);
    ar.value("launched", launched);
    ar.value("since_replaced", since_replaced);
    ar.value("done_before", done_before);
    Index held = Index(earlier.size());
    ar.value("earlier", held);
    earlier.resize(std::size_t(held));
    for (std::size_t v = 0; v < earlier.size(); ++v)
      archive_scalars(ar, "earlier " + std::to_string(v), earlier[v]);
    archive_work(ar, context, a, work, launched);
    if (options.archive) options.archive(ar);
  };
  bool resumed =
      options.checkpoints != nullptr && options.checkpoints->resume(archive) > 0;  // in a stage
  while (true) {
    if (resumed) {
      engine.set_stops(stops);
      batches.forget();
      engine.head = mixed;
    } else {
      engine.head = false;
      const bool keep = mixed && !first_stage;
      const std::vector<CgScalars> at = engine.residual(x_start_zero && first_stage, keep);
      CgColumns kept{};
      bool stalled = false;
      stops.assign(width, infinity);
      for (std::size_t v = 0; v < width; ++v) {
        Column& column = columns[v];
        if (column.done) continue;
        CgResult& result = column.result;
        const double residual = std::sqrt(std::max(engine.norm2(at[v]), 0.0));
        result.true_residual = std::sqrt(at[v].rr) / column.b_norm;
        if (first_stage)
          result.initial_residual = result.true_residual;
        else
          ++result.restarts;
        std::optional<CgReason> end = settled(v, at[v]);
        if (mixed && column.failure && column.failure != CgReason::max_iterations) {
          column.failure.reset();  // of the head plane, too
          stalled = true;
        }
        if (end == CgReason::stagnation && mixed && !column.failure) {
          end.reset();  // of the head plane; go on with both
          stalled = true;
        }
        if (end) result.reason = *end;
        if (column.failure && !(end && converged(*end))) result.reason = *column.failure;
        if (end || column.failure) {
          column.done = true;
          continue;
        }
        if (keep && column.last_but_one.rz > 0) kept[v] = at[v].rz / column.last_but_one.rz;
        column.before = residual;
        column.ended = false;
        column.last = at[v];
        column.smallest = engine.norm2(at[v]);
        column.best = result.iterations;
        stops[v] = column.end();
      }
      if (all(over)) break;
      if (stalled) {
        mixed = false;
        kept = {};
      }
      if (mixed) {
        for (std::size_t v = 0; v < width; ++v)
          if (!columns[v].done)
            stops[v] = std::max(stops[v], reliable * reliable * columns[v].smallest);
      }
      for (std::size_t v = 0; v < width; ++v) columns[v].ended = columns[v].done;
      engine.set_stops(stops);
      if (engine.head != mixed || first_stage) batches.forget();
      engine.head = mixed;
      engine.start(kept);

      done_before = launched = since_replaced = 0;  // iterations at this restart
      earlier.clear();
      for (const Column& column : columns)
        if (!column.done) done_before = std::max(done_before, column.result.iterations);
    }
    resumed = false;

    // Batch `next` is under way while the host reads the one before it.
    const auto stopped = [](const Column& column) { return column.ended; };
    // One finished iteration of one column; `now` after the step.
    const auto judge = [&](std::size_t v, Index i, const CgScalars& now) {
      Column& column = columns[v];
      if (column.ended) return;
      const CgLimits limits{stops[v], floor};
      std::optional<CgReason> reason = verdict(column.last, now, options.norm, limits);
      const double norm2 = engine.norm2(now);
      if (cg_step_length(engine.norm2(column.last), column.last.rz, now.pq, now.pp, limits) != 0) {
        CgResult& result = column.result;
        result.iterations = done_before + i;
        result.history.push_back(std::sqrt(std::max(norm2, 0.0) / column.b_norm2));
        if (first_stage) {
          result.alpha.push_back(column.last.rz / now.pq);
          result.beta.push_back(now.rz / column.last.rz);
        }
        if (norm2 < column.smallest) {
          column.smallest = norm2;
          column.best = result.iterations;
        }
        if (!reason && result.iterations - column.best >= patience) reason = CgReason::stagnation;
        if (!reason && result.iterations >= most) reason = CgReason::max_iterations;
        column.last_but_one = column.last;
        column.last = now;
      }
      if (reason) {
        column.ended = true;
        if (!converged(*reason)) column.failure = reason;
      }
    };
    const auto read_row = [&](Index i) {
      const double* const row = batches.row(i);
      const std::vector<CgScalars> now = engine.columns_of(row);
      for (std::size_t v = 0; v < width; ++v) {
        if (!engine.lagged()) {
          judge(v, i, now[v]);
          continue;
        }
        CgScalars step = now[v];
        if (!earlier.empty()) {
          step.pq = earlier[v].pq;
          step.pp = earlier[v].pp;
          judge(v, i - 1, step);
        }
        if (now[v].alpha == 0) judge(v, i, now[v]);
      }
      earlier = now;
      double worst = 0;
      bool counted = false;
      for (const Column& column : columns) {
        if (column.done || column.result.iterations != done_before + i - (engine.lagged() ? 1 : 0))
          continue;
        counted = counted || !column.result.history.empty();
        if (!column.result.history.empty()) worst = std::max(worst, column.result.history.back());
      }
      const Index number = done_before + i - (engine.lagged() ? 1 : 0);
      if (options.observe && counted && number > done_before) options.observe(number, worst);
    };
    const Index last = most - done_before + (engine.lagged() ? 1 : 0);  // one more to hear of rr
    Index pending_first = 0, pending_count = 0;
    bool pause = false;  // a checkpoint is due: nothing is launched until the last batch was read
    using Clock = std::chrono::steady_clock;
    std::optional<Clock::time_point> heard;
    Index heard_of = 0;
    while (!all(stopped)) {
      const Index first = launched + 1;
      if (options.between && launched > 0) options.between(done_before + launched);
      if (!pause && launched > 0 && options.checkpoints) pause = options.checkpoints->due();
      if (pause && pending_count == 0) {
        pause = false;
        context.ahead.synchronize();
        options.checkpoints->save(done_before + launched, most, archive);
      }
      const Index count = pause ? 0 : std::max<Index>(0, std::min(batches.size(), last - launched));
      if (count == 0 && pending_count == 0) break;
      if (count > 0) {
        if (work.method == CgMethod::pipelined && since_replaced >= replacement) {
          engine.replace(launched);
          since_replaced = 0;
        }
        const bool ends = engine.lagged() && launched + count == last;
        if (count > (ends ? 1 : 0)) batches.launch(first, count - (ends ? 1 : 0));
        if (ends) {  // a row more, to hear of the last residual; no step
          engine.set_stops(std::vector<double>(width, infinity));
          batches.launch(first + count - 1, 1);
        }
        launched += count;
        since_replaced += count;
      }
      if (pending_count > 0) {
        batches.wait(pending_first, pending_count);
        for (Index i = pending_first; i < pending_first + pending_count && !all(stopped); ++i)
          read_row(i);
        CgResult& timed = columns.front().result;
        if (heard) {
          timed.timed_seconds = std::chrono::duration<double>(Clock::now() - *heard).count();
          timed.timed_iterations = pending_first + pending_count - 1 - heard_of;
        } else {
          heard = Clock::now();
          heard_of = pending_first + pending_count - 1;
        }
      }
      pending_count = 0;
      if (count > 0 && !all(stopped)) {
        batches.observe(first, count);
        pending_first = first;
        pending_count = count;
      }
    }
    for (Column& column : columns) {
      if (!column.ended) column.failure = CgReason::max_iterations;
      // What recurrences say of A may be their rounding: A itself is asked, and the true residual.
      const bool stepped = column.result.iterations > done_before;
      if (engine.lagged() && column.failure == CgReason::indefinite_matrix &&
          !engine.bends_down(stepped ? column.last.rz / column.last_but_one.rz : 0.0))
        column.failure.reset();
    }
    first_stage = false;
  }
  if (control.reduce(Index(right() != right_before), Reduce::max) != 0)
    confirmed_fault(control, "the right-hand sides in memory are not what they were");

  std::vector<double> solution_most = most_of(work.x.view());

  // Where x meets an end of the range of doubles in the user's units, it is judged once more as it
  // will stand there.
  bool near_an_end = false;
  for (std::size_t v = 0; v < width; ++v)
    if (open[v] && solution_most[v] > 0 && cg_finite(solution_most[v])) {
      const int top = std::ilogb(solution_most[v]) + x_up[v];
      near_an_end = near_an_end || top < -500 || top > 1000;
    }
  if (near_an_end) {
    std::vector<double> exact(x.size()), there(x.size(), 0.0), back(x.size(), 0.0);
    download(lane, exact.data(), work.x.view());
    lane.synchronize();
    scale_columns(exact, x_up, open, there);
    scale_columns(there, x_down, open, back);
    std::vector<double> lost(width, 0.0);  // 1: rounded, 2: too large
    for (std::size_t i = 0; i < back.size(); ++i)
      if (open[i % width] && back[i] != exact[i]) {
        double& how = lost[i % width];
        how = std::max(how, cg_finite(there[i]) ? 1.0 : 2.0);
        if (!cg_finite(there[i])) back[i] = 0;
      }
    control.reduce(lost, Reduce::max);
    if (*std::max_element(lost.begin(), lost.end()) > 0) {
      upload(lane, work.x.view(), back.data());
      const std::vector<CgScalars> at = engine.residual(false, false);
      for (std::size_t v = 0; v < width; ++v) {
        CgResult& result = columns[v].result;
        if (lost[v] == 0) continue;
        result.beyond_range = lost[v] > 1;
        result.true_residual = lost[v] > 1 ? infinity : std::sqrt(at[v].rr) / columns[v].b_norm;
        if (!converged(result.reason)) continue;
        if (lost[v] == 1 && reached(v, engine.norm2(at[v]))) continue;
        result.reason = lost[v] > 1 ? CgReason::nan_or_inf : CgReason::stagnation;
        result.beyond_range = true;
      }
      solution_most = most_of(work.x.view());
      upload(lane, work.x.view(), exact.data());
      lane.synchronize();
    }
  }

  const std::vector<double> r_most = most_of(engine.residual_vector());
  for (std::size_t v = 0; v < width; ++v) {
    CgResult& result = columns[v].result;
    if (b_most[v] == 0) continue;
    result.recurrence_residual =
        result.history.empty() ? result.true_residual : result.history.back();
    // By |A| |x|; by |b| where that is zero.
    result.scaled_residual =
        solution_most[v] > 0 && work.norm > 0
            ? r_most[v] / (double(n) * eps) / work.norm / solution_most[v]
            : r_most[v] / (double(n) * eps) / std::ldexp(b_most[v], -columns[v].shift);
    if (!cg_finite(result.true_residual)) result.scaled_residual = infinity;
    if (result.reason == CgReason::indefinite_matrix) result.position = work.negative_row;
    if (result.reason == CgReason::indefinite_preconditioner) result.position = work.unusable_row;
  }
  if (scaled_there(x_up)) {
    multiply_by_power<B>(context, work.x.view(), x_up[0]);
    download(lane, x.data(), work.x.view());
    lane.synchronize();
  } else {
    host.resize(x.size());
    download(lane, host.data(), work.x.view());
    lane.synchronize();
    scale_columns(host, x_up, told, x);
  }
  return collect();
}

#define TERRACE_INSTANTIATE_FOR(B, A)                                                     \
  template std::vector<CgResult> conjugate_gradients_columns(                             \
      const Context<B>&, A<B>&, CgWork<B>&, const CgOptions&, const std::vector<double>&, \
      std::vector<double>&);
#define TERRACE_INSTANTIATE(B)                 \
  TERRACE_INSTANTIATE_FOR(B, DenseOperator)    \
  TERRACE_INSTANTIATE_FOR(B, TriangleOperator) \
  TERRACE_INSTANTIATE_FOR(B, BandOperator)     \
  TERRACE_INSTANTIATE_FOR(B, CsrOperator)
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
