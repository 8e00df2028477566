// terrace dense invert, terrace dense solve.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"
#include "src/commands/dense_run.hpp"
#include "src/dense/cramer.hpp"

namespace terrace {

namespace {

// Columns z of Cauchy numbers estimate ||A^-1||_infinity in a solve: |x z| is distributed as
// ||x||_1 |z| (Indyk 2006), so its geometric mean over the columns estimates ||x||_1 of every row x
// of A^-1 (Li 2008); the largest is within a factor of about five.
constexpr Index condition_probes = 16;
constexpr double probe_scale = 0x1p-20;  // against overflow

double cauchy_probe(Index i, Index p) {
  const double angle = 1.5707963267948966 * random_uniform(0xc0de, i, p);
  return probe_scale * std::clamp(std::tan(angle), -1e6, 1e6);
}
double norm_from_probes(Index rows, const std::vector<double>& y) {
  double largest = 0;
  for (Index i = 0; i < rows; ++i) {
    double logarithms = 0;
    for (Index p = 0; p < condition_probes; ++p)
      logarithms += std::log(std::max(std::fabs(y[std::size_t(i * condition_probes + p)]),
                                      std::numeric_limits<double>::denorm_min()));
    largest = std::max(largest, std::exp(logarithms / double(condition_probes)));
  }
  return largest / probe_scale;
}

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

/// A X = B: [A | B | probes] by Gauss-Jordan elimination.
template <class B>
class SolveDense : public EliminateDense<B, GaussJordan<B>> {
  using Base = EliminateDense<B, GaussJordan<B>>;
  using Base::a_, Base::context_, Base::n_, Base::norm_a_, Base::output_, Base::powers_,
      Base::result_powers_, Base::run_, Base::solver_;

 public:
  SolveDense(Run& run, Context<B>& context, const io::DenseInput& a, const io::DenseInput& b,
             const DenseOptions& options)
      : Base(run, context, a, a.rows()),
        b_(b),
        right_(b.columns()),
        probes_(n_ > 0 ? condition_probes : 0),
        pivoting_(options.pivoting),
        plan_(plan_dense<B>(run, n_, right_ + probes_, false, options)) {
    note_plan<B>(run, plan_);
    run.report["columns"] = right_;
  }

  [[nodiscard]] Work work() const { return jordan_work(context_, plan_, !run_.options.no_check); }
  [[nodiscard]] PlanNeeds needs() const { return jordan_needs<B>(run_, plan_, pivoting_); }
  void describe() { describe_plan(run_, plan_); }
  void read() {
    solver_.emplace(context_, plan_);
    fill();
  }
  void write() {
    output_->template write_scattered<double>(
        "x", n_, b_.is_vector() ? -1 : right_, solver_->destination(),
        scaled(rows_of(context_, *solver_, n_, right_), result_powers_));
    output_->commit(run_.attributes());
  }
  [[nodiscard]] std::string sentence() const {
    return fmt::format("solution   n {}, right-hand sides {}, {:.3f} s, residual ratio {}", n_,
                       right_, run_.seconds("solve"),
                       run_.report.value("residual", nlohmann::json("not checked")).dump());
  }

 private:
  /// A and B, each brought near one, and the probes.
  void fill() override {
    InputSizes sizes(n_), right_sizes(right_);
    load(context_, *solver_, 0, n_, reader(run_.control, a_), sizes);
    load(context_, *solver_, n_, right_, reader(run_.control, b_), right_sizes);
    sizes.reduce(run_.control);
    right_sizes.reduce(run_.control);
    powers_ = matrix_powers(sizes);
    right_powers_ = column_powers(right_sizes);
    result_powers_ = opposite(right_powers_);
    if (n_ > 0)
      for (Index& power : result_powers_) power += powers_[0];
    scale_solver(context_, *solver_, 0, powers_);
    scale_solver(context_, *solver_, n_, right_powers_);
    const Index slots = solver_->slots();
    std::vector<double> columns(std::size_t(slots * probes_));
    for (Index i = 0; i < slots; ++i)
      for (Index p = 0; p < probes_; ++p)
        columns[std::size_t(i * probes_ + p)] =
            cauchy_probe(plan_.rows.global(i, context_.rank()), p);
    if (slots > 0)
      copy_rows<double>(context_.ahead, solver_->data().data + n_ + right_, solver_->ld(),
                        columns.data(), probes_, probes_, slots);
    context_.ahead.synchronize();
    norm_a_ = norms_of_rows<B>(context_, slots, n_, solver_->data(), solver_->ld()).second;
  }
  double residual() override {
    return check_solution<B>(
        context_, n_, right_, plan_.rows.ranges(context_.rank()),
        [this](Index first, Index count, double* out) {
          const auto rows = rows_of(context_, *solver_, n_ + first, count);
          for (Index s = 0; s < solver_->slots(); ++s)
            rows(s, 1, out + solver_->destination()[std::size_t(s)] * count);
        },
        scaled(reader(run_.control, a_), powers_), scaled(reader(run_.control, b_), right_powers_),
        1.0);
  }
  double norm_of_inverse() override {
    std::vector<double> y(std::size_t(solver_->slots() * probes_));
    rows_of(context_, *solver_, n_ + right_, probes_)(0, solver_->slots(), y.data());
    return run_.control.reduce(norm_from_probes(solver_->slots(), y), Reduce::max);
  }
  [[nodiscard]] double flops() const override {
    return double(n_) * double(n_) * double(n_ + 2 * right_);
  }

  const io::DenseInput& b_;
  Index right_, probes_;
  std::string pivoting_;  ///< as asked for
  JordanPlan plan_;
  Powers right_powers_;  // of B
};

/// The textbook baseline: every rank reads the tiny system and solves it.
class SolveByCramer {
 public:
  SolveByCramer(Run& run, Context<Cpu>& context, const io::DenseInput& a, const io::DenseInput& b)
      : run_(run),
        context_(context),
        a_(a),
        b_(b),
        n_(a.rows()),
        right_(b.columns()),
        ranges_(contiguous(n_, context.size()).ranges(context.rank())) {
    run.report["n"] = n_;
    run.report["columns"] = right_;
    run.report["method"] = "cramer";
    run.report["block"] = 0;
    if (n_ > cramer_limit)
      fail_together(
          Exit::usage,
          fmt::format("Cramer's rule is offered up to n = {}, and n is {}; --method cramer; "
                      "leave the option out",
                      cramer_limit, n_));
  }
  SolveByCramer(const SolveByCramer&) = delete;
  SolveByCramer& operator=(const SolveByCramer&) = delete;

  [[nodiscard]] Work work() const {
    return dense_work({machine_of(context_), "cramer", n_, right_, 1, false});
  }
  [[nodiscard]] PlanNeeds needs() const {
    PlanNeeds needs;
    needs.memory = [this](int) { return RankMemory{8 * n_ * (2 * n_ + 2 * right_), 0}; };
    return needs;
  }
  void describe() {
    run_.say(fmt::format("method     cramer (asked for): {} determinants of order {}, on the host",
                         1 + n_ * right_, n_));
  }
  void open() { output_.emplace(run_.control, run_.options.output, run_.options.force); }
  void read() {
    full_a_.emplace(context_.ahead, n_, n_);
    full_b_.emplace(context_.ahead, n_, right_);
    const Range all{0, n_};
    a_.read(run_.control, {&all, 1}, into(*full_a_));
    b_.read(run_.control, {&all, 1}, into(*full_b_));
    powers_ = matrix_powers(sizes_of(*full_a_));
    right_powers_ = column_powers(sizes_of(*full_b_));
    unknown_powers_ = opposite(right_powers_);
    if (n_ > 0)
      for (Index& power : unknown_powers_) power += powers_[0];
    scale_rows(n_, powers_, full_a_->data());
    scale_rows(n_, right_powers_, full_b_->data());
  }
  void solve() { found_ = terrace::solve_by_cramer(*full_a_, *full_b_); }
  void outcome() {
    run_.rate(2e-9 / 3 * std::pow(double(n_), 3) * double(1 + n_ * right_) / run_.seconds("solve"),
              "GFLOP/s");
    JordanOutcome outcome;
    outcome.bad_column = found_.first_zero_pivot;
    outcome.log_abs_determinant = found_.log_abs_determinant;
    outcome.determinant_sign = found_.determinant_sign;
    if (outcome.good()) {
      scale_rows(n_, unknown_powers_, found_.x.data());
      outcome.overflow = !std::isfinite(norm_max(found_.x));
    }
    require_regular(run_, outcome);
    note_determinant(run_, outcome, powers_);
  }
  void check() {
    Matrix<Cpu> identity(context_.ahead, n_, n_), x = found_.x;
    for (Index i = 0; i < n_; ++i)
      for (Index j = 0; j < n_; ++j) identity(i, j) = i == j ? 1 : 0;
    const double reciprocal =
        n_ == 0 ? 1.0
                : safe_reciprocal(norm_infinity(*full_a_),
                                  norm_infinity(terrace::solve_by_cramer(*full_a_, identity).x));
    note_condition(run_, n_, reciprocal, a_.location());
    if (run_.options.no_check) return;
    scale_rows(n_, opposite(unknown_powers_), x.data());
    require_residual(run_, check_solution<Cpu>(
                               context_, n_, right_, ranges_,
                               [&](Index first, Index count, double* out) {
                                 for (const Range& range : ranges_)
                                   for (Index i = range.first; i < range.end(); ++i)
                                     for (Index j = 0; j < count; ++j)
                                       out[i * count + j] = x(i, first + j);
                               },
                               scaled(reader(run_.control, a_), powers_),
                               scaled(reader(run_.control, b_), right_powers_), 1.0));
  }
  void write() {
    const Index begin = ranges_.empty() ? 0 : ranges_[0].first;
    output_->write<double>("x", n_, b_.is_vector() ? -1 : right_, ranges_,
                           [&](Index position, Index count, double* out) {
                             std::copy_n(found_.x.data() + (begin + position) * right_,
                                         count * right_, out);
                           });
    output_->commit(run_.attributes());
  }
  [[nodiscard]] std::string sentence() const { return {}; }

 private:
  static io::Sink<double> into(Matrix<Cpu>& matrix) {
    return [&matrix](Index position, Index count, const double* rows) {
      std::copy_n(rows, count * matrix.columns(), matrix.data() + position * matrix.columns());
    };
  }
  static InputSizes sizes_of(const Matrix<Cpu>& matrix) {
    InputSizes sizes(matrix.columns());
    sizes.take(matrix.rows(), matrix.data());
    return sizes;
  }

  Run& run_;
  Context<Cpu>& context_;
  const io::DenseInput &a_, &b_;
  Index n_, right_;
  std::vector<Range> ranges_;
  std::optional<io::Output> output_;
  std::optional<Matrix<Cpu>> full_a_, full_b_;
  Powers powers_, right_powers_, unknown_powers_;
  CramerResult found_;
};

io::DenseInput opened(Run& run, const std::string& key, const std::string& text,
                      const std::string& file = {}) {
  const io::Role role = key == "rhs" ? io::Role::right_hand_side : io::Role::matrix;
  io::DenseInput input = io::open_dense(run.control, io::parse_location(text, file), role);
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
  if (run.options.precision != "fp64") refuse("knows FP64 only", "--precision");
  if (run.options.block != 0) refuse("has no blocks", "--block");
  if (options.pivoting != "auto") refuse("has no choice of pivots", "--pivoting");
}

void require_method(const Run& run, std::initializer_list<std::string> names) {
  const std::string& method = run.options.method;
  if (method.empty() || std::find(names.begin(), names.end(), method) != names.end()) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  fail_together(Exit::usage, "unknown method '" + method + "'; --method; use " + list);
}

}  // namespace

void add_dense_commands(CLI::App& app, Selected& selected) {
  CLI::App* dense = app.add_subcommand("dense", "General dense matrices: inverse, solution");
  dense->require_subcommand(1);
  const auto options = std::make_shared<DenseOptions>();
  const auto add = [&](const char* name, const char* about) {
    CLI::App* command = dense->add_subcommand(name, about);
    command->add_option("A", options->matrix, "Matrix: FILE.h5[:/path]")->required();
    command
        ->add_option("--pivoting", options->pivoting,
                     "partial (one exchange a column), tournament (one a panel) or auto")
        ->check(CLI::IsMember({"auto", "partial", "tournament"}));
    add_common_options(*command, selected.options);
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
      const io::DenseInput a = opened(run, "input", options->matrix);
      require_square(a);
      invert_dense(run, a, *options);
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
      const io::DenseInput a = opened(run, "input", options->matrix);
      const io::DenseInput b = opened(run, "rhs", options->rhs, a.location().file);
      require_square(a);
      require_rows(a, b);
      with_backend(run, [&]<class B>(Context<B>& context) {
        if (run.options.method != "cramer") {
          SolveDense<B> job(run, context, a, b, *options);
          conduct(run, context, job);
          return;
        }
        if (!std::is_same_v<B, Cpu> && run.options.backend == "cuda")
          run.warn("Cramer's rule runs on the host; --backend cuda; other methods run on the GPU");
        Context<Cpu> host = make_context<Cpu>(run.control);
        SolveByCramer job(run, host, a, b);
        conduct(run, host, job);
      });
    };
  });
}

}  // namespace terrace
