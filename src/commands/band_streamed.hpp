// What band factor and band solve do alike when the band is streamed.
#pragma once
#include "src/band_parts.hpp"
#include "src/band_stream.hpp"
#include "src/commands/band_run.hpp"

namespace terrace {

/// One rank; the matrix in host memory.
template <class B>
class StreamRun {
 public:
  StreamRun(Run& run, Context<B>& context, const io::BandInput& input, const BandPlan& plan,
            Index nrhs)
      : shape_(plan.shape),
        problem_{shape_.n, shape_.half_bandwidth, file_source<B>(input)},
        run_(run),
        c_(context),
        input_(input),
        nrhs_(nrhs) {
    run.report["n"] = shape_.n;
    run.report["half_bandwidth"] = input.half_bandwidth();
    run.report["method"] = to_string(BandMethod::streamed);
    run.report["block"] = shape_.width;
    const BandStreamMemory memory = band_stream_memory<B>(shape_, nrhs);
    const Index check =
        run.options.no_check
            ? 0
            : band_memory(band_shape(shape_.n, shape_.half_bandwidth, 64), nrhs, 1, true).check;
    device_ = memory.device() + check;
    host_ =
        memory.host + 2 * shape_.padded() * nrhs * Index(sizeof(double)) + 3 * io::piece_bytes();
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    if (run.options.plan) describe(plan, memory, check);
  }

  void require() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    band_ = collectively(c_.control, [&] { return band_stream<B>(shape_); });
  }
  /// The matrix, or a stored factor of it.
  void read(const io::BandInput& from) {
    run_.phase("read", [&] {
      load_stream(c_, {shape_.n, shape_.half_bandwidth, file_source<B>(from)}, band_);
    });
  }
  /// The factor of what was read; with `y`, Y := L^-1 Y.
  void factor(BandStreamRows<B>* y) {
    Index failed = 0;
    run_.phase("solve", [&] { failed = stream_factor(c_, band_, y, run_.progress); });
    if (failed != 0) not_definite(run_, input_, failed);
  }

  const BandShape shape_;
  const BandProblem<B> problem_;
  BandStream<B> band_;

 private:
  void describe(const BandPlan& plan, const BandStreamMemory& m, Index check) {
    const BandShape& s = shape_;
    const Index slab = band_stream_slab(s);
    describe_band(run_, s, nrhs_);
    run_.say(fmt::format(
        "method streamed: {} tile columns of width {} in slabs of {}; slabs come from host memory "
        "and go back there while others are factored",
        s.tiles(), s.width, slab));
    for (const std::string& reason : plan.reasons) run_.say("why: " + reason);
    run_.say(fmt::format(
        "transfers: {} each way for the factor at the same time{}", size_text(m.host),
        nrhs_ > 0 ? ", and " + size_text(m.host) + " once more for the backward substitution"
                  : std::string()));
    run_.say(fmt::format(
        "memory: {} on the backend (window of {} tile columns {}, inverses {}, right-hand sides "
        "{}, scratch {}, check {}), {} on the host (matrix {})",
        size_text(device_), m.ring / (s.tile() * Index(sizeof(double))), size_text(m.ring),
        size_text(m.inverses), size_text(m.vectors), size_text(m.scratch), size_text(check),
        size_text(host_), size_text(m.host)));
  }

  Run& run_;
  Context<B>& c_;
  const io::BandInput& input_;
  const Index nrhs_;
  Index host_ = 0, device_ = 0;
};

}  // namespace terrace
