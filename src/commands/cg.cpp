// terrace cg.
#include "distrib/agree.hpp"
#include "src/commands/cg_inputs.hpp"
#include "src/commands/cg_plan.hpp"
#include "src/commands/cg_preconditioner.hpp"
#include "src/commands/cg_results.hpp"
#include "src/program/refuse.hpp"

#include <cmath>

#include "src/cg/columns.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/constant_guard.hpp"

namespace terrace {
namespace {

/// Power of two that holds `count` columns, at most `most`.
Index width_for(Index count, Index most) {
  Index width = 1;
  while (width < count && width * 2 <= most) width *= 2;
  return width;
}

/// This rank's rows of a vector that stands whole on every rank.
template <class B>
Range slice(Index n, const Context<B>& c) {
  const Index block = contiguous(n, c.size()).block, from = std::min(n, block * c.rank());
  return {from, std::min(n, from + block) - from};
}

template <class B, class A>
std::vector<CgResult> solve_all(Run& run, const Context<B>& c, A& a, const CgCommand& options,
                                const CgOptions& base, CgMethod method,
                                const CgPreconditioning<B, A>& m, Index nrhs,
                                const std::vector<double>& b, std::vector<double>& x) {
  const bool single = method != CgMethod::classic || base.mixed || m.function;
  const Index most = single ? 1 : std::min(options.at_once, cg_most_columns);
  std::vector<CgResult> results;
  std::optional<CgWork<B>> work;
  CgOptions how = base;
  how.checkpoints = run.progress.checkpoints;
  Index j = 0;
  how.archive = [&](Archive& archive) {
    archive.value("first_column", j);
    Index count = Index(results.size());
    archive.value("results", count);
    results.resize(std::size_t(count));
    for (Index i = 0; i < count; ++i)
      archive_result(archive, "result " + std::to_string(i), results[std::size_t(i)]);
    Range own = a.rows();
    double* at = x.data();
    if (A::replicated && !archive.loading()) {
      own = slice(a.n(), c);
      at += own.first * nrhs;
    }
    archive.rows<double, Cpu>(Stream<Cpu>(), "solutions", a.n(), nrhs, {&own, 1}, at, nrhs);
  };
  if (how.checkpoints) j = how.checkpoints->value("first_column", 0);
  while (j < nrhs) {
    Index width = width_for(nrhs - j, most);
    // On a GPU two columns of a sparse or band product take as long as one and one, or longer.
    if (std::is_same_v<B, Cuda> && !A::replicated && width == 2) width = 1;
    const Index used = std::min(width, nrhs - j);
    if (!work || work->columns != width) {
      work.reset();
      work.emplace(c, a, how.jacobi, width, method);
      if (m.function) work->precondition(c, m.function, m.power);
      if (how.checkpoints) work->resident = {};  // iterations in one launch are never seen
    }
    const bool whole = nrhs == 1 && width == 1;
    const std::vector<double> b_part =
        whole ? std::vector<double>() : take_columns(b, nrhs, j, width);
    std::vector<double> x_part = whole ? std::vector<double>() : take_columns(x, nrhs, j, width);
    std::string what = "cg";
    if (nrhs > 1)
      what += used > 1 ? fmt::format(", columns {} to {} of {}", j + 1, j + used, nrhs)
                       : fmt::format(", column {} of {}", j + 1, nrhs);
    run.progress.begin(what, 100);  // digits gained
    const double digits = -std::log10(std::max(options.rtol, 1e-16));
    double most = 0;  // residuals rise on the way, the bar does not fall
    how.observe = [&run, &options, &what, digits, most, nrhs](Index k, double residual) mutable {
      most = std::max(most, std::clamp(-std::log10(residual) / std::max(digits, 1.0), 0.0, 1.0));
      run.progress.tick(100 * most, k);
      if (options.monitor > 0 && k % options.monitor == 0)
        run.say(fmt::format("{}{:6d}  {} residual {:.6e}", nrhs > 1 ? what + "  " : "", k,
                            options.norm, residual));
    };
    std::vector<CgResult> done =
        conjugate_gradients_columns(c, a, *work, how, whole ? b : b_part, whole ? x : x_part);
    for (Index v = 0; v < used; ++v) results.push_back(std::move(done[std::size_t(v)]));
    if (!whole) put_columns(x_part, width, j, used, x, nrhs);
    run.progress.end();
    j += used;
  }
  return results;
}

/// b, or x, in the order of the operator's rows; `back`: in that of the file.
std::vector<double> permuted(const CgInputs& in, const std::vector<double>& from, bool back) {
  const Index nrhs = in.rhs.columns();
  std::vector<double> to(from.size());
  for (std::size_t i = 0; i < in.order.size(); ++i) {
    const Index old = in.order[i] * nrhs, now = Index(i) * nrhs;
    std::copy_n(from.begin() + (back ? now : old), nrhs, to.begin() + (back ? old : now));
  }
  return to;
}

CgOptions iteration_options(const Run& run, const CgCommand& options) {
  CgOptions how;
  how.rtol = options.rtol;
  how.atol = options.atol;
  how.max_iterations = options.max_iterations;
  how.jacobi = options.preconditioner == "jacobi";
  how.norm = norm_of(options.norm);
  how.mixed = run.options.precision == "mixed";
  how.guard = run.options.guard;
  return how;
}

template <class B, class A>
void solve_and_write(Run& run, const Context<B>& c, A& a, const CgInputs& in,
                     const CgCommand& options, io::Output& output) {
  const Index nrhs = in.rhs.columns(), n = in.n;
  const Range rows = a.rows();
  std::vector<double> b, x;
  run.phase("read", [&] {
    b = read_rows(c.control, in.rhs, rows);
    if (in.x0)
      x = read_rows(c.control, *in.x0, rows);
    else
      collectively(c.control, [&] { x.assign(b.size(), 0.0); });
  });
  if (!in.order.empty()) b = permuted(in, b, false), x = permuted(in, x, false);

  CgOptions how = iteration_options(run, options);
  run.phase("solve", [&] { normalise(c, a); });
  int power = options.preconditioner == "none" ? a.scale.power : 0;  // of eigenvalues
  std::optional<ConstantGuard<B>> guard;
  if (run.options.guard) {
    guard.emplace(c);
    a.each_array([&](const auto& array) { guard->watch(array); });
    guard->begin();
    how.between = [&](Index launched) { guard->step(launched); };
  }
  std::vector<CgResult> results;
  double step_bytes = a.bytes() + (how.jacobi ? 88.0 : 80.0) * double(n);
  run.settings = {{"rtol", options.rtol},         {"atol", options.atol},
                  {"norm", options.norm},         {"preconditioner", options.preconditioner},
                  {"degree", options.degree},     {"block", run.options.block},
                  {"method", run.options.method}, {"precision", run.options.precision},
                  {"layout", options.layout},     {"reorder", options.reorder},
                  {"at_once", options.at_once}};
  run.phase("solve", [&] {
    CgPreconditioning<B, A> m(c, a, options, run.options.block);
    if (!m.description.is_null()) run.report["preconditioner_details"] = m.description;
    step_bytes += m.bytes;
    power -= m.power;
    if (guard) {
      m.each_array([&](const auto& array) { guard->watch(array); });
      guard->begin();
    }
    if (m.refused)
      results.assign(std::size_t(nrhs), refused_result(*m.refused, m.bad_row, in));
    else
      results = solve_all(run, c, a, options, how, method_of(run.options.method), m, nrhs, b, x);
    if (guard) {
      Index most = 0;
      for (const CgResult& r : results) most = std::max(most, r.iterations);
      guard->finish(most);
      guard.reset();  // before what it watches
    }
  });
  if (!in.order.empty()) x = permuted(in, x, true);
  for (CgResult& r : results) r.position = in.old_row(r.position);

  const CgSummary sum = summarise(results, power);
  run.report["result"] = sum.result;
  run.report["residual"] = sum.scaled;
  run.rate(1e-9 * step_bytes * double(sum.steps) / run.seconds("solve"), "GB/s");
  // Vectors that stand whole on every rank are written in slices.
  const Range mine = A::replicated ? slice(n, c) : rows;
  run.phase("write", [&] {
    write_solution(run, c.control, in, options, results, sum, mine,
                   x.data() + (mine.first - rows.first) * nrhs, output);
  });
  if (sum.failed >= 0)
    run.outcome("not converged",
                explain_failure(results[std::size_t(sum.failed)], sum.failed, nrhs, in.where));
  say_solution(run, in, options, results, sum);
}

void cg(Run& run, const CgCommand& options, const CLI::App& command) {
  require_output(run.options);
  CgInputs in = open_inputs(run, options);
  if (in.kind != io::Kind::dense)
    refuse_given(command, {"--layout"}, "only dense matrices have a layout");
  check_cg_options(run, options, in);
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  with_backend(run, [&]<class B>(Context<B>& c) {
    plan_cg(run, c, in, options);
    if (run.options.plan) return;
    const auto solve = [&](auto a) { solve_and_write(run, c, a, in, options, *output); };
    const bool mixed = run.options.precision == "mixed";
    if (in.kind == io::Kind::dense && options.layout == "rows") solve(read_dense(run, c, in));
    if (in.kind == io::Kind::dense && options.layout == "triangle")
      solve(read_triangle(run, c, in, mixed));
    if (in.kind == io::Kind::band) solve(read_band(run, c, in));
    if (in.kind == io::Kind::csr) solve(read_csr(run, c, in, options.reorder));
  });
}

}  // namespace

void add_cg_command(CLI::App& app, Selected& selected) {
  const auto options = std::make_shared<CgCommand>();
  CLI::App* command = app.add_subcommand(
      "cg", "Conjugate gradients for a symmetric positive definite dense, band or CSR matrix");
  command->add_option("matrix", options->matrix, "FILE.h5:/path of the matrix")->required();
  command->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5:/path, or :/path")
      ->required();
  command->add_option("--rtol", options->rtol, "Stop at ||b - A x|| <= rtol ||b||")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--atol", options->atol, "Stop at ||b - A x|| <= atol")
      ->check(not_negative())
      ->capture_default_str();
  command
      ->add_option("--norm", options->norm,
                   "Of the residual r that is compared: unpreconditioned ||r||, preconditioned "
                   "||M^-1 r||, natural sqrt(r.M^-1 r); that of b alike")
      ->check(CLI::IsMember({"unpreconditioned", "preconditioned", "natural"}))
      ->capture_default_str();
  command->add_option("--max-iterations", options->max_iterations, "Default 10 n + 1000")
      ->check(not_negative());
  command->add_option("--condition", options->condition, "For --plan: of the matrix, if known")
      ->check(positive());
  command->add_option("--x0", options->x0, "Start from this solution: FILE.h5:/path");
  command
      ->add_option("--preconditioner", options->preconditioner,
                   "none, jacobi, block-jacobi (--block rows), ic (incomplete Cholesky of each "
                   "rank's rows; band and CSR), chebyshev (--degree)")
      ->check(CLI::IsMember({"none", "jacobi", "block-jacobi", "ic", "chebyshev"}))
      ->capture_default_str();
  command->add_option("--degree", options->degree, "Products of a Chebyshev polynomial")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--layout", options->layout,
                   "Dense: triangle (packed tiles of the lower half) or rows (row slices)")
      ->check(CLI::IsMember({"triangle", "rows"}))
      ->capture_default_str();
  command->add_flag("--reorder", options->reorder,
                    "CSR, one rank: rows and columns in reverse Cuthill-McKee order");
  command->add_option("--at-once", options->at_once, "Right-hand sides solved together, at most")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command->add_option("--monitor", options->monitor, "Print the residual every so many iterations")
      ->check(positive());
  command
      ->add_option("--format", options->format, "dense, band or csr, where the file does not say")
      ->check(CLI::IsMember({"dense", "band", "csr"}));
  add_common_options(*command, selected.options);
  command->callback([&selected, options, command] {
    selected.command = "cg";
    selected.action = [options, command](Run& run) {
      const std::string& m = options->preconditioner;
      if (m != "block-jacobi")
        refuse_given(*command, {"--block"}, "only --preconditioner block-jacobi has blocks");
      if (m != "chebyshev")
        refuse_given(*command, {"--degree"}, "only --preconditioner chebyshev has a degree");
      if (!run.options.plan)
        refuse_given(*command, {"--condition"}, "the condition is asked for by --plan alone");
      cg(run, *options, *command);
    };
  });
}

}  // namespace terrace
