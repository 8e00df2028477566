// The commands' pipeline, written once, as src/frame/eliminate.hpp is the solvers':
//
//   plan -> (--plan: say and return) -> memory -> read -> solve -> outcome of the mathematics?
//        -> check -> write -> a summary
#pragma once
#include <string>
#include <type_traits>

#include "kernels/base/reserve.hpp"
#include "src/program/plan.hpp"
#include "src/program/summary.hpp"

namespace terrace {

/// What a command does on one backend, in short members. Its constructor chooses method and sizes
/// and reports them. All ranks call all members, in this order. Those with a body here are
/// optional: a job marks its own `override`, so that a wrong name does not compile.
class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  /// Memory of a rank, and what else could be asked for.
  [[nodiscard]] virtual PlanNeeds needs() const = 0;
  /// The output, before anything is read.
  virtual void open() {}
  /// Lines of --plan, each behind a word in a column of eleven, between problem and memory ; amounts of
  /// work, for its seconds; lines behind them, from the same rates. --plan ends here.
  virtual void describe() = 0;
  [[nodiscard]] virtual Work work() const = 0;
  virtual void compare(const Rates&) {}
  /// Takes memory, reads and solves, in phases that it names.
  virtual void go(Run& run) = 0;
  /// Reports the result; Run::outcome() where the mathematics has none.
  virtual void outcome() = 0;
  /// Holds the result against the input read again, unless --no-check.
  [[nodiscard]] virtual bool has_check() const { return true; }
  virtual void check() {}
  /// Tells the output what comes (io::Output::expect), where that is known.
  virtual void expect(bool /*early*/) {}
  /// Writes the result and commits it.
  [[nodiscard]] virtual bool writes() const { return true; }
  virtual void write() = 0;
  /// For the summary at the end: what was given, and what came out, in one line or several.
  [[nodiscard]] virtual std::string problem() const = 0;
  [[nodiscard]] virtual std::string answer() const = 0;
  /// The result that a shell takes with --quiet; empty: it is no number.
  [[nodiscard]] virtual std::string scalar() const { return {}; }
};

/// Reading is one phase, solving another.
class PhasedJob : public Job {
 public:
  void go(Run& run) override {
    run.phase("read", [&] { read(); });
    run.phase("solve", [&] { solve(); });
  }
  virtual void read() = 0;
  virtual void solve() = 0;
};

template <class B>
void conduct(Run& run, const Context<B>& context, Job& job) {
  const SettlesLanes settles;
  const PlanNeeds needs = job.needs();
  const RankMemory memory = needs.memory(context.size());
  if (run.options.plan) {
    run.say("problem    " + job.problem());
    if (run.report.contains("backend_reason"))
      run.say("backend    " + run.report["backend_reason"].template get<std::string>());
    job.describe();
    return job.compare(conclude_plan(run, context, job.work(), needs));
  }
  job.open();
  require_memory(run.control, memory.host, memory.device);
  run.expect(job.work());
  if (std::is_same_v<B, Cuda>) {
    job.expect(true);  // the host's cores have time
    // Never freed: that takes 10 ms of 10 GB, the end of the process nothing.
    static const auto* const reserve = new Reserve(memory.device);
    (void)reserve;
  }
  job.go(run);
  job.outcome();
  if (job.has_check())
    run.phase("check", [&] {
      job.expect(false);
      job.check();
    });
  if (job.writes()) run.phase("write", [&] { job.write(); });
  say_summary(run, job.problem(), job.answer(), job.writes() ? run.options.output : "");
  if (const std::string scalar = job.scalar(); !scalar.empty()) run.answer(scalar);
}

}  // namespace terrace
