#include <fmt/core.h>

#include <atomic>
#include <cmath>
#include <numbers>
#include <utility>

#include "io/scratch.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "src/band/determinant.hpp"
#include "src/band/stream.hpp"
#include "src/band/ways.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::band {
namespace {

/// One rank; the matrix, then its factor, in host memory or a scratch file. To solve, or for the
/// factor alone. What fails is tried again, the matrix read once more each time: from one end,
/// which knows the leading minor; then scaled by a power of two, if a pivot may be bad for its size
/// alone.
template <class B>
class Streamed : public BandWay<B> {
  using Base = BandWay<B>;
  using Base::c, Base::system, Base::request, Base::progress, Base::hooks, Base::problem_,
      Base::failure, Base::notes, Base::rows, Base::solves, Base::stored;

 public:
  Streamed(const BandTask<B>& task, const BandPlan& plan)
      : Base(task, plan, Range{0, plan.shape.n}), ends_(plan) {}

  /// For the ends of the checkpoint that the run continues.
  void take() override {
    const Checkpoints* from = progress.checkpoints;
    if (!stored() && from && from->restarting()) {
      exponent_ = int(from->value("exponent", 0));
      if (from->value("ends", ends_.parts()) < ends_.parts()) ends_ = one_ended_stream(ends_.shape);
    }
    take_ends();
  }
  /// The matrix is read while the device works.
  void read() override {
    if (solves()) rows = Base::right_hand_sides();
    begin();
    if (!stored()) return;
    load_stream(c, band_problem<B>(system.factor), band_, true);
    band_.given = true;
  }
  std::string solve() override {
    if (!stored()) failure = factor();
    flip();
    if (stored()) stream_forward(c, band_, x_, progress);
    if (solves() && failure.minor == 0) stream_backward(c, band_, x_, progress);
    return {};
  }
  void finish() override {
    if (solves()) get_rows(c, band_, x_, rows.data());
  }
  double residual(double* reciprocal) override {
    return solves() ? Base::residual_of_rows(Range{0, ends_.shape.n}, reciprocal)
                    : band_factor_residual<B>(c, problem_, band_, system.seed, reciprocal);
  }
  bool again() override {
    if (solves()) read();
    solve();
    if (failure.minor == 0) finish();
    return failure.minor == 0;
  }
  /// Of the matrix as it is given, whatever it was multiplied by on the way.
  double log_determinant(double*) override {
    return 2 * band_.logs - double(ends_.shape.n) * double(exponent_) * std::numbers::ln2;
  }
  bool solve_more(std::vector<double>& more, Index nrhs) override {
    BandStreamRows<B> x = collectively(c.control, [&] { return band_stream_rows(band_, nrhs); });
    if (const double by = solves() ? scale() : 1.0; by != 1.0)  // the factor is of that times A
      for (double& b : more) b *= by;
    set_rows(c, band_, x, more.data());
    Checkpoints* const kept = std::exchange(progress.checkpoints, nullptr);
    band_.resumed = 0;
    stream_forward(c, band_, x, progress);
    stream_backward(c, band_, x, progress);
    progress.checkpoints = kept;
    get_rows(c, band_, x, more.data());
    return true;
  }
  void copy_factor(Index position, Index count, Index height, double* out) const override {
    copy_columns(band_, position, count, band_.shape.half_bandwidth + 1, height, out);
  }

 private:
  /// What the matrix is multiplied by.
  [[nodiscard]] double scale() const { return std::ldexp(1.0, exponent_); }

  void take_ends() {
    Index kept = this->plan.kept;
    band_ = BandStream<B>();
    if (kept > 0) {
      file_ = io::ScratchFile();
      file_ = io::ScratchFile(Base::scratch_folder(), band_stream_memory<B>(ends_, 0).host);
      kept = band_stream_kept(ends_);
    }
    band_ = collectively(c.control, [&] { return band_stream<B>(ends_, 0, kept); });
    notes.parts = band_.count();
    band_.more = [this](Archive& archive) {
      Index ends = band_.count();
      archive.value("ends", ends);
      archive.value("exponent", exponent_);
      archive.value("lost", lost_);
      archive.value("logs", band_.logs);
      if (ends != band_.count())
        fail_together(Exit::input,
                      "the checkpoint is of another number of ends; --restart; start "
                      "without it");
    };
    if (kept > 0) band_.store = band_store(file_);
  }
  /// The right-hand sides, if any, before each try.
  void begin() {
    if (!solves()) return;
    x_ = collectively(c.control, [&] { return band_stream_rows(band_, request.nrhs); });
    if (const double by = scale(); by != 1.0)
      for (double& b : rows) b *= by;
    set_rows(c, band_, x_, rows.data());
  }
  /// band_ := the factor of the matrix, read meanwhile, and Y := L^-1 Y if there is one.
  Index attempt() {
    notes.reading = 0;
    const BandFeed feed = [&](Range columns, Index height, double* to, Index ld) {
      const auto start = Clock::now();
      const Index stored = system.matrix.half_bandwidth + 1;
      const double by = scale();
      std::atomic<bool> abnormal = false;
      system.matrix.read({&columns, 1}, [&](Index at, Index count, const double* data) {
        parallel_ranges(count, 64, [&](Index from, Index end) {
          bool wrong = false;
          for (Index j = from; j < end; ++j)
            for (Index d = 0; d < height; ++d) {
              const double x = data[j * stored + d], scaled = x * by;
              to[(at + j) * ld + d] = scaled;
              wrong = wrong || (by != 1.0 && x != 0 && !std::isnormal(scaled));
            }
          if (wrong) abnormal = true;
        });
      });
      lost_ = lost_ || abnormal;
      notes.reading += since(start);
    };
    return stream_factor(c, band_, solves() ? &x_ : nullptr, progress, feed);
  }
  /// True when the pivot in row `failed` may have been bad for its size alone: below 4e-308 or
  /// above 2e307 it counts as such on CUDA. A pivot is at most its diagonal entry.
  bool choose_scale(Index failed) {
    const Range column{failed - 1, 1};
    double pivot = 0;
    system.matrix.read({&column, 1}, [&](Index, Index, const double* data) { pivot = data[0]; });
    if (!(pivot > 0) || (pivot > 1e-290 && pivot < 2e307)) return false;
    int size = 0;
    (void)std::frexp(pivot, &size);
    exponent_ = std::min(-size / 2 * 2, 1022);  // even, for the factor's sake
    return true;
  }
  BandFailure factor() {
    constexpr bool knows_all_numbers = std::is_same_v<B, Cpu>;
    const auto again = [&] {
      begin();
      return attempt();
    };
    Index failed = attempt();
    if (failed < 0) {
      hooks.note("streamed: an end is not positive definite; one end looks for the leading minor");
      ends_ = one_ended_stream(ends_.shape);
      take_ends();
      failed = again();
    }
    if (const Index first = failed; failed > 0 && exponent_ != 0) {
      if (lost_) return {first, !knows_all_numbers};
    } else if (failed > 0 && choose_scale(failed)) {
      hooks.note(
          fmt::format("streamed: the diagonal entry of row {} is near the end of the range of "
                      "numbers; tried again with the matrix scaled by 2^{}",
                      failed, exponent_));
      failed = again();
      if (failed != 0 && lost_) return {first, !knows_all_numbers};
    }
    if (failed != 0) return {failed, false, system.guard && scale() == 1.0 && again() == 0};
    if (scale() != 1.0 && !solves()) scale_stream(band_, std::ldexp(1.0, -exponent_ / 2));
    return {};
  }
  /// TERRACE_TEST_FLIP, step 1: in the factor on the host, once.
  void flip() {
    if (std::exchange(flipped_, true) || band_.ends.empty() || band_.ends[0].host.empty()) return;
    const PinnedBuffer<double>& memory = band_.ends[0].host[0];
    flip_for_tests(Stream<Cpu>(), c.rank(), 1, memory.data(), 8 * memory.size());
  }

  BandPlan ends_;  ///< as they are now
  io::ScratchFile file_;
  BandStream<B> band_;
  BandStreamRows<B> x_;
  int exponent_ = 0;   ///< of the scale
  bool lost_ = false;  ///< scaled, some entries left the range of normal numbers
  bool flipped_ = false;
};

}  // namespace

template <class B>
std::unique_ptr<BandWay<B>> band_way_streamed(const BandTask<B>& task, const BandPlan& plan) {
  return std::make_unique<Streamed<B>>(task, plan);
}

#define TERRACE_INSTANTIATE(B) \
  template std::unique_ptr<BandWay<B>> band_way_streamed(const BandTask<B>&, const BandPlan&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
