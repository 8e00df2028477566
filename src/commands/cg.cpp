// terrace cg.
#include <cmath>

#include "distrib/agree.hpp"
#include "src/commands/cg_plan.hpp"
#include "src/commands/cg_results.hpp"
#include "src/commands/verify.hpp"
#include "src/program/conduct.hpp"
#include "src/program/reading.hpp"

namespace terrace::cg {
namespace {

/// A X = B for one form of A.
template <class B, template <class> class A>
class SolveByGradients : public Job {
 public:
  SolveByGradients(Run& run, Context<B>& context, CgInputs& in, CgCommand& options)
      : run_(run),
        context_(context),
        in_(in),
        options_(options),
        nrhs_(in.rhs.columns()),
        memory_(cg_memory<B>(in, options, context.size())) {
    if (std::is_same_v<B, Cuda> && !options.reorder) {
      const OperatorMemory vectors = given_vectors(in, options, context.size());
      const bool room = memory_.backend() + vectors.backend <= context.device.free_bytes;
      there_ = context.control.reduce(Index(room), Reduce::min) > 0;
      if (there_) memory_.vectors += vectors.backend, memory_.host -= vectors.host;
    }
    run.report["memory"] = {{"backend_bytes", memory_.backend()}, {"host_bytes", memory_.host}};
  }

  [[nodiscard]] Work work() const override {
    return cg_work(run_, in_, options_, machine_of(context_));
  }
  [[nodiscard]] PlanNeeds needs() const override {
    return cg_needs<B>(in_, options_, context_.size());
  }
  void describe() override { describe_cg(run_, in_, options_, memory_); }
  void compare(const Rates& rates) override {
    compare_with_direct(run_, in_, options_, machine_of(context_), rates);
  }
  void go(Run&) override {
    read_matrix(run_, context_, in_, options_, a_);
    run_.phase("read", [&] {
      const RowOrder& order = options_.solve.order;
      rows_ = order.empty() ? a_->rows() : order.callers_rows(context_.rank());
      if (there_)
        read_there();
      else
        read_here();
      if (in_.near_null_space) {
        near_ = {in_.near_null_space->columns(),
                 read_rows(run_.control, *in_.near_null_space, rows_),
                 io::to_string(in_.near_null_space->location())};
        options_.solve.near_null_space = &near_;
      }
    });
    run_.phase("solve", [&] { solve(); });
  }
  void outcome() override {
    sum_ = summarise(solution_.results, solution_.power);
    run_.report["result"] = sum_.result;
    run_.report["residual"] =
        run_.options.no_check ? nlohmann::json() : nlohmann::json(sum_.scaled);
    run_.rate(1e-9 * solution_.bytes * double(sum_.steps) / run_.seconds("solve"), "GB/s");
  }
  bool has_check() const override { return false; }
  void write() override {
    const Index first = solution_.own.first - rows_.first;
    write_solution(run_, in_, options_, solution_, sum_,
                   [&](Index position, Index count, double* out) {
                     const Index from = (first + position) * nrhs_;
                     if (!there_) return void(std::copy_n(x_.data() + from, count * nrhs_, out));
                     download(context_.ahead, out, x_there_.view().slice(from, count * nrhs_));
                     context_.ahead.synchronize();
                   });
  }
  /// An x that has not converged is written before that is said.
  [[nodiscard]] std::string problem() const override {
    const std::string kind = in_.kind == io::Kind::sparse ? "sparse" : form_name(in_.kind);
    return fmt::format("{} matrix, n = {}, {}", kind, in_.n, counted(nrhs_, "right-hand side"));
  }
  [[nodiscard]] std::string answer() const override {
    const std::vector<CgResult>& results = solution_.results;
    if (sum_.failed >= 0)
      run_.outcome("not converged", explain_failure(results[std::size_t(sum_.failed)], sum_.failed,
                                                    nrhs_, in_.where, in_.kind == io::Kind::dense));
    return describe_solution(run_, in_, options_, results, sum_) + levels_;
  }

 private:
  void read_here() {
    b_ = read_rows(run_.control, in_.rhs, rows_);
    if (in_.x0)
      x_ = read_rows(run_.control, *in_.x0, rows_);
    else
      collectively(run_.control, [&] { x_.assign(b_.size(), 0.0); });
  }
  /// Into the backend's memory, from which x is written, too: fresh pages of the host cost more.
  void read_there() {
    const auto read = [&](const io::DenseInput& input, Buffer<double, B>& to) {
      input.read(run_.control, {&rows_, 1}, [&](Index position, Index count, const double* from) {
        upload(context_.ahead, to.view().slice(position * nrhs_, count * nrhs_), from);
        context_.ahead.synchronize();
      });
    };
    collectively(run_.control, [&] {
      b_there_ = Buffer<double, B>(rows_.count * nrhs_);
      x_there_ = Buffer<double, B>(rows_.count * nrhs_);
      if (!in_.x0) fill_zero(context_.ahead, x_there_.view());
    });
    read(in_.rhs, b_there_);
    if (in_.x0) read(*in_.x0, x_there_);
  }
  void solve() {
    CgHooks hooks;
    hooks.prepared = [&](const PreconditionerNotes& local, const ChebyshevNotes& polynomial,
                         const MultigridNotes& multigrid) {
      run_.report["preconditioner_details"] = describe_preconditioner(local, polynomial, multigrid);
      if (!multigrid.levels.empty()) levels_ = "\n" + describe_levels(multigrid);
    };
    hooks.observe = [&](const std::string& what, Index k, double residual) {
      if (options_.monitor > 0 && k % options_.monitor == 0)
        run_.say(fmt::format("{}{:6d}  {} residual {:.6e}", nrhs_ > 1 ? what + "  " : "", k,
                             options_.norm, residual));
    };
    if (there_) {
      const CgRows<const double> b(b_there_.data(), b_there_.size(), true);
      const CgRows<double> x(x_there_.data(), x_there_.size(), true);
      solution_ = solve_system(context_, *a_, options_.solve, nrhs_, b, x, run_.progress, hooks);
      b_there_ = {};
    } else {
      solution_ = solve_system(context_, *a_, options_.solve, nrhs_, std::move(b_), x_,
                               run_.progress, hooks);
    }
  }

  Run& run_;
  Context<B>& context_;
  CgInputs& in_;
  CgCommand& options_;
  Index nrhs_;
  CgMemory memory_;
  std::optional<A<B>> a_;
  Range rows_;          ///< of b and x on this rank
  bool there_ = false;  ///< b and x in the backend's memory, where that has room; else on the host
  std::vector<double> b_, x_;
  Buffer<double, B> b_there_, x_there_;
  NearNullSpace near_;
  CgSolution solution_;
  CgSummary sum_;
  std::string levels_;  ///< of multigrid, a line
};

template <template <class> class A, class B>
void solve_form(Run& run, Context<B>& context, CgInputs& in, CgCommand& options) {
  SolveByGradients<B, A> job(run, context, in, options);
  conduct(run, context, job);
}

void cg(Run& run, CgCommand& options, const CLI::App& command) {
  check_request(run, options, command);
  CgInputs in;
  open_inputs(run, options, in);
  check_request(run, options, in, command);
  if (!run.options.plan) in.output.emplace(run.control, run.options.output, run.options.force);
  if (in.kind == io::Kind::sparse) run.kernels = {"base", "cg"};
  if (in.kind == io::Kind::sparse &&
      (options.solve.preconditioner == "amg" || run.control.size() > 1))
    run.kernels.emplace_back("multigrid");
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (in.kind == io::Kind::dense && options.layout == "triangle")
      solve_form<TriangleOperator>(run, context, in, options);
    else if (in.kind == io::Kind::dense)
      solve_form<DenseOperator>(run, context, in, options);
    else if (in.kind == io::Kind::band)
      solve_form<BandOperator>(run, context, in, options);
    else
      solve_form<CsrOperator>(run, context, in, options);
  });
}

}  // namespace

void add_commands(CLI::App& app, Selected& selected) {
  const auto options = std::make_shared<CgCommand>();
  CLI::App* command = add_command(
      app, selected,
      {"cg", "Conjugate gradients for a symmetric positive definite dense, band or sparse matrix",
       "terrace cg sparse.h5:/A --rhs :/b -o x.h5 --preconditioner jacobi",
       solver_options +
           "--block --method=classic,single-reduction,pipelined --precision=fp64,mixed",
       verify_cg},
      [options](Run& run, const CLI::App& given) { cg(run, *options, given); });
  command->get_option("--method")->transform([](const std::string& name) {
    return name == "conjugate-gradients" ? "classic" : name;  // as reports say
  });
  command->get_option("--block")->description("Rows of a block of block-jacobi (default 32)");
  command->add_option("A", options->matrix, "Matrix: FILE.h5[:/path]")->required();
  command->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5[:/path] or :/path")
      ->required();
  command->add_option("--rtol", options->solve.rtol, "Stop at ||b - A x|| <= rtol ||b||")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--atol", options->solve.atol, "Stop at ||b - A x|| <= atol (default 0)")
      ->check(not_negative())
      ->capture_default_str();
  command
      ->add_option(
          "--norm", options->norm,
          "Norm of the residual r in the stopping test: unpreconditioned ||r||, preconditioned "
          "||M^-1 r||, natural sqrt(r.M^-1 r); the same norm for b")
      ->check(CLI::IsMember({"unpreconditioned", "preconditioned", "natural"}))
      ->capture_default_str();
  command
      ->add_option("--max-iterations", options->solve.max_iterations,
                   "Maximum number of iterations (default 10 n + 1000)")
      ->check(not_negative());
  command
      ->add_option("--condition", options->condition,
                   "For --plan: condition number of the matrix, if known")
      ->check(positive());
  command->add_option("--x0", options->x0, "Start from this solution: FILE.h5:/path");
  command
      ->add_option("--preconditioner", options->solve.preconditioner,
                   "none, jacobi, block-jacobi (--block rows), ic (incomplete Cholesky of each "
                   "rank's rows; not dense), chebyshev (--degree), amg (smoothed aggregation "
                   "multigrid; not dense), hypre (BoomerAMG of hypre on the CPU, to compare; not "
                   "dense)")
      ->check(CLI::IsMember({"none", "jacobi", "block-jacobi", "ic", "chebyshev", "amg", "hypre"}))
      ->capture_default_str();
  command->add_option("--near-null-space", options->near_null_space,
                      "amg: vectors that the matrix takes near zero, n x k, as rigid body modes of "
                      "an elastic body: FILE.h5[:/path] (default: constants)");
  command->add_option("--degree", options->solve.degree, "Products of a Chebyshev polynomial")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--layout", options->layout,
                   "Dense: triangle (packed tiles of the lower half) or rows (row slices)")
      ->check(CLI::IsMember({"triangle", "rows"}))
      ->capture_default_str();
  command->add_flag("--reorder", options->reorder,
                    "Sparse: rows and columns in parts that need little of one another, one per "
                    "rank, each in reverse Cuthill-McKee order");
  command
      ->add_option("--at-once", options->solve.at_once,
                   "Maximum number of right-hand sides solved together")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command
      ->add_option("--monitor", options->monitor,
                   "Print the residual every N iterations (0: never)")
      ->check(positive());
  add_reading_options(*command, selected.options, {"dense", "band", "csr", "csc", "coo"});
}

}  // namespace terrace::cg
