// band solve --method streamed with --diagonal or --substitution: a window on the backend.
#pragma once
#include "distrib/agree.hpp"
#include "src/band/window.hpp"
#include "src/commands/band_run.hpp"
#include "src/commands/band_system.hpp"
#include "src/frame/guard.hpp"

namespace terrace {

/// What the window does not know is refused.
inline void refuse_in_window(const Run& run, const BandOptions& options) {
  const auto refuse = [](const char* option) {
    fail_together(Exit::usage,
                  std::string("a band streamed tile column by tile column (--diagonal, "
                              "--substitution) has none; ") +
                      option + "; leave it out, or those");
  };
  if (!run.options.checkpoint.empty() || !run.options.restart.empty())
    refuse("--checkpoint, --restart");
  if (!options.scratch.empty()) refuse("--scratch-dir");
}

template <class B>
class WindowRun {
 public:
  WindowRun(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : run_(run),
        c_(context),
        system_(system),
        s_(plan.shape),
        problem_{s_.n, s_.half_bandwidth, file_source<B>(system.matrix)} {
    run.report["n"] = s_.n;
    run.report["half_bandwidth"] = system.matrix.half_bandwidth();
    run.report["method"] = to_string(BandMethod::streamed);
    run.report["block"] = s_.width;
    run.report["parts"] = 1;
    require_check(run, "--method streamed");
    for (const char* key : {"method", "block", "parts"}) run.settings[key] = run.report[key];
    std::tie(host_, device_) = bytes(c_.size());
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    work_ = band_work({machine_of(context), run.command, "streamed, in a window", s_.n,
                       s_.half_bandwidth, s_.width, system.nrhs(), s_.tiles(),
                       band_factor_flops(s_.n, s_.half_bandwidth) / c_.size(),
                       system.factor != nullptr, !run.options.no_check});
    if (run.options.plan) describe(plan.reasons);
  }

  void solve() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    const Index nrhs = system_.nrhs();
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    a_ = collectively(c_.control, [&] { return band_window<B>(c_, s_); });
    BandVectors<B> x = collectively(c_.control, [&] { return band_vectors<B>(c_, s_, nrhs); });
    std::optional<HostSubstitution<B>> host;
    if (system_.places.substitution == "cpu")
      collectively(c_.control, [&] { host.emplace(c_, s_, nrhs); });
    std::vector<double> rows;  // of this rank: b, then x
    const auto solve_once = [&] {
      run_.phase("read", [&] {
        rows = read_rows(c_.control, system_.rhs, s_);
        upload(c_.ahead, x.data.view(), rows.data());
        c_.ahead.synchronize();
      });
      factor();
      if (!std::exchange(flipped_, true) && !a_.host.empty())
        flip_for_tests(Stream<Cpu>(), c_.rank(), 1, a_.host[0].data(), 8 * a_.host[0].size());
      run_.phase("solve", [&] {
        if (host)
          band_window_substitute_on_host(c_, a_, x, *host, run_.progress);
        else
          band_window_substitute(c_, a_, x, run_.progress);
      });
      download(c_.ahead, rows.data(), x.data.view());
      c_.ahead.synchronize();
    };
    solve_once();
    note_rate(run_, s_, nrhs, !system_.factor);
    if (!run_.options.no_check)
      run_.phase("check", [&] {
        const std::vector<double> b = read_rows(c_.control, system_.rhs, s_);
        double reciprocal = 1;
        const auto residual = [&] {
          return band_residual(c_, problem_, x.rows, rows, b, nrhs, reciprocal);
        };
        judge_band(run_, system_.matrix, residual(), [&] {
          try_again(run_, [&] {
            solve_once();
            return residual();
          });
        });
        note_band_condition(run_, system_.matrix, reciprocal);
      });
    write_solution(run_, system_, BlockCyclic{s_.n, s_.width, c_.size()}.ranges(c_.rank()), rows);
    say_solved(run_, s_, nrhs);
  }

 private:
  /// a_ := the factor, read or computed.
  void factor() {
    if (system_.factor) {
      run_.phase("read", [&] {
        load_window(c_, {s_.n, s_.half_bandwidth, file_source<B>(*system_.factor)}, a_);
      });
      return;
    }
    BandWork<B> work = collectively(c_.control, [&] { return BandWork<B>(s_); });
    if (system_.places.diagonal == "cpu")
      work.host_diagonal = collectively(c_.control, [&] { return band_host_diagonal(s_); });
    Index failed = 0;
    const auto attempt = [&] {
      run_.phase("read", [&] { load_window(c_, problem_, a_); });
      run_.phase("solve", [&] { failed = band_window_cholesky(c_, a_, work, run_.progress); });
    };
    attempt();
    if (failed == 0) return;
    const Index first = failed;
    if (run_.options.guard) attempt();
    if (failed != 0) not_definite(run_, system_.matrix, failed);
    confirmed_fault(c_.control,
                    fmt::format("the leading minor of order {} was not positive definite, but is "
                                "with the matrix read again",
                                first));
  }

  /// Of a rank: beside the backend, and on it.
  [[nodiscard]] std::pair<Index, Index> bytes(int ranks) const {
    const Index nrhs = system_.nrhs(), word = sizeof(double);
    const BandWindowMemory m = band_window_memory(s_, nrhs, ranks);
    const Index rows = ceil_div(s_.tiles(), Index(ranks)) * s_.width * nrhs;
    const Index tiles = system_.places.substitution == "cpu" ? 2 * s_.tile() + 2 * rows : 0;
    return {m.host + (2 * rows + tiles) * word + 3 * io::piece_bytes(),
            m.device() + band_check_bytes(run_, s_, nrhs, ranks)};
  }

  void describe(const std::vector<std::string>& reasons) const {
    describe_band(run_, s_, system_.nrhs());
    const auto place = [](const std::string& asked) {
      return !asked.empty() ? asked : std::is_same_v<B, Cuda> ? "gpu" : "cpu";
    };
    run_.say(fmt::format(
        "method streamed: {} tile columns of width {}, one after the other; diagonal blocks by "
        "the {}, substitution by the {}",
        s_.tiles(), s_.width, place(system_.places.diagonal), place(system_.places.substitution)));
    for (const std::string& reason : reasons) run_.say("why: " + reason);
    const BandWindowMemory m = band_window_memory(s_, system_.nrhs(), c_.size());
    run_.say(fmt::format(
        "memory per rank: {} on the backend (window of {} tile columns {}, panels {}, right-hand "
        "sides {}), {} on the host (matrix {})",
        size_text(device_), band_window_slots(s_, c_.size()), size_text(m.ring),
        size_text(m.panels), size_text(m.solution), size_text(host_), size_text(m.host)));
    PlanNeeds needs;
    needs.memory = [&](int ranks) {
      const auto [beside, on] = bytes(ranks);
      return band_on_rank<B>(beside, on);
    };
    conclude_plan(run_, c_, work_, needs);
  }

  Run& run_;
  Context<B>& c_;
  const BandSystem& system_;
  const BandShape s_;
  const BandProblem<B> problem_;
  BandWindow<B> a_;
  Index host_ = 0, device_ = 0;
  Work work_;
  bool flipped_ = false;
};

template <class B>
void solve_in_window(Run& run, Context<B>& c, const BandSystem& system, const BandPlan& plan) {
  WindowRun<B> window(run, c, system, plan);
  if (!run.options.plan) window.solve();
}

}  // namespace terrace
