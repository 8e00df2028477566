// What the verbs of bands share: one run of solve_band() on the caller's memory. That of a dense
// matrix by Cholesky is one, too.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "src/api/held.hpp"
#include "src/api/inside.hpp"
#include "src/api/terrace/band.hpp"
#include "src/band/system.hpp"

namespace terrace::api::band {

/// What is read is copied to memory of the backend, unless the band is streamed through it.
struct Reading {
  bool there = true;
  std::function<void()> done = [] {};  ///< after the matrix was read; may throw
  void follow(const terrace::band::BandPlan& plan) {
    there = plan.method != terrace::band::BandMethod::streamed;
  }
};

/// A band solve or a factorization: the parts of one call.
template <class B>
struct Work {
  Context::Inside& ranks;
  terrace::Context<B>& context;
  terrace::band::BandSystem system;
  Reading& reading;
  terrace::band::BandRequest request;
  AskingProgress progress;
  std::unique_ptr<terrace::band::BandResult<B>> done;
  Report report;
  Index keeps = 0;  ///< bytes that the caller takes beside, on the backend
  /// The factor of a Work without right-hand sides stays in `done`, in the form that solves fastest,
  /// where memory has room for it; then solve_again() goes. Else it is LAPACK's.
  bool stays = false;

  Work(Context::Inside& inside, terrace::Context<B>& on, terrace::band::BandSystem from,
       Reading& how, Index nrhs, const Options& options, bool stored)
      : ranks(inside), context(on), system(std::move(from)), reading(how), progress(inside) {
    request.n = system.matrix.n;
    request.half_bandwidth = system.matrix.half_bandwidth;
    request.nrhs = nrhs;
    request.ranks = on.size();
    request.method = options.method;
    request.lapack_factor = stored || !system.rhs;
    request.stored = stored;
    request.mixed = options.mixed && system.rhs && !stored;
    request.check = inside.options.check;
  }
  [[nodiscard]] terrace::band::BandPlan chosen() {
    if (stays) {
      terrace::band::BandRequest wanted = request;
      wanted.lapack_factor = false;
      if (wanted.device_bytes > 0)
        wanted.device_bytes = std::max<Index>(1, wanted.device_bytes - keeps);
      const terrace::band::BandPlan plan = terrace::band::plan_system<B>(system, wanted);
      stays = plan.method != terrace::band::BandMethod::streamed;
      if (stays) {
        request = wanted;
        return plan;
      }
      keeps = 0;
    }
    return terrace::band::plan_system<B>(system, request);
  }
  /// Takes memory, reads and factors; what the matrix is not stands in done->failure.
  void attempt() {
    terrace::band::check_request(request);
    terrace::band::note_memory(context, request);
    const terrace::band::BandPlan plan = chosen();
    reading.follow(plan);
    const auto need = terrace::band::band_bytes<B>(plan, system, request.nrhs, request.check);
    const Index device = need.backend + need.check + keeps;
    // band_bytes() counts pieces of a file, which messages between ranks are here.
    const Index pieces = context.size() == 1 ? 3 * io::piece_bytes() : 0;
    const Index host = std::max<Index>(0, need.host - pieces);
    ranks.require(host + (std::is_same_v<B, Cpu> ? device : 0),
                  std::is_same_v<B, Cpu> ? 0 : device);
    // Ends and parts of several ranks have steps of their own.
    if (context.size() > 1 && plan.method != terrace::band::BandMethod::tile_columns)
      progress.asked = {};
    terrace::band::BandHooks hooks;
    hooks.phase = [&](const std::string& name, const std::function<void()>& work) {
      const bool reads = name == "read";
      timed(reads ? report.seconds.prepare : report.seconds.solve, [&] {
        work();
        if (reads) reading.done();  // waits
      });
    };
    hooks.instead = [&](const terrace::band::BandPlan&, const terrace::band::BandNotes&,
                        const terrace::band::BandPlan& now) {
      reading.follow(now);
      if (!now.note.empty()) report.warnings.push_back(now.note);
    };
    done = terrace::band::solve_band(context, system, request, plan, progress, hooks);
    report.method = terrace::band::to_string(done->plan.method);
  }
  void solve() {
    attempt();
    const auto& failure = done->failure;
    if (failure.minor > 0)
      no_result(
          failure.unscalable
              ? fmt::format("the pivot of row {} is out of range; in the band matrix; scale rows "
                            "and columns so that the diagonal is near one",
                            failure.minor)
              : fmt::format("the matrix is not positive definite: its leading minor of order {} "
                            "is not; in the band matrix; check it, or shift its diagonal",
                            failure.minor),
          failure.minor - 1);
    finish();
  }
  /// Other right-hand sides, by the factor that stays.
  void solve_again(terrace::band::ReadRanges rhs, const double* rhs_at, Index nrhs) {
    system.rhs = std::move(rhs), system.rhs_at = rhs_at;
    request.nrhs = nrhs, request.check = ranks.options.check;
    report.seconds = {}, report.warnings.clear();
    timed(report.seconds.solve, [&] {
      if (!done->solve_again())
        throw terrace::Error(Exit::internal,
                             "the factor did not stay; src/api/band_work.hpp; report it");
      done->finish();
    });
  }
  void finish() {
    timed(report.seconds.solve, [&] { done->finish(); });
    report.log_abs_determinant = done->log_determinant(&report.log_abs_determinant_error);
  }
  void check() {
    if (!request.check) return;
    timed(report.seconds.check,
          [&] { report.residual = done->residual(&report.reciprocal_condition); });
    if (!(report.residual < terrace::band::kBandPass))
      check_failed(fmt::format("the residual is {:.3g}, above {}", report.residual,
                               terrace::band::kBandPass));
    if (report.reciprocal_condition < double(request.n) * std::numeric_limits<double>::epsilon())
      report.warnings.push_back(fmt::format(
          "the reciprocal condition is {:.2g} at most, below n * 2.2e-16: rounding alone "
          "may have changed every digit of the result",
          report.reciprocal_condition));
  }
  void give(const Held<double, B>& to, Index nrhs) {
    timed(report.seconds.give, [&] {
      if (double* const x = to.whole(); x && done->place(x)) return;
      std::vector<Index> places;
      for (const Range& range : done->ranges)
        for (Index i = 0; i < range.count; ++i) places.push_back(range.first + i);
      to.write(places, [&](Index position, Index count, double* out) {
        std::copy_n(done->rows.data() + position * nrhs, count * nrhs, out);
      });
    });
  }
};

}  // namespace terrace::api::band
