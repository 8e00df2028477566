// band factor and band solve when the band is streamed.
#pragma once
#include <atomic>
#include <cmath>

#include "io/scratch.hpp"
#include "io/unfinished.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/band_job.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace {

/// One rank; the matrix, then its factor, in host memory, or in a scratch file: where a folder for
/// it is named, or the host has too little memory.
template <class B>
class StreamedWay : public BandJob<B> {
  using Base = BandJob<B>;

 public:
  StreamedWay(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : Base(run, context, system, plan),
        memory_(band_stream_memory<B>(plan, system.nrhs())),
        check_(Base::check_bytes(1)),
        stored_(memory_.host) {
    Base::own(all_);
    const Index device = memory_.device() + check_;
    const Index others =
        2 * shape_.padded() * system.nrhs() * Index(sizeof(double)) + 3 * io::piece_bytes();
    const Index backend = std::is_same_v<B, Cuda> ? 0 : device;
    if (!system.scratch.empty() || memory_.host + others + backend > available_host_bytes()) {
      const std::string& output = run.options.output;
      scratch_ = system.scratch;
      if (scratch_.empty())
        scratch_ = output.empty() ? "." : io::folder_of(io::parse_location(output).file);
      kept_ = band_stream_kept(plan);
      memory_ = band_stream_memory<B>(plan, system.nrhs(), 0, kept_);
      run.report["scratch_bytes"] = stored_;
    }
    Base::take_note(memory_.host + others, device);
  }

  [[nodiscard]] Work work() const {
    return Base::work_of("streamed", ceil_div(shape_.tiles(), Index(plan_.parts())),
                         Base::factor_flops());
  }
  [[nodiscard]] PlanNeeds needs() const { return Base::needs_with_check(check_); }
  void describe() const {
    const BandShape& s = shape_;
    const BandStreamMemory& m = memory_;
    Base::describe(fmt::format(
        "method streamed: {} tile columns of width {} in slabs of {}, from {}; slabs come from "
        "host memory and go back there while others are factored",
        s.tiles(), s.width, band_stream_slab(s, plan_.parts()),
        plan_.parts() > 1 ? "both ends at once" : "one end"));
    if (plan_.parts() > 1)
      run_.say(fmt::format("rows of the first end {}, of the other {}; a separator of {} rows",
                           plan_.tiles(0) * s.width, plan_.rows(1).count, plan_.separator));
    run_.say(
        fmt::format("transfers: {} each way for the factor at the same time{}", size_text(stored_),
                    system_.nrhs() > 0
                        ? ", and " + size_text(stored_) + " once more for the backward substitution"
                        : std::string()));
    if (kept_ > 0)
      run_.say(
          fmt::format("scratch file: {} of the factor in {}; the host keeps {} slabs of an end",
                      size_text(stored_), scratch_, kept_));
    run_.say(fmt::format(
        "memory: {} on the backend (window of {} tile columns {}, inverses {}, natural order {}, "
        "separator {}, right-hand sides {}, scratch {}, check {}), {} on the host (matrix {})",
        size_text(Base::device_), m.ring / (s.tile() * Index(sizeof(double))), size_text(m.ring),
        size_text(m.inverses), size_text(m.staged), size_text(m.separator), size_text(m.vectors),
        size_text(m.scratch), size_text(check_), size_text(Base::host_), size_text(m.host)));
  }

  void take() {
    const Checkpoints* const from = run_.progress.checkpoints;
    if (from && from->restarting() && !system_.factor) {
      exponent_ = int(from->value("exponent", 0));
      if (from->value("ends", plan_.parts()) < plan_.parts()) return from_one_end();
    }
    take_band();
  }
  /// The matrix is read while the device works.
  void read() {
    begin();
    if (!system_.factor) return;
    load_stream(c_, {shape_.n, shape_.half_bandwidth, file_source<B>(*system_.factor)}, band_);
    band_.given = true;
  }

 protected:
  /// The right-hand sides, if any, times scale(), before each try.
  void begin() {
    if (!system_.rhs) return;
    x_ = collectively(c_.control, [&] { return band_stream_rows(band_, system_.nrhs()); });
    if (const double by = scale(); by != 1.0)
      for (double& b : rows_) b *= by;
    set_rows(c_, band_, x_, rows_.data());
  }
  /// band_ := the factor of the matrix, read meanwhile, or failed_.
  void factor() {
    double reading = 0;
    const BandFeed feed = [&](Range columns, Index height, double* to, Index ld) {
      const auto start = Clock::now();
      const Index stored = system_.matrix.half_bandwidth() + 1;
      const double by = scale();
      std::atomic<bool> lost = false;
      const io::Sink<double> take = [&](Index at, Index count, const double* data) {
        parallel_ranges(count, 64, [&](Index from, Index end) {
          bool wrong = false;
          for (Index j = from; j < end; ++j)
            for (Index d = 0; d < height; ++d) {
              const double x = data[j * stored + d], scaled = x * by;
              to[(at + j) * ld + d] = scaled;
              wrong = wrong || (by != 1.0 && x != 0 && !std::isnormal(scaled));
            }
          if (wrong) lost = true;
        });
      };
      system_.matrix.read(c_.control, {&columns, 1}, take);
      lost_ = lost_ || lost;
      reading += since(start);
    };
    failed_ = stream_factor(c_, band_, system_.rhs ? &x_ : nullptr, run_.progress, feed);
    run_.report["reading_within_solve"] = reading;
  }
  /// What failed is tried again from one end, which knows the leading minor, and then scaled by
  /// scale(), if its pivots may be out of reach.
  void settle() {
    const auto again = [&] {
      begin();
      run_.phase("solve", [&] { factor(); });
    };
    if (failed_ < 0) {
      note_fall_back(
          run_, "streamed: an end is not positive definite; one end looks for the leading minor");
      from_one_end();
      again();
    }
    if (failed_ > 0 && exponent_ != 0) {
      if (lost_) unscalable(failed_);
    } else if (const Index first = failed_; first > 0 && choose_scale(first)) {
      note_fall_back(
          run_, fmt::format("streamed: the diagonal entry of row {} is near the end of the range "
                            "of numbers; once more with the matrix scaled by 2^{}",
                            first, exponent_));
      again();
      if (failed_ != 0 && lost_) unscalable(first);
    }
    if (const Index first = failed_; first != 0 && run_.options.guard && scale() == 1.0) {
      again();
      if (failed_ == 0) {
        run_.require_same_inputs();
        Base::definite_after_all(first);
      }
      failed_ = first;
    }
    if (failed_ != 0) Base::not_definite(failed_);
    if (scale() != 1.0 && !system_.rhs) scale_stream(band_, std::ldexp(1.0, -exponent_ / 2));
    flip();
  }
  /// TERRACE_TEST_FLIP, step 1: in the factor on the host, once.
  void flip() {
    if (std::exchange(flipped_, true) || band_.ends.empty() || band_.ends[0].host.empty()) return;
    const PinnedBuffer<double>& memory = band_.ends[0].host[0];
    flip_for_tests(Stream<Cpu>(), c_.rank(), 1, memory.data(), 8 * memory.size());
  }
  [[nodiscard]] double factor_residual(double& reciprocal) {
    return band_factor_residual<B>(c_, problem_, band_, Word(run_.options.seed), reciprocal);
  }
  void verify_factor(const typename Base::Residual& residual) {
    Base::try_again(
        [&] {
          factor();
          settle();
          return true;
        },
        residual);
  }
  void copy_factor(Index position, Index count, Index height, double* out) const {
    copy_columns(band_, position, count, shape_.half_bandwidth + 1, height, out);
  }

  using Base::c_, Base::failed_, Base::plan_, Base::problem_, Base::rows_, Base::run_, Base::shape_,
      Base::system_;
  const Range all_{0, shape_.n};
  BandStream<B> band_;
  BandStreamRows<B> x_;

 private:
  /// A power of two.
  [[nodiscard]] double scale() const { return std::ldexp(1.0, exponent_); }
  void from_one_end() {
    plan_ = one_ended_stream(shape_);
    run_.report["parts"] = 1;
    take_band();
  }
  void take_band() {
    band_ = BandStream<B>();
    if (kept_ > 0) {
      file_ = io::ScratchFile();
      file_ = io::ScratchFile(scratch_, band_stream_memory<B>(plan_, 0).host);
      kept_ = band_stream_kept(plan_);
    }
    band_ = collectively(c_.control, [&] { return band_stream<B>(plan_, 0, kept_); });
    band_.more = [this](Archive& archive) {
      Index ends = band_.count();
      archive.value("ends", ends);
      archive.value("exponent", exponent_);
      archive.value("lost", lost_);
      if (ends != band_.count())
        fail_together(Exit::input,
                      "the checkpoint is of another number of ends; --restart; start "
                      "without it");
    };
    constexpr Index word = sizeof(double);
    if (kept_ > 0)
      band_.store = {
          [this](Index at, const double* from, Index count) {
            file_.write(at * word, from, count * word);
          },
          [this](Index at, double* to, Index count) { file_.read(at * word, to, count * word); }};
  }
  /// The pivot of row `failed` was bad, and no scale makes it large enough or small enough.
  [[noreturn]] void unscalable(Index failed) {
    if constexpr (std::is_same_v<B, Cpu>) Base::not_definite(failed);  // knows all numbers
    run_.outcome("not positive definite",
                 fmt::format("the pivot of row {} is out of range, and the entries are too far "
                             "apart for one scale; {}; scale rows and columns so that the diagonal "
                             "is near one, or use --method tile-columns",
                             failed, io::to_string(system_.matrix.location())));
  }
  /// True when the pivot in row `failed` may have been bad for its size alone: below 4e-308 or
  /// above 2e307 it counts as such on CUDA. A pivot is at most its diagonal entry.
  bool choose_scale(Index failed) {
    const Range column{failed - 1, 1};
    double pivot = 0;
    system_.matrix.read(c_.control, {&column, 1},
                        [&](Index, Index, const double* data) { pivot = data[0]; });
    if (!(pivot > 0) || (pivot > 1e-290 && pivot < 2e307)) return false;
    int exponent = 0;
    (void)std::frexp(pivot, &exponent);
    exponent_ = std::min(-exponent / 2 * 2, 1022);  // even, for the factor's sake
    return true;
  }

  BandStreamMemory memory_;
  const Index check_, stored_;  ///< bytes of the check, and of the factor
  Index kept_ = 0;              ///< slabs
  std::string scratch_;         ///< folder
  io::ScratchFile file_;
  int exponent_ = 0;
  bool flipped_ = false;
  bool lost_ = false;  ///< scaled, some entries left the range of normal numbers
};

template <class B>
class SolveStreamed : public StreamedWay<B> {
  using Base = StreamedWay<B>;
  using Base::band_, Base::c_, Base::failed_, Base::rows_, Base::run_, Base::system_, Base::x_;

 public:
  using Base::Base;

  void read() {
    rows_ = Base::right_hand_sides();
    Base::read();
  }
  void solve() {
    if (!system_.factor) Base::factor();
    if (failed_ == 0) substitute();
  }
  void outcome() {
    finish();
    Base::note_rate();
  }
  void check() {
    Base::judge_or_try_again(Base::all_, [&] {
      read();
      solve();
      finish();
      return true;
    });
  }

 private:
  void substitute() {
    Base::flip();
    if (system_.factor) stream_forward(c_, band_, x_, run_.progress);
    stream_backward(c_, band_, x_, run_.progress);
  }
  /// rows_ := x, also where that takes another try.
  void finish() {
    if (failed_ != 0) {
      Base::settle();
      run_.phase("solve", [&] { substitute(); });
    }
    get_rows(c_, band_, x_, rows_.data());
  }
};

}  // namespace terrace
