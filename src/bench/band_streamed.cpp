// terrace bench band --method streamed: factorization and substitution of a band in host memory.
#include <fmt/core.h>

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/rates.hpp"
#include "src/band/stream.hpp"
#include "src/bench/band_bench.hpp"

namespace terrace::band {
namespace {

/// Seconds that the transfers take at least.
struct StreamFloor {
  double factor = 0;   ///< both ways at once
  double one_way = 0;  ///< to the device alone
};

/// From rates of copies that are measured here; reports and says them.
template <class B>
StreamFloor stream_floor(Run& run, const BandPlan& plan, BandStream<B>& a,
                         const BandStreamMemory& memory) {
  const BandShape& s = plan.shape;
  const CopyRates copies = copy_rates(a.up, a.down);
  const double gigabytes = 1e-9 * double(memory.host);
  const double floor = gigabytes / std::min(copies.to_device, copies.to_host);
  run.report["block"] = s.width;
  run.report["parts"] = plan.parts();
  run.report["transfers"].push_back({{"n", s.n},
                                     {"half_bandwidth", s.half_bandwidth},
                                     {"gigabytes_each_way", gigabytes},
                                     {"to_device_gb_per_s", copies.to_device},
                                     {"to_host_gb_per_s", copies.to_host},
                                     {"to_device_alone_gb_per_s", copies.to_device_alone},
                                     {"factor_floor_seconds", floor}});
  run.say(fmt::format(
      "{:.2f} GB each way; copies both ways at once {:.1f} and {:.1f} GB/s, to the device alone "
      "{:.1f}: the factor takes {:.4f} s at least; window {:.2f} GB",
      gigabytes, copies.to_device, copies.to_host, copies.to_device_alone, floor,
      1e-9 * double(memory.ring)));
  return {floor, gigabytes / copies.to_device_alone};
}

}  // namespace

template <class B>
void bench_streamed(Run& run, Context<B>& c, const BandBench& options, const BandPlan& plan,
                    BandRates rates) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  const Word seed = Word(run.options.seed);
  const BandShape& s = plan.shape;
  const BandProblem<B> problem = generated<B>(s.n, s.half_bandwidth, seed);
  const Index most = options.most_rhs();
  const BandStreamMemory memory = band_stream_memory<B>(plan, most);
  const Index bytes =
      memory.device() + band_memory(band_shape(s.n, s.half_bandwidth, 64), most, 1, true).check;
  const Index host = memory.host + 3 * s.n * most * Index(sizeof(double));
  require_memory(c.control, host + (device ? 0 : bytes), device ? bytes : 0);
  BandStream<B> a = collectively(c.control, [&] { return band_stream<B>(plan); });
  const StreamFloor floor = stream_floor(run, plan, a, memory);
  const auto bounded = [&](BenchRun bench, double work, double seconds) {
    bench.bound_name = device ? "PCIe" : "copies";
    bench.bound = work / seconds;
    return bench;
  };
  BenchRun bench = factor_bench(c.control, plan, rates);
  bench = bounded(bench, bench.work, floor.factor);
  bench.measure = [&] {
    load_stream(c, problem, a);
    return timed_factor(c.control,
                        [&] { return stream_factor<B>(c, a, nullptr, run.progress) == 0; });
  };
  const auto right_hand_sides = [&](Index nrhs) {
    std::vector<double> b(std::size_t(s.n * nrhs));
    for (std::size_t i = 0; i < b.size(); ++i)
      b[i] = random_uniform(seed + 2, Index(i) / nrhs, Index(i) % nrhs);
    return b;
  };
  const auto substitute = [&](BandStreamRows<B>& x) {
    stream_forward(c, a, x, run.progress);
    stream_backward(c, a, x, run.progress);
  };
  const auto residual = [&](BandStreamRows<B>& x, const std::vector<double>& b) {
    std::vector<double> solution(b.size());
    get_rows(c, a, x, solution.data());
    return band_residual<B>(c, problem, Range{0, s.n}, solution, b, x.nrhs);
  };
  bench.residual = [&] {
    if (plan.parts() == 1) return band_factor_residual(c, problem, a, seed + 1);
    const std::vector<double> b = right_hand_sides(1);  // the factor is that of a permuted matrix
    BandStreamRows<B> x = collectively(c.control, [&] { return band_stream_rows(a, 1); });
    set_rows(c, a, x, b.data());
    substitute(x);
    return residual(x, b);
  };
  bench_run(run, options, bench);
  for (const Index nrhs : options.right_hand_sides) {
    BandStreamRows<B> x = collectively(c.control, [&] { return band_stream_rows(a, nrhs); });
    const std::vector<double> b = right_hand_sides(nrhs);
    BenchRun solve = solve_bench(c.control, plan, rates, nrhs);
    solve = bounded(solve, solve.work, 2 * floor.one_way);
    solve.measure = [&] {
      set_rows(c, a, x, b.data());
      return timed(c.control, [&] { substitute(x); });
    };
    solve.residual = [&] { return residual(x, b); };
    solve.spoil = spoils(c.ahead, x.rows.view());
    bench_run(run, options, solve);
  }
}

#define TERRACE_INSTANTIATE(B) \
  template void bench_streamed(Run&, Context<B>&, const BandBench&, const BandPlan&, BandRates);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
