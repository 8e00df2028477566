// What a plan of a band command needs to know beside its method: other ways, and their memory.
#pragma once
#include "io/input.hpp"
#include "src/band/parts.hpp"
#include "src/band/stream.hpp"
#include "src/program/plan.hpp"

namespace terrace {

/// Bytes beside the backend's and on it.
template <class B>
RankMemory band_on_rank(Index host, Index backend) {
  return std::is_same_v<B, Cuda> ? RankMemory{host, backend} : RankMemory{host + backend, 0};
}

inline Index band_check_bytes(const Run& run, const BandShape& s, Index nrhs, int ranks) {
  return run.options.no_check
             ? 0
             : band_memory(band_shape(s.n, s.half_bandwidth, 64), nrhs, ranks, true).check;
}

/// The band streamed on one rank, its factor in a scratch file if host memory is too small.
template <class B>
Alternative streamed_instead(const Run& run, Index n, Index half_bandwidth, Index nrhs, int ranks) {
  const std::string words =
      ranks > 1 ? "on one rank with --method streamed" : "with --method streamed";
  return {words, [=, &run]() -> std::optional<RankMemory> {
            if (!band_parts_available(B{}) || run.options.method == "streamed") return {};
            BandRequest r;
            r.n = n;
            r.half_bandwidth = half_bandwidth;
            r.nrhs = nrhs;
            r.method = "streamed";
            r.lapack_factor = run.command == "band factor";
            const BandPlan plan = plan_band<B>(r);
            const BandStreamMemory m = band_stream_memory<B>(plan, nrhs, 0, band_stream_kept(plan));
            const Index others =
                2 * plan.shape.padded() * nrhs * Index(sizeof(double)) + 3 * io::piece_bytes();
            return band_on_rank<B>(m.host + others,
                                   m.device() + band_check_bytes(run, plan.shape, nrhs, 1));
          }};
}

/// Length of the longest chain of tile columns and flops of the busiest rank of ends and parts.
inline std::pair<Index, double> chain_of_parts(const BandPlan& plan) {
  const double m = double(plan.shape.half_bandwidth);
  Index chain = 0;
  std::vector<double> flops(std::size_t(plan.ranks), 0.0);
  for (Index p = 0; p < plan.parts(); ++p) {
    chain = std::max(chain, plan.tiles(p));
    flops[std::size_t(plan.owner(p))] +=
        double(plan.rows(p).count) * m * m * (plan.has_arrow(p) ? 4 : 1);
  }
  if (plan.reduced.n > 0) {
    chain += plan.reduced.tiles();
    flops[0] += double(plan.reduced.n) * double(plan.reduced.half_bandwidth) *
                double(plan.reduced.half_bandwidth);
  }
  return {chain, *std::max_element(flops.begin(), flops.end())};
}

}  // namespace terrace
