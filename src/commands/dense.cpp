// terrace dense invert, terrace dense solve.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "src/commands/dense_cholesky.hpp"
#include "src/commands/dense_run.hpp"
#include "src/commands/verify.hpp"
#include "src/dense/factor_file.hpp"
#include "src/program/reading.hpp"

namespace terrace::dense {

namespace {

void require_square(const io::DenseInput& a) {
  if (a.rows() != a.columns() || a.is_vector())
    fail_together(Exit::input, fmt::format("the matrix is {} x {}, not square; {}; give a square "
                                           "matrix",
                                           a.rows(), a.columns(), io::to_string(a.location())));
}

/// A^-1, L and U, or X with A X = B; System: what does it, on B.
template <class B, class System>
class DenseJob : public PhasedJob {
 public:
  /// `b`: null for an inverse or a factor; `factor`: null without --factor.
  DenseJob(Run& run, Context<B>& context, const io::DenseInput& a, const io::DenseInput* b,
           const DenseOptions& options, const FactorFile* factor = nullptr)
      : run_(run),
        context_(context),
        a_(a),
        b_(b),
        pivoting_(options.pivoting),
        plan_(choose_plan<B>(run, a.rows(), b ? b->columns() : -1, options)),
        system_(made(factor)) {
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
  void read() override {
    if constexpr (std::is_same_v<System, DenseSystem<B>>)
      if (!run_.options.no_check && !plan_.stored)
        system_.keep([this](std::span<const Range> ranges) { return a_.reread(ranges); },
                     io::to_string(a_.location()));
    system_.read();
  }
  void solve() override { found_ = system_.solve(run_.progress); }
  void outcome() override {
    run_.rate(1e-9 * plan_.flops() / run_.seconds("solve"), "GFLOP/s");
    note_refinement();
    note_moduli();
    require_regular();
    nlohmann::json& result = run_.report["result"];
    if (refined_) return;  // the factor in low precision has no determinant of A
    result["log_abs_determinant"] = found_.log_abs_determinant;
    result["determinant_sign"] = found_.determinant_sign;
  }
  void expect(bool early) override {
    output_->expect(8 * plan_.n * (b_ ? plan_.rhs : plan_.n), early);
  }
  void check() override {
    const double reciprocal = system_.reciprocal_condition();
    note_condition(reciprocal);
    if (run_.options.no_check) return;
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
    write_result();
    output_->commit(run_.attributes());
  }
  [[nodiscard]] std::string problem() const override {
    std::string text = fmt::format("dense matrix, n = {}", plan_.n);
    if (b_) text += ", " + counted(plan_.rhs, "right-hand side");
    return text;
  }
  [[nodiscard]] std::string answer() const override {
    const double reciprocal = run_.report["result"].value("reciprocal_condition", 0.0);
    std::string text = plan_.factor ? "LU factor" : result_name();
    if (reciprocal > 0) text += fmt::format(", condition {:.2g}", 1 / reciprocal);
    if (refined_)
      return text + fmt::format(", backward error {:.1e}",
                                run_.report["result"]["refinement"].value("backward_error", 0.0));
    return text + fmt::format(", log |determinant| {:.10g}, sign {}", found_.log_abs_determinant,
                              found_.determinant_sign > 0 ? "+" : "-");
  }

 private:
  [[nodiscard]] const char* result_name() const {
    return b_ ? "x" : plan_.factor ? "factor" : "inverse";
  }
  System made(const FactorFile* factor) {
    if constexpr (std::is_same_v<System, DenseSystem<B>>)
      if (factor)
        return System(context_, plan_, reader(a_), reader(*b_),
                      stored_factor(run_.control, *factor));
    return System(context_, plan_, reader(a_), b_ ? reader(*b_) : RowReader());
  }
  void write_result() {
    if constexpr (std::is_same_v<System, DenseSystem<B>>)
      if (plan_.factor)
        return write_factor(run_.control, *output_, result_name(), system_.factor(found_),
                            system_.destination(), system_.rows(),
                            run_.inputs["input"].template get<std::string>());
    const Index width = !b_ ? plan_.n : b_->is_vector() ? -1 : plan_.rhs;
    io::Attributes attributes;
    if (!b_)
      attributes = {{"log_abs_determinant", found_.log_abs_determinant},
                    {"determinant_sign", Index(found_.determinant_sign)}};
    output_->write_scattered<double>(result_name(), plan_.n, width, system_.destination(),
                                     system_.rows(), attributes);
  }
  RowReader reader(const io::DenseInput& input) {
    return [this, &input](std::span<const Range> ranges, const io::Sink<double>& sink) {
      input.read(run_.control, ranges, sink);
    };
  }
  /// Of --precision mixed: how it went, and a note where FP64 had to go on.
  void note_refinement() {
    if constexpr (std::is_same_v<System, DenseSystem<B>>) {
      if (!plan_.mixed) return;
      const Refinement& r = system_.refinement();
      refined_ = r.converged;
      run_.report["result"]["refinement"] = {{"converged", r.converged},
                                             {"steps", r.steps},
                                             {"gmres_steps", r.krylov},
                                             {"backward_error", r.backward_error}};
      if (refined_) return;
      run_.report["precision"] = "fp64";
      run_.report["note"] = "mixed precision did not converge: " + r.why + "; solved in FP64";
      run_.say("note       " + run_.report["note"].template get<std::string>());
    }
  }
  /// Where fewer moduli were asked for than its residual allows.
  void note_moduli() {
    if constexpr (std::is_same_v<System, DenseSystem<B>>) {
      if (!plan_.emulated || system_.moduli() == plan_.moduli) return;
      run_.report["moduli"] = system_.moduli();
      run_.report["note"] =
          fmt::format("{} moduli left no residual ratio below 1; made again with {}", plan_.moduli,
                      system_.moduli());
      run_.say("note       " + run_.report["note"].template get<std::string>());
    }
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
  EliminationOutcome found_;
  bool refined_ = false;
};

/// `b`, `factor`: as DenseJob.
void run_dense(Run& run, const io::DenseInput& a, const io::DenseInput* b,
               const DenseOptions& options, const FactorFile* factor = nullptr) {
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (run.options.method != "cramer") {
      DenseJob<B, DenseSystem<B>> job(run, context, a, b, options, factor);
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

/// What a method has no use for; the parser asks, before a checkpoint is looked for.
void check_common_options(const CommonOptions& o, int moduli) {
  const auto refuse = [](const std::string& what) {
    fail_together(Exit::usage, what + "; leave one of them out");
  };
  check_moduli(moduli, o.precision == "emulated");
  if (moduli < accurate_moduli && (o.no_check || o.check == "none"))
    refuse(
        "a result by fewer moduli is accepted by its check; --moduli with --no-check or --check "
        "none");
  if (o.check == "exact" && o.no_check) refuse("--check exact and --no-check; on the command line");
  const bool mixed = o.precision == "mixed";
  if (mixed && !o.method.empty() && o.method != "lu")
    refuse("mixed precision is of LU; --precision mixed with --method " + o.method);
  if (!mixed && o.method != "textbook" && o.method != "cramer") return;
  for (const auto& [given, name] : {std::pair{!o.checkpoint.empty(), "--checkpoint"},
                                    {!o.checkpoint_every.empty(), "--checkpoint-every"},
                                    {!o.restart.empty(), "--restart"},
                                    {o.guard, "--guard"}})
    if (given)
      refuse((mixed ? "--precision mixed" : "--method " + o.method) +
             " has no checkpoints and no check sums; " + name);
}

io::DenseInput matrix_alone(Run& run, const DenseOptions& options) {
  io::DenseInput a = noted(run, "input",
                           io::open_dense(run.control, matrix_location(run, options.matrix),
                                          io::Wanted::square_matrix()));
  require_square(a);
  return a;
}

void invert(Run& run, const DenseOptions& options) {
  check_invert_options(run, options);
  run_dense(run, matrix_alone(run, options), nullptr, options);
}

void factor(Run& run, DenseOptions options) {
  options.factors = true;
  const io::DenseInput a = matrix_alone(run, options);
  if (!done_by_cholesky(run, a, nullptr, options)) run_dense(run, a, nullptr, options);
}

void solve(Run& run, const DenseOptions& options) {
  check_cramer_options(run, options);
  const io::Location at = matrix_location(run, options.matrix);
  const io::Location rhs = other_location(run, options.rhs, at.file);
  const auto wanted = io::Wanted::square_matrix(rhs.file == at.file ? rhs.path : std::string());
  const io::DenseInput a = noted(run, "input", io::open_dense(run.control, at, wanted));
  const io::DenseInput b =
      noted(run, "rhs", io::open_dense(run.control, rhs, io::Wanted::vectors(a.rows())));
  require_square(a);
  require_rows(a.rows(), b);
  if (options.factor.empty()) {
    if (!done_by_cholesky(run, a, &b, options)) run_dense(run, a, &b, options);
    return;
  }
  const FactorFile stored = open_factor(run, a, options);
  if (stored.pivots)
    run_dense(run, a, &b, options, &stored);
  else
    solve_with_cholesky(run, a, b, stored);
}

}  // namespace

void add_commands(CLI::App& app, Selected& selected) {
  CLI::App* dense = app.add_subcommand("dense", "General dense matrices: inverse, solution");
  dense->require_subcommand(1);
  const auto options = std::make_shared<DenseOptions>();
  const auto add = [&](CommandFacts facts, auto action) {
    facts.obeys = solver_options + "--block --precision=fp64,emulated " + facts.obeys;
    CLI::App* command =
        add_command(*dense, selected, facts, [options, action](Run& run, const CLI::App&) {
          require_output(run.options);
          action(run, *options);
        });
    command->add_option("A", options->matrix, "Matrix: FILE.h5[:/path]")->required();
    command
        ->add_option("--pivoting", options->pivoting,
                     "partial: as on one rank; tournament: one exchange per panel")
        ->check(CLI::IsMember({"auto", "partial", "tournament"}));
    add_reading_options(*command, selected.options, {"dense"});
    command->parse_complete_callback(
        [&selected, options] { check_common_options(selected.options, options->moduli); });
    return command;
  };
  CLI::App* inverse =
      add({"invert", "Inverse by Gauss-Jordan elimination with pivoting",
           "terrace dense invert dense.h5:/A -o inverse.h5",
           "--method=gauss-jordan,textbook --check=auto,none,exact", verify_inverse},
          invert);
  add_launch_options(*inverse, options->grid, options->threads);
  CLI::App* solution = add(
      {"solve", "Solution of A X = B by LU, Cholesky or Gauss-Jordan",
       "terrace dense solve dense.h5:/A --rhs :/b -o x.h5",
       "--precision=fp64,emulated,mixed --method=lu,cholesky,gauss-jordan,cramer", verify_solution},
      solve);
  solution->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5[:/path] or :/path")
      ->required();
  solution->add_option("--factor", options->factor,
                       "The factor of A that dense factor wrote: FILE.h5[:/path]");
  CLI::App* factors =
      add({"factor", "Factors of A by LU or Cholesky, to solve with again and again",
           "terrace dense factor dense.h5:/A -o factor.h5", "--precision=fp64 --method=lu,cholesky",
           verify_dense_factor},
          factor);
  for (CLI::App* command : {inverse, solution})
    command
        ->add_option("--moduli", options->moduli,
                     "Of --precision emulated: 12 and 13 are faster; the residual decides")
        ->check(CLI::Range(fewest_moduli, accurate_moduli));
  for (CLI::App* command : {solution, factors})
    command
        ->add_option("--assume", options->assume,
                     "The matrix: general; spd: symmetric positive definite, LU where it is not; "
                     "auto: spd where a few rows look so (default general)")
        ->check(CLI::IsMember({"general", "spd", "auto"}));
}

}  // namespace terrace::dense
