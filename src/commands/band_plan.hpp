// What --plan and the report say of a way to solve a band system, and what else could be asked for.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/base/size_text.hpp"
#include "src/band/parts.hpp"
#include "src/band/stream.hpp"
#include "src/band/system.hpp"
#include "src/band/window.hpp"
#include "src/program/conduct.hpp"

namespace terrace::band {

/// The steps of a job up to --plan.
template <class B>
class PlannedBand : public Job {
 public:
  PlannedBand(Run& run, Context<B>& context, const BandSystem& system, const BandRequest& request)
      : run_(run), c_(context), system_(system), request_(request) {}

  [[nodiscard]] PlanNeeds needs() const override {
    const BandMethod method = plan_.method;
    const bool tiles = method == BandMethod::tile_columns, mixed = method == BandMethod::mixed;
    PlanNeeds needs;
    needs.any_ranks = true;
    // Ends do not get shorter by more ranks than two.
    needs.memory = [this](int ranks) {
      if (ranks == plan_.ranks) return on_rank<B>(bytes_);
      if (in_parts()) return like(to_string(plan_.method), ranks);
      if (plan_.method == BandMethod::mixed) {
        BandRequest r = request_for("auto", ranks);
        r.mixed = true;
        return on_rank<B>(band_bytes<B>(plan_band<B>(r), system_, nrhs(), has_check()));
      }
      if (plan_.method == BandMethod::streamed) return on_rank<B>(streamed(ranks, plan_.kept > 0));
      BandPlan other = plan_;
      other.ranks = ranks;
      return on_rank<B>(band_bytes<B>(other, system_, nrhs(), has_check()));
    };
    if (plan_.tile_by_tile) return needs;
    const auto add = [&](const char* words, std::function<std::optional<RankMemory>()> memory) {
      needs.alternatives.push_back({words, std::move(memory)});
    };
    if (has_check())
      add("with --no-check", [this] { return on_rank<B>({bytes_.host, bytes_.backend, 0}); });
    if (in_parts())
      add("with --method tile-columns", [this] { return like("tile-columns", c_.size()); });
    if (mixed) add("with --precision fp64", [this] { return like("tile-columns", c_.size()); });
    if (method != BandMethod::streamed)
      add("with --method streamed", [this] { return streamed_instead(); });
    if (tiles && !std::is_same_v<B, Cpu>)
      add("with --backend cpu",
          [this] { return on_rank<Cpu>(band_bytes<Cpu>(plan_, system_, nrhs(), has_check())); });
    return needs;
  }
  [[nodiscard]] Work work() const override {
    const BandShape& s = shape();
    const double m = double(s.half_bandwidth);
    if (plan_.method == BandMethod::tile_columns)
      return work_of(plan_.at_once ? "at once" : "tile-columns", s.tiles(),
                     factor_flops() / c_.size());
    if (plan_.method == BandMethod::mixed) {
      const Index ends = plan_.begin.empty() ? 1 : plan_.parts();
      return work_of("mixed", ceil_div(s.tiles(), ends), factor_flops() / double(ends));
    }
    if (plan_.tile_by_tile)
      return work_of("streamed, in a window", s.tiles(), factor_flops() / c_.size());
    if (plan_.method == BandMethod::streamed)
      return work_of("streamed", ceil_div(s.tiles(), Index(plan_.parts())), factor_flops());
    // The longest chain of tile columns, and the flops of the busiest rank.
    Index chain = 0;
    std::vector<double> flops(std::size_t(plan_.ranks), 0.0);
    for (Index p = 0; p < plan_.parts(); ++p) {
      chain = std::max(chain, plan_.tiles(p));
      flops[std::size_t(plan_.owner(p))] +=
          plan_.has_arrow(p) ? 4 * double(plan_.rows(p).count) * m * m
                             : band_factor_flops(plan_.rows(p).count, s.half_bandwidth);
    }
    if (const BandShape& r = plan_.reduced; r.n > 0) {
      chain += r.tiles();
      flops[0] += band_factor_flops(r.n, r.half_bandwidth);
    }
    return work_of(to_string(plan_.method), chain, *std::max_element(flops.begin(), flops.end()));
  }
  void describe() override {
    if (plan_.method == BandMethod::tile_columns)
      describe_tile_columns();
    else if (plan_.method == BandMethod::mixed)
      describe_mixed();
    else if (plan_.tile_by_tile)
      describe_window();
    else if (plan_.method == BandMethod::streamed)
      describe_streamed();
    else
      describe_parts();
  }
  [[nodiscard]] bool has_check() const override { return !run_.options.no_check; }

 protected:
  /// Takes the plan, and reports it.
  void choose(BandPlan plan) {
    plan_ = std::move(plan);
    const std::string method = to_string(plan_.method);
    run_.report["n"] = shape().n;
    run_.report["half_bandwidth"] = system_.matrix.half_bandwidth;
    run_.report["method"] = method;
    run_.report["block"] = shape().width;
    if (!plan_.begin.empty()) run_.report["parts"] = plan_.parts();
    if (plan_.method != BandMethod::tile_columns) require_check("--method " + method);
    for (const char* key : {"method", "block"}) run_.settings[key] = run_.report[key];
    run_.settings.erase("parts");
    if (!plan_.begin.empty()) run_.settings["parts"] = plan_.parts();
    if (plan_.method == BandMethod::mixed)
      run_.report["precision"] = run_.settings["precision"] = "mixed";
    run_.settings.erase("tile_by_tile");
    if (plan_.tile_by_tile) run_.settings["tile_by_tile"] = true;
    if (plan_.kept > 0) run_.report["scratch_bytes"] = in_scratch();
    bytes_ = band_bytes<B>(plan_, system_, nrhs(), has_check());
    run_.report["memory"] = {{"backend_bytes", device()}, {"host_bytes", bytes_.host}};
    if (plan_.method == BandMethod::tile_columns && system_.factor)
      require_check("a stored factor");
  }
  [[nodiscard]] const BandShape& shape() const { return plan_.shape; }
  [[nodiscard]] Index nrhs() const { return request_.nrhs; }
  [[nodiscard]] bool solves() const { return bool(system_.rhs); }
  [[nodiscard]] double factor_flops() const {
    return band_factor_flops(shape().n, shape().half_bandwidth);
  }

  Run& run_;
  Context<B>& c_;
  const BandSystem& system_;
  const BandRequest request_;
  BandPlan plan_;

 private:
  /// --guard of `what` goes by the check at the end.
  void require_check(const std::string& what) const {
    if (run_.options.guard && run_.options.no_check)
      fail_together(Exit::usage, "--guard of " + what +
                                     " needs the check at the end; --no-check; leave one of them "
                                     "out, or use --method tile-columns");
  }
  [[nodiscard]] bool in_parts() const {
    return plan_.method == BandMethod::one_end || plan_.method == BandMethod::two_ends ||
           plan_.method == BandMethod::partition;
  }
  template <class D>
  static RankMemory on_rank(const BandBytes& b) {
    const Index backend = b.backend + b.check;
    return std::is_same_v<D, Cuda> ? RankMemory{b.host, backend} : RankMemory{b.host + backend, 0};
  }
  [[nodiscard]] Index device() const { return bytes_.backend + bytes_.check; }
  /// Another plan of the same system.
  [[nodiscard]] BandRequest request_for(const std::string& method, int ranks) const {
    BandRequest r;
    r.n = shape().n;
    r.half_bandwidth = system_.matrix.half_bandwidth;
    r.nrhs = nrhs();
    r.ranks = ranks;
    r.method = method;
    return r;
  }
  [[nodiscard]] RankMemory like(const std::string& method, int ranks) const {
    return on_rank<B>(
        band_bytes<B>(plan_band<B>(request_for(method, ranks)), system_, nrhs(), has_check()));
  }
  /// The band streamed, its factor in scratch files or not.
  [[nodiscard]] BandBytes streamed(int ranks, bool in_files) const {
    BandRequest r = request_for("streamed", ranks);
    r.lapack_factor = !solves() || request_.lapack_factor;
    r.tile_by_tile = request_.tile_by_tile;
    BandPlan plan = plan_band<B>(r);
    if (in_files)
      plan.kept = plan.tile_by_tile ? band_window_kept(plan.shape, ranks) : band_stream_kept(plan);
    return band_bytes<B>(plan, system_, nrhs(), has_check());
  }
  [[nodiscard]] std::optional<RankMemory> streamed_instead() const {
    if (c_.size() == 1 && !band_parts_available(B{})) return {};
    return on_rank<B>(streamed(c_.size(), true));
  }
  /// Bytes of a rank's scratch file.
  [[nodiscard]] Index in_scratch() const {
    return plan_.tile_by_tile ? band_window_memory(shape(), nrhs(), plan_.ranks).host
                              : band_stream_memory<B>(plan_, nrhs()).host;
  }
  [[nodiscard]] const std::string& scratch_folder() const {
    return system_.scratch.empty() ? system_.folder : system_.scratch;
  }
  [[nodiscard]] Work work_of(const std::string& method, Index chain, double flops) const {
    return band_work({machine_of(c_), run_.command, method, shape().n, shape().half_bandwidth,
                      shape().width, nrhs(), chain, flops, bool(system_.factor), has_check(),
                      std::max<Index>(1, plan_.parts()), plan_.separator});
  }

  void say_way(const std::string& way, bool why = true) const {
    run_.say(way);
    if (why)
      for (const std::string& reason : plan_.reasons) run_.say("why        " + reason);
  }
  void describe_tile_columns() const {
    const BandMemory m = band_memory(shape(), nrhs(), c_.size(), has_check());
    say_way(fmt::format("method     tile-columns: {} of width {}, dealt to {}; the width {}",
                        counted(shape().tiles(), "tile column"), shape().width,
                        counted(c_.size(), "rank"),
                        run_.options.block > 0
                            ? "was asked for"
                            : "makes the update a matrix product of full rate while the chain "
                              "of diagonal blocks stays short"),
            solves());
    if (c_.size() > 1)
      run_.say("transfers  one panel broadcast per tile column: " + size_text(m.panels / 2));
    run_.say(fmt::format("buffers    matrix {}, panels {}, right-hand sides {}, check {} per rank",
                         size_text(m.matrix), size_text(m.panels), size_text(m.solution),
                         size_text(m.check)));
  }
  void describe_parts() const {
    const BandPartsMemory m = band_parts_memory<B>(plan_, nrhs());
    const Index last = plan_.parts() - 1, s = plan_.separator;
    say_way(fmt::format("method     {}: {}, at most {} per rank, tile columns of width {}",
                        to_string(plan_.method), counted(plan_.parts(), "part"), plan_.per_rank(),
                        shape().width));
    if (last > 0)
      run_.say(
          fmt::format("parts      rows of the first {}, of the last {}{}; separators of {} rows, "
                      "their system of "
                      "order {} on rank 0; one message of {} per part",
                      plan_.rows(0).count, plan_.rows(last).count,
                      last > 1 ? fmt::format(", of those between {}", plan_.rows(1).count) : "", s,
                      plan_.reduced.n, size_text(3 * s * (s + 1) * Index(sizeof(double)))));
    run_.say(fmt::format(
        "buffers    {} per rank (bands {}, inverses {}, spikes {}, separators {}, "
        "right-hand sides {}, reading {}, scratch {}, check {}), {} on the host for input and "
        "output",
        size_text(device()), size_text(m.band), size_text(m.inverses), size_text(m.spikes),
        size_text(m.reduced), size_text(m.vectors), size_text(m.slab), size_text(m.scratch),
        size_text(bytes_.check), size_text(bytes_.host)));
  }
  void describe_mixed() const {
    const MixedNeeds m = mixed_needs<B>(plan_, nrhs(), has_check());
    say_way(fmt::format(
        "method     mixed: a factor in {} precision of {} tile columns of width {}, and conjugate "
        "gradients in double precision with it, {} at a time",
        std::is_same_v<B, Cuda> ? "half" : "single", shape().tiles(), shape().width,
        counted(std::min(std::max<Index>(nrhs(), 1), kMixedGroup), "right-hand side")));
    if (!plan_.begin.empty() && plan_.parts() > 1)
      run_.say(
          fmt::format("ends       rows of the first {}, of the other {}; a separator of {} rows, "
                      "its system in FP64 on rank 0",
                      plan_.tiles(0) * shape().width, plan_.rows(1).count, plan_.separator));
    run_.say(fmt::format(
        "buffers    {}{} (matrix in FP64 {}, factor in low precision {}, vectors {}, separator "
        "{}, scratch {}, check {}), {} on the host for input and output",
        size_text(device()), plan_.ranks > 1 ? " per rank" : "", size_text(m.matrix),
        size_text(m.mixed.factor), size_text(m.mixed.vectors + m.rows), size_text(m.separator),
        size_text(m.mixed.scratch), size_text(m.check), size_text(bytes_.host)));
  }
  void describe_streamed() const {
    const BandShape& s = shape();
    const BandStreamMemory m = band_stream_memory<B>(plan_, nrhs(), 0, plan_.kept);
    const std::string stored = size_text(band_stream_memory<B>(plan_, nrhs()).host);
    say_way(fmt::format(
        "method     streamed: {} tile columns of width {} in slabs of {}, from {}; slabs come from "
        "host memory and go back there while others are factored",
        s.tiles(), s.width, band_stream_slab(s, plan_.parts()),
        plan_.parts() > 1 ? "both ends at once" : "one end"));
    if (plan_.parts() > 1)
      run_.say(
          fmt::format("ends       rows of the first {}, of the other {}; a separator of {} rows",
                      plan_.tiles(0) * s.width, plan_.rows(1).count, plan_.separator));
    run_.say(fmt::format(
        "transfers  {} each way for the factor at the same time{}", stored,
        nrhs() > 0 ? ", and " + stored + " again for the backward substitution" : std::string()));
    if (plan_.kept > 0)
      run_.say(fmt::format("scratch    {} of the factor in {}; the host keeps {} slabs of an end",
                           stored, scratch_folder(), plan_.kept));
    run_.say(fmt::format(
        "buffers    {} (window of {} tile columns {}, inverses {}, natural order {}, "
        "separator {}, right-hand sides {}, scratch {}, check {}), {} on the host (matrix {})",
        size_text(device()), m.ring / (s.tile() * Index(sizeof(double))), size_text(m.ring),
        size_text(m.inverses), size_text(m.staged), size_text(m.separator), size_text(m.vectors),
        size_text(m.scratch), size_text(bytes_.check), size_text(bytes_.host), size_text(m.host)));
  }
  void describe_window() const {
    const auto place = [](const std::string& asked) {
      return !asked.empty() ? asked : std::is_same_v<B, Cuda> ? "gpu" : "cpu";
    };
    say_way(fmt::format(
        "method     streamed: {} tile columns of width {}, one after the other, dealt to {}; "
        "diagonal blocks by the {}, substitution by the {}",
        shape().tiles(), shape().width, counted(c_.size(), "rank"), place(system_.places.diagonal),
        place(system_.places.substitution)));
    const BandWindowMemory m = band_window_memory(shape(), nrhs(), c_.size(), plan_.kept > 0);
    if (plan_.kept > 0)
      run_.say(
          fmt::format("scratch    {} of the factor per rank in {}; the host keeps {} tile columns",
                      size_text(m.store), scratch_folder(), plan_.kept));
    run_.say(fmt::format(
        "buffers    {} per rank (window of {} tile columns {}, panels {}, right-hand "
        "sides {}), {} on the host (matrix {})",
        size_text(device()), band_window_slots(shape(), c_.size()), size_text(m.ring),
        size_text(m.panels), size_text(m.solution), size_text(bytes_.host), size_text(m.host)));
  }

  BandBytes bytes_;
};

}  // namespace terrace::band
