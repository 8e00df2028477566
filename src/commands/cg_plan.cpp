#include "src/commands/cg_plan.hpp"

#include <cmath>

#include "distrib/agree.hpp"
#include "src/cg/preconditioner.hpp"
#include "src/program/plan.hpp"

namespace terrace {
namespace {

double gib(double bytes) { return bytes / 1073741824.0; }

}  // namespace

CgMethod method_of(const std::string& option) {
  return option == "single-reduction" ? CgMethod::single_reduction
         : option == "pipelined"      ? CgMethod::pipelined
                                      : CgMethod::classic;
}
CgNorm norm_of(const std::string& option) {
  return option == "preconditioned" ? CgNorm::preconditioned
         : option == "natural"      ? CgNorm::natural
                                    : CgNorm::unpreconditioned;
}

void check_cg_options(Run& run, const CgCommand& options, const CgInputs& in) {
  const std::string& method = run.options.method;
  if (!method.empty() && method != "conjugate-gradients" && method != "classic" &&
      method != "single-reduction" && method != "pipelined")
    fail_together(Exit::usage, "unknown method '" + method +
                                   "'; --method of cg; use classic, single-reduction or pipelined");
  const std::string preconditioner =
      options.preconditioner == "ic" ? "incomplete-cholesky" : options.preconditioner;
  if (!preconditioner_supported(preconditioner, form_name(in.kind)))
    fail_together(Exit::usage,
                  "incomplete Cholesky of a dense matrix would be all of Cholesky; "
                  "--preconditioner; use terrace dense solve, or block-jacobi");
  const bool blocks = options.preconditioner == "block-jacobi";
  if (blocks && run.options.block > most_block)
    fail_together(Exit::usage, fmt::format("blocks of {} rows are too large; --block; use 1 to {}",
                                           run.options.block, most_block));
  if (run.options.precision == "mixed" &&
      (in.kind != io::Kind::dense || options.layout != "triangle" ||
       method_of(method) != CgMethod::classic))
    fail_together(Exit::usage,
                  "mixed precision is for dense matrices as a triangle and the classic method; "
                  "--precision mixed; leave it out or drop --layout and --method");
  if (options.reorder && (in.kind != io::Kind::csr || run.control.size() > 1))
    fail_together(Exit::usage,
                  "a new order of the rows is for CSR matrices on one rank; --reorder; "
                  "leave it out");
  run.report["method"] = "conjugate-gradients";
  run.report["variant"] = method.empty() || method == "conjugate-gradients" ? "classic" : method;
  run.report["preconditioner"] = options.preconditioner;
  run.report["precision"] = run.options.precision;
  run.report["norm"] = options.norm;
  if (in.kind == io::Kind::dense) run.report["layout"] = options.layout;
}

namespace {

bool as_triangle(const CgInputs& in, const CgCommand& options) {
  return in.kind == io::Kind::dense && options.layout == "triangle";
}
/// Columns in lock step.
Index at_once(const Run& run, const CgInputs& in, const CgCommand& options) {
  const bool general = options.preconditioner != "none" && options.preconditioner != "jacobi";
  const bool single = method_of(run.options.method) != CgMethod::classic || general ||
                      run.options.precision == "mixed";
  return single ? 1 : std::min(options.at_once, std::max<Index>(1, in.rhs.columns()));
}

struct CgMemory {
  OperatorMemory matrix;
  Index vectors = 0, host = 0;  ///< on the backend; on the host beside
};
template <class B>
CgMemory cg_memory(const Run& run, const CgInputs& in, const CgCommand& options, int ranks) {
  const bool triangle = as_triangle(in, options);
  const Index rows = triangle ? in.n : ceil_div(in.n, ranks), nrhs = in.rhs.columns();
  const bool general = options.preconditioner != "none" && options.preconditioner != "jacobi";
  const Index columns = at_once(run, in, options);
  CgMemory m;
  m.matrix = triangle                     ? TriangleOperator<B>::memory(in.n, ranks, columns)
             : in.kind == io::Kind::dense ? DenseOperator<B>::memory(in.n, ranks)
             : in.kind == io::Kind::band
                 ? BandOperator<B>::memory(in.n, in.band.half_bandwidth(), ranks)
                 : CsrOperator<B>::memory(in.n, in.csr.nonzeros(), ranks);
  m.vectors = CgWork<B>::bytes(rows, options.preconditioner == "jacobi", columns,
                               method_of(run.options.method), general);
  Index host_extra = 0;
  if (options.preconditioner == "block-jacobi") {
    const Index block = run.options.block > 0 ? run.options.block : 32;
    m.vectors += block_jacobi_bytes(rows, block);
    host_extra = 24 * rows * block;
  } else if (options.preconditioner == "ic") {
    const Index nonzeros = in.kind == io::Kind::csr ? ceil_div(in.csr.nonzeros(), ranks)
                                                    : (2 * in.band.half_bandwidth() + 1) * rows;
    m.vectors += incomplete_cholesky_bytes(rows, nonzeros);
    host_extra = 24 * nonzeros;
  } else if (options.preconditioner == "chebyshev") {
    m.vectors += 8 * rows * 4;
  }
  const Index slab = triangle ? 8 * triangle::height * in.n : 0;
  m.host = m.matrix.host + host_extra + slab + 8 * rows * (3 * nrhs + 4) + 2 * io::piece_bytes();
  return m;
}
template <class B>
RankMemory on_rank(const CgMemory& m) {
  const Index backend = m.matrix.backend + m.vectors;
  return std::is_same_v<B, Cuda> ? RankMemory{m.host, backend} : RankMemory{m.host + backend, 0};
}

/// Iterations that the error bound of conjugate gradients asks for: with the condition that was
/// given, or with 100 where none was.
double assumed_iterations(const CgCommand& options, Index n) {
  const double condition = options.condition > 0 ? options.condition : 100;
  const double bound = 0.5 * std::sqrt(condition) * std::log(2 / std::max(options.rtol, 1e-16)) + 1;
  const double most =
      options.max_iterations >= 0 ? double(options.max_iterations) : 10.0 * double(n);
  return std::ceil(std::min({bound, most, std::max(1.0, double(n))}));
}

Work cg_work(const Run& run, const CgInputs& in, const CgCommand& options, const Machine& on) {
  const bool triangle = as_triangle(in, options), sparse = in.kind == io::Kind::csr;
  const double n = double(in.n), mean = n / on.ranks;
  const double m = in.kind == io::Kind::band ? double(in.band.half_bandwidth()) : 0;
  IterationWork w;
  w.on = on;
  w.form = triangle                     ? "dense triangle"
           : in.kind == io::Kind::dense ? "dense rows"
                                        : form_name(in.kind);
  w.method = run.report["variant"].get<std::string>();
  w.preconditioner = options.preconditioner;
  w.mixed = run.options.precision == "mixed";
  w.n = in.n;
  w.matrix_bytes = (triangle                    ? 4 * n * n
                    : sparse                    ? 12 * double(in.csr.nonzeros()) + 8 * n
                    : in.kind == io::Kind::band ? 8 * n * (m + 1)
                                                : 8 * n * n) /
                   on.ranks;
  w.file_bytes =
      sparse ? 16 * double(in.csr.nonzeros()) : 8 * n * (in.kind == io::Kind::band ? m + 1 : n);
  w.preconditioner_bytes = options.preconditioner == "jacobi" ? 8 * mean
                           : options.preconditioner == "block-jacobi"
                               ? 8 * mean * double(run.options.block > 0 ? run.options.block : 32)
                           : options.preconditioner == "ic" ? w.matrix_bytes
                           : options.preconditioner == "chebyshev"
                               ? (w.matrix_bytes + 40 * mean) * double(options.degree)
                               : 0;
  // Forward and backward: every row of a band waits for the one before; of a mesh, its layers do.
  if (options.preconditioner == "ic") w.chain = 2 * (sparse ? std::sqrt(mean) : mean);
  w.rows = triangle ? n : mean;
  w.shared = in.kind == io::Kind::dense ? n : std::max(m, std::sqrt(n));
  w.nrhs = in.rhs.columns();
  w.passes = ceil_div(w.nrhs, at_once(run, in, options));
  w.iterations = assumed_iterations(options, in.n);
  return iteration_work(w);
}

/// Seconds of a direct solve of a dense or a band matrix.
Seconds direct_seconds(const CgInputs& in, const Machine& on, const Rates& rates) {
  const Index nrhs = in.rhs.columns();
  if (in.kind == io::Kind::dense)
    return predict(dense_work({on, "gauss-jordan", in.n, nrhs, 1, false}), rates);
  const double m = double(in.band.half_bandwidth());
  BandAmounts w{
      on, "band solve", on.device ? "two-ends" : "tile-columns", in.n, in.band.half_bandwidth(),
      64, nrhs};
  w.chain = in.n / (on.device ? 128 : 64);
  w.flops = double(in.n) * m * m / on.ranks;
  return predict(band_work(w), rates);
}

}  // namespace

template <class B>
void plan_cg(Run& run, const Context<B>& c, const CgInputs& in, const CgCommand& options) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  const int ranks = c.size();
  const bool triangle = as_triangle(in, options);
  const Index nrhs = in.rhs.columns();
  const CgMethod method = method_of(run.options.method);
  const Index columns = at_once(run, in, options);
  const CgMemory memory = cg_memory<B>(run, in, options, ranks);
  const OperatorMemory& matrix = memory.matrix;
  const Index vectors = memory.vectors, host = memory.host, backend = matrix.backend + vectors;
  run.report["memory"] = {{"backend_bytes", backend}, {"host_bytes", host}};
  if (!run.options.plan) {
    require_memory(c.control, device ? host : host + backend, device ? backend : 0);
    return;
  }
  run.say(fmt::format("{} matrix n = {}, {} right-hand sides ({} at once), {} ranks",
                      form_name(in.kind), in.n, nrhs, columns, ranks));
  const char* reductions = method == CgMethod::classic ? "two reductions of scalars an iteration"
                           : method == CgMethod::single_reduction
                               ? "one reduction of scalars an iteration"
                               : "one reduction of scalars an iteration, beside the product";
  run.say(fmt::format(
      "method conjugate-gradients ({}), {}: {}, {}", run.report["variant"].get<std::string>(),
      run.options.method.empty() ? "the default" : "asked for",
      triangle                     ? "tiles of the triangle, vectors whole on every rank"
      : in.kind == io::Kind::dense ? "row slices, p gathered on every rank"
                                   : "row slices, halo exchange",
      triangle ? (ranks > 1 ? "one all-reduce of A p an iteration" : "no communication")
               : reductions));
  run.say(fmt::format(
      "memory per rank: {:.3f} GiB on the backend (matrix {:.3f}, vectors {:.3f}), {:.3f} GiB on "
      "the host for input and output",
      gib(double(backend)), gib(double(matrix.backend)), gib(double(vectors)), gib(double(host))));
  if (options.condition <= 0)
    run.say("condition 100 assumed; --condition K gives the iterations for another one");
  PlanNeeds needs;
  needs.memory = [&](int with) { return on_rank<B>(cg_memory<B>(run, in, options, with)); };
  needs.any_ranks = !options.reorder;
  if (in.kind == io::Kind::dense && !triangle)
    needs.alternatives.push_back({"with --layout triangle", [&] {
                                    CgCommand other = options;
                                    other.layout = "triangle";
                                    return on_rank<B>(cg_memory<B>(run, in, other, ranks));
                                  }});
  if (options.preconditioner != "none")
    needs.alternatives.push_back({"with --preconditioner none", [&] {
                                    CgCommand other = options;
                                    other.preconditioner = "none";
                                    return on_rank<B>(cg_memory<B>(run, in, other, ranks));
                                  }});
  if (columns > 1)
    needs.alternatives.push_back({"with --at-once 1", [&] {
                                    CgCommand other = options;
                                    other.at_once = 1;
                                    return on_rank<B>(cg_memory<B>(run, in, other, ranks));
                                  }});
  if (device)
    needs.alternatives.push_back({"with --backend cpu", [&] {
                                    return on_rank<Cpu>(cg_memory<Cpu>(run, in, options, ranks));
                                  }});
  const Work work = cg_work(run, in, options, machine_of(c));
  const Rates rates = conclude_plan(run, c, work, needs);
  const double iteration = predict(work, rates).iteration;
  run.report["plan"] = {{"seconds_per_iteration", iteration}};
  if (in.kind == io::Kind::csr) return;
  const double direct = direct_seconds(in, machine_of(c), rates).solve;
  run.report["plan"]["direct_seconds"] = direct;
  run.say(fmt::format(
      "a direct solve, terrace {} solve, would take about {} s, as long as about {} iterations: it "
      "is the faster one beyond that (a relative residual of {:g} at condition {:.0e})",
      form_name(in.kind), about(direct), about(direct / iteration), options.rtol,
      std::pow(2 * direct / iteration / std::log(2 / std::max(options.rtol, 1e-16)), 2)));
}

#define TERRACE_INSTANTIATE(B) \
  template void plan_cg(Run&, const Context<B>&, const CgInputs&, const CgCommand&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
