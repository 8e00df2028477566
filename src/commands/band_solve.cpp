// terrace band solve.
#include <cmath>

#include "distrib/agree.hpp"
#include "src/band/parts.hpp"
#include "src/commands/band_mixed.hpp"
#include "src/commands/band_run.hpp"
#include "src/commands/band_streamed.hpp"
#include "src/commands/band_system.hpp"
#include "src/commands/band_windowed.hpp"
#include "src/frame/guard.hpp"

namespace terrace {
namespace {

/// The stored factor must have the matrix's sizes.
void check_factor(const io::BandInput& factor, const io::BandInput& matrix) {
  if (factor.n() == matrix.n() && factor.half_bandwidth() == matrix.half_bandwidth()) return;
  fail_together(
      Exit::input,
      fmt::format("the factor has order {} and half-bandwidth {}, the matrix {} and {}; {}; name "
                  "the factor of this matrix",
                  factor.n(), factor.half_bandwidth(), matrix.n(), matrix.half_bandwidth(),
                  io::to_string(factor.location())));
}

template <class B>
void solve_by_tile_columns(Run& run, Context<B>& c, const BandSystem& system,
                           const std::vector<std::string>& reasons) {
  const Index nrhs = system.nrhs();
  BandRun<B> band(run, c, system.matrix, nrhs, false, system.factor != nullptr, reasons);
  if (system.factor) require_check(run, "a stored factor");
  if (run.options.plan) return;
  band.require();
  const BandShape& s = band.shape_;
  BandVectors<B> x = collectively(c.control, [&] { return band_vectors<B>(c, s, nrhs); });
  std::vector<double> rows;  // on the host: b, then x
  run.phase("read", [&] {
    rows = read_rows(c.control, system.rhs, s);
    upload(c.ahead, x.data.view(), rows.data());
    c.ahead.synchronize();
  });
  if (system.factor)
    band.read_factor(*system.factor);
  else
    band.factor(system.places);
  std::optional<HostSubstitution<B>> host;
  if (system.places.substitution == "cpu" && std::is_same_v<B, Cuda>)
    collectively(c.control, [&] { host.emplace(c, s, nrhs); });
  run.report["places"]["substitution"] = std::is_same_v<B, Cpu> || host ? "cpu" : "gpu";
  if (system.factor)
    flip_for_tests(c.ahead, c.rank(), 1, band.tiles_.data.data(), 8 * band.tiles_.data.size());
  const auto substitute = [&] {
    if (host)
      band_substitute_on_host(c, band.tiles_, x, *host, run.progress);
    else
      band_substitute(c, band.tiles_, x, run.progress);
  };
  run.phase("solve", substitute);
  note_rate(run, s, nrhs, !system.factor);
  download(c.ahead, rows.data(), x.data.view());
  c.ahead.synchronize();
  if (!run.options.no_check)
    run.phase("check", [&] {
      const std::vector<double> b = read_rows(c.control, system.rhs, s);
      double reciprocal = 1;
      const auto residual = [&] {
        return band_residual(c, band.problem_, x.rows, rows, b, nrhs, reciprocal);
      };
      judge_band(run, system.matrix, residual(), [&] {
        band.verify_factor();
        if (!system.factor) return;
        try_again(run, [&] {
          read_tiles(c, *system.factor, band.tiles_);
          upload(c.ahead, x.data.view(), b.data());
          substitute();
          download(c.ahead, rows.data(), x.data.view());
          c.ahead.synchronize();
          return residual();
        });
      });
      note_band_condition(run, system.matrix, reciprocal);
    });
  else if (run.options.guard)
    run.phase("guard", [&] { band.verify_factor(); });
  write_solution(run, system, BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank()), rows);
  say_solved(run, s, nrhs);
}

/// Two ends, or a partition.
template <class B>
class PartsRun {
 public:
  PartsRun(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : run_(run),
        c_(context),
        system_(system),
        plan_(plan),
        problem_{plan.shape.n, plan.shape.half_bandwidth, file_source<B>(system.matrix)} {
    run.report["n"] = plan.shape.n;
    run.report["half_bandwidth"] = system.matrix.half_bandwidth();
    run.report["method"] = to_string(plan.method);
    run.report["block"] = plan.shape.width;
    run.report["parts"] = plan.parts();
    require_check(run, "--method " + to_string(plan.method));
    for (const char* key : {"method", "block", "parts"}) run.settings[key] = run.report[key];
    const Index nrhs = system.nrhs();
    const BandPartsMemory memory = band_parts_memory<B>(plan, nrhs);
    const Index check = band_check_bytes(run, plan.shape, nrhs, c_.size());
    device_ = memory.total() + check;
    host_ = host_bytes(plan);
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    const auto [chain, flops] = chain_of_parts(plan);
    work_ = band_work({machine_of(context), run.command, to_string(plan.method), plan.shape.n,
                       plan.shape.half_bandwidth, plan.shape.width, nrhs, chain, flops,
                       system.factor != nullptr, !run.options.no_check});
    if (run.options.plan) describe(memory, check);
  }

  /// False when a part is not positive definite.
  [[nodiscard]] bool solve() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    const Index nrhs = system_.nrhs();
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    BandParts<B> a = collectively(c_.control, [&] { return band_parts<B>(c_, plan_); });
    BandPartRows<B> x = collectively(c_.control, [&] { return band_part_rows(a, nrhs); });
    const Range own = plan_.rows_of(c_.rank());
    std::vector<double> rows;  // b, then x
    const auto load = [&] {
      rows = read_range(c_.control, system_.rhs, own);
      set_rows(c_, a, x, rows.data());
      if (system_.factor == nullptr)
        load_parts(c_, problem_, a);
      else
        load_factor(c_, {plan_.shape.n, problem_.half_bandwidth, file_source<B>(*system_.factor)},
                    a);
    };
    run_.phase("read", load);
    bool definite = true;
    const auto flip = [&](Index step) {
      if (!a.memory.empty())
        flip_for_tests(c_.ahead, c_.rank(), step, a.memory[0].data(), 8 * a.memory[0].size());
    };
    flip(1);
    run_.phase("solve", [&] {
      if (system_.factor == nullptr) definite = factor_parts(c_, a, &run_.progress);
      flip(2);
      if (definite) solve_parts(c_, a, x);
    });
    if (!definite) return false;
    note_rate(run_, plan_.shape, nrhs, system_.factor == nullptr);
    get_rows(c_, a, x, rows.data());
    if (!run_.options.no_check)
      run_.phase("check", [&] {
        const std::vector<double> b = read_range(c_.control, system_.rhs, own);
        double reciprocal = 1;
        const auto residual = [&] {
          return band_residual<B>(c_, problem_, own, rows, b, nrhs, reciprocal);
        };
        judge_band(run_, system_.matrix, residual(), [&] {
          try_again(run_, [&] {
            load();
            if (system_.factor == nullptr && !factor_parts(c_, a)) return double(INFINITY);
            solve_parts(c_, a, x);
            get_rows(c_, a, x, rows.data());
            return residual();
          });
        });
        note_band_condition(run_, system_.matrix, reciprocal);
      });
    write_solution(run_, system_, {own}, rows);
    say_solved(run_, plan_.shape, nrhs);
    return true;
  }

 private:
  [[nodiscard]] Index host_bytes(const BandPlan& plan) const {
    Index rows = 0;
    for (int rank = 0; rank < plan.ranks; ++rank) rows = std::max(rows, plan.rows_of(rank).count);
    return 2 * rows * system_.nrhs() * Index(sizeof(double)) + 3 * io::piece_bytes();
  }
  void describe(const BandPartsMemory& m, Index check) {
    const BandShape& s = plan_.shape;
    describe_band(run_, s, system_.nrhs());
    run_.say(fmt::format("method {}: {} parts, {} on a rank at most, tile columns of width {}",
                         to_string(plan_.method), plan_.parts(), plan_.per_rank(), s.width));
    for (const std::string& reason : plan_.reasons) run_.say("why: " + reason);
    if (plan_.parts() > 1)
      run_.say(fmt::format(
          "rows of the first part {}, of the last {}{}; separators of {} rows, their system of "
          "order {} on rank 0; one message of {} a part",
          plan_.rows(0).count, plan_.rows(plan_.parts() - 1).count,
          plan_.parts() > 2 ? fmt::format(", of those between {}", plan_.rows(1).count) : "",
          plan_.separator, plan_.reduced.n,
          size_text(3 * plan_.separator * (plan_.separator + 1) * Index(sizeof(double)))));
    run_.say(fmt::format(
        "memory per rank: {} on the backend (bands {}, inverses {}, spikes {}, separators {}, "
        "right-hand sides {}, reading {}, scratch {}, check {}), {} on the host for input and "
        "output",
        size_text(device_), size_text(m.band), size_text(m.inverses), size_text(m.spikes),
        size_text(m.reduced), size_text(m.vectors), size_text(m.slab), size_text(m.scratch),
        size_text(check), size_text(host_)));
    const Index nrhs = system_.nrhs();
    const auto with = [&, nrhs](const std::string& method, int ranks, Index more) {
      BandRequest r;
      r.n = s.n;
      r.half_bandwidth = system_.matrix.half_bandwidth();
      r.nrhs = nrhs;
      r.ranks = ranks;
      r.method = method;
      const BandPlan other = plan_band<B>(r);
      return band_on_rank<B>(host_bytes(other),
                             (other.method == BandMethod::tile_columns
                                  ? band_memory(other.shape, nrhs, ranks, false).total()
                                  : band_parts_memory<B>(other, nrhs).total()) +
                                 more);
    };
    const std::string method = to_string(plan_.method);
    PlanNeeds needs;
    // Ends do not get shorter by more ranks than two.
    needs.memory = [&](int ranks) {
      if (ranks == c_.size()) return band_on_rank<B>(host_, device_);
      return with(method, ranks, band_check_bytes(run_, s, nrhs, ranks));
    };
    if (check > 0)
      needs.alternatives.push_back(
          {"with --no-check", [&] { return band_on_rank<B>(host_, device_ - check); }});
    needs.alternatives.push_back(
        {"with --method tile-columns", [&] { return with("tile-columns", c_.size(), check); }});
    needs.alternatives.push_back(
        streamed_instead<B>(run_, s.n, system_.matrix.half_bandwidth(), nrhs, c_.size()));
    conclude_plan(run_, c_, work_, needs);
  }

  Run& run_;
  Context<B>& c_;
  const BandSystem& system_;
  const BandPlan& plan_;
  const BandProblem<B> problem_;
  Index host_ = 0, device_ = 0;
  Work work_;
};

template <class B>
void solve_streamed(Run& run, Context<B>& c, const BandSystem& system, const BandPlan& plan) {
  const Index nrhs = system.nrhs();
  StreamRun<B> stream(run, c, system.matrix, plan, nrhs, system.scratch, system.factor != nullptr);
  if (run.options.plan) return;
  stream.require();
  BandStream<B>& a = stream.band_;
  BandStreamRows<B> x;
  const Range all{0, plan.shape.n};
  std::vector<double> rows;  // b, then x
  run.phase("read", [&] { rows = read_range(c.control, system.rhs, all); });
  const auto begin = [&] {
    x = collectively(c.control, [&] { return band_stream_rows(a, nrhs); });
    if (const double by = stream.scale(); by != 1.0)
      for (double& b : rows) b *= by;
    set_rows(c, a, x, rows.data());
    return &x;
  };
  const auto solve = [&] {
    if (system.factor) {
      begin();
      stream.read(*system.factor);
    } else {
      stream.factor(begin);
    }
    stream.flip();
    run.phase("solve", [&] {
      if (system.factor) stream_forward(c, a, x, run.progress);
      stream_backward(c, a, x, run.progress);
    });
    get_rows(c, a, x, rows.data());
  };
  solve();
  note_rate(run, plan.shape, nrhs, !system.factor);
  if (!run.options.no_check)
    run.phase("check", [&] {
      const std::vector<double> b = read_range(c.control, system.rhs, all);
      double reciprocal = 1;
      const auto residual = [&] {
        return band_residual<B>(c, stream.problem_, all, rows, b, nrhs, reciprocal);
      };
      judge_band(run, system.matrix, residual(), [&] {
        try_again(run, [&] {
          rows = b;
          solve();
          return residual();
        });
      });
      note_band_condition(run, system.matrix, reciprocal);
    });
  write_solution(run, system, {all}, rows);
  say_solved(run, plan.shape, nrhs);
}

template <class B>
void solve_by(Run& run, Context<B>& c, const BandSystem& system, const BandPlan& plan) {
  if (run.progress.checkpoints && system.factor && plan.method != BandMethod::streamed)
    fail_together(Exit::usage,
                  "a stored factor in memory is solved with at once, and keeps no checkpoints; "
                  "--checkpoint, --restart; leave them out, or use --method streamed");
  if (plan.method == BandMethod::tile_columns)
    return solve_by_tile_columns(run, c, system, plan.reasons);
  if (plan.tile_by_tile) return solve_in_window(run, c, system, plan);
  if (plan.method == BandMethod::streamed) return solve_streamed(run, c, system, plan);
  PartsRun<B> parts(run, c, system, plan);
  if (run.options.plan || parts.solve()) return;
  // Parts cannot know which leading minor fails first.
  note_fall_back(run, to_string(plan.method) +
                          ": a part is not positive definite; the one-ended factorization looks "
                          "for the leading minor");
  if constexpr (std::is_same_v<B, Cuda>) run.options.block = 0;  // a width of parts
  run.settings["instead_of"] = to_string(plan.method);
  solve_by_tile_columns(run, c, system, {});
}

}  // namespace

void band_solve(Run& run, const BandOptions& options) {
  BandRequest request;
  request.method = run.options.method;
  request.parts = options.parts;
  request.block = run.options.block;
  request.ranks = run.control.size();
  if (adopt_places(options.places, request)) refuse_in_window(run, options);
  if (!options.places.diagonal.empty() && !options.factor.empty())
    fail_together(Exit::usage,
                  "nothing is factored with a stored factor; --diagonal with --factor; leave one "
                  "of them out");
  const bool open = request.method.empty() || request.method == "auto";
  if (run.options.precision != "fp64") check_mixed_options(run.options, options);
  adopt_band_settings(run, request, !options.factor.empty());
  const bool free = request.method.empty() || request.method == "auto";
  if (!options.factor.empty() && request.method != "streamed") {
    if (!free && request.method != "tile-columns")
      fail_together(Exit::usage, "--factor goes with tile-columns and streamed, not with " +
                                     request.method + "; --method; leave one of them out");
    request.method = "tile-columns";
  }
  request.lapack_factor = !options.factor.empty();
  request.n = 1;
  (void)plan_band<Cpu>(request);  // usage errors before anything is opened
  check_scratch(options, open, request);
  require_output(run.options);
  const io::Location location = io::parse_location(options.matrix);
  const io::BandInput input = io::open_band(run.control, location);
  const io::DenseInput rhs = io::open_dense(
      run.control, io::parse_location(options.rhs, location.file), io::Role::right_hand_side);
  if (rhs.rows() != input.n())
    fail_together(
        Exit::input,
        fmt::format("the right-hand side has {} rows, the matrix {}; {}; give one row for "
                    "each row of the matrix",
                    rhs.rows(), input.n(), io::to_string(rhs.location())));
  run.note_input("input", input.location());
  run.note_input("rhs", rhs.location());
  std::optional<io::BandInput> factor;
  if (!options.factor.empty()) {
    factor = io::open_band(run.control, io::parse_location(options.factor, location.file));
    check_factor(*factor, input);
    run.note_input("factor", factor->location());
  }
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  const BandSystem system{
      input,          rhs, factor ? &*factor : nullptr, output ? &*output : nullptr, options.places,
      options.scratch};
  request.n = input.n();
  request.half_bandwidth = input.half_bandwidth();
  request.nrhs = rhs.columns();
  run.report["right_hand_sides"] = request.nrhs;
  run.report["precision"] = "fp64";
  with_backend(run, [&]<class B>(Context<B>& c) {
    check_places(B{}, options.places);
    note_memory(c, request);
    // On one GPU a stored factor is solved with as one part: one launch a direction.
    const bool one_part = std::is_same_v<B, Cuda> && free && factor && request.ranks == 1 &&
                          request.block == 0 && band_parts_available(B{});
    if (one_part) request.method = "one-end";
    BandPlan plan = plan_band<B>(request);
    if (one_part) plan.reasons.emplace_back("a stored factor on one GPU: solved with as one part");
    if (free && factor) stream_if_too_big<B>(request, plan);
    if (run.options.precision == "mixed" && run.settings.value("precision", "") != kNotMixed &&
        solve_mixed(run, c, system, request, plan))
      return;
    solve_by(run, c, system, plan);
  });
}

}  // namespace terrace
