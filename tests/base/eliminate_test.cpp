#include "src/frame/eliminate.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/frame/guard.hpp"
#include "tests/support/lanes.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

constexpr Index panels = 5;

/// What ran on two lanes, in order: "share 3" where it began, "/share 3" where it ended.
class Log {
 public:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    all_.push_back(what);
  }
  [[nodiscard]] bool has(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return std::find(all_.begin(), all_.end(), what) != all_.end();
  }
  /// Where it stands; behind all others when it does not.
  [[nodiscard]] Index at(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return std::find(all_.begin(), all_.end(), what) - all_.begin();
  }
  [[nodiscard]] Index size() const { return Index(all_.size()); }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
};

/// Stages that only note when they run; those of the updates take long enough for a stage of the
/// other lane that does not wait for them.
template <bool AfterUpdate>
struct Noter {
  static constexpr bool share_after_update = AfterUpdate;
  Log& log;
  Index late = 0;  ///< rests that the next choice did not run beside

  void stage(const Stream<Cpu>& lane, const std::string& name, Index k, int milliseconds) const {
    const std::string what = name + " " + std::to_string(k);
    lane.run([&log = log, what, milliseconds] {
      log.note(what);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      log.note("/" + what);
    });
  }
  [[nodiscard]] static Index steps() { return panels; }
  void choose(const Stream<Cpu>& lane, Index k) const { stage(lane, "choose", k, 0); }
  void share(const Stream<Cpu>& lane, Index k) const { stage(lane, "share", k, 20); }
  void update_next(const Stream<Cpu>& lane, Index k) const { stage(lane, "next", k, 20); }
  /// Ends 20 ms after the next choice has begun.
  void update_rest(const Stream<Cpu>& lane, Index k) {
    lane.run([this, k] {
      log.note("rest " + std::to_string(k));
      const std::string beside = "choose " + std::to_string(k + 1);
      for (int ms = 0; k + 1 < panels && !log.has(beside); ++ms) {
        if (ms == 10000) {
          ++late;
          break;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      log.note("/rest " + std::to_string(k));
    });
  }
  [[nodiscard]] static bool stop(Index) { return false; }
};
struct NoterAhead : Noter<true> {
  static constexpr bool next_ahead = true;
};

/// Fails in panel 2, in the member called `where`; its stages take a while.
struct Failing {
  static constexpr bool share_after_update = true;
  Log& log;
  std::string where;
  Index begun = 0;
  [[nodiscard]] static Index steps() { return panels; }
  void fail(const std::string& here, Index k) const {
    if (k == 2 && here == where) throw std::runtime_error(where);
  }
  void stage(const Stream<Cpu>& lane, const std::string& name, Index k) {
    fail(name, k);
    ++begun;
    lane.run([&log = log, name] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      log.note(name);
    });
  }
  void choose(const Stream<Cpu>& lane, Index k) { stage(lane, "choose", k); }
  void share(const Stream<Cpu>& lane, Index k) { stage(lane, "share", k); }
  void update_next(const Stream<Cpu>& lane, Index k) { stage(lane, "next", k); }
  void update_rest(const Stream<Cpu>& lane, Index k) { stage(lane, "rest", k); }
  void guard(const Stream<Cpu>& lane, Index k) { stage(lane, "guard", k); }
  [[nodiscard]] bool stop(Index k) const {
    fail("stop", k);
    return false;
  }
};

/// `first` ends before `second` begins, in every panel that has both; `second` is of `later` panels
/// on.
bool follows(Log& log, const std::string& first, const std::string& second, Index later) {
  bool right = true;
  for (Index k = 0; k + later < panels; ++k)
    right &= log.at("/" + first + " " + std::to_string(k)) <
             log.at(second + " " + std::to_string(k + later));
  return right;
}

/// Everything that eliminate() promises, whatever the method.
template <class Method>
void run(Method& method, Log& log) {
  const ThreadedLanes lanes;
  Context<Cpu> context = make_context<Cpu>(world());
  Progress quiet(false, false);
  eliminate(context, method, quiet);
  REQUIRE(log.size() == 8 * panels);
  REQUIRE(method.late == 0);  // a panel of look-ahead
  CHECK(follows(log, "choose", "share", 0));
  CHECK(follows(log, "share", "next", 0));
  CHECK(follows(log, "share", "rest", 0));
  CHECK(follows(log, "next", "choose", 1));
  CHECK(follows(log, "rest", "rest", 1));
}

}  // namespace

TEST_CASE("a panel is chosen beside the last update, and shared when that update is over") {
  Log log;
  Noter<true> method{log};
  run(method, log);
  CHECK(follows(log, "next", "rest", 0));
  CHECK(follows(log, "rest", "share", 1));
}
TEST_CASE("a panel of its own is shared beside the last update") {
  Log log;
  Noter<false> method{log};
  run(method, log);
  CHECK(follows(log, "next", "rest", 0));
}
TEST_CASE("the next panel's update runs beside the others") {
  Log log;
  NoterAhead method{{log}};
  run(method, log);
  CHECK(follows(log, "rest", "share", 1));
}
TEST_CASE("an error leaves the loop when the lanes have done all that they were given") {
  const ThreadedLanes lanes;
  Context<Cpu> context = make_context<Cpu>(world());
  for (const char* const where :
       {"choose", "stop", "share", "next", "rest", "guard", "asked", "memory error"}) {
    INFO(where);
    Log log;
    Failing method{log, where};
    Progress quiet(false, false);
    quiet.asked = [&, ticks = 0](double) mutable { method.fail("asked", ticks++); };
    if (std::string(where) == "memory error") quiet.asked = [](double) { memory_error(0, 0, 1); };
    REQUIRE_THROWS_AS(eliminate(context, method, quiet), std::runtime_error);
    CHECK(method.begun > 0);
    CHECK(log.size() == method.begun);
    context.ahead.synchronize();
    context.bulk.synchronize();
  }
}
