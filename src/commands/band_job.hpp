// What band factor and band solve share: the system, and what each way to solve it adds to.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "kernels/base/size_text.hpp"
#include "src/band/hybrid.hpp"
#include "src/band/plan.hpp"
#include "src/band/stream.hpp"
#include "src/frame/guard.hpp"
#include "src/program/conduct.hpp"
#include "src/program/register.hpp"

namespace terrace {

inline constexpr double kBandPass = 30.0;  // LAPACK's threshold for residual ratios

struct BandOptions {
  std::string matrix, rhs, factor, scratch;
  Index parts = 0;
  BandPlaces places;
};

/// What is asked for, and where its result goes.
struct BandSystem {
  const io::BandInput& matrix;
  const io::DenseInput* rhs = nullptr;    ///< none: the factor is wanted
  const io::BandInput* factor = nullptr;  ///< stored by band factor, or none
  io::Output* output = nullptr;
  BandPlaces places{};
  std::string scratch{};  ///< folder of a streamed factor
  [[nodiscard]] Index nrhs() const { return rhs ? rhs->columns() : 0; }
};

/// Columns of the file, straight into memory of the backend.
template <class B>
BandSource<B> file_source(const io::BandInput& input) {
  return [&input](Context<B>& c, Range columns, Index height, View<double, B> to) {
    const Index stored = input.half_bandwidth() + 1;
    input.read(c.control, {&columns, 1}, [&](Index position, Index count, const double* data) {
      copy_rows<double, B>(c.ahead, to.data + position * height, height, data, stored, height,
                           count);
      c.ahead.synchronize();
    });
  };
}

/// Own tile columns from a file in the matrix's layout.
template <class B>
void read_tiles(Context<B>& c, const io::BandInput& input, BandTiles<B>& a) {
  const BandShape& s = a.shape;
  const std::vector<Range> ranges = BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank());
  const Index stored = input.half_bandwidth() + 1, height = s.half_bandwidth + 1;
  input.read(c.control, ranges, [&](Index position, Index count, const double* data) {
    copy_rows<double, B>(c.ahead, a.data.data() + position * s.column(), s.column(), data, stored,
                         height, count);
    c.ahead.synchronize();
  });
}

/// Bytes beside the backend's and on it.
template <class B>
RankMemory band_on_rank(Index host, Index backend) {
  return std::is_same_v<B, Cuda> ? RankMemory{host, backend} : RankMemory{host + backend, 0};
}

/// One method gives up and another goes on: on the screen, and in the report after earlier notes.
inline void note_fall_back(Run& run, const std::string& note) {
  run.say(note);
  const std::string before = run.report.value("note", "");
  run.report["note"] = before.empty() ? note : before + "; " + note;
}

/// What all ways share. A way is a Job (src/program/conduct.hpp): it adds its memory, work() and
/// needs(), and take(), read(), solve(), outcome(), check() in its own memory.
template <class B>
class BandJob {
 public:
  BandJob(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : run_(run),
        c_(context),
        system_(system),
        plan_(plan),
        shape_(plan.shape),
        problem_{shape_.n, shape_.half_bandwidth, file_source<B>(system.matrix)} {
    const std::string method = to_string(plan.method);
    run.report["n"] = shape_.n;
    run.report["half_bandwidth"] = system.matrix.half_bandwidth();
    run.report["method"] = method;
    run.report["block"] = shape_.width;
    if (!plan.begin.empty()) run.report["parts"] = plan.parts();
    if (plan.method != BandMethod::tile_columns) require_check("--method " + method);
    for (const char* key : {"method", "block"}) run.settings[key] = run.report[key];
    run.settings.erase("parts");
    if (!plan.begin.empty()) run.settings["parts"] = plan.parts();
  }
  BandJob(const BandJob&) = delete;
  BandJob& operator=(const BandJob&) = delete;

  [[nodiscard]] bool has_check() const { return !run_.options.no_check; }
  /// x.
  void write() {
    const Index nrhs = system_.nrhs();
    const io::Source<double> source = [&](Index position, Index count, double* out) {
      std::copy_n(rows_.begin() + position * nrhs, count * nrhs, out);
    };
    system_.output->write<double>("x", shape_.n, system_.rhs->is_vector() ? -1 : nrhs, ranges_,
                                  source);
    system_.output->commit(run_.attributes());
  }
  [[nodiscard]] std::string sentence() const {
    const nlohmann::json& report = run_.report;
    std::string text = fmt::format(
        "solved n = {}, half-bandwidth {}, {} right-hand sides, in {:.3f} s, {:.4g} GFLOP/s",
        shape_.n, shape_.half_bandwidth, system_.nrhs(), run_.seconds("solve"),
        report["rate"]["value"].template get<double>());
    if (report.contains("residual"))
      text += fmt::format("\nresidual {:.3g} (scaled; below {} is good)",
                          report["residual"].template get<double>(), kBandPass);
    return text;
  }

 protected:
  /// --guard of `what` goes by the check at the end.
  void require_check(const std::string& what) const {
    if (run_.options.guard && run_.options.no_check)
      fail_together(Exit::usage, "--guard of " + what +
                                     " goes by the check at the end; --no-check; leave one of them "
                                     "out, or use --method tile-columns");
  }

  // --- the plan ---
  /// Bytes of a rank, beside the backend's and on it.
  void take_note(Index host, Index backend) {
    host_ = host;
    device_ = backend;
    run_.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
  }
  [[nodiscard]] Index check_bytes(int ranks) const {
    const BandShape slabs = band_shape(shape_.n, shape_.half_bandwidth, 64);
    return has_check() ? band_memory(slabs, system_.nrhs(), ranks, true).check : 0;
  }
  [[nodiscard]] Work work_of(const std::string& method, Index chain, double flops) const {
    return band_work({machine_of(c_), run_.command, method, shape_.n, shape_.half_bandwidth,
                      shape_.width, system_.nrhs(), chain, flops, system_.factor != nullptr,
                      has_check()});
  }
  [[nodiscard]] double factor_flops() const {
    return band_factor_flops(shape_.n, shape_.half_bandwidth);
  }
  /// First lines of --plan.
  void describe(const std::string& way, bool why = true) const {
    run_.say(fmt::format("band matrix n = {}, half-bandwidth = {}, {} right-hand sides", shape_.n,
                         shape_.half_bandwidth, system_.nrhs()));
    run_.say(way);
    if (why)
      for (const std::string& reason : plan_.reasons) run_.say("why: " + reason);
  }
  /// Another plan of the same system.
  [[nodiscard]] BandRequest request_for(const std::string& method, int ranks) const {
    BandRequest r;
    r.n = shape_.n;
    r.half_bandwidth = system_.matrix.half_bandwidth();
    r.nrhs = system_.nrhs();
    r.ranks = ranks;
    r.method = method;
    return r;
  }
  /// Needs of a method that has no other way than to go without its check.
  [[nodiscard]] PlanNeeds needs_with_check(Index check) const {
    PlanNeeds needs;
    needs.any_ranks = false;
    needs.memory = [this](int) { return band_on_rank<B>(host_, device_); };
    if (check > 0)
      needs.alternatives.push_back(
          {"with --no-check", [this, check] { return band_on_rank<B>(host_, device_ - check); }});
    return needs;
  }
  /// The band streamed on one rank, its factor in a scratch file if host memory is too small.
  [[nodiscard]] Alternative streamed_instead() const {
    const bool several = c_.size() > 1;
    return {several ? "on one rank with --method streamed" : "with --method streamed",
            [this]() -> std::optional<RankMemory> {
              if (!band_parts_available(B{})) return {};
              BandRequest r = request_for("streamed", 1);
              r.lapack_factor = system_.rhs == nullptr;
              const BandPlan plan = plan_band<B>(r);
              const BandStreamMemory m =
                  band_stream_memory<B>(plan, r.nrhs, 0, band_stream_kept(plan));
              const Index others =
                  2 * plan.shape.padded() * r.nrhs * Index(sizeof(double)) + 3 * io::piece_bytes();
              return band_on_rank<B>(m.host + others, m.device() + check_bytes(1));
            }};
  }

  // --- the solution ---
  /// This rank's rows of b and x.
  void own(const BlockCyclic& rows) {
    ranges_ = rows.ranges(c_.rank());
    slots_ = BlockCyclic{shape_.padded(), rows.block, rows.ranks}.slots(c_.rank());
  }
  void own(const Range& rows) {
    ranges_ = {rows};
    slots_ = rows.count;
  }
  [[nodiscard]] std::vector<double> right_hand_sides() const {
    const Index nrhs = system_.nrhs();
    std::vector<double> b = collectively(
        c_.control, [&] { return std::vector<double>(std::size_t(slots_ * nrhs), 0.0); });
    system_.rhs->read(c_.control, ranges_, [&](Index position, Index count, const double* data) {
      std::copy(data, data + count * nrhs, b.begin() + position * nrhs);
    });
    return b;
  }
  void note_rate() {
    double flops = band_solve_flops(shape_.n, shape_.half_bandwidth, system_.nrhs());
    if (!system_.factor) flops += factor_flops();
    run_.rate(flops * 1e-9 / run_.seconds("solve"), "GFLOP/s");
  }

  // --- what may fail ---
  using Residual = std::function<double()>;
  /// The outcome of a leading minor that is not positive definite.
  [[noreturn]] void not_definite(Index failed) {
    run_.report["result"]["failed_minor"] = failed;
    run_.outcome("not positive definite",
                 fmt::format("the matrix is not positive definite: its leading minor of order {} "
                             "is not; {}; check the matrix, or shift its diagonal",
                             failed, io::to_string(system_.matrix.location())));
  }
  /// --guard: it is, once the matrix is read again.
  [[noreturn]] void definite_after_all(Index failed) {
    confirmed_fault(c_.control,
                    fmt::format("the leading minor of order {} was not positive definite, but is "
                                "with the matrix read again",
                                failed));
  }
  /// The verdict of residual(reciprocal); `reciprocal`: at least the reciprocal condition.
  /// verify(residual) asks whether memory is to blame for one that is too large.
  void judge(const std::function<double(double*)>& residual_of,
             const std::function<void(const Residual&)>& verify) {
    double reciprocal = 1;
    const Residual residual = [&] { return residual_of(&reciprocal); };
    const double found = residual();
    const std::string where = io::to_string(system_.matrix.location());
    run_.report["residual"] = found;
    if (!(found < kBandPass)) {
      verify(residual);
      run_.outcome("check failed",
                   fmt::format("the residual is {:.3g}, above {}; {}; the matrix may be too ill "
                               "conditioned, or the factor belongs to another matrix",
                               found, kBandPass, where));
    }
    if (reciprocal < double(system_.matrix.n()) * std::numeric_limits<double>::epsilon())
      run_.warn(
          fmt::format("the reciprocal condition is {:.2g} at most, below n * 2.2e-16: rounding "
                      "alone may have changed every digit of the result; {}; compare it with a "
                      "run on slightly changed numbers, or scale rows and columns so that the "
                      "diagonal is near one",
                      reciprocal, where));
  }
  /// --guard of methods without sums on the way: the check has failed; again() does everything once
  /// more with the matrix read again. False: it cannot.
  void try_again(const std::function<bool()>& again, const Residual& residual) {
    if (!run_.options.guard) return;
    const double before = run_.report["residual"];
    run_.say("--guard: the check failed; all is done once more");
    const double now = again() ? residual() : std::numeric_limits<double>::infinity();
    run_.require_same_inputs();
    if (now < kBandPass)
      confirmed_fault(c_.control, fmt::format("the residual was {:.3g}, but is {:.3g} with the "
                                              "matrix read and solved once more",
                                              before, now));
  }
  /// Of the solution in rows_, this rank's `rows`, against b read again.
  template <class Rows>
  void judge_solution(const Rows& rows, const std::function<void(const Residual&)>& verify) {
    const std::vector<double> b = right_hand_sides();
    judge(
        [&](double* reciprocal) {
          return band_residual<B>(c_, problem_, rows, rows_, b, system_.nrhs(), reciprocal);
        },
        verify);
  }
  template <class Rows>
  void judge_or_try_again(const Rows& rows, const std::function<bool()>& again) {
    judge_solution(rows, [&](const Residual& residual) { try_again(again, residual); });
  }

  Run& run_;
  Context<B>& c_;
  const BandSystem& system_;
  BandPlan plan_;
  const BandShape shape_;
  const BandProblem<B> problem_;
  Index host_ = 0, device_ = 0;
  std::vector<Range> ranges_;  ///< of this rank, in the result
  Index slots_ = 0;            ///< rows of rows_
  std::vector<double> rows_;   ///< on the host: b, then x
  Index failed_ = 0;           ///< the leading minor that is not definite, or 0
};

/// Its memory is free again when it gives up: why, or empty.
template <class J, class B>
std::string conduct_band(Run& run, Context<B>& c, const BandSystem& system, const BandPlan& plan) {
  J job(run, c, system, plan);
  return conduct(run, c, job);
}

/// Of settings: --precision mixed, which FP64 goes on for.
inline constexpr const char* kNotMixed = "fp64 instead of mixed";
/// With --restart, what is left open is as the interrupted run had it: method, parts, width.
void adopt_band_settings(Run& run, BandRequest& request);
/// --scratch-dir goes with streamed; `auto` may come to it.
void check_scratch(const BandOptions& options, const BandRequest& request);

void band_solve(Run& run, const BandOptions& options);

/// A way that ends with its factor, which is the result.
template <class Way>
class FactorJob : public Way {
  using Way::c_, Way::ranges_, Way::run_, Way::shape_, Way::system_;

 public:
  using Way::Way;
  void solve() { Way::factor(); }
  void outcome() { Way::settle(); }
  void check() {
    Way::judge([&](double* reciprocal) { return Way::factor_residual(reciprocal); },
               [&](const typename Way::Residual& residual) { Way::verify_factor(residual); });
  }
  void write() {
    const io::BandInput& input = system_.matrix;
    const Index height = input.half_bandwidth() + 1;
    const io::Source<double> columns = [&](Index position, Index count, double* out) {
      std::fill(out, out + count * height, 0.0);
      Way::copy_factor(position, count, height, out);
    };
    const io::Attributes attributes{{"format", std::string("band")},
                                    {"uplo", std::string("lower")},
                                    {"content", std::string("Cholesky factor")},
                                    {"matrix", run_.inputs["input"].template get<std::string>()}};
    system_.output->write_columns("factor", height, shape_.n, ranges_, columns, attributes);
    system_.output->commit(run_.attributes());
    run_.rate(Way::factor_flops() * 1e-9 / run_.seconds("solve"), "GFLOP/s");
  }
  [[nodiscard]] std::string sentence() const {
    return fmt::format("factored n = {}, half-bandwidth {}, in {:.3f} s, {:.4g} GFLOP/s", shape_.n,
                       shape_.half_bandwidth, run_.seconds("solve"),
                       run_.report["rate"]["value"].template get<double>());
  }
};

}  // namespace terrace
