// band factor and band solve when the band is streamed.
#pragma once
#include "io/unfinished.hpp"
#include "src/band/stream_tries.hpp"
#include "src/commands/band_job.hpp"

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
    tries_.emplace(StreamTries<B>{c_, system_.matrix, plan_, kept_, scratch_, run_.progress,
                                  [this](const std::string& note) { note_fall_back(run_, note); }});
    tries_->take(system_.factor == nullptr);
    run_.report["parts"] = band().count();
  }
  /// The matrix is read while the device works.
  void read() {
    begin();
    if (!system_.factor) return;
    load_stream(c_, {shape_.n, shape_.half_bandwidth, file_source<B>(*system_.factor)}, band());
    band().given = true;
  }

 protected:
  [[nodiscard]] BandStream<B>& band() { return tries_->band; }
  /// The right-hand sides, if any, before each try.
  void begin() {
    if (!system_.rhs) return;
    x_ = collectively(c_.control, [&] { return band_stream_rows(band(), system_.nrhs()); });
    if (const double by = tries_->scale(); by != 1.0)
      for (double& b : rows_) b *= by;
    set_rows(c_, band(), x_, rows_.data());
  }
  /// band() := the factor of the matrix, read meanwhile, or failure_.
  void factor() {
    failure_ = tries_->factor(
        system_.rhs ? &x_ : nullptr, [this] { begin(); }, run_.options.guard);
    run_.report["reading_within_solve"] = tries_->reading;
    flip();
  }
  void settle() {
    run_.report["parts"] = band().count();
    if (failure_.minor == 0) return;
    if (failure_.unscalable)
      run_.outcome("not positive definite",
                   fmt::format("the pivot of row {} is out of range, and the entries are too far "
                               "apart for one scale; {}; scale rows and columns so that the "
                               "diagonal is near one, or use --method tile-columns",
                               failure_.minor, io::to_string(system_.matrix.location())));
    if (!failure_.passing) Base::not_definite(failure_.minor);
    run_.require_same_inputs();
    Base::definite_after_all(failure_.minor);
  }
  /// TERRACE_TEST_FLIP, step 1: in the factor on the host, once.
  void flip() {
    if (std::exchange(flipped_, true) || band().ends.empty() || band().ends[0].host.empty()) return;
    const PinnedBuffer<double>& memory = band().ends[0].host[0];
    flip_for_tests(Stream<Cpu>(), c_.rank(), 1, memory.data(), 8 * memory.size());
  }
  [[nodiscard]] double factor_residual(double* reciprocal) {
    return band_factor_residual<B>(c_, problem_, tries_->band, Word(run_.options.seed), reciprocal);
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
    copy_columns(tries_->band, position, count, shape_.half_bandwidth + 1, height, out);
  }

  using Base::c_, Base::plan_, Base::problem_, Base::rows_, Base::run_, Base::shape_, Base::system_;
  const Range all_{0, shape_.n};
  BandStreamRows<B> x_;
  StreamFailure failure_;

 private:
  BandStreamMemory memory_;
  const Index check_, stored_;  ///< bytes of the check, and of the factor
  Index kept_ = 0;              ///< slabs
  std::string scratch_;         ///< folder
  std::optional<StreamTries<B>> tries_;
  bool flipped_ = false;
};

template <class B>
class SolveStreamed : public StreamedWay<B> {
  using Base = StreamedWay<B>;
  using Base::band, Base::c_, Base::failure_, Base::rows_, Base::run_, Base::system_, Base::x_;

 public:
  using Base::Base;

  void read() {
    rows_ = Base::right_hand_sides();
    Base::read();
  }
  void solve() {
    if (system_.factor) {
      Base::flip();
      stream_forward(c_, band(), x_, run_.progress);
    } else {
      Base::factor();
    }
    if (failure_.minor == 0) stream_backward(c_, band(), x_, run_.progress);
  }
  void outcome() {
    Base::settle();
    Base::note_rate();
    get_rows(c_, band(), x_, rows_.data());
  }
  void check() {
    Base::judge_or_try_again(Base::all_, [&] {
      read();
      solve();
      Base::settle();
      get_rows(c_, band(), x_, rows_.data());
      return true;
    });
  }
};

}  // namespace terrace
