// terrace bench cg: whole iterations of conjugate gradients on generated systems.
#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "src/bench/bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/problems.hpp"
#include "kernels/base/rates.hpp"
#include "kernels/cg/rivals.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/operators_triangle.hpp"

namespace terrace::cg {
namespace {

struct CgBench : BenchOptions {
  std::string kind = "dense", preconditioner = "none", layout = "triangle", method = "classic";
  std::vector<Index> half_bandwidth{100}, points;
  Index stencil = 27, iterations = 64, rhs = 1;
  double rtol = 0, diagonal = 2;
  bool shuffle = false;
};
CgMethod method_of(const CgBench& o) {
  return o.method == "single-reduction" ? CgMethod::single_reduction
         : o.method == "pipelined"      ? CgMethod::pipelined
                                        : CgMethod::classic;
}

/// Rows of the Laplace matrix of a stencil (5: 2-D, 7 and 27: 3-D) on a grid of p points per side.
/// With `place`, point order[i] is row i and place its inverse.
CsrSlice laplace_rows(Index stencil, Index p, Range rows, const std::vector<Index>& order,
                      const std::vector<Index>& place) {
  CsrSlice a;
  const Index planes = stencil == 5 ? 1 : p;
  a.start.reserve(std::size_t(rows.count) + 1);
  a.column.reserve(std::size_t(rows.count * stencil));
  a.value.reserve(std::size_t(rows.count * stencil));
  for (Index row = rows.first; row < rows.end(); ++row) {
    const Index i = order.empty() ? row : order[std::size_t(row)];
    const Index x = i % p, y = i / p % p, z = i / p / p;
    for (Index dz = -1; dz <= 1; ++dz)
      for (Index dy = -1; dy <= 1; ++dy)
        for (Index dx = -1; dx <= 1; ++dx) {
          const Index far = std::abs(dx) + std::abs(dy) + std::abs(dz);
          if (far > 1 && stencil != 27) continue;
          if (x + dx < 0 || x + dx >= p || y + dy < 0 || y + dy >= p || z + dz < 0 ||
              z + dz >= planes)
            continue;
          const Index j = i + dx + p * (dy + p * dz);
          a.column.push_back(place.empty() ? j : place[std::size_t(j)]);
          a.value.push_back(far == 0 ? double(stencil - 1) : -1.0);
        }
    a.start.push_back(Index(a.column.size()));
  }
  return a;
}

/// Backend bytes of a solve beside the operator.
Index vectors(const CgBench& o, Index rows) {
  return CgWork<Cpu>::bytes(rows, true, o.rhs, method_of(o), false);
}

/// ||b - A x|| / ||b|| of each right-hand side, by one product. Collective.
template <class B, class A>
std::vector<double> residuals_of(const Context<B>& c, A& a, CgWork<B>& work,
                                 const std::vector<double>& b, std::vector<double> x) {
  CgOptions none;
  none.rtol = 0;
  none.max_iterations = 0;
  std::vector<double> residuals;
  for (const CgResult& r : conjugate_gradients_columns(c, a, work, none, b, x))
    residuals.push_back(r.reason == CgReason::nan_or_inf ? HUGE_VAL : r.initial_residual);
  return residuals;
}

/// A rival's line: its x, from zero for a right-hand side of ones, has the residual that its
/// recurrence says. The difference of the two is reported.
template <class B, class A>
void bench_cg_rival(Run& run, const Context<B>& c, const CgBench& options, BenchRun bench, A& a,
                    const std::function<double(CgRivalAnswer&)>& iterate) {
  CgWork<B> work(c, a, false);
  CgRivalAnswer found;
  bench.rival = true;
  bench.measure = [&] { return iterate(found); };
  bench.limit = 1e-7;
  bench.residual = [&] {
    const std::vector<double> ones(found.x.size(), 1.0);
    return std::fabs(residuals_of(c, a, work, ones, found.x).front() - found.residual);
  };
  bench.spoil = spoils(found.x);
  bench_run(run, options, bench);
}

/// What the timed run left has the residual that its recurrence says, or is a solution; else why not.
std::string trouble_of(const CgBench& options, bool mixed, const std::vector<CgResult>& found,
                       const std::vector<double>& residuals) {
  const bool whole = options.rtol > 0;
  for (std::size_t v = 0; v < found.size(); ++v) {
    const CgResult& r = found[v];
    if (whole && !converged(r.reason)) return "no convergence, " + to_string(r.reason);
    const double said = whole ? 0 : r.recurrence_residual;
    const double off = whole ? 2 * options.rtol : mixed ? 1e-2 : 1e-7;
    if (!(std::fabs(residuals[v] - said) <= off))
      return fmt::format("its x has the residual {:.3g}, the iteration says {:.3g}", residuals[v],
                         whole ? r.true_residual : said);
  }
  return {};
}

/// One line: seconds of options.iterations iterations in full flow, or with --rtol of whole solves.
template <class B, class A>
void bench_operator(Run& run, const Context<B>& c, A& a, const CgBench& options,
                    nlohmann::json sizes, double memory, bool mixed = false) {
  const bool jacobi = options.preconditioner == "jacobi", whole = options.rtol > 0;
  CgWork<B> work(c, a, jacobi, options.rhs, method_of(options));
  const Range rows = a.rows();
  std::vector<double> b(std::size_t(rows.count * options.rhs)), x(b.size());
  for (Index i = 0; i < rows.count; ++i)
    for (Index v = 0; v < options.rhs; ++v)
      b[std::size_t(i * options.rhs + v)] =
          random_uniform(Word(run.options.seed) + 1, rows.first + i, v);

  BenchRun bench;
  sizes["n"] = a.n();
  sizes["kind"] = options.kind;
  bench.sizes = sizes;
  if (!whole) bench.sizes["iterations"] = options.iterations;
  if (options.rhs > 1) bench.sizes["rhs"] = options.rhs;
  bench.who = mixed ? "terrace, mixed" : "terrace";
  bench.unit = "GB/s";
  const double columns = double(options.rhs);
  const double step = a.bytes(mixed) + ((jacobi ? 88.0 : 80.0) * double(a.n())) * columns;
  bench.work = 1e-9 * double(options.iterations) * step;
  bench.bound_name = "memory read";
  bench.bound = memory;
  const auto solve = [&](double rtol, Index most) {
    CgOptions how;
    how.rtol = rtol;
    how.jacobi = jacobi;
    how.max_iterations = most;
    how.mixed = mixed;
    std::fill(x.begin(), x.end(), 0.0);
    return conjugate_gradients_columns(c, a, work, how, b, x);
  };
  Index steps = 0;
  std::vector<CgResult> found;  // of the last measured run, and its x
  bench.measure = [&] {
    c.control.barrier();
    if (whole) {
      const auto start = Clock::now();
      found = solve(options.rtol, -1);
      const double seconds = since(start);
      steps = found.front().iterations;
      bench.work = 1e-9 * double(steps) * step;
      return seconds;
    }
    // Batches of 16 or fewer; the first is not counted.
    found = solve(0, round_up(options.iterations, 16) + 16);
    const CgResult& result = found.front();
    if (result.timed_iterations < 1)
      fail_together(Exit::usage,
                    "the iteration ended before it could be timed; bench cg; give a "
                    "larger matrix or fewer --iterations");
    return result.timed_seconds * double(options.iterations) / double(result.timed_iterations);
  };
  bench.trouble = [&] { return trouble_of(options, mixed, found, residuals_of(c, a, work, b, x)); };
  bench.limit = whole ? 2 * options.rtol : 1e-7;
  bench.residual = [&] {
    double worst = 0;
    for (const CgResult& r : whole ? found : solve(1e-8, -1))
      worst = std::max(worst, converged(r.reason) ? r.true_residual : HUGE_VAL);
    return worst;
  };
  bench.spoil = spoils(x);
  bench_run(run, options, bench);
  if (!whole) return;
  run.report["runs"].back()["iterations"] = steps;
  run.say(fmt::format("  {} iterations to {:g}", steps, options.rtol));
}

/// Rivals that have no row-slice form of their own get one, on one rank.
template <class B>
void bench_dense_rivals(Run& run, const Context<B>& c, const CgBench& options, Index n,
                        double memory) {
  std::optional<DenseOperator<B>> a;
  for (const std::string& rival : options.rivals) {
    if (!is_cg_rival(B{}, rival)) continue;
    if (c.size() > 1) {
      run.warn("rivals run on one rank only; --rivals; start one rank");
      break;
    }
    if (!a) {
      const Index bytes = DenseOperator<B>::memory(n, 1).backend;
      const bool device = std::is_same_v<B, Cuda>;
      require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
      a.emplace(c, n);
      a->fill_random(c, Word(run.options.seed), options.diagonal);
    }
    const double triangle = rival.find("symv") != std::string::npos ? 0.5 : 1.0;
    BenchRun bench;
    bench.sizes = {{"n", n}, {"kind", "dense"}, {"iterations", options.iterations}};
    bench.who = rival;
    bench.unit = "GB/s";  // of what it must read: a triangle for symv
    bench.work = 1e-9 * double(options.iterations) * (triangle * a->bytes() + 80.0 * double(n));
    bench.bound_name = "memory read";
    bench.bound = memory;
    bench_cg_rival(run, c, options, bench, *a, [&](CgRivalAnswer& found) {
      return cg_rival(c.ahead, rival, n, a->matrix().ld, a->matrix().a, options.iterations, found);
    });
  }
}

template <class B>
void bench_dense(Run& run, const Context<B>& c, const CgBench& options, Index n, double memory) {
  require_countable({double(n), double(n) + double(options.rhs)});
  constexpr bool device = std::is_same_v<B, Cuda>;
  const bool rows = options.layout == "rows";
  const Index bytes = (rows ? DenseOperator<B>::memory(n, c.size())
                            : TriangleOperator<B>::memory(n, c.size(), options.rhs))
                          .backend +
                      vectors(options, rows ? ceil_div(n, c.size()) : n);
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  nlohmann::json sizes = {{"layout", options.layout}};
  if (options.diagonal != 2) sizes["diagonal"] = options.diagonal;
  if (rows) {
    DenseOperator<B> a(c, n);
    a.fill_random(c, Word(run.options.seed), options.diagonal);
    bench_operator(run, c, a, options, sizes, memory);
  } else {
    const bool mixed = run.options.precision == "mixed";
    TriangleOperator<B> a(c, n, mixed);
    a.fill_random(c, Word(run.options.seed), options.diagonal);
    bench_operator(run, c, a, options, sizes, memory);
    if (mixed) bench_operator(run, c, a, options, sizes, memory, true);
  }
  bench_dense_rivals(run, c, options, n, memory);
}

/// A line, and one in mixed precision where that is asked for.
template <class B, class A>
void bench_precisions(Run& run, const Context<B>& c, A& a, const CgBench& options,
                      const nlohmann::json& sizes, double memory) {
  bench_operator(run, c, a, options, sizes, memory);
  if (run.options.precision != "mixed") return;
  a.keep_heads(c);
  bench_operator(run, c, a, options, sizes, memory, true);
}

template <class B>
void bench_band(Run& run, const Context<B>& c, const CgBench& options, Index n, Index m,
                double memory) {
  require_countable({double(n), 2 * double(m) + 1 + double(options.rhs)});
  const bool mixed = run.options.precision == "mixed";
  OperatorMemory bytes = BandOperator<B>::memory(n, m, c.size(), mixed);
  bytes.backend += vectors(options, ceil_div(n, c.size()));
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, bytes.host + (device ? 0 : bytes.backend), device ? bytes.backend : 0);
  BandOperator<B> a(c, n, m);
  a.fill_random(c, Word(run.options.seed));
  bench_precisions(run, c, a, options, {{"half_bandwidth", m}}, memory);
}

template <class B>
void bench_csr(Run& run, const Context<B>& c, const CgBench& options, Index points, double memory) {
  require_countable({std::pow(double(points), options.stencil == 5 ? 2.0 : 3.0),
                     double(options.stencil) + double(options.rhs)});
  const Index n = options.stencil == 5 ? points * points : points * points * points;
  const bool mixed = run.options.precision == "mixed";
  OperatorMemory bytes = CsrOperator<B>::memory(n, options.stencil * n, c.size(), mixed);
  bytes.backend += vectors(options, ceil_div(n, c.size()));
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, bytes.host + (device ? 0 : bytes.backend), device ? bytes.backend : 0);
  std::vector<Index> first;
  for (int r = 0; r <= c.size(); ++r)
    first.push_back(n / c.size() * r + n % c.size() * r / c.size());
  const Index begin = first[std::size_t(c.rank())];
  CsrSlice slice = collectively(c.control, [&] {
    std::vector<Index> order, place;
    if (options.shuffle) {  // Fisher and Yates
      order.resize(std::size_t(n));
      place.resize(std::size_t(n));
      std::iota(order.begin(), order.end(), Index(0));
      for (Index i = n - 1; i > 0; --i)
        std::swap(order[std::size_t(i)],
                  order[std::size_t(random_word(Word(run.options.seed), i, 7) % Word(i + 1))]);
      for (Index i = 0; i < n; ++i) place[std::size_t(order[std::size_t(i)])] = i;
    }
    return laplace_rows(options.stencil, points, {begin, first[std::size_t(c.rank()) + 1] - begin},
                        order, place);
  });
  CsrOperator<B> a(c, first, std::move(slice));
  a.shorten_columns(c, options.rhs);
  bench_precisions(run, c, a, options,
                   {{"points", points}, {"stencil", options.stencil}, {"nonzeros", a.nonzeros()}},
                   memory);
  for (const std::string& rival : options.rivals) {
    if (!is_csr_rival(B{}, rival)) continue;
    if (c.size() > 1) {
      run.warn("rivals run on one rank only; --rivals; start one rank");
      break;
    }
    BenchRun bench;
    bench.sizes = {{"n", n},
                   {"kind", "csr"},
                   {"points", points},
                   {"stencil", options.stencil},
                   {"iterations", options.iterations}};
    bench.who = rival;
    bench.unit = "GB/s";
    bench.work = 1e-9 * double(options.iterations) * (a.bytes() + 80.0 * double(n));
    bench.bound_name = "memory read";
    bench.bound = memory;
    bench_cg_rival(run, c, options, bench, a, [&](CgRivalAnswer& found) {
      return cg_rival(c.ahead, rival, a.matrix(), options.iterations, found);
    });
  }
}

/// Options that this kind of matrix does not have.
void refuse_ignored(const CgBench& o, const CLI::App& command) {
  const std::string reason = "matrices of --kind " + o.kind + " do not have it";
  if (o.kind != "dense") refuse_given(command, {"--layout", "--diagonal"}, reason);
  if (o.kind != "band") refuse_given(command, {"--half-bandwidth"}, reason);
  if (o.kind != "csr") refuse_given(command, {"--points", "--stencil", "--shuffle"}, reason);
  if (o.kind == "csr") refuse_given(command, {"--n"}, "the order follows from --points");
  if (o.rtol > 0) refuse_given(command, {"--iterations"}, "--rtol times whole solves");
}

void bench_cg(Run& run, CgBench options) {
  if (!run.options.method.empty()) options.method = run.options.method;
  if (options.rhs > 1 && (options.method != "classic" || run.options.precision == "mixed"))
    fail_together(Exit::usage,
                  "several right-hand sides are for the classic method in FP64; --rhs "
                  "of bench cg; leave it out");
  if (run.options.precision == "mixed" && (options.layout == "rows" || options.method != "classic"))
    fail_together(Exit::usage,
                  "mixed precision needs the classic method, and a dense matrix stored as a "
                  "triangle; --precision of bench cg; leave it out");
  with_backend(run, [&]<class B>(Context<B>& c) {
    const bool device = std::is_same_v<B, Cuda>;
    std::vector<std::string> known;
    for (const char* name : {"blas", "blas-symv", "cublas", "cublas-symv", "cublas-symv-default"})
      if (options.kind == "dense" && is_cg_rival(B{}, name)) known.emplace_back(name);
    if (options.kind == "csr" && is_csr_rival(B{}, "cusparse")) known.emplace_back("cusparse");
    require_rivals(options, "cg --kind " + options.kind + " on this backend", known);
    run.report["method"] = "conjugate-gradients";
    c.control.barrier();  // ranks that share a memory measure it together
    const double memory = c.control.reduce(read_rate(c.ahead, bound_sizes().bytes), Reduce::sum);
    run.report["memory_read_rate"] = memory;
    if (options.kind == "csr") {
      if (options.points.empty()) options.points = {device ? 256 : 64};
      for (const Index points : options.points) bench_csr(run, c, options, points, memory);
      return;
    }
    if (options.n.empty())
      options.n = {options.kind == "dense" ? (device ? 32768 : 4096) : (device ? 4000000 : 200000)};
    for (const Index n : options.n) {
      if (options.kind == "dense")
        bench_dense(run, c, options, n, memory);
      else
        for (const Index m : options.half_bandwidth)
          bench_band(run, c, options, n, std::min(m, n - 1), memory);
    }
  });
}

}  // namespace

void add_bench(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<CgBench>();
  CLI::App* command = add_command(
      bench, selected,
      {"cg", "Conjugate gradients: GB/s of the data that an iteration must move",
       "terrace bench cg --kind csr --points 64",
       bench_options + "--method=classic,single-reduction,pipelined --precision=fp64,mixed"},
      [options](Run& run, const CLI::App& given) {
        refuse_ignored(*options, given);
        bench_cg(run, *options);
      });
  add_bench_options(*command, *options);
  command->add_option("--kind", options->kind, "The matrices")
      ->check(CLI::IsMember({"dense", "band", "csr"}))
      ->capture_default_str();
  command
      ->add_option("--half-bandwidth", options->half_bandwidth,
                   "Half-bandwidths of the band matrices, comma-separated")
      ->delimiter(',')
      ->check(not_negative());
  command
      ->add_option("--points", options->points,
                   "Grid points per side, for the CSR matrices, comma-separated")
      ->delimiter(',')
      ->check(positive());
  command
      ->add_option("--stencil", options->stencil,
                   "Points of the CSR matrices' stencil: 5 (2-D), 7 or 27 (3-D)")
      ->check(CLI::IsMember({5, 7, 27}))
      ->capture_default_str();
  command->add_flag("--shuffle", options->shuffle, "Number the grid points at random");
  command->add_option("--iterations", options->iterations, "Timed iterations")
      ->check(positive())
      ->capture_default_str();
  command->add_option("--preconditioner", options->preconditioner, "Preconditioner")
      ->check(CLI::IsMember({"none", "jacobi"}));
  command->add_option("--layout", options->layout, "How a dense matrix is stored")
      ->check(CLI::IsMember({"triangle", "rows"}))
      ->capture_default_str();
  command
      ->add_option("--diagonal", options->diagonal,
                   "Dense: the diagonal d; eigenvalues from about d - 1.155 to d + 1.155")
      ->check(CLI::Range(1.16, 1e6))
      ->capture_default_str();
  command->add_option("--rhs", options->rhs, "Right-hand sides solved together")
      ->check(CLI::IsMember({1, 2, 4, 8, 16}))
      ->capture_default_str();
  command
      ->add_option("--rtol", options->rtol, "Time whole solves to this residual, not --iterations")
      ->check(not_negative());
}

}  // namespace terrace::cg
