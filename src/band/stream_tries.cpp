#include "src/band/stream_tries.hpp"

#include <fmt/core.h>

#include <atomic>
#include <cmath>

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace {

template <class B>
double StreamTries<B>::scale() const {
  return std::ldexp(1.0, exponent);
}

template <class B>
void StreamTries<B>::take(bool goes_on) {
  if (const Checkpoints* from = progress.checkpoints; goes_on && from && from->restarting()) {
    exponent = int(from->value("exponent", 0));
    if (from->value("ends", plan.parts()) < plan.parts()) plan = one_ended_stream(plan.shape);
  }
  take_ends();
}

template <class B>
void StreamTries<B>::take_ends() {
  band = BandStream<B>();
  if (kept > 0) {
    file = io::ScratchFile();
    file = io::ScratchFile(folder, band_stream_memory<B>(plan, 0).host);
    kept = band_stream_kept(plan);
  }
  band = collectively(c.control, [&] { return band_stream<B>(plan, 0, kept); });
  band.more = [this](Archive& archive) {
    Index ends = band.count();
    archive.value("ends", ends);
    archive.value("exponent", exponent);
    archive.value("lost", lost);
    if (ends != band.count())
      fail_together(Exit::input,
                    "the checkpoint is of another number of ends; --restart; start "
                    "without it");
  };
  constexpr Index word = sizeof(double);
  if (kept > 0)
    band.store = {
        [this](Index at, const double* from, Index count) {
          file.write(at * word, from, count * word);
        },
        [this](Index at, double* to, Index count) { file.read(at * word, to, count * word); }};
}

template <class B>
Index StreamTries<B>::attempt(BandStreamRows<B>* y) {
  reading = 0;
  const BandFeed feed = [&](Range columns, Index height, double* to, Index ld) {
    const auto start = Clock::now();
    const Index stored = matrix.half_bandwidth() + 1;
    const double by = scale();
    std::atomic<bool> abnormal = false;
    matrix.read(c.control, {&columns, 1}, [&](Index at, Index count, const double* data) {
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
    lost = lost || abnormal;
    reading += since(start);
  };
  return stream_factor(c, band, y, progress, feed);
}

/// True when the pivot in row `failed` may have been bad for its size alone: below 4e-308 or above
/// 2e307 it counts as such on CUDA. A pivot is at most its diagonal entry.
template <class B>
bool StreamTries<B>::choose_scale(Index failed) {
  const Range column{failed - 1, 1};
  double pivot = 0;
  matrix.read(c.control, {&column, 1}, [&](Index, Index, const double* data) { pivot = data[0]; });
  if (!(pivot > 0) || (pivot > 1e-290 && pivot < 2e307)) return false;
  int size = 0;
  (void)std::frexp(pivot, &size);
  exponent = std::min(-size / 2 * 2, 1022);  // even, for the factor's sake
  return true;
}

template <class B>
StreamFailure StreamTries<B>::factor(BandStreamRows<B>* y, const std::function<void()>& begin,
                                     bool twice) {
  constexpr bool knows_all_numbers = std::is_same_v<B, Cpu>;
  const auto again = [&] {
    begin();
    return attempt(y);
  };
  Index failed = attempt(y);
  if (failed < 0) {
    note("streamed: an end is not positive definite; one end looks for the leading minor");
    plan = one_ended_stream(plan.shape);
    take_ends();
    failed = again();
  }
  if (const Index first = failed; failed > 0 && exponent != 0) {
    if (lost) return {first, !knows_all_numbers};
  } else if (failed > 0 && choose_scale(failed)) {
    note(
        fmt::format("streamed: the diagonal entry of row {} is near the end of the range of "
                    "numbers; once more with the matrix scaled by 2^{}",
                    failed, exponent));
    failed = again();
    if (failed != 0 && lost) return {first, !knows_all_numbers};
  }
  if (failed != 0) return {failed, false, twice && scale() == 1.0 && again() == 0};
  if (scale() != 1.0 && y == nullptr) scale_stream(band, std::ldexp(1.0, -exponent / 2));
  return {};
}

#define TERRACE_INSTANTIATE(B) template struct StreamTries<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
