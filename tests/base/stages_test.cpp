#include "src/frame/stages.hpp"
#include "kernels/base/clock.hpp"

#include <chrono>
#include <thread>

#include "src/dense/elimination.hpp"
#include "src/gf2/echelon.hpp"
#include "tests/support/bits.hpp"
#include "tests/support/lanes.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::dense;
using namespace terrace::test;

namespace {

/// What holds for every run of one loop that took `wall` seconds.
bool plausible(const StageSeconds& s, double wall, bool immediate) {
  const double ahead = s.panel + s.share + s.widen;
  const double clock = 1e-9;  // differences of readings are rounded
  return s.panel >= 0 && s.share >= -clock && s.widen >= 0 && s.update >= 0 && s.hidden >= 0 &&
         s.hidden <= ahead + clock && s.loop <= wall + clock &&
         (!immediate || (ahead + s.update <= s.loop + clock && s.hidden == 0));
}

/// A method whose stages take known times.
struct Sleeper {
  static constexpr bool share_after_update = false;
  static void sleep(const Stream<Cpu>& lane, int milliseconds) {
    lane.run([=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
  }
  [[nodiscard]] Index steps() const { return 6; }
  void choose(const Stream<Cpu>& lane, Index) const { sleep(lane, 4); }
  void share(const Stream<Cpu>& lane, Index) const {
    sleep(lane, 1);
    stages.time(lane, Stage::widen, [&] { sleep(lane, 2); });
  }
  void update_next(const Stream<Cpu>& lane, Index) const { sleep(lane, 1); }
  void update_rest(const Stream<Cpu>& lane, Index) const { sleep(lane, 30); }
  [[nodiscard]] bool stop(Index) const { return false; }
  StageTimes<Cpu> stages;
};

StageSeconds sleepy(Context<Cpu>& context) {
  const auto stages = StageTimes<Cpu>::on();
  Sleeper sleeper{stages};
  Progress quiet(false, false);
  eliminate(context, sleeper, quiet, stages);
  return stages.seconds();
}

template <class B>
void test_echelon(Context<B>& context) {
  const bool immediate = [&] {
    if constexpr (std::is_same_v<B, Cpu>) return context.bulk.immediate();
    return false;
  }();
  for (const auto& [rank, panels] : {std::pair<Index, Index>{-1, 8}, {130, 3}, {0, 0}})
    for (const EchelonForm form : {EchelonForm::reduced, EchelonForm::echelon}) {
      const BlockCyclic layout = bit_row_layout(700, context.size());
      const auto source = random_source(context, {3, 500, false, 700, 0.5, rank}, layout);
      BitMatrix<B> matrix(context, layout, source.words());
      load(context, source, matrix);
      Progress quiet(false, false);
      const auto stages = StageTimes<B>::on();
      const double start = clock_seconds();
      const Pivots pivots = reduce_to_echelon(context, matrix, 500, form, {64}, quiet, stages);
      const double wall = clock_seconds() - start;
      const StageSeconds s = stages.seconds();
      CHECK_ALL(plausible(s, wall, immediate));
      CHECK_ALL(s.panels == panels);
      CHECK_ALL(pivots.rank() == (rank < 0 ? 500 : rank));
      // Rank 0 has a strip of the columns, others may have none.
      CHECK_ALL((s.widen > 0) == (panels > 0) || (context.rank() > 0 && s.widen == 0));
      CHECK_ALL(s.host_synchronizations >= panels);
    }
}

}  // namespace

TEST_CASE("stages of lanes that run at once follow each other") {
  if (!context<Cpu>()->bulk.immediate()) return;
  const double start = clock_seconds();
  const StageSeconds s = sleepy(*context<Cpu>());
  CHECK_ALL(plausible(s, clock_seconds() - start, true));
  CHECK_ALL(s.panels == 6);
  CHECK_ALL(s.panel >= 0.024 && s.share >= 0.006 && s.widen >= 0.012 && s.update >= 0.186);
}

TEST_CASE("panels beside updates count as hidden") {
  const ThreadedLanes lanes;
  Context<Cpu> threads = make_context<Cpu>(world());
  const double start = clock_seconds();
  const StageSeconds s = sleepy(threads);
  CHECK_ALL(plausible(s, clock_seconds() - start, false));
  CHECK_ALL(s.panel >= 0.024 && s.share >= 0.006 && s.widen >= 0.012 && s.update >= 0.186);
  // 7 ms of each panel but the first run beside 30 ms of an update; machines may be busy.
  CHECK_ALL(s.hidden >= 0.015);
  CHECK_ALL(s.hidden <= s.panel + s.share + s.widen - 0.007);
}

TEST_CASE("stages that are off take no time and change nothing") {
  const StageTimes<Cpu> off;
  int calls = 0;
  off.time(context<Cpu>()->ahead, Stage::panel, [&] { ++calls; });
  const StageSeconds s = off.seconds();
  CHECK_ALL(calls == 1 && s.panels == 0 && s.loop == 0 && s.host_synchronizations == 0);
}

TEST_CASE("stages of eliminations over GF(2) lie within their time") {
  on<Cpu>([](auto& context) { test_echelon(context); });
}
TEST_CASE("stages of eliminations over GF(2) lie within their time, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_echelon(context); });
}

TEST_CASE("stages of Gauss-Jordan elimination lie within their time") {
  Context<Cpu>& context = *terrace::test::context<Cpu>();
  const EliminationPlan plan = plan_elimination<Cpu>(context.size(), 100, 0, true, 32, "auto");
  RowElimination<Cpu> solver(context, plan);
  dense::fill_random(context.ahead, solver.rows(), 100, 5);
  context.ahead.synchronize();
  Progress quiet(false, false);
  const auto stages = StageTimes<Cpu>::on();
  const double start = clock_seconds();
  const EliminationOutcome outcome = solver.run(quiet, stages);
  const StageSeconds s = stages.seconds();
  CHECK_ALL(outcome.good());
  CHECK_ALL(plausible(s, clock_seconds() - start, context.bulk.immediate()));
  CHECK_ALL(s.panels == ceil_div(100, plan.block));
}
