#include "src/commands/cg_plan.hpp"

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/hypre.hpp"
#include "kernels/base/size_text.hpp"
#include "src/cg/constant_guard.hpp"
#include "src/cg/preconditioner.hpp"
#include "src/program/register.hpp"
#include "src/program/summary.hpp"

namespace terrace::cg {

void check_request(const Run& run, const CgCommand& options, const CLI::App& command) {
  const std::string& m = options.solve.preconditioner;
  if (m != "block-jacobi")
    refuse_given(command, {"--block"}, "only --preconditioner block-jacobi has blocks");
  if (m != "chebyshev")
    refuse_given(command, {"--degree"}, "only --preconditioner chebyshev has a degree");
  if (m != "amg")
    refuse_given(command, {"--near-null-space"},
                 "only --preconditioner amg keeps a near null-space");
  if (!run.options.plan)
    refuse_given(command, {"--condition"}, "the condition is asked for by --plan alone");
  require_output(run.options);
}

void check_request(Run& run, CgCommand& options, const CgInputs& in, const CLI::App& command) {
  CgRequest& solve = options.solve;
  if (in.kind != io::Kind::dense)
    refuse_given(command, {"--layout"}, "only dense matrices have a layout");
  const std::string& method = run.options.method;
  const bool classic = method.empty() || method == "classic";
  if (solve.preconditioner == "ic" && in.kind == io::Kind::dense)
    fail_together(
        Exit::usage,
        "incomplete Cholesky of a dense matrix would be the whole Cholesky factorization; "
        "--preconditioner; use terrace dense solve, or block-jacobi");
  if (solve.preconditioner == "amg" && in.kind == io::Kind::dense)
    fail_together(
        Exit::usage,
        "multigrid needs a sparse matrix, and this one is dense; --preconditioner amg; use "
        "block-jacobi or chebyshev, or convert the matrix to CSR");
  if (solve.preconditioner == "hypre") {
    if (in.kind == io::Kind::dense)
      fail_together(Exit::usage,
                    "hypre needs a sparse matrix, and this one is dense; --preconditioner hypre; "
                    "use block-jacobi or chebyshev, or convert the matrix to CSR");
    if (run.options.backend == "cuda")
      fail_together(Exit::usage,
                    "hypre runs on the CPU here; --preconditioner hypre with --backend cuda; use "
                    "amg, or --backend cpu");
    if (hypre_version().empty())
      fail_together(Exit::usage,
                    "this build has no hypre; --preconditioner hypre; use amg, or build Terrace "
                    "where hypre is installed");
  }
  if (run.options.block > most_block)
    fail_together(Exit::usage, fmt::format("blocks of {} rows are too large; --block; use 1 to {}",
                                           run.options.block, most_block));
  solve.mixed = run.options.precision == "mixed";
  if (solve.mixed && ((in.kind == io::Kind::dense && options.layout != "triangle") || !classic))
    fail_together(Exit::usage,
                  "mixed precision needs the classic method, and a dense matrix stored as a "
                  "triangle; --precision mixed; leave it out or drop --layout and --method");
  if (options.reorder && in.kind != io::Kind::sparse)
    fail_together(Exit::usage, "reordering is for CSR matrices; --reorder; leave it out");
  solve.method = classic                 ? CgMethod::classic
                 : method == "pipelined" ? CgMethod::pipelined
                                         : CgMethod::single_reduction;
  solve.norm = options.norm == "preconditioned" ? CgNorm::preconditioned
               : options.norm == "natural"      ? CgNorm::natural
                                                : CgNorm::unpreconditioned;
  solve.guard = run.options.guard;
  if (run.options.block > 0) solve.block = run.options.block;
  solve.x_given = in.x0.has_value();
  run.report["variant"] = method.empty() ? "classic" : method;
  run.report["precision"] = run.options.precision;
  run.report["norm"] = options.norm;
  if (in.kind == io::Kind::dense) run.report["layout"] = options.layout;
  run.settings.update({{"rtol", solve.rtol},
                       {"atol", solve.atol},
                       {"norm", options.norm},
                       {"preconditioner", solve.preconditioner},
                       {"degree", solve.degree},
                       {"block", run.options.block},
                       {"method", run.options.method},
                       {"precision", run.options.precision},
                       {"layout", options.layout},
                       {"reorder", options.reorder},
                       {"at_once", solve.at_once}});
  if (!options.reorder) return;
  options.parts = 0;
  run.adopt("parts", options.parts, 0);  // a checkpoint's vectors are in the order of its parts
  if (options.parts == 0) options.parts = run.control.size();
  run.settings["parts"] = options.parts;
}

namespace {

bool as_triangle(const CgInputs& in, const CgCommand& options) {
  return in.kind == io::Kind::dense && options.layout == "triangle";
}
bool is_multigrid(const CgCommand& options) {
  return options.solve.preconditioner == "amg" || options.solve.preconditioner == "hypre";
}
/// Columns in lock step.
Index at_once(const CgInputs& in, const CgCommand& options) {
  return std::min(options.solve.lock_step(), std::max<Index>(1, in.rhs.columns()));
}

/// Of `rows` rows of a rank, both triangles.
Index own_nonzeros(const CgInputs& in, Index rows, int ranks) {
  return in.kind == io::Kind::sparse ? ceil_div(in.sparse.nonzeros(), ranks)
                                     : (2 * in.band.half_bandwidth() + 1) * rows;
}

template <class B>
RankMemory on_rank(const CgMemory& m) {
  return std::is_same_v<B, Cuda> ? RankMemory{m.host, m.backend()}
                                 : RankMemory{m.host + m.backend(), 0};
}

/// Iterations that the error bound of conjugate gradients asks for: with the condition that was
/// given, or with 100 where none was; with at most 4 where multigrid works.
double assumed_iterations(const CgCommand& options, Index n) {
  double condition = options.condition > 0 ? options.condition : 100;
  if (is_multigrid(options)) condition = std::min(condition, 4.0);
  const CgRequest& solve = options.solve;
  const double bound = 0.5 * std::sqrt(condition) * std::log(2 / std::max(solve.rtol, 1e-16)) + 1;
  const double most = solve.max_iterations >= 0 ? double(solve.max_iterations) : 10.0 * double(n);
  return std::ceil(std::min({bound, most, std::max(1.0, double(n))}));
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
CgMemory cg_memory(const CgInputs& in, const CgCommand& options, int ranks) {
  const bool triangle = as_triangle(in, options);
  const Index rows = triangle ? in.n : ceil_div(in.n, ranks), nrhs = in.rhs.columns();
  const Index columns = at_once(in, options);
  const CgRequest& o = options.solve;
  CgMemory m;
  m.matrix = triangle                     ? TriangleOperator<B>::memory(in.n, ranks, columns)
             : in.kind == io::Kind::dense ? DenseOperator<B>::memory(in.n, ranks)
             : in.kind == io::Kind::band
                 ? BandOperator<B>::memory(in.n, in.band.half_bandwidth(), ranks, o.mixed)
                 : CsrOperator<B>::memory(in.n, in.sparse.nonzeros(), ranks, o.mixed);
  m.vectors = CgWork<B>::bytes(rows, o.preconditioner == "jacobi", columns, o.method, o.general());
  Index host_extra = 0;
  if (o.preconditioner == "block-jacobi") {
    m.vectors += block_jacobi_bytes(rows, o.block);
    host_extra = 24 * rows * o.block;
  } else if (o.preconditioner == "ic") {
    const Index nonzeros = own_nonzeros(in, rows, ranks);
    m.vectors += incomplete_cholesky_bytes(rows, nonzeros);
    host_extra = 24 * nonzeros;
  } else if (o.preconditioner == "chebyshev") {
    m.vectors += 8 * rows * 4;
  } else if (o.preconditioner == "hypre") {
    host_extra = 60 * own_nonzeros(in, rows, ranks) + 400 * rows;
  } else if (o.preconditioner == "amg") {
    const Index vectors = in.near_null_space ? in.near_null_space->columns() : 0;
    const OperatorMemory hierarchy =
        Multigrid<B>::memory(rows, own_nonzeros(in, rows, ranks), vectors, ranks == 1);
    m.vectors += hierarchy.backend;
    // The slice of the file is gone when the hierarchy is made.
    host_extra = std::max<Index>(0, hierarchy.host - m.matrix.host) + 16 * vectors * rows;
  }
  if (options.reorder)
    host_extra =
        std::max(host_extra, reorder_bytes(in.n, in.sparse.nonzeros(), ranks) - m.matrix.host) +
        8 * in.n;
  if (o.guard) {
    const Index numbers = rows * columns, diagonal = o.preconditioner == "jacobi" ? rows : 0;
    m.vectors += ConstantGuard<B>::bytes;
    host_extra += ConstantGuard<B>::host_bytes + VectorGuard<B>::bytes(numbers + diagonal, numbers);
  }
  m.host = m.matrix.host + host_extra + 8 * rows * (3 * nrhs + 4) + 2 * io::piece_bytes();
  return m;
}

OperatorMemory given_vectors(const CgInputs& in, const CgCommand& options, int ranks) {
  const Index rows = as_triangle(in, options) ? in.n : ceil_div(in.n, ranks);
  const Index bytes = 16 * rows * in.rhs.columns();
  return {.host = bytes, .backend = bytes};
}

template <class B>
PlanNeeds cg_needs(const CgInputs& in, const CgCommand& options, int ranks) {
  PlanNeeds needs;
  needs.memory = [&](int with) { return on_rank<B>(cg_memory<B>(in, options, with)); };
  const auto add = [&](const char* words, const std::function<void(CgCommand&)>& change) {
    needs.alternatives.push_back({words, [&in, &options, ranks, change] {
                                    CgCommand other = options;
                                    change(other);
                                    return on_rank<B>(cg_memory<B>(in, other, ranks));
                                  }});
  };
  if (in.kind == io::Kind::dense && !as_triangle(in, options))
    add("with --layout triangle", [](CgCommand& o) { o.layout = "triangle"; });
  if (options.solve.mixed && !as_triangle(in, options))
    add("with --precision fp64", [](CgCommand& o) { o.solve.mixed = false; });
  if (options.solve.preconditioner != "none")
    add("with --preconditioner none", [](CgCommand& o) { o.solve.preconditioner = "none"; });
  if (at_once(in, options) > 1) add("with --at-once 1", [](CgCommand& o) { o.solve.at_once = 1; });
  if (std::is_same_v<B, Cuda>)
    needs.alternatives.push_back({"with --backend cpu", [&in, &options, ranks] {
                                    return on_rank<Cpu>(cg_memory<Cpu>(in, options, ranks));
                                  }});
  return needs;
}

Work cg_work(const Run& run, const CgInputs& in, const CgCommand& options, const Machine& on) {
  const CgRequest& o = options.solve;
  const bool triangle = as_triangle(in, options), sparse = in.kind == io::Kind::sparse;
  const double n = double(in.n), mean = n / on.ranks;
  const double m = in.kind == io::Kind::band ? double(in.band.half_bandwidth()) : 0;
  IterationWork w;
  w.on = on;
  w.form = triangle                     ? "dense triangle"
           : in.kind == io::Kind::dense ? "dense rows"
                                        : form_name(in.kind);
  w.method = run.report["variant"].get<std::string>();
  w.preconditioner = o.preconditioner;
  w.mixed = o.mixed;
  w.n = in.n;
  w.matrix_bytes = (triangle ? 4 * n * n
                    : sparse ? (o.mixed ? 8 : 12) * double(in.sparse.nonzeros()) + 8 * n
                    : in.kind == io::Kind::band ? (o.mixed ? 4 : 8) * n * (m + 1)
                                                : 8 * n * n) /
                   on.ranks;
  w.file_bytes =
      sparse ? 16 * double(in.sparse.nonzeros()) : 8 * n * (in.kind == io::Kind::band ? m + 1 : n);
  const double csr_bytes = 12 * double(own_nonzeros(in, Index(mean), on.ranks));
  w.preconditioner_bytes = o.preconditioner == "jacobi"         ? 8 * mean
                           : o.preconditioner == "block-jacobi" ? 8 * mean * double(o.block)
                           : o.preconditioner == "ic"           ? w.matrix_bytes
                           : o.preconditioner == "chebyshev"
                               ? (w.matrix_bytes + 40 * mean) * double(o.degree)
                           : is_multigrid(options) ? 7 * csr_bytes + 550 * mean
                                                   : 0;
  if (is_multigrid(options)) w.setup_bytes = 40 * csr_bytes + 1500 * mean;
  // Forward and backward: every row of a band waits for the one before; of a mesh, its layers do.
  if (o.preconditioner == "ic") w.chain = 2 * (sparse ? std::sqrt(mean) : mean);
  // Of a sparse matrix, the surface of a grid in three dimensions.
  w.rows = triangle ? n : mean;
  w.shared = in.kind == io::Kind::dense ? n : m > 0 ? m : std::cbrt(n * n);
  w.nrhs = in.rhs.columns();
  w.passes = ceil_div(w.nrhs, at_once(in, options));
  w.iterations = assumed_iterations(options, in.n);
  return iteration_work(w);
}

void describe_cg(const Run& run, const CgInputs& in, const CgCommand& options,
                 const CgMemory& memory) {
  const int ranks = run.control.size();
  const bool triangle = as_triangle(in, options);
  const CgMethod method = options.solve.method;
  const char* reductions = method == CgMethod::classic ? "two reductions of scalars per iteration"
                           : method == CgMethod::single_reduction
                               ? "one reduction of scalars per iteration"
                               : "one reduction of scalars per iteration, beside the product";
  run.say(fmt::format(
      "method     conjugate-gradients ({}), {}: {}, {}{}", run.report["variant"].get<std::string>(),
      run.options.method.empty() ? "the default" : "asked for",
      triangle                     ? "tiles of the triangle, vectors whole on every rank"
      : in.kind == io::Kind::dense ? "row slices, p gathered on every rank"
                                   : "row slices, halo exchange",
      triangle ? (ranks > 1 ? "one all-reduce of A p per iteration" : "no communication")
               : reductions,
      at_once(in, options) > 1 ? fmt::format("; {} right-hand sides at once", at_once(in, options))
                               : ""));
  run.say(fmt::format(
      "buffers    {} of matrix and {} of vectors per rank, and {} on the host for input and output",
      size_text(memory.matrix.backend), size_text(memory.vectors), size_text(memory.host)));
  if (options.reorder)
    run.say(fmt::format("order      {}, found on rank 0, which takes up to {} for it",
                        ranks > 1 ? fmt::format("{} parts by recursive bisection, each in reverse "
                                                "Cuthill-McKee order",
                                                ranks)
                                  : "reverse Cuthill-McKee",
                        size_text(reorder_bytes(in.n, in.sparse.nonzeros(), ranks))));
  if (options.condition <= 0)
    run.say("condition  100 is assumed; --condition X gives the iterations for another one");
}

void compare_with_direct(Run& run, const CgInputs& in, const CgCommand& options, const Machine& on,
                         const Rates& rates) {
  const double iteration = predict(cg_work(run, in, options, on), rates).iteration;
  run.report["plan"] = {{"seconds_per_iteration", iteration}};
  if (is_multigrid(options)) {
    CgCommand plain = options;
    plain.solve.preconditioner = "none";
    const double solve = predict(cg_work(run, in, options, on), rates).solve;
    const double other = predict(cg_work(run, in, plain, on), rates).iteration;
    run.report["plan"]["plain_iterations"] = solve / other;
    run.say(
        fmt::format("compared   multigrid and its set-up take as long as about {} iterations "
                    "without a preconditioner: it "
                    "is faster where those would be more",
                    about(solve / other)));
  }
  if (in.kind == io::Kind::sparse) return;
  const double direct = direct_seconds(in, on, rates).solve;
  run.report["plan"]["direct_seconds"] = direct;
  const double condition =
      std::pow(2 * direct / iteration / std::log(2 / std::max(options.solve.rtol, 1e-16)), 2);
  const std::string beyond =
      condition < 1
          ? "it is faster"
          : fmt::format(
                "it is faster beyond that (a relative residual of {:g} at condition {:.0e})",
                options.solve.rtol, condition);
  run.say(fmt::format(
      "compared   a direct solve, terrace {} solve, would take about {} s, as long as about {} "
      "iterations: {}",
      form_name(in.kind), about(direct), about(direct / iteration), beyond));
}

#define TERRACE_INSTANTIATE(B)                                            \
  template CgMemory cg_memory<B>(const CgInputs&, const CgCommand&, int); \
  template PlanNeeds cg_needs<B>(const CgInputs&, const CgCommand&, int);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
