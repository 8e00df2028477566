// What band factor and band solve do alike when the band is streamed.
#pragma once
#include <atomic>
#include <cmath>

#include "distrib/agree.hpp"
#include "io/scratch.hpp"
#include "io/unfinished.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "src/band/parts.hpp"
#include "src/band/stream.hpp"
#include "src/commands/band_run.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/guard.hpp"

namespace terrace {

/// One rank; the matrix, then its factor, in host memory, or in a scratch file: where a folder for
/// it is named, or the host has too little memory.
template <class B>
class StreamRun {
 public:
  StreamRun(Run& run, Context<B>& context, const io::BandInput& input, const BandPlan& plan,
            Index nrhs, const std::string& scratch, bool factored = false)
      : shape_(plan.shape),
        problem_{shape_.n, shape_.half_bandwidth, file_source<B>(input)},
        run_(run),
        c_(context),
        input_(input),
        plan_(plan),
        nrhs_(nrhs) {
    run.report["n"] = shape_.n;
    run.report["half_bandwidth"] = input.half_bandwidth();
    run.report["method"] = to_string(BandMethod::streamed);
    run.report["block"] = shape_.width;
    run.report["parts"] = plan.parts();
    require_check(run, "--method streamed");
    for (const char* key : {"method", "block", "parts"}) run.settings[key] = run.report[key];
    BandStreamMemory memory = band_stream_memory<B>(plan, nrhs);
    const Index check =
        run.options.no_check
            ? 0
            : band_memory(band_shape(shape_.n, shape_.half_bandwidth, 64), nrhs, 1, true).check;
    device_ = memory.device() + check;
    stored_ = memory.host;
    const Index others = 2 * shape_.padded() * nrhs * Index(sizeof(double)) + 3 * io::piece_bytes(),
                backend = std::is_same_v<B, Cuda> ? 0 : device_;
    if (!scratch.empty() || memory.host + others + backend > available_host_bytes()) {
      const std::string& output = run.options.output;
      scratch_ = scratch;
      if (scratch.empty())
        scratch_ = output.empty() ? "." : io::folder_of(io::parse_location(output).file);
      kept_ = band_stream_kept(plan);
      memory = band_stream_memory<B>(plan, nrhs, 0, kept_);
      run.report["scratch_bytes"] = stored_;
    }
    host_ = memory.host + others;
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    work_ = band_work(
        {machine_of(context), run.command, "streamed", shape_.n, shape_.half_bandwidth,
         shape_.width, nrhs, ceil_div(shape_.tiles(), Index(plan.parts())),
         band_factor_flops(shape_.n, shape_.half_bandwidth), factored, !run.options.no_check});
    if (run.options.plan) describe(memory, check);
  }

  void require() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    take();
  }
  /// A stored factor.
  void read(const io::BandInput& from) {
    run_.phase("read", [&] {
      load_stream(c_, {shape_.n, shape_.half_bandwidth, file_source<B>(from)}, band_);
      band_.given = true;
    });
  }
  /// The factor of the matrix, which is read while the device works. What fails is tried again from
  /// one end, which knows the leading minor, and then scaled by scale(), if its pivots may be out
  /// of reach. begin(): the right-hand sides of band_, if any, times scale(), before each try.
  template <class Begin>
  void factor(Begin&& begin) {
    if (const Checkpoints* from = run_.progress.checkpoints; from && from->restarting()) {
      exponent_ = int(from->value("exponent", 0));
      if (from->value("ends", plan_.parts()) < plan_.parts()) from_one_end();
    }
    Index failed = attempt(begin());
    if (failed < 0) {
      note("streamed: an end is not positive definite; one end looks for the leading minor");
      from_one_end();
      failed = attempt(begin());
    }
    if (const Index first = failed; failed > 0 && exponent_ != 0) {
      if (lost_) unscalable(first);
    } else if (failed > 0 && choose_scale(failed)) {
      note(
          fmt::format("streamed: the diagonal entry of row {} is near the end of the range of "
                      "numbers; once more with the matrix scaled by 2^{}",
                      failed, exponent_));
      failed = attempt(begin());
      if (failed != 0 && lost_) unscalable(first);
    }
    if (failed != 0 && run_.options.guard && scale() == 1.0 && attempt(begin()) == 0) {
      run_.require_same_inputs();
      confirmed_fault(c_.control,
                      fmt::format("the leading minor of order {} was not positive definite, but is "
                                  "with the matrix read again",
                                  failed));
    }
    if (failed != 0) not_definite(run_, input_, failed);
    if (scale() != 1.0 && nrhs_ == 0) scale_stream(band_, std::ldexp(1.0, -exponent_ / 2));
  }
  /// TERRACE_TEST_FLIP, step 1: in the factor on the host, once.
  void flip() {
    if (std::exchange(flipped_, true) || band_.ends.empty() || band_.ends[0].host.empty()) return;
    const PinnedBuffer<double>& memory = band_.ends[0].host[0];
    flip_for_tests(Stream<Cpu>(), c_.rank(), 1, memory.data(), 8 * memory.size());
  }
  /// A power of two.
  [[nodiscard]] double scale() const { return std::ldexp(1.0, exponent_); }

  const BandShape shape_;
  const BandProblem<B> problem_;
  BandStream<B> band_;

 private:
  void from_one_end() {
    plan_ = one_ended_stream(shape_);
    run_.report["parts"] = 1;
    take();
  }
  void take() {
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
  Index attempt(BandStreamRows<B>* y) {
    double reading = 0;
    const BandFeed feed = [&](Range columns, Index height, double* to, Index ld) {
      const auto start = Clock::now();
      const Index stored = input_.half_bandwidth() + 1;
      const double by = scale();
      std::atomic<bool> lost = false;
      input_.read(c_.control, {&columns, 1}, [&](Index at, Index count, const double* data) {
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
      });
      lost_ = lost_ || lost;
      reading += since(start);
    };
    Index failed = 0;
    run_.phase("solve", [&] { failed = stream_factor(c_, band_, y, run_.progress, feed); });
    run_.report["reading_within_solve"] = reading;
    return failed;
  }
  /// The pivot of row `failed` was bad, and no scale makes it large enough or small enough.
  [[noreturn]] void unscalable(Index failed) {
    if constexpr (std::is_same_v<B, Cpu>) not_definite(run_, input_, failed);  // knows all numbers
    run_.outcome("not positive definite",
                 fmt::format("the pivot of row {} is out of range, and the entries are too far "
                             "apart for one scale; {}; scale rows and columns so that the diagonal "
                             "is near one, or use --method tile-columns",
                             failed, io::to_string(input_.location())));
  }
  void note(const std::string& text) {
    run_.say(text);
    const std::string before = run_.report.value("note", "");
    run_.report["note"] = before.empty() ? text : before + "; " + text;
  }
  /// True when the pivot in row `failed` may have been bad for its size alone: below 4e-308 or
  /// above 2e307 it counts as such on CUDA. A pivot is at most its diagonal entry.
  bool choose_scale(Index failed) {
    const Range column{failed - 1, 1};
    double pivot = 0;
    input_.read(c_.control, {&column, 1},
                [&](Index, Index, const double* data) { pivot = data[0]; });
    if (!(pivot > 0) || (pivot > 1e-290 && pivot < 2e307)) return false;
    int exponent = 0;
    (void)std::frexp(pivot, &exponent);
    exponent_ = std::min(-exponent / 2 * 2, 1022);  // even, for the factor's sake
    return true;
  }

  void describe(const BandStreamMemory& m, Index check) {
    const BandShape& s = shape_;
    const Index slab = band_stream_slab(s, plan_.parts());
    describe_band(run_, s, nrhs_);
    run_.say(fmt::format(
        "method streamed: {} tile columns of width {} in slabs of {}, from {}; slabs come from "
        "host memory and go back there while others are factored",
        s.tiles(), s.width, slab, plan_.parts() > 1 ? "both ends at once" : "one end"));
    for (const std::string& reason : plan_.reasons) run_.say("why: " + reason);
    if (plan_.parts() > 1)
      run_.say(fmt::format("rows of the first end {}, of the other {}; a separator of {} rows",
                           plan_.tiles(0) * s.width, plan_.rows(1).count, plan_.separator));
    run_.say(fmt::format(
        "transfers: {} each way for the factor at the same time{}", size_text(stored_),
        nrhs_ > 0 ? ", and " + size_text(stored_) + " once more for the backward substitution"
                  : std::string()));
    if (kept_ > 0)
      run_.say(
          fmt::format("scratch file: {} of the factor in {}; the host keeps {} slabs of an end",
                      size_text(stored_), scratch_, kept_));
    run_.say(fmt::format(
        "memory: {} on the backend (window of {} tile columns {}, inverses {}, natural order {}, "
        "separator {}, right-hand sides {}, scratch {}, check {}), {} on the host (matrix {})",
        size_text(device_), m.ring / (s.tile() * Index(sizeof(double))), size_text(m.ring),
        size_text(m.inverses), size_text(m.staged), size_text(m.separator), size_text(m.vectors),
        size_text(m.scratch), size_text(check), size_text(host_), size_text(m.host)));
    PlanNeeds needs;
    needs.any_ranks = false;
    needs.memory = [&](int) { return band_on_rank<B>(host_, device_); };
    if (check > 0)
      needs.alternatives.push_back(
          {"with --no-check", [&] { return band_on_rank<B>(host_, device_ - check); }});
    conclude_plan(run_, c_, work_, needs);
  }

  Run& run_;
  Context<B>& c_;
  const io::BandInput& input_;
  BandPlan plan_;
  const Index nrhs_;
  Index host_ = 0, device_ = 0, stored_ = 0, kept_ = 0;
  Work work_;
  std::string scratch_;  ///< folder
  io::ScratchFile file_;
  int exponent_ = 0;
  bool flipped_ = false;
  bool lost_ = false;  ///< scaled, some entries left the range of normal numbers
};

}  // namespace terrace
