// terrace dense invert, terrace dense solve.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "kernels/random.hpp"
#include "src/commands/dense_run.hpp"
#include "src/cramer.hpp"

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

template <class B>
void solve(Run& run, Context<B>& context, const io::DenseInput& a, const io::DenseInput& b,
           const DenseOptions& options) {
  const Index n = a.rows(), right = b.columns(), probes = n > 0 ? condition_probes : 0;
  const JordanPlan plan = plan_dense<B>(run, n, right + probes, false, options);
  describe<B>(run, plan);
  run.report["columns"] = right;
  if (run.options.plan) return say_plan<B>(run, context, plan, options.pivoting);
  io::Output output(run.control, run.options.output, run.options.force);
  require_plan_memory<B>(run, n * (n + plan.right), plan.bytes);
  GaussJordan<B> solver(context, plan);
  const std::vector<Range> ranges = plan.rows.ranges(context.rank());
  Powers powers, right_powers, unknown_powers;  // of A, B, and what X is to be multiplied by
  double norm_a = 0;
  const auto fill = [&] {
    InputSizes sizes(n), right_sizes(right);
    load(context, solver, 0, n, reader(run.control, a), sizes);
    load(context, solver, n, right, reader(run.control, b), right_sizes);
    sizes.reduce(run.control);
    right_sizes.reduce(run.control);
    powers = matrix_powers(sizes);
    right_powers = column_powers(right_sizes);
    unknown_powers = opposite(right_powers);
    if (n > 0)
      for (Index& power : unknown_powers) power += powers[0];
    scale_solver(context, solver, 0, powers);
    scale_solver(context, solver, n, right_powers);
    std::vector<double> columns(std::size_t(solver.slots() * probes));
    for (Index i = 0; i < solver.slots(); ++i)
      for (Index p = 0; p < probes; ++p)
        columns[std::size_t(i * probes + p)] = cauchy_probe(plan.rows.global(i, context.rank()), p);
    if (solver.slots() > 0)
      copy_rows<double>(context.ahead, solver.data().data + n + right, solver.ld(), columns.data(),
                        probes, probes, solver.slots());
    context.ahead.synchronize();
    norm_a = norms_of_rows<B>(context, solver.slots(), n, solver.data(), solver.ld()).second;
  };
  run.phase("read", fill);
  JordanOutcome found;
  run.phase("solve", [&] { found = run_solver(run, solver, fill); });
  run.rate(1e-9 * (std::pow(double(n), 3) + 2.0 * double(n) * double(n) * double(right)) /
               run.seconds("solve"),
           "GFLOP/s");
  const auto settled = [&] { return !found.good() || settle(context, solver, n, unknown_powers); };
  if (!settled()) found.overflow = true;
  require_regular(run, found);
  note_determinant(run, found, powers);
  run.phase("check", [&] {
    std::vector<double> y(std::size_t(solver.slots() * probes));
    rows_of(context, solver, n + right, probes)(0, solver.slots(), y.data());
    const double norm_x = run.control.reduce(norm_from_probes(solver.slots(), y), Reduce::max);
    note_condition(run, n, n == 0 ? 1.0 : safe_reciprocal(norm_a, norm_x), a.location());
    if (run.options.no_check) return;
    const auto residual = [&] {
      return check_solution<B>(
          context, n, right, ranges,
          [&](Index first, Index count, double* out) {
            const auto rows = rows_of(context, solver, n + first, count);
            for (Index s = 0; s < solver.slots(); ++s)
              rows(s, 1, out + solver.destination()[std::size_t(s)] * count);
          },
          scaled(reader(run.control, a), powers), scaled(reader(run.control, b), right_powers),
          1.0);
    };
    judge_residual(run, residual(), [&] {
      fill();
      found = run_solver(run, solver, fill);
      return found.good() && settled() ? residual() : INFINITY;
    });
  });
  run.phase("write", [&] {
    output.write_scattered<double>("x", n, b.is_vector() ? -1 : right, solver.destination(),
                                   scaled(rows_of(context, solver, n, right), unknown_powers));
    output.commit(run.attributes());
  });
  run.say(fmt::format("solution   n {}, right-hand sides {}, {:.3f} s, residual ratio {}", n, right,
                      run.seconds("solve"),
                      run.report.value("residual", nlohmann::json("not checked")).dump()));
}

/// The textbook baseline: every rank reads the tiny system and solves it.
void solve_by_cramer(Run& run, Context<Cpu>& context, const io::DenseInput& a,
                     const io::DenseInput& b) {
  const Index n = a.rows(), right = b.columns();
  run.report["n"] = n;
  run.report["columns"] = right;
  run.report["method"] = "cramer";
  run.report["block"] = 0;
  if (n > cramer_limit)
    fail_together(
        Exit::usage,
        fmt::format("Cramer's rule is offered up to n = {}, and n is {}; --method cramer; "
                    "leave the option out",
                    cramer_limit, n));
  if (run.options.plan) {
    run.say(fmt::format("method     cramer (asked for): {} determinants of order {}, on the host",
                        1 + n * right, n));
    PlanNeeds needs;
    needs.memory = [&](int) { return RankMemory{8 * n * (2 * n + 2 * right), 0}; };
    conclude_plan(run, context, dense_work({machine_of(context), "cramer", n, right, 1, false}),
                  needs);
    return;
  }
  io::Output output(run.control, run.options.output, run.options.force);
  Matrix<Cpu> full_a(context.ahead, n, n), full_b(context.ahead, n, right);
  const Range all{0, n};
  const auto into = [](Matrix<Cpu>& matrix) {
    return [&matrix](Index position, Index count, const double* rows) {
      std::copy_n(rows, count * matrix.columns(), matrix.data() + position * matrix.columns());
    };
  };
  run.phase("read", [&] {
    a.read(run.control, {&all, 1}, into(full_a));
    b.read(run.control, {&all, 1}, into(full_b));
  });
  const auto sizes_of = [](const Matrix<Cpu>& matrix) {
    InputSizes sizes(matrix.columns());
    sizes.take(matrix.rows(), matrix.data());
    return sizes;
  };
  const Powers powers = matrix_powers(sizes_of(full_a)),
               right_powers = column_powers(sizes_of(full_b));
  Powers unknown_powers = opposite(right_powers);
  if (n > 0)
    for (Index& power : unknown_powers) power += powers[0];
  scale_rows(n, powers, full_a.data());
  scale_rows(n, right_powers, full_b.data());
  CramerResult found;
  run.phase("solve", [&] { found = terrace::solve_by_cramer(full_a, full_b); });
  run.rate(2e-9 / 3 * std::pow(double(n), 3) * double(1 + n * right) / run.seconds("solve"),
           "GFLOP/s");
  JordanOutcome outcome;
  outcome.bad_column = found.first_zero_pivot;
  outcome.log_abs_determinant = found.log_abs_determinant;
  outcome.determinant_sign = found.determinant_sign;
  if (outcome.good()) {
    scale_rows(n, unknown_powers, found.x.data());
    outcome.overflow = !std::isfinite(norm_max(found.x));
  }
  require_regular(run, outcome);
  note_determinant(run, outcome, powers);
  const BlockCyclic rows = contiguous(n, context.size());
  const std::vector<Range> ranges = rows.ranges(context.rank());
  const Index begin = ranges.empty() ? 0 : ranges[0].first;
  run.phase("check", [&] {
    Matrix<Cpu> identity(context.ahead, n, n), x = found.x;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) identity(i, j) = i == j ? 1 : 0;
    note_condition(
        run, n,
        n == 0 ? 1.0
               : safe_reciprocal(norm_infinity(full_a),
                                 norm_infinity(terrace::solve_by_cramer(full_a, identity).x)),
        a.location());
    if (run.options.no_check) return;
    scale_rows(n, opposite(unknown_powers), x.data());
    require_residual(run, check_solution<Cpu>(
                              context, n, right, ranges,
                              [&](Index first, Index count, double* out) {
                                for (const Range& range : ranges)
                                  for (Index i = range.first; i < range.end(); ++i)
                                    for (Index j = 0; j < count; ++j)
                                      out[i * count + j] = x(i, first + j);
                              },
                              scaled(reader(run.control, a), powers),
                              scaled(reader(run.control, b), right_powers), 1.0));
  });
  run.phase("write", [&] {
    output.write<double>(
        "x", n, b.is_vector() ? -1 : right, ranges, [&](Index position, Index count, double* out) {
          std::copy_n(found.x.data() + (begin + position) * right, count * right, out);
        });
    output.commit(run.attributes());
  });
}

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
        if (run.options.method != "cramer") return solve(run, context, a, b, *options);
        if constexpr (std::is_same_v<B, Cpu>) {
          solve_by_cramer(run, context, a, b);
        } else {
          if (run.options.backend == "cuda")
            run.warn(
                "Cramer's rule runs on the host; --backend cuda; other methods run on the GPU");
          Context<Cpu> host = make_context<Cpu>(run.control);
          solve_by_cramer(run, host, a, b);
        }
      });
    };
  });
}

}  // namespace terrace
