// The commands' pipeline, written once, as src/frame/eliminate.hpp is the solvers':
//
//   plan -> (--plan: say and return) -> memory -> read -> solve -> outcome of the mathematics?
//        -> check -> write -> one sentence
#pragma once
#include <string>

#include "src/program/plan.hpp"

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
  /// Lines of --plan before memory and seconds; amounts of work, for its seconds; lines behind
  /// them, from the same rates. --plan ends here.
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
  /// Writes the result and commits it.
  [[nodiscard]] virtual bool writes() const { return true; }
  virtual void write() = 0;
  /// What is said at the end; empty: nothing.
  [[nodiscard]] virtual std::string sentence() const = 0;
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
  const PlanNeeds needs = job.needs();
  const RankMemory memory = needs.memory(context.size());
  if (run.options.plan) {
    if (run.report.contains("backend_reason"))
      run.say("backend: " + run.report["backend_reason"].template get<std::string>());
    job.describe();
    return job.compare(conclude_plan(run, context, job.work(), needs));
  }
  job.open();
  require_memory(run.control, memory.host, memory.device);
  job.go(run);
  job.outcome();
  if (job.has_check()) run.phase("check", [&] { job.check(); });
  if (job.writes()) run.phase("write", [&] { job.write(); });
  if (const std::string sentence = job.sentence(); !sentence.empty()) run.say(sentence);
}

}  // namespace terrace
