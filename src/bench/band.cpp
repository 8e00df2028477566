// terrace bench band: factorization and substitution of generated band systems.
#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/band_rivals.hpp"
#include "kernels/problems.hpp"
#include "kernels/rates.hpp"
#include "src/band_hybrid.hpp"
#include "src/bench/bench.hpp"

namespace terrace {
namespace {

struct BandBench : BenchOptions {
  std::vector<Index> half_bandwidth, right_hand_sides{1};
  BandPlaces places;
};

using Clock = std::chrono::steady_clock;

/// Seconds of `work`, all ranks starting together; `work` ends with its device idle.
double timed(const Control& control, const std::function<void()>& work) {
  control.barrier();
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class B>
void generate(Context<B>& c, BandTiles<B>& a, Word seed) {
  const BandShape& s = a.shape;
  for (const Range& columns : BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank()))
    band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, columns.first, columns.count,
                      s.half_bandwidth + 1, s.column(), a.tile(columns.first / s.width));
  c.ahead.synchronize();
}

template <class B>
BandProblem<B> generated(Index n, Index m, Word seed) {
  return {n, m, [=](Context<B>& c, Range columns, Index height, View<double, B> to) {
            band_generate_spd(c.ahead, seed, n, m, columns.first, columns.count, height, height,
                              to);
          }};
}

template <class B>
void bench_rival(Run& run, Context<B>& c, const BandBench& options, const BandShape& s,
                 double dgemm, Word seed) {
  const Index height = s.half_bandwidth + 1;
  Buffer<double, B> ab = collectively(c.control, [&] { return Buffer<double, B>(height * s.n); });
  BenchRun bench;
  bench.sizes = {{"n", s.n}, {"half_bandwidth", s.half_bandwidth}, {"phase", "factor"}};
  bench.who = band_rival_name(B{});
  bench.work = band_factor_flops(s.n, s.half_bandwidth) * 1e-9;
  bench.unit = "GFLOP/s";
  bench.bound_name = "DGEMM";
  bench.bound = dgemm;
  bench.measure = [&] {
    band_generate_spd(c.ahead, seed, s.n, s.half_bandwidth, 0, s.n, height, height, ab.view());
    c.ahead.synchronize();
    return timed(c.control, [&] {
      const Index info = band_rival(c.ahead, s.n, s.half_bandwidth,
                                    std::min<Index>(128, s.half_bandwidth), ab.view());
      if (info != 0) throw Error(Exit::internal, "the rival failed; bench band");
    });
  };
  bench_run(run, options, bench);
}

template <class B>
void bench_size(Run& run, Context<B>& c, const BandBench& options, Index n, Index m, double dgemm,
                double memory) {
  const Word seed = Word(run.options.seed);
  const BandShape s = band_shape(n, m, band_width(B{}, m, run.options.block));
  const BandProblem<B> problem = generated<B>(n, s.half_bandwidth, seed);
  const Index most =
      *std::max_element(options.right_hand_sides.begin(), options.right_hand_sides.end());
  const Index bytes = band_memory(s, most, c.size(), true).total();
  const bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, device ? 0 : bytes, device ? bytes : 0);
  BandTiles<B> a = collectively(c.control, [&] { return band_tiles<B>(c, s); });
  BandWork<B> work = collectively(c.control, [&] { return BandWork<B>(s); });
  if (options.places.diagonal == "cpu" && device)
    work.host_diagonal = collectively(c.control, [&] { return band_host_diagonal(s); });
  const bool on_host = options.places.substitution == "cpu" && device;
  run.report["block"] = s.width;

  BenchRun bench;
  bench.sizes = {{"n", n}, {"half_bandwidth", m}, {"phase", "factor"}, {"block", s.width}};
  bench.who = "terrace";
  bench.work = band_factor_flops(n, s.half_bandwidth) * 1e-9;
  bench.unit = "GFLOP/s";
  bench.bound_name = "DGEMM";
  bench.bound = dgemm * c.size();
  bench.measure = [&] {
    band_clear(c, a);
    generate(c, a, seed);
    Index failed = 0;
    const double seconds =
        timed(c.control, [&] { failed = band_cholesky(c, a, work, run.progress); });
    if (failed != 0) fail_together(Exit::internal, "the generated matrix failed; bench band");
    return seconds;
  };
  bench.stages = [&] {
    const auto stages = StageTimes<B>::on();
    band_clear(c, a);
    generate(c, a, seed);
    (void)band_cholesky(c, a, work, run.progress, stages);
    return stage_report(c.control, stages.seconds(), n);
  };
  bench.residual = [&] { return band_factor_residual(c, problem, a, seed + 1); };
  bench_run(run, options, bench);

  for (const Index nrhs : options.right_hand_sides) {
    BandVectors<B> x = collectively(c.control, [&] { return band_vectors<B>(c, s, nrhs); });
    std::vector<double> b(std::size_t(x.data.size())), solution(b.size());
    for (std::size_t i = 0; i < b.size(); ++i) {
      const Index row = x.rows.global(Index(i) / nrhs, c.rank());
      b[i] = row < n ? random_uniform(seed + 2, row, Index(i) % nrhs) : 0.0;
    }
    std::optional<HostSubstitution<B>> host;
    if (on_host) collectively(c.control, [&] { host.emplace(c, s, nrhs); });
    BenchRun solve = bench;
    solve.stages = nullptr;
    solve.sizes = {{"n", n}, {"half_bandwidth", m}, {"phase", "solve"}, {"right_hand_sides", nrhs}};
    if (nrhs < 16) {  // the factor is read twice: memory bounds it
      solve.work = 16e-9 * double(n) * double(s.half_bandwidth + 1);
      solve.unit = "GB/s";
      solve.bound_name = "memory read";
      solve.bound = memory * c.size();
    } else {
      solve.work = band_solve_flops(n, s.half_bandwidth, nrhs) * 1e-9;
    }
    solve.measure = [&] {
      upload(c.ahead, x.data.view(), b.data());
      c.ahead.synchronize();
      return timed(c.control, [&] {
        if (host)
          band_substitute_on_host(c, a, x, *host, run.progress);
        else
          band_substitute(c, a, x, run.progress);
      });
    };
    solve.residual = [&] {
      download(c.ahead, solution.data(), x.data.view());
      c.ahead.synchronize();
      return band_residual<B>(c, problem, x.rows, solution, b, nrhs);
    };
    bench_run(run, options, solve);
  }
  const auto& rivals = options.rivals;
  const bool wanted = std::find(rivals.begin(), rivals.end(), band_rival_name(B{})) != rivals.end();
  if (!wanted || m == 0) return;
  a = {};
  if (c.size() == 1)
    bench_rival(run, c, options, s, dgemm, seed);
  else
    run.say("rivals run on one rank only");
}

void bench_band(Run& run, BandBench options) {
  if (!run.options.method.empty() && run.options.method != "tile-columns")
    fail_together(Exit::usage, "unknown method '" + run.options.method +
                                   "'; --method of bench band; leave it out or use tile-columns");
  with_backend(run, [&]<class B>(Context<B>& c) {
    const bool device = std::is_same_v<B, Cuda>;
    check_places(B{}, options.places);
    if (options.n.empty()) options.n = {device ? 200000 : 20000};
    if (options.half_bandwidth.empty()) options.half_bandwidth = {device ? 2000 : 1000};
    run.report["method"] = "tile-columns";
    const double dgemm = dgemm_rate(c.ahead), memory = read_rate(c.ahead);
    for (const Index n : options.n)
      for (const Index m : options.half_bandwidth)
        bench_size(run, c, options, n, std::clamp<Index>(m, 0, std::max<Index>(n - 1, 0)), dgemm,
                   memory);
  });
}

}  // namespace

void add_bench_band(CLI::App& bench, Selected& selected) {
  CLI::App* command = bench.add_subcommand("band", "Band Cholesky: factor and solve");
  const auto options = std::make_shared<BandBench>();
  add_bench_options(*command, *options);
  add_stages_option(*command, *options);
  command
      ->add_option("--half-bandwidth", options->half_bandwidth, "Half-bandwidths, comma-separated")
      ->delimiter(',');
  command->add_option("--rhs", options->right_hand_sides, "Numbers of right-hand sides")
      ->delimiter(',');
  command->add_option("--diagonal", options->places.diagonal,
                      "gpu or cpu: who factors the diagonal blocks of tile columns");
  command->add_option("--substitution", options->places.substitution,
                      "gpu or cpu: who substitutes with tile columns");
  add_common_options(*command, selected.options);
  command->callback([&selected, options] {
    selected.command = "bench band";
    selected.action = [options](Run& run) { bench_band(run, *options); };
  });
}

}  // namespace terrace
