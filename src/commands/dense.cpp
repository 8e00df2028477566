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
  run.work = jordan_work(plan, !run.options.no_check).json();
  if (run.options.plan) return say_plan<B>(run, context, plan, options.pivoting);
  io::Output output(run.control, run.options.output, run.options.force);
  require_plan_memory<B>(run, n * (n + plan.right), plan.bytes);
  GaussJordan<B> solver(context, plan);
  InputNorms norms;
  const std::vector<Range> ranges = plan.rows.ranges(context.rank());
  run.phase("read", [&] {
    load(context, solver, 0, n, reader(run.control, a), &norms);
    load(context, solver, n, right, reader(run.control, b), nullptr);
    std::vector<double> columns(std::size_t(solver.slots() * probes));
    for (Index i = 0; i < solver.slots(); ++i)
      for (Index p = 0; p < probes; ++p)
        columns[std::size_t(i * probes + p)] = cauchy_probe(plan.rows.global(i, context.rank()), p);
    if (solver.slots() > 0)
      copy_rows<double>(context.ahead, solver.data().data + n + right, solver.ld(), columns.data(),
                        probes, probes, solver.slots());
    context.ahead.synchronize();
  });
  JordanOutcome found;
  run.phase("solve", [&] { found = solver.run(run.progress); });
  run.rate(1e-9 * (std::pow(double(n), 3) + 2.0 * double(n) * double(n) * double(right)) /
               run.seconds("solve"),
           "GFLOP/s");
  require_regular(run, found);
  note_determinant(run, found.log_abs_determinant, found.determinant_sign);
  run.phase("check", [&] {
    const double scale = scale_of(run.control.reduce(norms.largest, Reduce::max));
    std::vector<double> y(std::size_t(solver.slots() * probes));
    rows_of(context, solver, n + right, probes)(0, solver.slots(), y.data());
    const double norm_x = run.control.reduce(norm_from_probes(solver.slots(), y), Reduce::max);
    const double norm_a = run.control.reduce(norms.row, Reduce::max);
    run.report["result"]["reciprocal_condition"] = n == 0 ? 1.0 : safe_reciprocal(norm_a, norm_x);
    if (run.options.no_check) return;
    require_residual(run, check_solution<B>(
                              context, n, right, ranges,
                              [&](Index first, Index count, double* out) {
                                const auto rows = rows_of(context, solver, n + first, count);
                                for (Index s = 0; s < solver.slots(); ++s)
                                  rows(s, 1, out + solver.destination()[std::size_t(s)] * count);
                              },
                              reader(run.control, a), reader(run.control, b), scale));
  });
  run.phase("write", [&] {
    output.write_scattered<double>("x", n, b.is_vector() ? -1 : right, solver.destination(),
                                   rows_of(context, solver, n, right));
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
  if (run.options.precision != "fp64")
    fail_together(Exit::usage, "Cramer's rule knows FP64 only; --precision; leave the option out");
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
  run.work = cramer_work(n, right).json();
  if (run.options.plan) {
    run.say(fmt::format("method     cramer (asked for): {} determinants of order {}, on the host",
                        1 + n * right, n));
    PlanNeeds needs;
    needs.memory = [&](int) { return RankMemory{8 * n * (2 * n + 2 * right), 0}; };
    return conclude_plan(run, context, cramer_work(n, right), needs);
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
  CramerResult found;
  run.phase("solve", [&] { found = terrace::solve_by_cramer(full_a, full_b); });
  run.rate(2e-9 / 3 * std::pow(double(n), 3) * double(1 + n * right) / run.seconds("solve"),
           "GFLOP/s");
  JordanOutcome outcome;
  outcome.bad_column = found.first_zero_pivot;
  outcome.overflow = found.first_zero_pivot < 0 && std::isinf(norm_max(found.x));
  require_regular(run, outcome);
  note_determinant(run, found.log_abs_determinant, found.determinant_sign);
  const BlockCyclic rows = contiguous(n, context.size());
  const std::vector<Range> ranges = rows.ranges(context.rank());
  const Index begin = ranges.empty() ? 0 : ranges[0].first;
  run.phase("check", [&] {
    if (run.options.no_check) return;
    require_residual(
        run, check_solution<Cpu>(
                 context, n, right, ranges,
                 [&](Index first, Index count, double* out) {
                   for (const Range& range : ranges)
                     for (Index i = range.first; i < range.end(); ++i)
                       for (Index j = 0; j < count; ++j) out[i * count + j] = found.x(i, first + j);
                 },
                 reader(run.control, a), reader(run.control, b), scale_of(norm_max(full_a))));
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
      const io::DenseInput a = opened(run, "input", options->matrix);
      const io::DenseInput b = opened(run, "rhs", options->rhs, a.location().file);
      require_square(a);
      require_rows(a, b);
      with_backend(run, [&]<class B>(Context<B>& context) {
        if (run.options.method != "cramer") return solve(run, context, a, b, *options);
        if constexpr (std::is_same_v<B, Cpu>) {
          solve_by_cramer(run, context, a, b);
        } else {
          Context<Cpu> host = make_context<Cpu>(run.control);
          solve_by_cramer(run, host, a, b);
        }
      });
    };
  });
}

}  // namespace terrace
