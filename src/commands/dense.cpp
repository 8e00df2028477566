// terrace dense invert, terrace dense solve.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/random.hpp"
#include "src/commands.hpp"
#include "src/cramer.hpp"
#include "src/dense_check.hpp"
#include "src/gauss_jordan.hpp"

namespace terrace {

namespace {

struct DenseOptions {
  std::string matrix, rhs, pivoting = "auto";
};

constexpr Index condition_probes = 4;              // columns that estimate ||A^-1|| in a solve
constexpr Index staging_bytes = Index(192) << 20;  // host memory for reading, writing and checking

/// Norms of the input gathered while it is read.
struct InputNorms {
  std::vector<double> columns;  // sums of |A[:, j]|
  double largest = 0, squares = 0;

  void take(Index count, Index n, const double* rows) {
    columns.resize(std::size_t(n), 0.0);
    for (Index i = 0; i < count; ++i)
      for (Index j = 0; j < n; ++j) {
        const double size = std::fabs(rows[i * n + j]);
        columns[std::size_t(j)] += size;
        squares += size * size;
        largest = std::max(largest, size);
      }
  }
};

/// The power of two that brings the largest element near one.
double scale_of(double largest) {
  int exponent = 0;
  std::frexp(largest, &exponent);
  return largest > 0 && std::isfinite(largest) ? std::ldexp(1.0, std::clamp(-exponent, -1021, 1021))
                                               : 1.0;
}

RowReader reader(const Control& control, const io::DenseInput& input) {
  return [&control, &input](std::span<const Range> ranges, const io::Sink<double>& sink) {
    input.read(control, ranges, sink);
  };
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
void describe(Run& run, const JordanPlan& plan) {
  run.report["n"] = plan.n;
  run.report["method"] = "gauss-jordan";
  run.report["block"] = plan.block;
  run.report["pivoting"] = plan.pivoting == Pivoting::partial ? "partial" : "tournament";
  run.report["memory_per_rank"] = plan.bytes;
}

template <class B>
void say_plan(Run& run, const JordanPlan& plan) {
  const double gib = 1073741824.0;
  run.say(fmt::format("method     gauss-jordan, in place: {:.4g} flops over {} ranks",
                      (plan.inverse ? 2.0 : 1.0) * std::pow(double(plan.n), 3) +
                          2.0 * double(plan.n) * double(plan.n) * double(plan.right),
                      plan.rows.ranks));
  run.say(fmt::format("block      {} ({})", plan.block, plan.why_block));
  run.say(fmt::format("pivoting   {} ({})",
                      plan.pivoting == Pivoting::partial ? "partial" : "tournament",
                      plan.why_pivoting));
  run.say(fmt::format("memory     {:.3f} GiB per rank on the {}, {:.3f} GiB of host memory beside",
                      double(plan.bytes) / gib, std::is_same_v<B, Cpu> ? "host" : "GPU",
                      double(staging_bytes) / gib));
  run.report["result"]["plan"] = {{"bytes_per_rank", plan.bytes},
                                  {"method", "gauss-jordan"},
                                  {"block", plan.block},
                                  {"why_block", plan.why_block},
                                  {"why_pivoting", plan.why_pivoting}};
}

template <class B>
void require_plan_memory(Run& run, const JordanPlan& plan) {
  const bool host = std::is_same_v<B, Cpu>;
  const Index staging =
      std::min<Index>(staging_bytes, 8 * plan.n * (plan.n + plan.right) + (1 << 20));
  require_memory(run.control, staging + (host ? plan.bytes : 0), host ? 0 : plan.bytes);
}

/// Rows of this rank from `read`, at column `from` of the solver's rows.
template <class B>
void load(Context<B>& context, const GaussJordan<B>& solver, Index from, Index columns,
          const RowReader& read, InputNorms* norms) {
  const std::vector<Range> ranges = solver.plan().rows.ranges(context.rank());
  read(ranges, [&](Index position, Index count, const double* rows) {
    copy_rows<double>(context.ahead, solver.data().data + position * solver.ld() + from,
                      solver.ld(), rows, columns, columns, count);
    if (norms) norms->take(count, columns, rows);
    context.ahead.synchronize();
  });
}

/// The outcomes of the elimination that are not results.
void require_regular(Run& run, const JordanOutcome& found) {
  if (found.overflow)
    run.outcome("overflow",
                found.bad_column >= 0
                    ? fmt::format("the elimination overflowed; column {}; scale the matrix",
                                  found.bad_column)
                    : std::string("the result has elements that are not finite; the matrix is "
                                  "singular to working precision or badly scaled; scale it"));
  if (found.bad_column >= 0) {
    run.report["result"]["first_zero_pivot"] = found.bad_column;
    run.outcome("singular",
                fmt::format("the matrix is singular; zero pivot in column {}; it has no "
                            "inverse",
                            found.bad_column));
  }
}

void require_residual(Run& run, double ratio) {
  run.report["residual"] = std::isfinite(ratio) ? nlohmann::json(ratio) : nlohmann::json("inf");
  if (!(ratio <= 30))
    run.outcome("check-failed",
                fmt::format("the residual check failed: ratio {:.3g} is above 30; reciprocal "
                            "condition {:.3g}; nothing was written",
                            ratio, run.report["result"].value("reciprocal_condition", 0.0)));
}

void note_determinant(Run& run, double log_abs, int sign) {
  run.report["result"]["log_abs_determinant"] = log_abs;
  run.report["result"]["determinant_sign"] = sign;
}

/// `count` of the solver's rows from `position`, columns [from, from + columns), to the host.
template <class B>
io::Source<double> rows_of(Context<B>& context, const GaussJordan<B>& solver, Index from,
                           Index columns) {
  return [&context, &solver, from, columns](Index position, Index count, double* out) {
    copy_rows<double>(context.ahead, out, columns,
                      solver.data().data + position * solver.ld() + from, solver.ld(), columns,
                      count);
    context.ahead.synchronize();
  };
}

double safe_reciprocal(double a, double b) {
  const double value = 1.0 / a / b;
  return std::isfinite(value) ? value : 0.0;
}

template <class B>
void invert(Run& run, Context<B>& context, const io::DenseInput& a, const DenseOptions& options) {
  const Index n = a.rows();
  const JordanPlan plan =
      plan_jordan<B>(run.control.size(), n, 0, true, run.options.block, options.pivoting);
  describe<B>(run, plan);
  if (run.options.plan) return say_plan<B>(run, plan);
  io::Output output(run.control, run.options.output, run.options.force);
  require_plan_memory<B>(run, plan);
  GaussJordan<B> solver(context, plan);
  InputNorms norms;
  run.phase("read", [&] { load(context, solver, 0, n, reader(run.control, a), &norms); });
  JordanOutcome found;
  run.phase("solve", [&] { found = solver.run(run.progress); });
  run.rate(2e-9 * std::pow(double(n), 3) / run.seconds("solve"), "GFLOP/s");
  require_regular(run, found);
  note_determinant(run, found.log_abs_determinant, found.determinant_sign);
  run.phase("check", [&] {
    norms.columns.resize(std::size_t(n), 0.0);
    run.control.reduce(norms.columns, Reduce::sum);
    const double norm_a =
        n == 0 ? 0 : *std::max_element(norms.columns.begin(), norms.columns.end());
    run.report["result"]["reciprocal_condition"] =
        n == 0 ? 1.0 : safe_reciprocal(norm_a, norms_of_inverse(context, solver).first);
    if (run.options.no_check) return;
    const double scale = scale_of(run.control.reduce(norms.largest, Reduce::max));
    const InverseResidual r = check_inverse(context, solver, reader(run.control, a), scale);
    run.report["result"]["residual_right"] = r.right;
    run.report["result"]["residual_left"] = r.left;
    run.report["result"]["residual_kind"] = r.kind;
    require_residual(run, r.right);
  });
  run.phase("write", [&] {
    output.write_scattered<double>("inverse", n, n, solver.destination(),
                                   rows_of(context, solver, 0, n),
                                   {{"log_abs_determinant", found.log_abs_determinant},
                                    {"determinant_sign", Index(found.determinant_sign)}});
    output.commit(run.attributes());
  });
  run.say(fmt::format("inverse    n {}, {:.3f} s, {:.1f} GFLOP/s, residual ratio {}", n,
                      run.seconds("solve"), run.report["rate"]["value"].get<double>(),
                      run.report.value("residual", nlohmann::json("not checked")).dump()));
}

template <class B>
void solve(Run& run, Context<B>& context, const io::DenseInput& a, const io::DenseInput& b,
           const DenseOptions& options) {
  const Index n = a.rows(), right = b.columns(), probes = n > 0 ? condition_probes : 0;
  const JordanPlan plan = plan_jordan<B>(run.control.size(), n, right + probes, false,
                                         run.options.block, options.pivoting);
  describe<B>(run, plan);
  run.report["columns"] = right;
  if (run.options.plan) return say_plan<B>(run, plan);
  io::Output output(run.control, run.options.output, run.options.force);
  require_plan_memory<B>(run, plan);
  GaussJordan<B> solver(context, plan);
  InputNorms norms;
  const std::vector<Range> ranges = plan.rows.ranges(context.rank());
  run.phase("read", [&] {
    load(context, solver, 0, n, reader(run.control, a), &norms);
    load(context, solver, n, right, reader(run.control, b), nullptr);
    // Columns of random signs z: E ||A^-1 z||^2 = ||A^-1||_F^2.
    std::vector<double> signs(std::size_t(solver.slots() * probes));
    for (Index s = 0; s < solver.slots(); ++s)
      for (Index p = 0; p < probes; ++p)
        signs[std::size_t(s * probes + p)] =
            random_word(0xc0de, plan.rows.global(s, context.rank()), p) & 1 ? 1.0 : -1.0;
    if (solver.slots() > 0)
      copy_rows<double>(context.ahead, solver.data().data + n + right, solver.ld(), signs.data(),
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
    double squares = 0;  // of scaled values: A^-1 is about 1 / scale
    for (const double v : y) squares += (v / scale) * (v / scale);
    const double frobenius_x =
        std::sqrt(run.control.reduce(squares, Reduce::sum) / double(condition_probes));
    const double frobenius_a = std::sqrt(run.control.reduce(norms.squares, Reduce::sum)) * scale;
    run.report["result"]["reciprocal_condition"] =
        n == 0 ? 1.0 : safe_reciprocal(frobenius_a, frobenius_x);
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
    run.say(fmt::format("memory     {} bytes per rank", 8 * n * (2 * n + 2 * right)));
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
  const io::Location location = io::parse_location(text, file);
  run.note_input(key, location);
  return io::open_dense(run.control, location);
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
  invert_command->callback([&selected, options] {
    selected.command = "dense invert";
    selected.action = [options](Run& run) {
      require_output(run.options);
      require_method(run, {"gauss-jordan"});
      const io::DenseInput a = opened(run, "input", options->matrix);
      require_square(a);
      with_backend(run, [&]<class B>(Context<B>& context) { invert(run, context, a, *options); });
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
