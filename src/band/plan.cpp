// Method, parts and width of a band factorization.
#include "src/band/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "kernels/base/size_text.hpp"
#include "src/band/mixed_ends.hpp"
#include "src/band/parts.hpp"
#include "src/band/stream.hpp"
#include "src/band/window.hpp"

namespace terrace::band {

std::string to_string(BandMethod method) {
  return method == BandMethod::one_end     ? "one-end"
         : method == BandMethod::two_ends  ? "two-ends"
         : method == BandMethod::partition ? "partition"
         : method == BandMethod::streamed  ? "streamed"
         : method == BandMethod::mixed     ? "mixed"
                                           : "tile-columns";
}

namespace {

constexpr Index kNarrow = 170;    // half-bandwidths that latency bounds, whatever the parts
constexpr Index kLatency = 1500;  // half-bandwidths up to which more chains pay on several GPUs
constexpr Index kLatencyAlone = 1000;  // and on one
constexpr Index kEvenEnds = 1300;      // half-bandwidths up to which end parts are no longer
constexpr Index kWide = 6000;          // half-bandwidths whose tile columns fill a GPU
constexpr Index kSpread = 20000;       // half-bandwidths from which tile columns pay on many GPUs
constexpr Index kMostParts = 128;      // of one rank
// Half-bandwidths whose parts have two multiprocessors each, and how many parts fit so (H200: 66; more
// than 64 slow the solve).
constexpr Index kPaired = 128, kPairs = 64;

BandMethod parse_method(const std::string& name) {
  for (const BandMethod method :
       {BandMethod::tile_columns, BandMethod::one_end, BandMethod::two_ends, BandMethod::partition,
        BandMethod::streamed})
    if (name == to_string(method)) return method;
  fail_together(Exit::usage, "unknown method '" + name +
                                 "'; --method of band solve; use tile-columns, one-end, two-ends, "
                                 "partition, streamed or auto");
}

/// The rules of --method auto; adds its reason.
[[maybe_unused]] BandMethod choose(Cpu, const BandRequest&, std::vector<std::string>& reasons) {
  // Threads share a tile column's update at any width, so more chains only cost flops.
  reasons.emplace_back("the threads of a rank share each tile column's update, so one chain does");
  return BandMethod::tile_columns;
}
[[maybe_unused]] BandMethod choose(Cuda, const BandRequest& r, std::vector<std::string>& reasons) {
  if (!band_parts_available(Cuda{})) {
    reasons.emplace_back("this GPU has not the shared memory of compute capability 9.0 for parts");
    return BandMethod::tile_columns;
  }
  // Narrow: the chain of diagonal blocks bounds the time; many chains hide it, for 4x the flops and
  // twice the memory. (H200, n = 1,000,000, factor and one solve, ns a column: m = 900 in 2, 4, 5 parts
  // 96, 91, 85; m = 1,000 97, 96, 93; m = 1,100 98, 109, 116.)
  const Index spikes = 2 * r.n * (r.half_bandwidth + 1) * Index(sizeof(double));
  const Index latency = r.ranks == 1 ? kLatencyAlone : kLatency;
  if (r.half_bandwidth <= latency && (r.device_bytes == 0 || spikes < r.ranks * r.device_bytes)) {
    reasons.push_back(fmt::format(
        "half-bandwidth up to {}: the chain of diagonal blocks bounds the time, so many chains run "
        "at once",
        latency));
    return BandMethod::partition;
  }
  // In between: two chains cost no more flops than one and halve the time of the chain. On more
  // ranks too, while a broadcast a tile column costs more than it brings. (Four H200: m = 8,000 by
  // tile columns 1.44 us per column, two of them from two ends 0.72; m = 32,000 9.7 and 11.4.)
  const Index half = r.n / 2 * (r.half_bandwidth + 1) * Index(sizeof(double));
  const bool few_fit = r.device_bytes == 0 || half + half / 8 < r.device_bytes;
  if (r.half_bandwidth < kWide || r.ranks == 2 ||
      (r.ranks > 2 && r.half_bandwidth < kSpread && few_fit)) {
    reasons.push_back(
        r.ranks == 2 ? std::string("two ranks: each eliminates from its end without communication")
        : r.half_bandwidth < kWide
            ? fmt::format("half-bandwidth below {}: two chains at once, for no more flops", kWide)
            : fmt::format("half-bandwidth below {}: two ranks from two ends are faster than tile "
                          "columns on all; the other {} have nothing to do",
                          kSpread, r.ranks - 2));
    return BandMethod::two_ends;
  }
  // Wide: the updates fill the GPU; in one launch on one rank.
  if (r.ranks == 1) {
    reasons.push_back(
        fmt::format("half-bandwidth from {} on: the updates of one chain fill the GPU", kWide));
    return BandMethod::one_end;
  }
  reasons.push_back(
      fmt::format("half-bandwidth from {} on (or too much for two GPUs): one tile column's "
                  "update fills the GPUs",
                  kSpread));
  return BandMethod::tile_columns;
}

[[maybe_unused]] Index part_width(Cpu, const BandRequest& r) {
  return r.block > 0 ? std::min(r.block, band_width_limit(Cpu{}))
                     : band_part_width(Cpu{}, r.half_bandwidth);
}
[[maybe_unused]] Index part_width(Cuda, const BandRequest& r) {
  const Index width = band_part_width(Cuda{}, r.half_bandwidth);
  if (r.block > 0 && r.block != width)
    fail_together(Exit::usage,
                  fmt::format("parts have tile columns of width {} on this backend, not {}; "
                              "--block; leave it out, or use --method tile-columns",
                              width, r.block));
  return width;
}

/// Of one rank: beyond them the work on the parts' arrows costs more than shorter chains save. (H200, the
/// fastest number: m = 200 40, 320 20, 400 11, 500 11, 600 8 to 11, 700 8, 800 6, 900 6, 1,000 4 to 6,
/// 1,200 4. On two, whose separators are one rank's work: m = 300 19 to 21, 600 8, 800 5, 1,000 4, 1,200 3;
/// jobs/results/band.md.)
Index most_parts(Index half_bandwidth, Index ranks) {
  if (half_bandwidth <= kPaired) return kPairs;
  if (half_bandwidth <= kNarrow) return kMostParts;
  const double m = double(half_bandwidth);
  const double most = ranks == 1 ? 7000 / m - 1.5 : 6400 / m - 2.3;
  return std::clamp(Index(most), Index(3), kMostParts);
}
/// Parts of a partition when none are asked for: the chains of the parts and that of the
/// separators' system, whose tile columns reach twice as far, get about equally long.
Index default_parts(const BandRequest& r, const BandShape& s) {
  const double tiles = double(s.tiles()), reach = double(band_reach_tiles(s));
  const Index parts = Index(std::lround(std::sqrt(tiles / (2 * reach))));
  return std::clamp<Index>(parts, std::max(3, r.ranks),
                           most_parts(r.half_bandwidth, r.ranks) * r.ranks);
}

/// First rows of q parts; empty when n is too small for them.
std::vector<Index> cut(Index n, const BandShape& s, Index separator, Index q, double end_weight) {
  if (q == 1) return {0, n};
  const Index own = n - (q - 1) * separator, inner_parts = q - 2;
  const double share = double(own) / double(s.width) / (2 * end_weight + double(inner_parts));
  const Index inner = inner_parts > 0 ? std::max(band_reach_tiles(s), Index(share)) * s.width : 0;
  const Index rest = own - inner * inner_parts;
  const Index first = std::max<Index>(1, rest / (2 * s.width)) * s.width;
  if (rest - first < 1) return {};
  std::vector<Index> begin{0, first + separator};
  for (Index p = 1; p + 1 < q; ++p) begin.push_back(begin.back() + inner + separator);
  begin.push_back(n);
  return begin;
}

/// Parts of the plan from its shape: as many as there is room for.
template <class B>
void cut_parts(BandPlan& plan, Index wanted, double end_weight) {
  const BandShape& s = plan.shape;
  plan.separator = band_reach_tiles(s) * s.width;
  const Index most = std::max<Index>(1, s.n / plan.separator + 1);
  for (Index q = std::min(wanted, most); plan.begin.empty(); --q)
    plan.begin = cut(s.n, s, plan.separator, q, end_weight);
  if (plan.parts() < wanted)
    plan.reasons.push_back(
        fmt::format("{} rows have room for {} part{} only, with separators of {}", s.n,
                    plan.parts(), plan.parts() == 1 ? "" : "s", plan.separator));
  if (plan.parts() == 1) return;
  const Index blocks = plan.parts() > 2 ? 2 : 1, order = (plan.parts() - 1) * plan.separator;
  plan.reduced =
      band_shape(order, blocks * plan.separator, band_part_width(B{}, blocks * plan.separator));
  plan.reduced.reach =
      round_up(std::max(blocks * plan.separator, plan.reduced.width), 16);  // keeps ld >= s
}

/// Ends of a streamed band when none are asked for; adds the reason.
[[maybe_unused]] Index stream_ends(Cpu, const BandRequest&, std::vector<std::string>&) { return 1; }
[[maybe_unused]] Index stream_ends(Cuda, const BandRequest& r, std::vector<std::string>& reasons) {
  const bool narrow = r.half_bandwidth <= kLatency;
  reasons.push_back(
      narrow ? fmt::format("half-bandwidth up to {}: one chain of diagonal blocks is slower than "
                           "the copies, so the band is streamed from both ends",
                           kLatency)
             : fmt::format("half-bandwidth above {}: the copies bound the time of one chain",
                           kLatency));
  return narrow ? 2 : 1;
}

template <class B>
void plan_streamed(const BandRequest& request, BandPlan& plan) {
  BandRequest r = request;
  r.half_bandwidth = band_shape(r.n, r.half_bandwidth, 1).half_bandwidth;
  plan.method = BandMethod::streamed;
  plan.shape = band_shape(r.n, r.half_bandwidth, part_width(B{}, r));
  const Index ends = r.lapack_factor ? 1
                     : r.parts > 0   ? r.parts
                                     : stream_ends(B{}, r, plan.reasons);
  cut_parts<B>(plan, ends, 1.0);
}

/// The tile columns as the matrix's file has them: of its half-bandwidth, however large.
template <class B>
void plan_tile_columns(const BandRequest& r, BandPlan& plan) {
  plan.method = BandMethod::tile_columns;
  plan.shape = band_shape(r.n, r.half_bandwidth, band_width(B{}, r.half_bandwidth, r.block));
}
/// Streamed tile column by tile column; r.half_bandwidth is at most n - 1.
template <class B>
void plan_window(const BandRequest& r, BandPlan& plan) {
  plan_tile_columns<B>(r, plan);
  plan.method = BandMethod::streamed;
  plan.tile_by_tile = true;
  plan.begin = {0, r.n};
}

std::string gib(Index bytes) { return fmt::format("{:.1f}", double(bytes) / 1073741824.0); }

template <class B>
Index bytes_in_memory(const BandRequest& r, const BandPlan& plan) {
  return plan.method == BandMethod::tile_columns
             ? band_memory(plan.shape, r.nrhs, r.ranks, false).total()
             : band_parts_memory<B>(plan, r.nrhs).total();
}

/// `plan`, of `needed` bytes on a device, becomes `streamed` where there is room for that; `in_scratch`: of the host where what is
/// kept lies in a scratch file.
void stream_where_it_fits(const BandRequest& r, Index needed, Index device, Index host,
                          Index in_scratch, const BandPlan& streamed, BandPlan& plan) {
  const bool whole = host <= r.host_bytes;
  const Index taken = whole ? host : in_scratch;
  if (device > r.device_bytes || taken > r.host_bytes) return;
  plan = streamed;
  plan.reasons.push_back(fmt::format(
      "in memory {} GiB would be needed on a device, which has {}; streamed, {} GiB there and {} "
      "of the {} of the host that a rank may have{}",
      gib(needed), gib(r.device_bytes), gib(device), gib(taken), gib(r.host_bytes),
      whole ? "" : fmt::format(", with {} in a scratch file", gib(host))));
}

/// On several ranks tile columns, which spread over all of them, come first, and then a window.
template <class B>
void stream_on_ranks(const BandRequest& r, BandPlan& plan) {
  const Index needed = bytes_in_memory<B>(r, plan);
  BandRequest known = r;
  known.half_bandwidth = band_shape(r.n, r.half_bandwidth, 1).half_bandwidth;
  BandPlan other;
  other.ranks = r.ranks;
  plan_tile_columns<B>(r, other);
  if (plan.method != BandMethod::tile_columns && bytes_in_memory<B>(r, other) <= r.device_bytes) {
    other.reasons.push_back(fmt::format(
        "{} would need {} GiB on a device, which has {}; tile columns on all {} ranks need {}",
        to_string(plan.method), gib(needed), gib(r.device_bytes), r.ranks,
        gib(bytes_in_memory<B>(r, other))));
    plan = other;
    return;
  }
  plan_window<B>(known, other);
  const BandWindowMemory m = band_window_memory(other.shape, r.nrhs, r.ranks);
  stream_where_it_fits(r, needed, m.device(), m.host,
                       band_window_memory(other.shape, r.nrhs, r.ranks, true).host, other, plan);
}

/// What --method auto does last: a plan that needs more than device_bytes becomes a streamed one
/// where that is possible.
template <class B>
void stream_if_too_big(const BandRequest& r, BandPlan& plan) {
  if (r.device_bytes == 0 || r.block > 0 || r.parts > 0) return;
  const Index needed = bytes_in_memory<B>(r, plan);
  if (needed <= r.device_bytes) return;
  if (r.ranks > 1) return stream_on_ranks<B>(r, plan);
  if (!band_parts_available(B{})) return;
  BandPlan streamed;
  plan_streamed<B>(r, streamed);
  const BandStreamMemory m = band_stream_memory<B>(streamed, r.nrhs);
  stream_where_it_fits(r, needed, m.device(), m.host,
                       band_stream_memory<B>(streamed, r.nrhs, 0, band_stream_kept(streamed)).host,
                       streamed, plan);
}

/// The method, and why.
template <class B>
BandMethod method_of(const BandRequest& r, std::vector<std::string>& reasons) {
  if (r.open() && !r.lapack_factor) return choose(B{}, r, reasons);
  // On one GPU a stored factor is solved with as one part: one launch a direction.
  const bool one_part = std::is_same_v<B, Cuda> && r.open() && r.stored && r.ranks == 1 &&
                        r.block == 0 && band_parts_available(B{});
  const BandMethod method = one_part   ? BandMethod::one_end
                            : r.open() ? BandMethod::tile_columns
                                       : parse_method(r.method);
  const bool window = method == BandMethod::streamed && r.in_window();
  if (method != BandMethod::tile_columns && !window && !band_parts_available(B{}))
    fail_together(Exit::usage, "method '" + r.method +
                                   "' needs a GPU of compute capability 9.0; --method; use "
                                   "tile-columns");
  reasons.emplace_back("the method was asked for");
  if (one_part) reasons.emplace_back("a stored factor on one GPU: solved with as one part");
  return method;
}

template <class B>
BandPlan plan_in_memory(const BandRequest& r) {
  BandPlan plan;
  plan.ranks = r.ranks;
  BandRequest request = r;
  request.half_bandwidth = band_shape(r.n, r.half_bandwidth, 1).half_bandwidth;
  plan.method = method_of<B>(request, plan.reasons);
  if (plan.method == BandMethod::tile_columns) {
    plan_tile_columns<B>(r, plan);
    return plan;
  }
  if (plan.method == BandMethod::streamed && r.in_window()) {
    plan_window<B>(request, plan);
    return plan;
  }
  if (plan.method == BandMethod::streamed) {
    plan_streamed<B>(r, plan);
    return plan;
  }
  plan.shape = band_shape(r.n, r.half_bandwidth, part_width(B{}, request));
  const BandShape& s = plan.shape;
  // H200, m = 300 to 1,200: 1 is faster than 1.25 to 2.
  const double weight = r.end_weight > 0                ? r.end_weight
                        : s.half_bandwidth <= kEvenEnds ? 1.0
                        : s.half_bandwidth <= kLatency  ? 1.5
                                                        : 3.0;
  const Index wanted = plan.method == BandMethod::one_end    ? 1
                       : plan.method == BandMethod::two_ends ? 2
                       : r.parts > 0                         ? r.parts
                                                             : default_parts(request, s);
  cut_parts<B>(plan, wanted, weight);
  if (plan.parts() == 1 && r.open() && plan.method != BandMethod::one_end) {
    plan.begin.clear();
    plan_tile_columns<B>(r, plan);
  }
  return plan;
}

/// In mixed precision; without it, and with the reason, where that does not run here.
template <class B>
BandPlan plan_mixed(const BandRequest& r) {
  BandPlan plan;
  plan.method = BandMethod::mixed;
  plan.ranks = r.ranks;
  plan.shape = band_shape(r.n, r.half_bandwidth, band_low_width(B{}));
  plan.reasons.push_back(fmt::format(
      "--precision mixed; what does not converge in {} iterations to FP64 backward error is solved "
      "again in FP64",
      MixedLimits{}.iterations));
  if (r.ranks > 1) {
    cut_parts<B>(plan, std::clamp<Index>(r.n, 1, 2), 1.0);
    if (const Index idle = r.ranks - plan.parts(); idle > 0)
      plan.reasons.push_back(
          fmt::format("it goes from {}; the other {} nothing to do",
                      plan.parts() > 1 ? "two ends on two ranks" : "one end",
                      idle > 1 ? fmt::format("{} ranks have", idle) : "rank has"));
  }
  std::string why;
  if (!band_low_available(B{})) why = "needs a GPU of compute capability 9.0 and more";
  const Index needed = why.empty() ? mixed_needs<B>(plan, r.nrhs, r.check).total() : 0;
  if (why.empty() && r.device_bytes > 0 && needed > r.device_bytes)
    why = fmt::format("needs {} on the device, beside the matrix its factor, and {} are free",
                      size_text(needed), size_text(r.device_bytes));
  if (why.empty()) return plan;
  BandRequest other = r;
  other.mixed = false;
  plan = plan_band<B>(other);
  plan.note = "mixed precision " + why + "; solved in FP64";
  plan.reasons.insert(plan.reasons.begin(), plan.note);
  return plan;
}

}  // namespace

void check_request(const BandRequest& r) {
  const BandMethod method = r.open() ? BandMethod::tile_columns : parse_method(r.method);
  const bool streamed = method == BandMethod::streamed;
  if (r.parts != 0 && method != BandMethod::partition && !streamed)
    fail_together(Exit::usage,
                  "--parts goes with --method partition and streamed only; on the command line; "
                  "leave one of them out");
  if (r.parts < 0)
    fail_together(Exit::usage, fmt::format("{} parts; --parts; give 1 or more", r.parts));
  if (streamed && r.in_window() && r.parts > 1)
    fail_together(Exit::usage,
                  fmt::format("streamed in {} parts {}; --parts; give 1 (one end) or 0", r.parts,
                              r.tile_by_tile ? "with --diagonal or --substitution"
                                             : fmt::format("on {} ranks", r.ranks)));
  if (!streamed || r.in_window()) return;
  if (r.parts > (r.lapack_factor ? 1 : 2))
    fail_together(Exit::usage,
                  fmt::format("streamed in {} parts{}; --parts; give 1 (one end){}", r.parts,
                              r.lapack_factor ? " with a factor that is LAPACK's" : "",
                              r.lapack_factor ? "" : ", 2 (both ends) or 0"));
}

template <class B>
BandPlan plan_band(const BandRequest& r) {
  check_request(r);
  if (r.mixed) return plan_mixed<B>(r);
  BandPlan plan = plan_in_memory<B>(r);
  if (r.open()) stream_if_too_big<B>(r, plan);
  plan.at_once = std::is_same_v<B, Cuda> && plan.method == BandMethod::tile_columns &&
                 r.lapack_factor && !r.stored && !r.in_steps && r.ranks == 1 && r.block == 0 &&
                 band_parts_available(B{});
  if (plan.at_once)
    plan.shape = band_shape(r.n, r.half_bandwidth, band_part_width(B{}, r.half_bandwidth));
  return plan;
}

template <class B>
BandPlan plan_instead(BandRequest r, const BandPlan& failed, const std::string& why) {
  const bool mixed = failed.method == BandMethod::mixed;
  r.mixed = false;
  if (!mixed) {
    r.method = "tile-columns";
    r.parts = 0;
    if constexpr (std::is_same_v<B, Cuda>) r.block = 0;  // a width of parts
  }
  BandPlan plan = plan_band<B>(r);
  plan.note = mixed ? "mixed precision: " + why + "; solved in FP64"
                    : to_string(failed.method) + ": " + why +
                          "; the one-ended factorization looks for the leading minor";
  return plan;
}

template <class B>
MixedNeeds mixed_needs(const BandPlan& plan, Index nrhs, bool check) {
  const BandShape& s = plan.shape;
  constexpr Index word = sizeof(double);
  const BandMemory m = band_memory(s, nrhs, plan.ranks, check);
  if (plan.ranks == 1)  // rows of the condition estimate too
    return {m.matrix, m.check, s.padded() * (nrhs + 1) * word, 0, band_mixed_memory<B>(s, nrhs)};
  const MixedEndsMemory ends = mixed_ends_memory<B>(plan, nrhs);
  return {ends.parts.band, m.check, ends.parts.vectors + ends.rows,
          ends.separator + ends.parts.total() - ends.parts.band - ends.parts.vectors, ends.mixed};
}

#define TERRACE_INSTANTIATE(B)                                                         \
  template BandPlan plan_band<B>(const BandRequest&);                                  \
  template BandPlan plan_instead<B>(BandRequest, const BandPlan&, const std::string&); \
  template MixedNeeds mixed_needs<B>(const BandPlan&, Index, bool);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
