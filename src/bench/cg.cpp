// terrace bench cg: whole iterations of conjugate gradients on generated systems.
#include "src/bench/bench.hpp"

#include <algorithm>
#include <chrono>

#include "kernels/cg_rivals.hpp"
#include "kernels/problems.hpp"
#include "kernels/rates.hpp"
#include "src/conjugate_gradients.hpp"

namespace terrace {
namespace {

struct CgBench : BenchOptions {
  std::string kind = "dense", preconditioner = "none";
  std::vector<Index> half_bandwidth{100}, points;
  Index stencil = 27, iterations = 50;
};

using Clock = std::chrono::steady_clock;

/// Rows of the Laplace matrix of a stencil (5: 2-D, 7 and 27: 3-D) on a grid of p points a side.
CsrSlice laplace_rows(Index stencil, Index p, Range rows) {
  CsrSlice a;
  const Index planes = stencil == 5 ? 1 : p;
  a.start.reserve(std::size_t(rows.count) + 1);
  a.column.reserve(std::size_t(rows.count * stencil));
  a.value.reserve(std::size_t(rows.count * stencil));
  for (Index i = rows.first; i < rows.end(); ++i) {
    const Index x = i % p, y = i / p % p, z = i / p / p;
    for (Index dz = -1; dz <= 1; ++dz)
      for (Index dy = -1; dy <= 1; ++dy)
        for (Index dx = -1; dx <= 1; ++dx) {
          const Index far = std::abs(dx) + std::abs(dy) + std::abs(dz);
          if (far > 1 && stencil != 27) continue;
          if (x + dx < 0 || x + dx >= p || y + dy < 0 || y + dy >= p || z + dz < 0 ||
              z + dz >= planes)
            continue;
          a.column.push_back(i + dx + p * (dy + p * dz));
          a.value.push_back(far == 0 ? double(stencil - 1) : -1.0);
        }
    a.start.push_back(Index(a.column.size()));
  }
  return a;
}

/// Backend bytes of a solve beside the operator.
Index vectors(Index n, int ranks) { return CgWork<Cpu>::bytes(ceil_div(n, ranks), true); }

template <class B, class A>
void bench_operator(Run& run, const Context<B>& c, A& a, const CgBench& options,
                    nlohmann::json sizes, double memory) {
  const bool jacobi = options.preconditioner == "jacobi";
  CgWork<B> work(c, a, jacobi);
  const Range rows = a.rows();
  std::vector<double> b(std::size_t(rows.count)), x(b.size());
  for (Index i = 0; i < rows.count; ++i)
    b[std::size_t(i)] = random_uniform(Word(run.options.seed) + 1, rows.first + i, 0);

  BenchRun bench;
  sizes["n"] = a.n();
  sizes["kind"] = options.kind;
  bench.sizes = sizes;
  bench.sizes["iterations"] = options.iterations;
  bench.who = "terrace";
  bench.unit = "GB/s";
  bench.work =
      1e-9 * double(options.iterations) * (a.bytes() + (jacobi ? 88.0 : 72.0) * double(a.n()));
  bench.bound_name = "memory read";
  bench.bound = memory;
  // From the end of the first iteration to the end of the last, as the host learns of them.
  bench.measure = [&] {
    CgOptions how;
    how.rtol = 0;
    how.jacobi = jacobi;
    how.max_iterations = options.iterations + 1;
    Clock::time_point first, last;
    how.observe = [&](Index k, double) {
      last = Clock::now();
      if (k == 1) first = last;
    };
    std::fill(x.begin(), x.end(), 0.0);
    c.control.barrier();
    const CgResult result = conjugate_gradients(c, a, work, how, b, x);
    if (result.iterations < 2) fail_together(Exit::internal, "no two iterations; bench cg");
    return std::chrono::duration<double>(last - first).count() * double(options.iterations) /
           double(result.iterations - 1);
  };
  bench.residual = [&] {
    CgOptions how;
    how.jacobi = jacobi;
    how.rtol = 1e-8;
    std::fill(x.begin(), x.end(), 0.0);
    return conjugate_gradients(c, a, work, how, b, x).true_residual;
  };
  bench_run(run, options, bench);
}

template <class B>
void bench_dense(Run& run, const Context<B>& c, const CgBench& options, Index n, double memory) {
  const Index bytes = DenseOperator<B>::memory(n, c.size()).backend + vectors(n, c.size());
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  DenseOperator<B> a(c, n);
  a.fill_random(c, Word(run.options.seed));
  bench_operator(run, c, a, options, {}, memory);
  for (const std::string& rival : options.rivals) {
    if (!is_cg_rival(B{}, rival)) continue;
    if (c.size() > 1) {
      run.say("rivals run on one rank only");
      break;
    }
    const double triangle = rival.ends_with("symv") ? 0.5 : 1.0;
    BenchRun bench;
    bench.sizes = {{"n", n}, {"kind", "dense"}, {"iterations", options.iterations}};
    bench.who = rival;
    bench.unit = "GB/s";  // of what it must read: a triangle for symv
    bench.work = 1e-9 * double(options.iterations) * (triangle * a.bytes() + 72.0 * double(n));
    bench.bound_name = "memory read";
    bench.bound = memory;
    bench.measure = [&] {
      return cg_rival(c.ahead, rival, n, a.matrix().ld, a.matrix().a, options.iterations);
    };
    bench_run(run, options, bench);
  }
}

template <class B>
void bench_band(Run& run, const Context<B>& c, const CgBench& options, Index n, Index m,
                double memory) {
  OperatorMemory bytes = BandOperator<B>::memory(n, m, c.size());
  bytes.backend += vectors(n, c.size());
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, bytes.host + (device ? 0 : bytes.backend), device ? bytes.backend : 0);
  BandOperator<B> a(c, n, m);
  a.fill_random(c, Word(run.options.seed));
  bench_operator(run, c, a, options, {{"half_bandwidth", m}}, memory);
}

template <class B>
void bench_csr(Run& run, const Context<B>& c, const CgBench& options, Index points, double memory) {
  const Index n = options.stencil == 5 ? points * points : points * points * points;
  OperatorMemory bytes = CsrOperator<B>::memory(n, options.stencil * n, c.size());
  bytes.backend += vectors(n, c.size());
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, bytes.host + (device ? 0 : bytes.backend), device ? bytes.backend : 0);
  std::vector<Index> first;
  for (int r = 0; r <= c.size(); ++r)
    first.push_back(n / c.size() * r + n % c.size() * r / c.size());
  const Index begin = first[std::size_t(c.rank())];
  CsrSlice slice = collectively(c.control, [&] {
    return laplace_rows(options.stencil, points, {begin, first[std::size_t(c.rank()) + 1] - begin});
  });
  CsrOperator<B> a(c, first, std::move(slice));
  bench_operator(run, c, a, options,
                 {{"points", points}, {"stencil", options.stencil}, {"nonzeros", a.nonzeros()}},
                 memory);
}

void bench_cg(Run& run, CgBench options) {
  with_backend(run, [&]<class B>(Context<B>& c) {
    const bool device = std::is_same_v<B, Cuda>;
    run.report["method"] = "conjugate-gradients";
    c.control.barrier();  // ranks that share a memory measure it together
    const double memory = c.control.reduce(read_rate(c.ahead), Reduce::sum);
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
        for (const Index m : options.half_bandwidth) bench_band(run, c, options, n, m, memory);
    }
  });
}

}  // namespace

void add_bench_cg(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<CgBench>();
  CLI::App* command =
      bench.add_subcommand("cg", "Conjugate gradients: GB/s of what an iteration must move");
  add_bench_options(*command, *options);
  command->add_option("--kind", options->kind, "dense, band or csr")
      ->check(CLI::IsMember({"dense", "band", "csr"}))
      ->capture_default_str();
  command->add_option("--half-bandwidth", options->half_bandwidth, "Of the band matrices")
      ->delimiter(',');
  command->add_option("--points", options->points, "Grid points a side of the CSR matrices")
      ->delimiter(',');
  command->add_option("--stencil", options->stencil, "5 (2-D), 7 or 27 (3-D)")
      ->check(CLI::IsMember({5, 7, 27}))
      ->capture_default_str();
  command->add_option("--iterations", options->iterations, "Timed iterations")
      ->check(positive())
      ->capture_default_str();
  command->add_option("--preconditioner", options->preconditioner, "none or jacobi")
      ->check(CLI::IsMember({"none", "jacobi"}));
  add_common_options(*command, selected.options);
  command->callback([&selected, options] {
    selected.command = "bench cg";
    selected.action = [options](Run& run) { bench_cg(run, *options); };
  });
}

}  // namespace terrace
