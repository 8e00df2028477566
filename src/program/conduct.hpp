// The commands' pipeline, written once, as src/frame/eliminate.hpp is the solvers':
//
//   plan -> (--plan: say and return) -> memory -> read -> solve -> outcome of the mathematics?
//        -> check -> write -> one sentence
//
// A method that gives up after solve leaves the rest to another one.
#pragma once
#include <string>

#include "src/program/plan.hpp"

namespace terrace {

/// What a command does on one backend, in short members. Its constructor chooses method and sizes
/// and reports them. All ranks call all members, in this order:
///
///   needs()      memory of a rank, and what else could be asked for
///   open()       the output, before anything is read; optional
///   describe()   lines of --plan before memory and seconds
///   work()       amounts of its work, for --plan's seconds; --plan ends here
///   compare()    lines of --plan behind them, from the same rates; optional
///   take()       takes memory; optional: else read() does
///   read()       reads the input; where J::reads_in_phases is declared it names its phases itself
///   solve()
///   gives_up()   why another job has to do it, empty: it need not; optional
///   outcome()    reports the result; Run::outcome() where the mathematics has none
///   check()      holds the result against the input read again, unless --no-check; optional, and
///                left out where has_check() says so
///   write()      writes the result and commits it; left out where writes() says so
///   sentence()   what is said at the end; empty: nothing
template <class J>
concept Job = requires(J job) {
  { job.work() } -> std::convertible_to<Work>;
  { job.needs() } -> std::convertible_to<PlanNeeds>;
  job.describe();
  job.read();
  job.solve();
  job.outcome();
  job.write();
  { job.sentence() } -> std::convertible_to<std::string>;
};

/// Returns why the job gave up; empty: it is done.
template <class B, Job J>
std::string conduct(Run& run, const Context<B>& context, J& job) {
  const PlanNeeds needs = job.needs();
  const RankMemory memory = needs.memory(context.size());
  if (run.options.plan) {
    if (run.report.contains("backend_reason"))
      run.say("backend: " + run.report["backend_reason"].template get<std::string>());
    job.describe();
    [[maybe_unused]] const Rates rates = conclude_plan(run, context, job.work(), needs);
    if constexpr (requires { job.compare(rates); }) job.compare(rates);
    return {};
  }
  if constexpr (requires { job.open(); }) job.open();
  require_memory(run.control, memory.host, memory.device);
  if constexpr (requires { job.take(); }) job.take();
  if constexpr (requires { J::reads_in_phases; })
    job.read();
  else
    run.phase("read", [&] { job.read(); });
  run.phase("solve", [&] { job.solve(); });
  if constexpr (requires { job.gives_up(); })
    if (const std::string why = job.gives_up(); !why.empty()) return why;
  job.outcome();
  bool checks = true, writes = true;
  if constexpr (requires { job.has_check(); }) checks = job.has_check();
  if constexpr (requires { job.check(); })
    if (checks) run.phase("check", [&] { job.check(); });
  if constexpr (requires { job.writes(); }) writes = job.writes();
  if (writes) run.phase("write", [&] { job.write(); });
  if (const std::string sentence = job.sentence(); !sentence.empty()) run.say(sentence);
  return {};
}

}  // namespace terrace
