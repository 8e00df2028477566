// terrace bench matrix: sums, products and small solves of dense matrices on one rank, beside the
// textbook's; what jobs/cg_seed.sh draws.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/memory_use.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/problems.hpp"
#include "kernels/base/random.hpp"
#include "kernels/base/rates.hpp"
#include "kernels/dense/textbook_matrix.hpp"
#include "src/bench/bench.hpp"
#include "src/bench/textbook_solvers.hpp"
#include "src/dense/cramer.hpp"

namespace terrace::dense {
namespace {

struct MatrixBench : BenchOptions {
  std::vector<std::string> what{"sum", "product", "cg", "cramer", "memory", "bounds"};
  Index most_serial = 1500;       ///< --most-serial: n of products in one thread
  Index most_alternative = 4096;  ///< --most-alternative: n of the two alternative kernels
  [[nodiscard]] bool has(const char* name) const {
    return std::find(what.begin(), what.end(), name) != what.end();
  }
};

constexpr double eps = std::numeric_limits<double>::epsilon();

template <class F>
std::vector<double> host_values(Index rows, Index columns, F&& entry) {
  std::vector<double> v(std::size_t(rows * columns), 0.0);
  parallel_ranges(rows, 16, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      for (Index j = 0; j < columns; ++j) v[std::size_t(i * columns + j)] = entry(i, j);
  });
  return v;
}
std::vector<double> random_values(Index rows, Index columns, Word seed) {
  return host_values(rows, columns, [=](Index i, Index j) { return random_uniform(seed, i, j); });
}

template <class B>
struct Bench {
  Run& run;
  const Context<B>& c;
  const MatrixBench& options;
  const Stream<B>& lane = c.bulk;
  Word seed = Word(run.options.seed);

  /// A line: `work` is enqueued on the lane, `residual` looks at what it left.
  template <class F, class R>
  void line(const char* what, const char* who, Index n, double work, const char* unit,
            const char* bound_name, double bound, const F& enqueue, const R& residual, double limit,
            std::function<void(double)> spoil) const {
    BenchRun bench;
    bench.sizes = {{"n", n}, {"what", what}};
    bench.who = who;
    bench.work = work;
    bench.unit = unit;
    bench.bound_name = bound_name;
    bench.bound = bound;
    bench.measure = [&] {
      lane.synchronize();
      return seconds_of([&] {
        enqueue();
        lane.synchronize();
      });
    };
    bench.residual = residual;
    bench.limit = limit;
    bench.spoil = std::move(spoil);
    bench_run(run, options, bench);
  }

  void sums(Index n, double memory) const {
    const Matrix<B> a(lane, n, n, random_values(n, n, seed)),
        b(lane, n, n, random_values(n, n, seed + 1));
    Matrix<B> sum(lane, n, n);
    const double work = 24e-9 * double(n) * double(n);
    const auto wrong = [&] { return max_abs<B>(lane, 1, n * n, ((sum - a) - b).view(), n * n); };
    const auto measured = [&](const char* who, const auto& enqueue) {
      line("sum", who, n, work, "GB/s", "memory read", memory, enqueue, wrong, 4 * eps,
           [&](double value) { spoils(lane, sum.view())(value); });
      add<B>(lane, 0, sum.view(), 0, sum.view(), sum.view());
    };
    measured("textbook", [&] { textbook::add<B>(lane, n, n, a.view(), b.view(), sum.view()); });
    measured("terrace", [&] { add<B>(lane, 1, a.view(), 1, b.view(), sum.view()); });
    measured("container", [&] { sum = a + b; });  // takes memory for the result
  }

  void products(Index n, double dgemm) const {
    const Matrix<B> a(lane, n, n, random_values(n, n, seed)),
        b(lane, n, n, random_values(n, n, seed + 1));
    const Matrix<B> probe(lane, n, 1, random_values(n, 1, seed + 2));
    Matrix<B> product(lane, n, n);
    const double bound = norm_infinity(a) * norm_infinity(b) * norm_infinity(probe);
    const auto wrong = [&] {  // ||C v - A (B v)|| / (n eps ||A|| ||B|| ||v||)
      return norm_max(product * probe - a * (b * probe)) / (double(n) * eps * bound);
    };
    const auto measured = [&](const char* who, const auto& enqueue) {
      line("product", who, n, 2e-9 * double(n) * double(n) * double(n), "GFLOP/s", "DGEMM", dgemm,
           enqueue, wrong, 30, spoils(lane, product.view()));
      add<B>(lane, 0, product.view(), 0, product.view(), product.view());
    };
    const auto by_kernel = [&](const char* who, textbook::Product kind, Index most) {
      if (!textbook::has_product(B{}, kind) || n > std::min(most, textbook::most_products(kind)))
        return;
      measured(who, [&, kind] {
        textbook::multiply<B>(lane, kind, n, n, n, a.view(), b.view(), product.view());
      });
    };
    const Index most = std::is_same_v<B, Cpu> ? options.most_serial : Index(1) << 40;
    by_kernel("textbook", textbook::Product::element, most);
    by_kernel("textbook-third-dimension", textbook::Product::third_dimension,
              options.most_alternative);
    by_kernel("textbook-block", textbook::Product::block, options.most_alternative);
    measured("terrace", [&] {
      multiply<B>(lane, n, n, n, 1, a.view(), n, b.view(), n, 0, product.view(), n);
    });
  }

  [[nodiscard]] std::vector<double> system(Index n) const {
    return host_values(n, n, [this, n](Index i, Index j) {
      return dense_cg_entry(seed, 1 / std::sqrt(double(n)), i, j);
    });
  }
  /// ||b - A x|| / ||b||.
  template <class Backend>
  static double left(const Matrix<Backend>& a, const Matrix<Backend>& b, const Matrix<Backend>& x) {
    return norm_frobenius(b - a * x) / norm_frobenius(b);
  }

  void gradients(Index n, double memory) const {
    const Matrix<B> a(lane, n, n, system(n)), b(lane, n, 1, random_values(n, 1, seed + 1));
    textbook::CgOutcome<B> found;
    const auto solve = [&] { found = textbook::conjugate_gradients(a, b, 1e-10, 10 * n + 1000); };
    solve();
    if (!found.converged) fail_together(Exit::internal, "no convergence; bench matrix");
    line(
        "cg", "textbook", n, 8e-9 * double(n) * double(n) * double(found.iterations), "GB/s",
        "memory read", memory, solve, [&] { return left(a, b, found.x); }, 1e-9,
        [&](double value) { spoils(lane, found.x.view())(value); });
    run.report["runs"].back()["iterations"] = found.iterations;
  }

  void determinants(Index n) const {
    const Stream<Cpu> host;
    const Matrix<Cpu> a(host, n, n, system(n)), b(host, n, 1, random_values(n, 1, seed + 1));
    Matrix<Cpu> x;
    const auto rule = [&](const char* who, Index most, double flops, const auto& solve) {
      if (n > most) return;
      line(
          "cramer", who, n, 1e-9 * flops, "GFLOP/s", "", 0, [&] { x = solve(); },
          [&] { return left(a, b, x); }, 1e-10,
          [&](double value) { spoils(host, x.view())(value); });
    };
    rule("elimination", cramer_limit, double(n + 1) * 2 / 3 * std::pow(double(n), 3),
         [&] { return std::move(solve_by_cramer(a, b).x); });
    // Products and sums of an expansion: t(n) = n (t(n - 1) + 2), about e n! of each.
    rule("expansion", textbook::expansion_limit,
         2 * std::exp(1.0) * double(n + 1) * std::tgamma(double(n) + 1),
         [&] { return textbook::solve_by_expansion(a, b); });
  }

  /// Most memory of a + b, in matrices: the operands, the result, and what lies between.
  void memory_of_sums(Index n) const {
    const auto measured = [&](const char* who, const auto& add_them) {
      double peak = 0;
      bool right = true;
      line(
          "memory", who, n, 24e-9 * double(n) * double(n), "GB/s", "", 0,
          [&] {
            const Index before = memory_use(B{}).now;
            watch_memory(B{});
            const Matrix<B> c = add_them();
            c.synchronize();
            peak = double(memory_use(B{}).most - before);
            right = std::fabs(norm_max(c) - 3) == 0;
          },
          [&] { return right ? 0.0 : 1.0; }, 0, [&](double) { right = false; });
      nlohmann::json& last = run.report["runs"].back();
      last["peak_bytes"] = peak;
      last["matrices"] = peak / (8.0 * double(n) * double(n));
      run.say(fmt_matrices(who, peak, last["matrices"].get<double>()));
    };
    const auto operand = [&](double value) {
      Matrix<B> m(lane, n, n);
      fill_zero(lane, m.view());
      if (n > 0) upload(lane, m.view().slice(n * n - 1, 1), &value);
      m.synchronize();
      return m;
    };
    measured("operand-moved", [&] {
      Matrix<B> a = operand(1), b = operand(2);
      return std::move(a) + b;
    });
    measured("result-moved", [&] {
      const Matrix<B> a = operand(1), b = operand(2);
      Matrix<B> c = a + b;
      return c;
    });
    measured("copied", [&] {
      const Matrix<B> a = operand(1), b = operand(2);
      const Matrix<B> inner = a + b;  // what a container without moves returns,
      const Matrix<B>& only_copied = inner;
      return Matrix<B>(only_copied);  // and copies
    });
  }

  /// Largest orders: of the launches of the article, of those here, whose blocks go on with further
  /// rows, and of the memory. Not measured: from the device's properties.
  void bounds() const {
    const Index bytes = std::is_same_v<B, Cuda> ? c.device.free_bytes : available_host_bytes();
    nlohmann::json& list = run.report["bounds"] = nlohmann::json::array();
    const auto bound = [&](const char* what, Index once, Index here, Index matrices) {
      const Index memory = textbook::most_order_in(bytes, matrices);
      const Index most = std::min(here, memory);
      nlohmann::json row = {{"what", what}, {"matrices", matrices}, {"memory", memory}};
      if (once > 0) row["grid_once"] = once;
      if (once > 0 && here < Index(1) << 40) row["grid_here"] = here;
      row["most"] = most;
      row["by"] = most == memory ? "memory" : "grid";
      list.push_back(row);
      run.say(
          fmt::format("  {:<26} n up to {:>13} by the grid covered once, {:>13} here, {:>8} by "
                      "memory ({} matrices)",
                      what, once > 0 ? std::to_string(once) : "-",
                      row.contains("grid_here") ? std::to_string(here) : "-", memory, matrices));
    };
    constexpr Index none = Index(1) << 62;
    if constexpr (std::is_same_v<B, Cuda>) {
      using textbook::Product;
      const textbook::GridLimits g = textbook::grid_limits(Cuda{});
      run.report["grid_limits"] = {{"x", g.x}, {"y", g.y}, {"z", g.z}, {"threads", g.threads}};
      const auto once = [&](Product product) {
        return textbook::most_order_of_product(g, product);
      };
      // Here rows go on in a loop, so y binds nobody; along x there is a block for 32 columns, or
      // for each column.
      bound("sum", textbook::most_order_of_sum(g), g.x * 32, 3);
      bound("product-element", once(Product::element), g.x * 32, 3);
      bound("product-third-dimension", once(Product::third_dimension),
            std::min(g.x * 32, textbook::most_products(Product::third_dimension)), 3);
      bound("product-block", once(Product::block), g.x, 3);
    } else {
      bound("sum", 0, none, 3);
      bound("product-element", 0, none, 3);
    }
    bound("sum-operand-moved", 0, none, 2);
    bound("sum-copied", 0, none, 4);
  }

  static std::string fmt_matrices(const char* who, double bytes, double matrices);
};

template <class B>
std::string Bench<B>::fmt_matrices(const char* who, double bytes, double matrices) {
  char text[128];
  std::snprintf(text, sizeof text, "  %s: most %.4f GB, %.2f matrices", who, 1e-9 * bytes,
                matrices);
  return text;
}

void bench_matrix(Run& run, MatrixBench options, const CLI::App& command) {
  if (run.control.size() > 1)
    fail_together(Exit::usage, "bench matrix runs on one rank; under mpirun; use -n 1");
  with_backend(run, [&]<class B>(Context<B>& c) {
    constexpr bool device = std::is_same_v<B, Cuda>;
    refuse_given(command, {device ? "--most-serial" : "--most-alternative"},
                 "this backend has no such products");
    run.report["method"] = "matrix";
    if (options.n.empty())
      options.n = device ? std::vector<Index>{8, 32, 128, 512, 2048, 8192}
                         : std::vector<Index>{8, 32, 128, 512};
    const bool reads = options.has("sum") || options.has("cg");
    const double memory = reads ? read_rate(c.bulk, bound_sizes().bytes) : 0;
    const double dgemm = options.has("product") ? dgemm_rate(c.bulk, bound_sizes().order) : 0;
    const Bench<B> bench{run, c, options};
    if (options.has("bounds")) bench.bounds();
    for (const Index n : options.n) {
      require_countable({double(n), double(n)});
      const Index bytes = 8 * n * n * 4;
      require_memory(c.control, device ? bytes / 2 : bytes, device ? bytes : 0);
      if (options.has("sum")) bench.sums(n, memory);
      if (options.has("product")) bench.products(n, dgemm);
      if (options.has("cg")) bench.gradients(n, memory);
      if (options.has("cramer") && !device) bench.determinants(n);
      if (options.has("memory")) bench.memory_of_sums(n);
    }
  });
}

}  // namespace

void add_matrix_bench(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<MatrixBench>();
  CLI::App* command = add_command(
      bench, selected,
      {"matrix", "Sums, products and small solves of dense matrices, compared with the textbook's",
       "terrace bench matrix --what product", bench_options},
      [options](Run& run, const CLI::App& given) {
        require_rivals(*options, "matrix", {});
        bench_matrix(run, *options, given);
      });
  add_bench_options(*command, *options);
  command
      ->add_option("--what", options->what,
                   "sum, product, cg, cramer (CPU), memory, bounds; comma-separated, default all")
      ->delimiter(',')
      ->check(CLI::IsMember({"sum", "product", "cg", "cramer", "memory", "bounds"}));
  command
      ->add_option("--most-serial", options->most_serial,
                   "Largest n for products on one CPU thread")
      ->check(positive())
      ->capture_default_str();
  command
      ->add_option("--most-alternative", options->most_alternative,
                   "Largest n of the textbook's two alternative products on CUDA")
      ->check(positive())
      ->capture_default_str();
}

}  // namespace terrace::dense
