// One command's run: common options, phases, report, progress.
#pragma once
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/context.hpp"
#include "io/files.hpp"
#include "io/location.hpp"
#include "io/output.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/preparations.hpp"
#include "src/frame/backend_choice.hpp"
#include "src/frame/progress.hpp"
#include "src/program/predict.hpp"

namespace terrace {

/// Options that every solver takes (the interface's names).
struct CommonOptions {
  std::string output, backend = "auto", report, progress = "auto", method, precision = "fp64",
                      check = "auto";
  std::string checkpoint, checkpoint_every, restart;
  io::FormOptions reading;  ///< what the user says of the matrix's file
  bool oversubscribe = false, no_bind = false, json = false;
  bool plan = false, no_check = false, guard = false, quiet = false, force = false;
  Index block = 0;  ///< 0: the method's choice
  Index seed = 1;
  // Of --plan only.
  int ranks = 0;    ///< that it plans for; 0: those that were started
  std::string gpu;  ///< of each of them, a name of known_gpus(); empty: what is here
  // GF(2) only.
  std::string tables, panels;
  Index k = 0;  ///< 0: the plan's choice
};

/// State of the running command, the same on every rank.
class Run {
 public:
  Run(const Session& session, CommonOptions options, std::string command, std::string command_line);
  Run(const Control& control, CommonOptions options, std::string command, std::string command_line);
  ~Run();
  /// Takes --checkpoint and --restart. Collective; throws agreed Errors.
  void begin_checkpoints();
  /// `settings` of the run that --restart continues; null without one.
  [[nodiscard]] nlohmann::json restart_settings() const;
  /// Takes `value`'s setting `name` from the run that is continued, where it is still `open`.
  template <class T>
  void adopt(const std::string& name, T& value, const T& open) const {
    const nlohmann::json from = restart_settings();
    if (value == open && from.is_object()) value = from.value(name, open);
  }

  const Control& control;
  CommonOptions options;
  nlohmann::json report;  ///< the --report object; solvers fill n, method, block, result, ...
  mutable Progress progress;

  /// Bytes of a rank that the phases read and write, for progress; none: nothing is known.
  void expect(const Work& work);
  /// Runs `work` and adds its wall seconds (the slowest rank's) to report["seconds"][name].
  void phase(const std::string& name, const std::function<void()>& work);
  /// Progress from now on, until the phase ends: of `all` bytes that are read or written, of which
  /// this rank does `own`.
  void show_bytes(const std::string& what, bool written, double own, double all);
  [[nodiscard]] double seconds(const std::string& name) const;
  /// Collective: report["ranks_detail"], one object per rank, and report["imbalance"], the slowest
  /// rank's seconds by the mean. Only where a report is wanted.
  void detail_ranks();
  void note_device(const DeviceBinding& device);
  /// One line on stdout from rank 0 unless --quiet; on stderr where the report has stdout, and not
  /// at all with --json.
  void say(const std::string& line) const;
  /// With --quiet, a result that is one number: it alone on stdout, for a shell.
  void answer(const std::string& scalar) const;
  [[nodiscard]] bool reports_on_stdout() const { return report_on_stdout_; }
  [[nodiscard]] bool wants_report() const { return report_on_stdout_ || !options.report.empty(); }
  /// Something right by its check that may still mislead: "what; where; what to do". One line on
  /// stderr from rank 0 (--quiet too), an entry of report["warnings"], and in attributes(). The
  /// same text twice counts once. Every rank calls it with the same text.
  void warn(const std::string& what_where_what_to_do);
  /// Sets report "rate" {value, unit}.
  void rate(double value, const std::string& unit);
  /// An outcome of the mathematics (exit 4): records report["status"] and throws the agreed Error.
  [[noreturn]] void outcome(const std::string& status, const std::string& message);
  /// Attributes of the output's `terrace` group: version, command line, ranks, backend, devices,
  /// start time, seconds by phase, residual or certificate, and the inputs' names.
  [[nodiscard]] io::Attributes attributes() const;
  /// Notes an input for attributes(): key is "input", "rhs", "factor", "x0"; absolute path stored.
  /// Refuses one that the run would overwrite. Collective.
  void note_input(const std::string& key, const io::Location& location);
  /// Refuses (exit 2, --force or not) options of which two name one file, and a --report that is
  /// somebody's file. The constructor calls it; whoever sets options.output later, again.
  void require_own_files();
  /// Refuses (exit 2, --force or not) an input that the run would overwrite. Collective.
  void require_not_written(const std::string& key, const io::Location& location);
  /// Files of the inputs, as they were when they were noted.
  [[nodiscard]] const std::map<std::string, io::Stamp>& stamps() const { return stamps_; }
  /// Throws Error(input) when an input is not the file any more that it was when it was noted: no
  /// check and no guard can then say what is wrong. Collective.
  void require_same_inputs() const;
  /// Whether standard output did not take the answer of --quiet, or the report of --json. Collective.
  [[nodiscard]] bool lost_answer() const {
    return (options.quiet || report_on_stdout_) &&
           control.reduce(Index(lost_answer_), Reduce::max) != 0;
  }
  /// Writes --report (rank 0). Called by main for success and failure alike.
  void write_report(int exit_code, const std::string& message);

  std::string command, command_line, start_time;
  std::vector<const char*> kernels;  ///< for prepare_kernels(), while the command reads
  nlohmann::json inputs = nlohmann::json::object();
  std::map<std::string, std::string> forms;  ///< what was said of them, for `verify`
  /// Choices that a restarted run must share: block, pivoting, ...
  nlohmann::json settings = nlohmann::json::object();

 private:
  Clock::time_point start_;
  std::map<std::string, double> own_seconds_;  // by phase, of this rank
  nlohmann::json own_device_;
  std::map<std::string, io::Stamp> stamps_;
  bool report_on_stdout_ = false;
  mutable bool lost_answer_ = false;
  std::FILE* text_ = nullptr;  ///< where say() goes; none
  void require_report() const;
  void report_checkpoints();
  void show_phase(const std::string& name);
  std::map<std::string, double> expected_;  // bytes by phase
  std::unique_ptr<Checkpoints> checkpoints_;
};

/// Whether it calls cuBLAS in every run.
inline bool makes_products(const std::string& command) { return command.rfind("dense", 0) == 0; }

/// The one jump from a backend's name to its type: body.template operator()<B>(Context<B>&).
template <class Body>
void with_backend(Run& run, const BackendHint& hint, Body&& body) {
  const auto [name, reason] = resolve_backend(
      run.control, run.options.gpu.empty() ? run.options.backend : std::string("cuda"), hint);
  run.report["backend"] = name;
  if (!reason.empty()) run.report["backend_reason"] = reason;
  if constexpr (with_cuda) {
    if (name == "cuda") {
      Context<Cuda> context = make_context<Cuda>(run.control);
      if (makes_products(run.command) && !run.options.plan) prepare_products();
      if (!run.kernels.empty() && !run.options.plan) prepare_kernels(run.kernels);
      bind_cores(run.control, context.device.pci);
      run.note_device(context.device);
      run.report["transport"] = context.comm.transport();
      run.report["devices"] = run.control.gather_all(context.device.name);
      body.template operator()<Cuda>(context);
      return;
    }
  }
  bind_cores(run.control, "");
  Context<Cpu> context = make_context<Cpu>(run.control);
  run.report["transport"] = context.comm.transport();
  run.report["devices"] = nlohmann::json::array();
  body.template operator()<Cpu>(context);
}

template <class Body>
void with_backend(Run& run, Body&& body) {
  with_backend(run, BackendHint{}, std::forward<Body>(body));
}

}  // namespace terrace
