// What band factor and band solve do alike.
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
#include "src/band/condition.hpp"
#include "src/band/guard.hpp"
#include "src/band/hybrid.hpp"
#include "src/band/parts.hpp"
#include "src/band/tile_columns.hpp"
#include "src/commands/band_needs.hpp"
#include "src/frame/guard.hpp"
#include "src/program/register.hpp"

namespace terrace {

inline constexpr double kBandPass = 30.0;  // LAPACK's threshold for residual ratios

struct BandOptions {
  std::string matrix, rhs, factor, scratch;
  Index parts = 0;
  BandPlaces places;
};

/// First line of a plan.
inline void describe_band(const Run& run, const BandShape& s, Index nrhs) {
  run.say(fmt::format("band matrix n = {}, half-bandwidth = {}, {} right-hand sides", s.n,
                      s.half_bandwidth, nrhs));
}

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

/// The verdict of a check. `verify` asks the guard, if any, whether memory is to blame.
inline void judge_band(Run& run, const io::BandInput& input, double residual,
                       const std::function<void()>& verify = {}) {
  run.report["residual"] = residual;
  if (residual < kBandPass) return;
  if (verify) verify();
  run.outcome("check failed",
              fmt::format("the residual is {:.3g}, above {}; {}; the matrix may be too ill "
                          "conditioned, or the factor belongs to another matrix",
                          residual, kBandPass, io::to_string(input.location())));
}

/// `reciprocal`: at least the reciprocal condition, from the check that was passed.
inline void note_band_condition(Run& run, const io::BandInput& input, double reciprocal) {
  if (reciprocal < double(input.n()) * std::numeric_limits<double>::epsilon())
    run.warn(
        fmt::format("the reciprocal condition is {:.2g} at most, below n * 2.2e-16: rounding "
                    "alone may have changed every digit of the result; {}; compare it with a "
                    "run on slightly changed numbers, or scale rows and columns so that the "
                    "diagonal is near one",
                    reciprocal, io::to_string(input.location())));
}

/// The outcome of a leading minor that is not positive definite.
[[noreturn]] inline void not_definite(Run& run, const io::BandInput& input, Index failed) {
  run.report["result"]["failed_minor"] = failed;
  run.outcome("not positive definite",
              fmt::format("the matrix is not positive definite: its leading minor of order {} "
                          "is not; {}; check the matrix, or shift its diagonal",
                          failed, io::to_string(input.location())));
}

/// --guard of methods without sums on the way: a check failed, and `again` does everything once
/// more with the matrix read again and returns its residual.
template <class Again>
void try_again(const Run& run, Again&& again) {
  if (!run.options.guard) return;
  const double before = run.report["residual"];
  run.say("--guard: the check failed; all is done once more");
  const double now = again();
  run.require_same_inputs();
  if (now < kBandPass)
    confirmed_fault(run.control, fmt::format("the residual was {:.3g}, but is {:.3g} with the "
                                             "matrix read and solved once more",
                                             before, now));
}

/// Their check is what they go by.
inline void require_check(const Run& run, const std::string& what) {
  if (run.options.guard && run.options.no_check)
    fail_together(Exit::usage, "--guard of " + what +
                                   " goes by the check at the end; --no-check; leave one of them "
                                   "out, or use --method tile-columns");
}

/// One method gives up and another goes on: on the screen, and in the report after earlier notes.
inline void note_fall_back(Run& run, const std::string& note) {
  run.say(note);
  const std::string before = run.report.value("note", "");
  run.report["note"] = before.empty() ? note : before + "; " + note;
}

/// The factorization by tile columns on one backend.
template <class B>
class BandRun {
 public:
  /// `at_once`: the factorization in one launch, where this is one rank on a GPU and no width is
  /// asked for.
  BandRun(Run& run, Context<B>& context, const io::BandInput& input, Index nrhs,
          bool at_once = false, bool factored = false, const std::vector<std::string>& reasons = {})
      : run_(run),
        c_(context),
        input_(input),
        at_once_(at_once && std::is_same_v<B, Cuda> && context.size() == 1 &&
                 run.progress.checkpoints == nullptr && run.options.block == 0 &&
                 !(run.options.guard && run.options.no_check) && band_parts_available(B{})),
        shape_(band_shape(input.n(), input.half_bandwidth(),
                          at_once_ ? band_part_width(B{}, input.half_bandwidth())
                                   : band_width(B{}, input.half_bandwidth(), run.options.block))),
        problem_{shape_.n, shape_.half_bandwidth, file_source<B>(input)} {
    run.report["n"] = shape_.n;
    run.report["half_bandwidth"] = input.half_bandwidth();
    run.report["method"] = "tile-columns";
    run.report["block"] = shape_.width;
    run.settings["method"] = "tile-columns";
    run.settings["block"] = shape_.width;
    run.settings.erase("parts");
    const BandMemory memory = band_memory(shape_, nrhs, c_.size(), !run.options.no_check);
    const Index rows = 2 * ceil_div(shape_.tiles(), c_.size()) * shape_.width * nrhs;  // x and b
    host_ = rows * Index(sizeof(double)) + 3 * io::piece_bytes();
    device_ = memory.total();
    if (at_once_) {
      const auto [numbers, words] = band_at_once_memory<B>(shape_);
      device_ += (numbers + words) * Index(sizeof(double));
    }
    if (run.options.guard) device_ += BandGuard<B>::bytes(shape_);
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    work_ = band_work({machine_of(context), run.command, at_once_ ? "at once" : "tile-columns",
                       shape_.n, shape_.half_bandwidth, shape_.width, nrhs, shape_.tiles(),
                       band_factor_flops(shape_.n, shape_.half_bandwidth) / c_.size(), factored,
                       !run.options.no_check});
    if (run.options.plan) describe(memory, nrhs, reasons);
  }

  void require() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    tiles_ = collectively(c_.control, [&] { return band_tiles<B>(c_, shape_); });
  }

  /// tiles := the factor of the matrix.
  void factor(const BandPlaces& places = {}) {
    BandWork<B> work = collectively(c_.control, [&] { return BandWork<B>(shape_); });
    if (places.diagonal == "cpu" && std::is_same_v<B, Cuda>)
      work.host_diagonal = collectively(c_.control, [&] { return band_host_diagonal(shape_); });
    run_.report["places"]["diagonal"] =
        std::is_same_v<B, Cpu> || work.host_diagonal.size() > 0 ? "cpu" : "gpu";
    if (!at_once_) take_guard();
    read();
    if (at_once_) {
      if (factor_at_once()) return;
      take_guard();
      read();
    }
    Index failed = 0;
    work.guard = guard_ ? &*guard_ : nullptr;
    run_.phase("solve", [&] { failed = band_cholesky(c_, tiles_, work, run_.progress); });
    if (failed != 0 && guard_) failed = confirm(work, failed);
    if (failed != 0) not_definite(run_, input_, failed);
    if (guard_) guard_->flip_after(tiles_);
  }

  /// With --guard: ends the job if the factor is not right any more. To be asked where a check has
  /// failed, or where there is none. A factorization in one launch is done again, and its residual
  /// taken. Collective.
  void verify_factor(const std::function<double()>& residual = {}) {
    if (guard_)
      guard_->verify(tiles_);
    else if (at_once_ && residual)
      try_again(run_, [&] {
        band_clear(c_, tiles_);
        read();
        return factor_at_once() ? residual() : std::numeric_limits<double>::infinity();
      });
  }

  /// False when a pivot was bad: the tiles are cleared.
  [[nodiscard]] bool factor_at_once() {
    const auto [numbers, words] = band_at_once_memory<B>(shape_);
    const Buffer<double, B> inverses(numbers);
    const Buffer<Word, B> scratch(words);
    bool done = false;
    run_.phase("solve", [&] { done = band_cholesky_at_once(c_, tiles_, inverses, scratch) == 0; });
    if (!done) band_clear(c_, tiles_);
    return done;
  }

  void read_factor(const io::BandInput& stored) {
    run_.phase("read", [&] { read_tiles(c_, stored, tiles_); });
  }

  Run& run_;
  Context<B>& c_;
  const io::BandInput& input_;
  const bool at_once_;
  const BandShape shape_;
  const BandProblem<B> problem_;
  BandTiles<B> tiles_;

 private:
  void take_guard() {
    if (run_.options.guard) collectively(c_.control, [&] { guard_.emplace(c_, shape_); });
  }
  void read() {
    run_.phase("read", [&] {
      read_tiles(c_, input_, tiles_);
      if (guard_) guard_->begin(tiles_);
    });
  }

  /// A bit that flips may cost the matrix its definiteness: it has to fail once more. Returns the
  /// minor that does.
  Index confirm(BandWork<B>& work, Index failed) {
    Checkpoints* const kept = std::exchange(run_.progress.checkpoints, nullptr);
    work.guard = nullptr;
    band_clear(c_, tiles_);
    run_.phase("read", [&] { read_tiles(c_, input_, tiles_); });
    Index again = 0;
    run_.phase("solve", [&] { again = band_cholesky(c_, tiles_, work, run_.progress); });
    run_.progress.checkpoints = kept;
    run_.require_same_inputs();
    if (again != 0) return again;
    confirmed_fault(c_.control,
                    fmt::format("the leading minor of order {} was not positive definite, but is "
                                "with the matrix read again",
                                failed));
  }

  void describe(const BandMemory& m, Index nrhs, const std::vector<std::string>& reasons) {
    describe_band(run_, shape_, nrhs);
    run_.say(fmt::format(
        "method tile-columns: {} tile columns of width {} dealt to {} ranks; the width {}",
        shape_.tiles(), shape_.width, c_.size(),
        run_.options.block > 0 ? "was asked for"
                               : "makes the update a matrix product of full rate while the chain "
                                 "of diagonal blocks stays short"));
    for (const std::string& reason : reasons) run_.say("why: " + reason);
    run_.say("one panel broadcast per tile column: " + size_text(m.panels / 2));
    run_.say(fmt::format("on the backend: matrix {}, panels {}, right-hand sides {}, check {}",
                         size_text(m.matrix), size_text(m.panels), size_text(m.solution),
                         size_text(m.check)));
    const auto memory = [&]<class D>(D, int ranks, bool check) {
      const Index rows = 2 * ceil_div(shape_.tiles(), Index(ranks)) * shape_.width * nrhs;
      return band_on_rank<D>(rows * Index(sizeof(double)) + 3 * io::piece_bytes(),
                             band_memory(shape_, nrhs, ranks, check).total() + device_ - m.total());
    };
    const bool check = !run_.options.no_check;
    PlanNeeds needs;
    needs.memory = [&](int ranks) { return memory(B{}, ranks, check); };
    if (check)
      needs.alternatives.push_back(
          {"with --no-check", [&] { return memory(B{}, c_.size(), false); }});
    needs.alternatives.push_back(
        streamed_instead<B>(run_, shape_.n, input_.half_bandwidth(), nrhs, c_.size()));
    if (!std::is_same_v<B, Cpu>)
      needs.alternatives.push_back(
          {"with --backend cpu", [&] { return memory(Cpu{}, c_.size(), check); }});
    conclude_plan(run_, c_, work_, needs);
  }

  Index host_ = 0, device_ = 0;
  Work work_;
  std::optional<BandGuard<B>> guard_;
};

/// --scratch-dir goes with streamed; `auto` may come to it.
inline void check_scratch(const BandOptions& options, bool free, const BandRequest& request) {
  if (!options.scratch.empty() && !free && request.method != "streamed")
    fail_together(Exit::usage,
                  "--scratch-dir goes with --method streamed or auto; on the command line; leave "
                  "one of them out");
}

/// With --restart, what is left open is as the interrupted run had it: method, parts, width.
void adopt_band_settings(Run& run, BandRequest& request, bool stored_factor);

void band_solve(Run& run, const BandOptions& options);

}  // namespace terrace
