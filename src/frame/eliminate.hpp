// The panel pipeline: the one loop of three solvers, with one panel of look-ahead.
#pragma once
#include "distrib/context.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/progress.hpp"
#include "src/frame/stages.hpp"

namespace terrace {

/// A method of elimination: short members, each enqueueing work on the lane it is given. All ranks
/// call all members with the same k, in the same order.
///
///   steps()                   number of panels
///   choose(lane, k)           pivots of panel k (whose own columns are up to date): distributed
///                             pivot search, or the owner's factorization
///   share(lane, k)            bring panel k to all ranks: one grouped broadcast
///   update_next(lane, k)      apply panel k to what choose(k + 1) reads
///   update_rest(lane, k)      apply panel k to everything else
///   stop(k)                   true on all ranks alike when panel k ended the elimination
///                             (an outcome that travelled with the panel, or rank exhausted)
template <class M, class B>
concept Elimination = requires(M m, const Stream<B>& lane, Index k) {
  { m.steps() } -> std::convertible_to<Index>;
  m.choose(lane, k);
  m.share(lane, k);
  m.update_next(lane, k);
  m.update_rest(lane, k);
  { m.stop(k) } -> std::convertible_to<bool>;
};

/// A method with guard(lane, k) checks its sums there, once panel k is applied. With begin_guard()
/// and end_guard() it takes them before and compares them after all panels; src/frame/guard.hpp.
///
/// A method with `void archive(Archive&, Index k)` can be stopped before step k and started there:
/// the archive names its state once steps 0 .. k - 1 are applied.
///
/// choose(k + 1) runs beside update_rest(k). A method on row slices whose share(k) reads rows that
/// update_rest(k - 1) still writes sets `static constexpr bool share_after_update = true`; one
/// whose update_next(k) and update_rest(k) may run side by side sets `next_ahead`.
template <class B, Elimination<B> M>
void eliminate(Context<B>& context, M& method, Progress& progress,
               const StageTimes<B>& given = {}) {
  const SettlesLanes settles;
  const Stream<B>&ahead = context.ahead, &bulk = context.bulk;
  const Index steps = method.steps();
  const bool unasked = recording_stages() && !given.is_on();  // --report
  const StageTimes<B> stages = unasked ? StageTimes<B>::on() : given;
  constexpr bool archived = requires(Archive & archive) { method.archive(archive, steps); };
  stages.begin(context, steps);
  constexpr bool guards = requires { method.guard(bulk, steps); };
  constexpr bool guards_ends = requires { method.begin_guard(); };
  if constexpr (guards_ends) stages.time(bulk, Stage::guard, [&] { method.begin_guard(); });
  Index first = 0;
  if constexpr (archived)
    if (progress.checkpoints)
      first = progress.checkpoints->resume(
          [&](Archive& archive) { method.archive(archive, archive.step()); });
  for (Index k = first; k < steps; ++k) {
    stages.time(ahead, Stage::panel, [&] { method.choose(ahead, k); });
    if (method.stop(k)) break;
    if constexpr (M::share_after_update) ahead.wait(bulk.record());
    stages.time(ahead, Stage::share, [&] { method.share(ahead, k); });
    bulk.wait(ahead.record());
    if constexpr (requires { requires M::next_ahead; }) {
      stages.time(ahead, Stage::update, [&] { method.update_next(ahead, k); });
    } else {
      stages.time(bulk, Stage::update, [&] { method.update_next(bulk, k); });
      ahead.wait(bulk.record());
    }
    stages.time(bulk, Stage::update, [&] { method.update_rest(bulk, k); });
    if constexpr (guards) stages.time(bulk, Stage::guard, [&] { method.guard(bulk, k); });
    progress.tick(double(k + 1));
    if constexpr (archived)
      if (progress.checkpoints && k + 1 < steps && progress.checkpoints->due()) {
        ahead.synchronize();
        bulk.synchronize();
        progress.checkpoints->save(k + 1, steps,
                                   [&](Archive& archive) { method.archive(archive, k + 1); });
      }
  }
  if constexpr (guards_ends) stages.time(bulk, Stage::guard, [&] { method.end_guard(); });
  ahead.synchronize();
  bulk.synchronize();
  stages.end(context);
  if (unasked) add_recorded_stages(stages.seconds());
}

}  // namespace terrace
