// bench gf2: reduced or echelon form of matrices generated on the backend from the seed.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "kernels/parallel.hpp"
#include "kernels/random.hpp"
#include "src/bench/bench.hpp"
#include "src/gf2.hpp"

namespace terrace {
namespace {

struct Options {
  BenchOptions common;
  bool half_rank = false, echelon = false, checksum = false, product = false;
  bool inverse = false;
  Index levels = -1;
};

double wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of work() on the context's lanes: events on CUDA, wall clock on the CPU.
template <class B, class Work>
double timed(const Context<B>& context, Work&& work) {
  context.control.barrier();
  if constexpr (std::is_same_v<B, Cuda>) {
    const auto begin = context.bulk.record();
    work();
    const auto end = context.bulk.record();
    context.bulk.synchronize();
    return seconds_between(begin, end);
  } else {
    const double start = wall();
    work();
    return wall() - start;
  }
}

/// Rate of combine() when its rows stay in cache: what the tables alone allow.
double table_rate(const Context<Cpu>& context) {
  const Index rows = 4096 * thread_count(), words = 16, bits = 64, rounds = 64;
  const Buffer<Word, Cpu> out(rows * words), source(bits * words), multipliers(rows * rounds);
  fill_zero(context.bulk, out.view());
  std::vector<Index> numbers(static_cast<std::size_t>(rows));
  for (Index i = 0; i < rows; ++i) numbers[std::size_t(i)] = i;
  random_bits(context.bulk, {multipliers.data(), rounds, rows, nullptr}, numbers.data(),
              {1, 64 * rounds, false, 0});
  random_bits(context.bulk, {source.data(), words, bits, nullptr}, numbers.data(),
              {2, 64 * words, false, 0});
  const auto once = [&] {
    for (Index r = 0; r < rounds; ++r)
      combine(context.bulk, {out.data(), words, rows, nullptr},
              {multipliers.data() + r, rounds, rows, nullptr},
              {source.data(), words, bits, nullptr}, 0, 0, words);
    context.bulk.synchronize();
  };
  once();
  const double seconds = timed(context, once);
  return double(rows) * double(rounds * bits) * double(64 * words) / seconds *
         context.control.size();
}

/// Shared-memory look-ups of 132 multiprocessors at k = 8, measured on an H200 at 1.98 GHz; scaled.
[[maybe_unused]] double table_rate(const Context<Cuda>& context) {
  const Index sum =
      context.control.reduce(Index(current_cuda_device().multiprocessors), Reduce::sum);
  return 2.09e15 * double(sum) / 132.0 / (context.device.shared ? context.size() : 1);
}

/// Sum over the reduced form's words of a mix of place and value; the same in tests/rivals.
template <class B>
Word checksum(const Context<B>& context, const BitMatrix<B>& matrix, const Pivots& pivots,
              Index words) {
  std::vector<Word> row(static_cast<std::size_t>(words));
  std::vector<Word> sum(1, 0);
  for (Index q = 0; q < pivots.rank(); ++q) {
    const Index i = pivots.rows[std::size_t(q)];
    if (matrix.layout.owner(i) != context.rank()) continue;
    download(context.bulk, row.data(),
             matrix.data.view().slice(matrix.layout.slot(i) * matrix.stride, words));
    context.bulk.synchronize();
    for (Index j = 0; j < words; ++j)
      sum[0] ^= mix(mix(Word(q) * 0x9e3779b97f4a7c15ull + Word(j)) ^ row[std::size_t(j)]);
  }
  context.control.reduce(sum, Reduce::bit_xor);
  return sum[0];
}

/// Seconds of M4RI's full reduction of the same matrix: tests/rivals/m4ri_bench beside this
/// program, or where TERRACE_M4RI_BENCH says; a separate program on one core of rank 0's host. 0:
/// not there.
double m4ri_seconds(const Control& control, Index n, Index seed, bool half_rank) {
  double seconds = 0;
  if (control.rank() == 0) {
    const char* named = std::getenv("TERRACE_M4RI_BENCH");
    std::error_code none;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
    const std::string program =
        named ? named : (self.parent_path() / "tests" / "m4ri_bench").string();
    if (std::filesystem::exists(program, none)) {
      const std::string line =
          fmt::format("'{}' {} {} {}", program, n, seed, half_rank ? "half" : "full");
      if (FILE* pipe = popen(line.c_str(), "r")) {
        if (std::fscanf(pipe, "seconds %lf", &seconds) != 1) seconds = 0;
        pclose(pipe);
      }
    }
  }
  control.broadcast(&seconds, sizeof seconds, 0);
  return seconds;
}

/// Name and rate of what bounds products: binary tensor cores, or the tables.
std::pair<std::string, double> engine(const Context<Cpu>& context) {
  return {"look-ups in cache-resident tables, measured in this run", table_rate(context)};
}
[[maybe_unused]] std::pair<std::string, double> engine(const Context<Cuda>& context) {
  const double tensor = bit_tensor_rate(context.bulk);
  if (tensor == 0)
    return {"shared-memory look-ups at k = 8, 2.09e15 bit-MAC/s an H200", table_rate(context)};
  const double sum = context.control.reduce(tensor, Reduce::sum);
  return {"binary tensor cores, the instruction alone, measured in this run",
          sum / (context.device.shared ? context.size() : 1)};
}

template <class B>
void bench_product(Run& run, const Options& o, Context<B>& context, Index n,
                   const std::pair<std::string, double>& bound) {
  const BlockCyclic layout = bit_row_layout(n, context.size());
  const BlockCyclic b_layout = factor_layout(n, context.size());
  const auto seed = Word(run.options.seed);
  const auto a = random_source(context, {seed, n, false, n}, layout);
  const auto b = random_source(context, {seed + 1, n, false, n}, b_layout);
  const Index words = a.words(), stride = round_up(words, bit_row_alignment);
  const Index beside = 2 * BitMatrix<B>::bytes(layout, words) +
                       BitMatrix<B>::bytes(b_layout, words) + staging_bytes(words, layout.slots(0));
  constexpr bool on_host = std::is_same_v<B, Cpu>;
  const MultiplyPlan plan = plan_multiply<B>(
      context.size(), layout.slots(0), n, stride, multiply_wish(run, o.levels), [&](Index more) {
        const Index all = beside + more;
        return memory_shortage(run.control, on_host ? all : 0, on_host ? 0 : all).empty();
      });
  const Index bytes = beside + multiply_bytes<B>(context.size(), layout.slots(0), n, stride, plan);
  require_memory(run.control, on_host ? bytes : 0, on_host ? 0 : bytes);
  BitMatrix<B> left, right, product;
  auto memory = collectively(context.control, [&] {
    left = BitMatrix<B>(context, layout, words);
    right = BitMatrix<B>(context, b_layout, words);
    product = BitMatrix<B>(context, layout, words);
    return MultiplyMemory<B>(context, left.slots(), n, stride, plan);
  });
  load(context, a, left);
  load(context, b, right);
  Progress quiet(false, false);
  BenchRun line;
  line.sizes = {{"n", n}, {"form", "product"}, {"block", plan.panel}, {"levels", plan.levels}};
  line.who = "terrace";
  line.work = double(n) * double(n) * double(n);
  line.unit = "bit-MAC/s";
  line.bound_name = bound.first;
  line.bound = bound.second;
  line.measure = [&] {
    fill_zero(context.bulk, product.data.view());
    context.bulk.synchronize();
    return timed(context, [&] { multiply_bits(context, left, right, product, n, memory, quiet); });
  };
  line.certificate = [&] {
    const std::string broken = check_product(context, a, layout, b, b_layout, product, n, seed + 2);
    return broken.empty() ? std::string("passed") : "failed: " + broken;
  };
  bench_run(run, o.common, line);
  if (run.report["runs"].back()["certificate"] != "passed")
    run.outcome("check failed", "the product is wrong; bench gf2 --product --n " +
                                    std::to_string(n) + "; please report this as a bug");
}

/// The first of the seeds from `--seed` on that gives a regular matrix is measured.
template <class B>
void bench_inverse(Run& run, const Options& o, Context<B>& context, Index n,
                   const std::pair<std::string, double>& bound) {
  const PanelPlan plan = plan_panels<B>(run.options.block, n, run.options.method);
  const BlockCyclic layout = bit_row_layout(n, context.size());
  const Index words = ceil_div(n, 64), stride = round_up(words, bit_row_alignment);
  const Index bytes = BitMatrix<B>::bytes(layout, words) + echelon_bytes<B>(layout, stride, plan) +
                      staging_bytes(words, layout.slots(0));
  constexpr bool on_host = std::is_same_v<B, Cpu>;
  require_memory(run.control, on_host ? bytes : 0, on_host ? 0 : bytes);
  BitMatrix<B> matrix =
      collectively(context.control, [&] { return BitMatrix<B>(context, layout, words); });
  Progress quiet(false, false);
  Pivots pivots;
  auto seed = Word(run.options.seed);
  const auto source = [&] { return random_source(context, {seed, n, false, n}, layout); };
  const auto invert = [&] {
    load(context, source(), matrix);
    return timed(context, [&] {
      pivots = reduce_to_echelon(context, matrix, n, EchelonForm::inverse, plan, quiet);
      if (pivots.first_zero_pivot < 0) order_inverse(context, matrix, pivots);
    });
  };
  while (invert(), pivots.first_zero_pivot >= 0) ++seed;
  BenchRun line;
  line.sizes = {{"n", n}, {"form", "inverse"}, {"block", plan.columns}};
  line.who = "terrace";
  line.work = double(n) * double(n) * double(n);
  line.unit = "bit-MAC/s";
  line.bound_name = bound.first;
  line.bound = bound.second;
  line.measure = invert;
  line.certificate = [&] {
    const Word witness = witness_seed(run.options.seed);
    const std::string broken = check_inverse(
        context, source(), layout, witness_of_inverse(context, matrix, pivots, witness), witness);
    return broken.empty() ? std::string("passed") : "failed: " + broken;
  };
  bench_run(run, o.common, line);
  if (run.report["runs"].back()["certificate"] != "passed")
    run.outcome("check failed", "the inverse is wrong; bench gf2 --inverse --n " +
                                    std::to_string(n) + "; please report this as a bug");
}

void bench(Run& run, const Options& o) {
  require_bit_method(run.options.method);
  std::vector<Index> sizes = o.common.n;
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (sizes.empty()) {
      if constexpr (std::is_same_v<B, Cpu>)
        sizes = {4096, 8192, 16384};
      else
        sizes = {16384, 32768, 65536};
    }
    const auto form = o.echelon ? EchelonForm::echelon : EchelonForm::reduced;
    const auto bound = engine(context);
    for (const Index n : sizes) {
      if (o.product) {
        bench_product(run, o, context, n, bound);
        continue;
      }
      if (o.inverse) {
        bench_inverse(run, o, context, n, bound);
        continue;
      }
      const PanelPlan plan = plan_panels<B>(run.options.block, n, run.options.method);
      run.report["block"] = plan.columns;
      run.report["method"] = elimination_method<B>(plan);
      const BlockCyclic layout = bit_row_layout(n, context.size());
      const auto source =
          random_source(context, {Word(run.options.seed), n, o.half_rank, n}, layout);
      const Index words = source.words();
      const Index bytes = BitMatrix<B>::bytes(layout, words + 1) +
                          staging_bytes(words, layout.slots(0)) +
                          echelon_bytes<B>(layout, round_up(words + 1, bit_row_alignment), plan);
      constexpr bool on_host = std::is_same_v<B, Cpu>;
      require_memory(run.control, on_host ? bytes : 0, on_host ? 0 : bytes);
      const Word seed = witness_seed(run.options.seed);
      BitMatrix<B> matrix =
          collectively(context.control, [&] { return BitMatrix<B>(context, layout, words + 1); });
      Pivots pivots;
      Progress quiet(false, false);
      BenchRun line;
      line.sizes = {{"n", n}, {"form", o.echelon ? "echelon" : "rref"}, {"block", plan.columns}};
      if (o.half_rank) line.sizes["half_rank"] = true;
      line.who = "terrace";
      // Multiply-adds: rows times columns right of the panel, summed over the pivots.
      const double cube = double(n) * double(n) * double(n);
      line.work =
          cube * (o.half_rank ? (o.echelon ? 7.0 / 24 : 3.0 / 8) : (o.echelon ? 1.0 / 3 : 0.5));
      line.unit = "bit-MAC/s";
      line.bound_name = bound.first;
      line.bound = bound.second;
      line.measure = [&] {
        load(context, source, matrix);
        put_witness(context, matrix, words, seed);
        return timed(context,
                     [&] { pivots = reduce_to_echelon(context, matrix, n, form, plan, quiet); });
      };
      line.certificate = [&] {
        const Witness witness = o.echelon
                                    ? witness_of_echelon(context, matrix, n, words, pivots, seed)
                                    : witness_of_reduced(context, matrix, n, words, pivots, seed);
        const std::string broken = check_rank(context, source, layout, pivots, witness);
        return broken.empty() ? std::string("passed") : "failed: " + broken;
      };
      bench_run(run, o.common, line);
      auto& last = run.report["runs"].back();
      const std::string certificate = last["certificate"];
      last["rank"] = pivots.rank();
      if (o.checksum && !o.echelon) {
        const Word sum = checksum(context, matrix, pivots, words);
        last["checksum"] = fmt::format("{:016x}", sum);
        run.say(fmt::format("rank {} checksum {:016x}", pivots.rank(), sum));
      }
      for (const std::string& rival : o.common.rivals) {
        if (rival != "m4ri" || m4ri_seconds(run.control, 64, 1, false) == 0) {
          run.say("rival " + rival + " is not here (m4ri: build the tests with libm4ri-dev)");
          continue;
        }
        BenchRun other = line;
        other.who = "m4ri, one core";
        other.bound = 0;
        other.certificate = nullptr;
        other.measure = [&] { return m4ri_seconds(run.control, n, run.options.seed, o.half_rank); };
        bench_run(run, o.common, other);
      }
      if (certificate != "passed")
        run.outcome("check failed", "the certificate does not hold; bench gf2 --n " +
                                        std::to_string(n) + "; please report this as a bug");
    }
  });
}

}  // namespace

void add_bench_gf2(CLI::App& bench_app, Selected& selected) {
  CLI::App* command =
      bench_app.add_subcommand("gf2", "Reduced row echelon form of random bit matrices");
  auto options = std::make_shared<Options>();
  add_common_options(*command, selected.options);
  add_bench_options(*command, options->common);
  command->add_flag("--half-rank", options->half_rank, "Matrices of rank n / 2");
  command->add_flag("--echelon", options->echelon, "Echelon form only");
  auto* product =
      command->add_flag("--product", options->product, "Products of random bit matrices instead");
  add_levels_option(*command, options->levels);
  command->add_flag("--inverse", options->inverse, "Inverses of random regular matrices instead")
      ->excludes(product);
  command->add_flag("--checksum", options->checksum, "Print a checksum of the reduced form");
  command->callback([&selected, options] {
    selected.command = "bench gf2";
    selected.action = [options](Run& run) { bench(run, *options); };
  });
}

}  // namespace terrace
