// terrace bench band: factorization and substitution of generated band systems.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "distrib/agree.hpp"
#include "kernels/band/rivals.hpp"
#include "kernels/base/rates.hpp"
#include "src/band/window.hpp"
#include "src/bench/band_bench.hpp"

namespace terrace::band {
namespace {

/// LAPACK's factor and solve, or the chain's factor.
template <class B>
void bench_rival(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                 BandRates rates, Word seed) {
  const BandShape& s = plan.shape;
  const Index height = s.half_bandwidth + 1;
  Buffer<double, B> ab = collectively(c.control, [&] { return Buffer<double, B>(height * s.n); });
  BenchRun bench;
  bench.sizes = {{"n", s.n}, {"half_bandwidth", s.half_bandwidth}, {"phase", "factor"}};
  bench.who = band_rival_name(B{});
  bench.work = band_factor_flops(s.n, s.half_bandwidth) * 1e-9;
  bench.unit = "GFLOP/s";
  bench.bound_name = "DGEMM";
  bench.bound = rates.dgemm;
  bench.rival = true;
  Index info = 0;
  bench.measure = [&] {
    band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, 0, s.n, height, height, ab.view());
    c.ahead.synchronize();
    return timed(c.control, [&] {
      info = band_rival(c.ahead, s.n, s.half_bandwidth, std::min<Index>(128, s.half_bandwidth),
                        ab.view());
    });
  };
  bench.trouble = [&] { return info == 0 ? std::string() : fmt::format("its info is {}", info); };
  bench.residual = [&] {  // L (L^T v) by the rival's library is A v by ours
    std::vector<double> v(std::size_t(s.n)), av(v.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = random_uniform(seed + 1, Index(i), 0);
    const Buffer<double, B> product(s.n);
    upload(c.ahead, product.view(), v.data());
    c.ahead.synchronize();
    band_rival_times(c.ahead, s.n, s.half_bandwidth, ab.view(), product.view());
    download(c.ahead, av.data(), product.view());
    c.ahead.synchronize();
    return band_residual<B>(c, generated<B>(s.n, s.half_bandwidth, seed), Range{0, s.n}, v, av, 1);
  };
  bench.spoil = spoils(c.ahead, ab.view());
  bench_run(run, options, bench);
  if constexpr (std::is_same_v<B, Cpu>) {
    std::vector<double> b(std::size_t(s.n)), x(b.size());
    for (Index i = 0; i < s.n; ++i) b[std::size_t(i)] = random_uniform(seed + 2, i, 0);
    BenchRun solve = solve_bench(c.control, plan, rates, 1);
    solve.sizes.erase("method");
    solve.sizes.erase("parts");
    solve.who = band_rival_name(B{});
    solve.measure = [&] {
      x = b;
      return timed(c.control, [&] {
        info = band_rival_solve(c.ahead, s.n, s.half_bandwidth, ab, View<double, B>{x.data(), s.n});
      });
    };
    solve.rival = true;
    solve.trouble = bench.trouble;
    solve.spoil = spoils(x);
    solve.residual = [&] {
      return band_residual<B>(c, generated<B>(s.n, s.half_bandwidth, seed), Range{0, s.n}, x, b, 1);
    };
    bench_run(run, options, solve);
  }
}

/// Two ends, or a partition. The time of the factorization counts what turns the reversed part
/// over; the spikes' entries are read before.
template <class B>
void bench_parts(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                 BandRates rates) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  const Word seed = Word(run.options.seed);
  const BandShape& s = plan.shape;
  const BandProblem<B> problem = generated<B>(s.n, s.half_bandwidth, seed);
  const Index last = plan.parts() - 1, height = s.half_bandwidth + 1;
  const bool holds = plan.reversed(last) && plan.owner(last) == c.rank();
  const Range turned = holds ? plan.columns(last) : Range{};
  const Index most = std::max<Index>(3, options.most_rhs());
  const Index bytes =
      band_parts_memory<B>(plan, most).total() + turned.count * height * Index(sizeof(double)) +
      band_memory(band_shape(s.n, s.half_bandwidth, 64), most, c.size(), true).check;
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  BandParts<B> a = collectively(c.control, [&] { return band_parts<B>(c, plan); });
  Buffer<double, B> natural =
      collectively(c.control, [&] { return Buffer<double, B>(turned.count * height); });
  band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, turned.first, turned.count, height,
                    height, natural.view());
  c.ahead.synchronize();
  run.report["block"] = s.width;
  run.report["parts"] = plan.parts();

  const Range own = plan.rows_of(c.rank());
  const auto right_hand_sides = [&](Index nrhs) {
    std::vector<double> b(std::size_t(own.count * nrhs));
    for (Index i = 0; i < own.count * nrhs; ++i)
      b[std::size_t(i)] = random_uniform(seed + 2, own.first + i / nrhs, i % nrhs);
    return b;
  };
  const auto residual = [&](BandPartRows<B>& x, const std::vector<double>& b) {
    std::vector<double> solution(b.size());
    get_rows(c, a, x, solution.data());
    return band_residual<B>(c, problem, own, solution, b, x.nrhs);
  };
  BenchRun bench = factor_bench(c.control, plan, rates);
  bench.measure = [&] {
    load_parts(c, problem, a);
    return timed_factor(c.control, [&] {
      reload_reversed<B>(c, a, natural);
      return factor_parts(c, a);
    });
  };
  bench.residual = [&] {  // of a solve: the factor is that of a permuted matrix
    const std::vector<double> b = right_hand_sides(3);
    BandPartRows<B> x = collectively(c.control, [&] { return band_part_rows(a, 3); });
    set_rows(c, a, x, b.data());
    solve_parts(c, a, x);
    return residual(x, b);
  };
  bench.spoil = spoils(c.ahead, a.memory.view());
  bench_run(run, options, bench);
  prepare_solves(c, a);
  const Index prepared = c.control.reduce(a.prepared.size(), Reduce::max);  // not all have parts
  if (prepared > 0) {
    BenchRun prepare = solve_bench(c.control, plan, rates, 1);
    prepare.sizes["phase"] = "prepare";
    prepare.sizes.erase("right_hand_sides");
    prepare.work = 8e-9 * double(prepared);
    prepare.measure = [&] {
      a.prepared = {};
      return timed(c.control, [&] {
        prepare_solves(c, a);
        c.ahead.synchronize();
      });
    };
    bench_run(run, options, prepare);
  }
  for (const Index nrhs : options.right_hand_sides) {
    const std::vector<double> b = right_hand_sides(nrhs);
    BandPartRows<B> x = collectively(c.control, [&] { return band_part_rows(a, nrhs); });
    BenchRun solve = solve_bench(c.control, plan, rates, nrhs);
    solve.measure = [&] {
      set_rows(c, a, x, b.data());
      return timed(c.control, [&] { solve_parts(c, a, x); });
    };
    solve.residual = [&] { return residual(x, b); };
    solve.spoil = spoils(c.ahead, x.rows.view());
    bench_run(run, options, solve);
  }
}

/// The places asked for, or none: the backend's own.
std::vector<std::string> each_place(const std::vector<std::string>& places) {
  return places.empty() ? std::vector<std::string>{""} : places;
}

/// A line of the factorization for each place of the diagonal blocks.
template <class B>
void bench_places(Run& run, const Context<B>& c, const BandBench& options, BenchRun bench,
                  BandWork<B>& work, const BandShape& s, bool always) {
  for (const std::string& place : each_place(options.diagonal)) {
    if (!place.empty()) bench.sizes["diagonal"] = place;
    work.host_diagonal = PinnedBuffer<double>();
    if (place == "cpu" && (always || std::is_same_v<B, Cuda>))
      work.host_diagonal = collectively(c.control, [&] { return band_host_diagonal(s); });
    bench_run(run, options, bench);
  }
}

/// A line for each number of right-hand sides and each place; substitute(x, host memory or null)
/// solves.
template <class B, class F>
void bench_substitutions(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                         BandRates rates, const BandProblem<B>& problem, const F& substitute) {
  const BandShape& s = plan.shape;
  const Word seed = Word(run.options.seed);
  for (const Index nrhs : options.right_hand_sides) {
    BandVectors<B> x = collectively(c.control, [&] { return band_vectors<B>(c, s, nrhs); });
    std::vector<double> b(std::size_t(x.data.size())), solution(b.size());
    for (std::size_t i = 0; i < b.size(); ++i) {
      const Index row = x.rows.global(Index(i) / nrhs, c.rank());
      b[i] = row < s.n ? random_uniform(seed + 2, row, Index(i) % nrhs) : 0.0;
    }
    for (const std::string& place : each_place(options.substitution)) {
      std::optional<HostSubstitution<B>> host;
      if (place == "cpu" && (plan.tile_by_tile || std::is_same_v<B, Cuda>))
        collectively(c.control, [&] { host.emplace(c, s, nrhs); });
      BenchRun solve = solve_bench(c.control, plan, rates, nrhs);
      if (options.has_places()) solve.sizes["block"] = s.width;
      if (!place.empty()) solve.sizes["substitution"] = place;
      solve.measure = [&] {
        upload(c.ahead, x.data.view(), b.data());
        c.ahead.synchronize();
        return timed(c.control, [&] { substitute(x, host ? &*host : nullptr); });
      };
      solve.residual = [&] {
        download(c.ahead, solution.data(), x.data.view());
        c.ahead.synchronize();
        return band_residual<B>(c, problem, x.rows, solution, b, nrhs);
      };
      solve.spoil = spoils(c.ahead, x.data.view());
      bench_run(run, options, solve);
    }
  }
}

template <class B>
void bench_tile_columns(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                        BandRates rates) {
  const Word seed = Word(run.options.seed);
  const BandShape& s = plan.shape;
  const Index n = s.n;
  const BandProblem<B> problem = generated<B>(n, s.half_bandwidth, seed);
  const Index most = options.most_rhs();
  const Index bytes = band_memory(s, most, c.size(), true).total();
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  BandTiles<B> a = collectively(c.control, [&] { return band_tiles<B>(c, s); });
  BandWork<B> work = collectively(c.control, [&] { return BandWork<B>(s); });
  run.report["block"] = s.width;

  BenchRun bench = factor_bench(c.control, plan, rates);
  bench.measure = [&] {
    band_clear(c, a);
    generate_tiles(c, a, seed);
    return timed_factor(c.control, [&] { return band_cholesky(c, a, work, run.progress) == 0; });
  };
  bench.stages = [&] {
    const auto stages = StageTimes<B>::on();
    band_clear(c, a);
    generate_tiles(c, a, seed);
    (void)band_cholesky(c, a, work, run.progress, stages);
    return stage_report(c.control, stages.seconds(), n);
  };
  bench.residual = [&] { return band_factor_residual(c, problem, a, seed + 1); };
  bench.spoil = spoils(c.ahead, a.data.view());
  bench_places(run, c, options, bench, work, s, plan.tile_by_tile);
  bench_substitutions<B>(run, c, options, plan, rates, problem, [&](BandVectors<B>& x, auto* host) {
    if (host)
      band_substitute_on_host(c, a, x, *host, run.progress);
    else
      band_substitute(c, a, x, run.progress);
  });
}

/// A window on the backend; the factor's time holds both ways of the copies.
template <class B>
void bench_window(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                  BandRates rates) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  const Word seed = Word(run.options.seed);
  const BandShape& s = plan.shape;
  const BandProblem<B> problem = generated<B>(s.n, s.half_bandwidth, seed);
  const Index most = options.most_rhs();
  const BandWindowMemory memory = band_window_memory(s, most, c.size());
  const Index bytes = memory.device() + band_memory(s, most, c.size(), true).check;
  const Index host = memory.host + 5 * s.n * most * Index(sizeof(double)) / c.size();
  require_memory(c.control, host + (device ? 0 : bytes), device ? bytes : 0);
  BandWindow<B> a = collectively(c.control, [&] { return band_window<B>(c, s); });
  BandWork<B> work = collectively(c.control, [&] { return BandWork<B>(s); });
  run.report["block"] = s.width;

  BenchRun bench = factor_bench(c.control, plan, rates);
  bench.measure = [&] {
    load_window(c, problem, a);
    return timed_factor(c.control,
                        [&] { return band_window_cholesky(c, a, work, run.progress) == 0; });
  };
  bench.residual = [&] { return band_factor_residual(c, problem, a, seed + 1); };
  bench.spoil = [&](double value) {
    if (!a.host.empty()) a.host[0].data()[0] = value;
  };
  bench_places(run, c, options, bench, work, s, plan.tile_by_tile);
  bench_substitutions<B>(run, c, options, plan, rates, problem, [&](BandVectors<B>& x, auto* host) {
    if (host)
      band_window_substitute_on_host(c, a, x, *host, run.progress);
    else
      band_window_substitute(c, a, x, run.progress);
  });
}

template <class B>
void bench_size(Run& run, Context<B>& c, const BandBench& options, Index n, Index m, Index width,
                BandRates rates) {
  const Index most_rhs = options.most_rhs();
  require_countable({double(n), double(m) + 1 + double(most_rhs)});
  BandRequest request;
  request.n = n;
  request.half_bandwidth = m;
  request.ranks = c.size();
  request.method = run.options.method;
  if (options.has_places()) adopt_places({"cpu", "cpu"}, request);
  request.parts = options.parts;
  request.block = width;
  request.nrhs = most_rhs;
  note_memory(c, request);
  const BandPlan plan = plan_band<B>(request);
  run.report["method"] = to_string(plan.method);
  run.report["precision"] = run.options.precision;
  if (run.options.precision == "mixed") return bench_mixed(run, c, options, request, plan, rates);
  if (options.stages && plan.method != BandMethod::tile_columns)
    fail_together(Exit::usage, fmt::format("method {} has no panels; --stages; add --method "
                                           "tile-columns or leave it out",
                                           to_string(plan.method)));
  if (plan.tile_by_tile)
    bench_window(run, c, options, plan, rates);
  else if (plan.method == BandMethod::streamed)
    bench_streamed(run, c, options, plan, rates);
  else if (plan.method == BandMethod::tile_columns)
    bench_tile_columns(run, c, options, plan, rates);
  else
    bench_parts(run, c, options, plan, rates);
  const auto& rivals = options.rivals;
  const bool wanted = std::find(rivals.begin(), rivals.end(), band_rival_name(B{})) != rivals.end();
  if (!wanted || m == 0) return;
  if (c.size() == 1)
    bench_rival(run, c, options, plan, rates, Word(run.options.seed));
  else
    run.warn("rivals run on one rank only; --rivals; start one rank");
}

void bench_band(Run& run, BandBench options) {
  with_backend(run, [&]<class B>(Context<B>& c) {
    const bool device = std::is_same_v<B, Cuda>;
    require_rivals(options, "band on this backend", {band_rival_name(B{})});
    for (const std::string& place : options.diagonal) check_places(B{}, {place, ""});
    for (const std::string& place : options.substitution) check_places(B{}, {"", place});
    if (!options.widths.empty() && run.options.block > 0)
      fail_together(Exit::usage,
                    "two widths of tile columns; --block and --widths; leave one of them out");
    if (options.has_places() && run.options.precision == "mixed")
      fail_together(Exit::usage,
                    "mixed precision has no places for its parts; --diagonal, --substitution; "
                    "leave them out");
    const std::vector<Index> widths =
        options.widths.empty() ? std::vector<Index>{run.options.block} : options.widths;
    if (options.n.empty()) options.n = {device ? 200000 : 20000};
    if (options.half_bandwidth.empty()) options.half_bandwidth = {device ? 2000 : 1000};
    const BoundSizes sizes = bound_sizes();
    const BandRates rates{dgemm_rate(c.ahead, sizes.order), read_rate(c.ahead, sizes.bytes)};
    for (const Index n : options.n)
      for (const Index m : options.half_bandwidth)
        for (const Index width : widths)
          bench_size(run, c, options, n, std::clamp<Index>(m, 0, std::max<Index>(n - 1, 0)), width,
                     rates);
  });
}

}  // namespace

void add_bench(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<BandBench>();
  CLI::App* command = add_command(
      bench, selected,
      {"band", "Band Cholesky: factor and solve",
       "terrace bench band --n 20000 --half-bandwidth 500",
       bench_options + "--method=auto,tile-columns,one-end,two-ends,partition,streamed "
                       "--precision=fp64,mixed --block"},
      [options](Run& run, const CLI::App& given) {
        if (run.options.precision == "mixed")
          refuse_given(given, {"--rivals", "--diagonal", "--substitution", "--stages"},
                       "--precision mixed compares with FP64 by the plan's method alone");
        bench_band(run, *options);
      });
  add_bench_options(*command, *options);
  add_stages_option(*command, *options);
  command
      ->add_option("--half-bandwidth", options->half_bandwidth, "Half-bandwidths, comma-separated")
      ->delimiter(',')
      ->check(not_negative());
  command
      ->add_option("--rhs", options->right_hand_sides,
                   "Numbers of right-hand sides, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(Index(1), Index(1) << 20));
  command
      ->add_option(
          "--parts", options->parts,
          "Parts of --method partition, or 1 or 2 ends of --method streamed (0: the plan's choice)")
      ->check(not_negative());
  command
      ->add_option("--widths", options->widths,
                   "Widths of tile columns, comma-separated (default: the plan's choice)")
      ->delimiter(',')
      ->check(positive());
  command
      ->add_option("--diagonal", options->diagonal,
                   "gpu, cpu, or both in turn: where to factor the diagonal blocks of tile columns "
                   "(--method tile-columns or streamed; default: the backend)")
      ->delimiter(',');
  command
      ->add_option(
          "--substitution", options->substitution,
          "gpu, cpu, or both in turn: where to do the triangular solves (default: the backend)")
      ->delimiter(',');
}

}  // namespace terrace::band
