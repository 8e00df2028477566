// terrace dense invert, terrace dense solve.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "src/commands/dense_run.hpp"
#include "src/program/reading.hpp"

namespace terrace::dense {

namespace {

void require_square(const io::DenseInput& a) {
  if (a.rows() != a.columns() || a.is_vector())
    fail_together(Exit::input, fmt::format("the matrix is {} x {}, not square; {}; give a square "
                                           "matrix",
                                           a.rows(), a.columns(), io::to_string(a.location())));
}
void require_rows(const io::DenseInput& a, const io::DenseInput& b) {
  if (a.rows() != b.rows())
    fail_together(Exit::input,
                  fmt::format("the right-hand side has {} rows and the matrix {}; {}; give one row "
                              "for each row of the matrix",
                              b.rows(), a.rows(), io::to_string(b.location())));
}

/// A^-1, or X with A X = B; System: what does it, on B.
template <class B, class System>
class DenseJob : public PhasedJob {
 public:
  /// `b`: null for an inverse.
  DenseJob(Run& run, Context<B>& context, const io::DenseInput& a, const io::DenseInput* b,
           const DenseOptions& options)
      : run_(run),
        context_(context),
        a_(a),
        b_(b),
        pivoting_(options.pivoting),
        plan_(choose_plan<B>(run, a.rows(), b ? b->columns() : -1, options)),
        system_(context, plan_, reader(a), b ? reader(*b) : RowReader()) {
    note_plan<B>(run, plan_);
    if (plan_.method == "cramer" && plan_.n > cramer_limit)
      fail_together(Exit::usage,
                    fmt::format("Cramer's rule takes n up to {}, and n is {}; --method cramer; "
                                "leave the option out",
                                cramer_limit, plan_.n));
  }

  [[nodiscard]] Work work() const override {
    return work_of(context_, plan_, !run_.options.no_check);
  }
  [[nodiscard]] PlanNeeds needs() const override { return dense_needs<B>(run_, plan_, pivoting_); }
  void describe() override { describe_plan<B>(run_, plan_); }
  void open() override { output_.emplace(run_.control, run_.options.output, run_.options.force); }
  void read() override { system_.read(); }
  void solve() override { found_ = system_.solve(run_.progress); }
  void outcome() override {
    run_.rate(1e-9 * plan_.flops() / run_.seconds("solve"), "GFLOP/s");
    require_regular();
    nlohmann::json& result = run_.report["result"];
    result["log_abs_determinant"] = found_.log_abs_determinant;
    result["determinant_sign"] = found_.determinant_sign;
  }
  void check() override {
    const double reciprocal = system_.reciprocal_condition();
    note_condition(reciprocal);
    if (run_.options.no_check) return;
    output_->expect(8 * plan_.n * (b_ ? plan_.rhs : plan_.n));
    const double ratio = system_.check(run_.progress, [&](const InverseResidual& r) {
      nlohmann::json& result = run_.report["result"];
      result["residual_right"] = r.right;
      result["residual_left"] = r.left;
      result["residual_kind"] = r.kind;
    });
    run_.report["residual"] = std::isfinite(ratio) ? nlohmann::json(ratio) : nlohmann::json("inf");
    if (!(ratio <= residual_limit))
      run_.outcome("check-failed",
                   fmt::format("the residual check failed: ratio {:.3g} is above {}; reciprocal "
                               "condition {:.3g}; nothing was written",
                               ratio, residual_limit, reciprocal));
  }
  void write() override {
    const Index width = !b_ ? plan_.n : b_->is_vector() ? -1 : plan_.rhs;
    io::Attributes attributes;
    if (!b_)
      attributes = {{"log_abs_determinant", found_.log_abs_determinant},
                    {"determinant_sign", Index(found_.determinant_sign)}};
    output_->write_scattered<double>(b_ ? "x" : "inverse", plan_.n, width, system_.destination(),
                                     system_.rows(), attributes);
    output_->commit(run_.attributes());
  }
  [[nodiscard]] std::string problem() const override {
    std::string text = fmt::format("dense matrix, n = {}", plan_.n);
    if (b_) text += ", " + counted(plan_.rhs, "right-hand side");
    return text;
  }
  [[nodiscard]] std::string answer() const override {
    const double reciprocal = run_.report["result"].value("reciprocal_condition", 0.0);
    std::string text = b_ ? "x" : "inverse";
    if (reciprocal > 0) text += fmt::format(", condition {:.2g}", 1 / reciprocal);
    return text + fmt::format(", log |determinant| {:.10g}, sign {}", found_.log_abs_determinant,
                              found_.determinant_sign > 0 ? "+" : "-");
  }

 private:
  RowReader reader(const io::DenseInput& input) {
    return [this, &input](std::span<const Range> ranges, const io::Sink<double>& sink) {
      input.read(run_.control, ranges, sink);
    };
  }
  /// The outcomes of the elimination that are not results.
  void require_regular() {
    if (found_.overflow)
      run_.outcome("overflow",
                   found_.bad_column >= 0
                       ? fmt::format("the elimination overflowed; column {}; scale the matrix",
                                     found_.bad_column)
                       : std::string("the result has elements that are not finite; the matrix is "
                                     "singular to working precision or badly scaled; scale it"));
    if (found_.bad_column < 0) return;
    run_.report["result"]["first_zero_pivot"] = found_.bad_column;
    run_.outcome("singular",
                 fmt::format("the matrix is singular; zero pivot in column {}; it has no "
                             "inverse",
                             found_.bad_column));
  }
  /// What has passed its check may still have no right digit.
  void note_condition(double reciprocal) {
    run_.report["result"]["reciprocal_condition"] = reciprocal;
    if (reciprocal < double(plan_.n) * std::numeric_limits<double>::epsilon())
      run_.warn(
          fmt::format("the reciprocal condition is {:.2g}, below n * 2.2e-16: rounding alone may "
                      "have changed every digit of the result; {}; compare it with a run on "
                      "slightly changed numbers, or reformulate the problem",
                      reciprocal, io::to_string(a_.location())));
  }

  Run& run_;
  Context<B>& context_;
  const io::DenseInput& a_;
  const io::DenseInput* b_;
  std::string pivoting_;  ///< as asked for
  DensePlan plan_;
  System system_;
  std::optional<io::Output> output_;
  JordanOutcome found_;
};

/// `b`: null for an inverse.
void run_dense(Run& run, const io::DenseInput& a, const io::DenseInput* b,
               const DenseOptions& options) {
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (run.options.method != "cramer") {
      DenseJob<B, DenseSystem<B>> job(run, context, a, b, options);
      conduct(run, context, job);
      return;
    }
    if (!std::is_same_v<B, Cpu> && run.options.backend == "cuda")
      run.warn("Cramer's rule runs on the host; --backend cuda; other methods run on the GPU");
    Context<Cpu> host = make_context<Cpu>(run.control);
    DenseJob<Cpu, CramerSystem> job(run, host, a, b, options);
    conduct(run, host, job);
  });
}

io::DenseInput noted(Run& run, const std::string& key, io::DenseInput input) {
  run.note_input(key, input.location());  // with the dataset's path, named or not
  return input;
}

/// Refuses what a determinant for each unknown does not obey.
void check_cramer_options(const Run& run, const DenseOptions& options) {
  if (run.options.method != "cramer") return;
  const auto refuse = [](const char* what, const char* option) {
    fail_together(Exit::usage,
                  fmt::format("Cramer's rule {}; {}; leave the option out", what, option));
  };
  if (run.options.precision != "fp64") refuse("has FP64 only", "--precision");
  if (run.options.block != 0) refuse("has no blocks", "--block");
  if (options.pivoting != "auto") refuse("has no choice of pivots", "--pivoting");
}

/// The same for the textbook's method.
void check_invert_options(const Run& run, const DenseOptions& options) {
  if (run.options.method == "textbook" && run.options.precision != "fp64")
    fail_together(Exit::usage,
                  "the textbook method has FP64 only; --precision; leave the option out");
  check_textbook_options(run.control.size(), run.options.method == "textbook", run.options.block,
                         options.pivoting, options.grid > 0 || options.threads > 0);
}

void require_method(const Run& run, std::initializer_list<std::string> names) {
  const std::string& method = run.options.method;
  if (method.empty() || std::find(names.begin(), names.end(), method) != names.end()) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  fail_together(Exit::usage, "unknown method '" + method + "'; --method; use " + list);
}

}  // namespace

void add_commands(CLI::App& app, Selected& selected) {
  CLI::App* dense = app.add_subcommand("dense", "General dense matrices: inverse, solution");
  dense->require_subcommand(1);
  const auto options = std::make_shared<DenseOptions>();
  const auto add = [&](const char* name, const char* about) {
    CLI::App* command = dense->add_subcommand(name, about);
    command->add_option("A", options->matrix, "Matrix: FILE.h5[:/path]")->required();
    command
        ->add_option("--pivoting", options->pivoting,
                     "partial: one exchange per column; tournament: one per panel")
        ->check(CLI::IsMember({"auto", "partial", "tournament"}));
    add_common_options(*command, selected.options);
    add_reading_options(*command, selected.options, {"dense"});
    return command;
  };
  CLI::App* invert_command = add("invert", "Inverse by Gauss-Jordan elimination with pivoting");
  add_launch_options(*invert_command, options->grid, options->threads);
  invert_command->callback([&selected, options] {
    selected.command = "dense invert";
    selected.action = [options](Run& run) {
      require_output(run.options);
      require_method(run, {"gauss-jordan", "textbook"});
      check_invert_options(run, *options);
      const io::DenseInput a =
          noted(run, "input",
                io::open_dense(run.control, matrix_location(run, options->matrix),
                               io::Wanted::square_matrix()));
      require_square(a);
      run_dense(run, a, nullptr, *options);
    };
  });
  CLI::App* solve_command = add("solve", "Solution of A X = B by Gauss-Jordan elimination");
  solve_command->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5[:/path] or :/path")
      ->required();
  solve_command->callback([&selected, options] {
    selected.command = "dense solve";
    selected.action = [options](Run& run) {
      require_output(run.options);
      require_method(run, {"gauss-jordan", "cramer"});
      check_cramer_options(run, *options);
      const io::Location at = matrix_location(run, options->matrix);
      const io::Location rhs = other_location(run, options->rhs, at.file);
      const auto wanted = io::Wanted::square_matrix(rhs.file == at.file ? rhs.path : std::string());
      const io::DenseInput a = noted(run, "input", io::open_dense(run.control, at, wanted));
      const io::DenseInput b =
          noted(run, "rhs", io::open_dense(run.control, rhs, io::Wanted::vectors(a.rows())));
      require_square(a);
      require_rows(a, b);
      run_dense(run, a, &b, *options);
    };
  });
}

}  // namespace terrace::dense
