// band solve --method streamed with --diagonal or --substitution: a window on the backend.
#pragma once
#include "src/band/window.hpp"
#include "src/commands/band_job.hpp"

namespace terrace {

template <class B>
class SolveInWindow : public BandJob<B> {
  using Base = BandJob<B>;
  using Base::c_, Base::device_, Base::failed_, Base::host_, Base::problem_, Base::rows_,
      Base::run_, Base::shape_, Base::system_;

 public:
  SolveInWindow(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : Base(run, context, system, plan) {
    Base::own(BlockCyclic{shape_.n, shape_.width, context.size()});
    const auto [beside, on] = bytes(context.size());
    Base::take_note(beside, on);
  }

  [[nodiscard]] Work work() const {
    return Base::work_of("streamed, in a window", shape_.tiles(), Base::factor_flops() / c_.size());
  }
  [[nodiscard]] PlanNeeds needs() const {
    PlanNeeds needs;
    needs.memory = [this](int ranks) {
      const auto [beside, on] = bytes(ranks);
      return band_on_rank<B>(beside, on);
    };
    return needs;
  }
  void describe() const {
    const auto place = [](const std::string& asked) {
      return !asked.empty() ? asked : std::is_same_v<B, Cuda> ? "gpu" : "cpu";
    };
    Base::describe(fmt::format(
        "method streamed: {} tile columns of width {}, one after the other; diagonal blocks by "
        "the {}, substitution by the {}",
        shape_.tiles(), shape_.width, place(system_.places.diagonal),
        place(system_.places.substitution)));
    const BandWindowMemory m = band_window_memory(shape_, system_.nrhs(), c_.size());
    run_.say(fmt::format(
        "memory per rank: {} on the backend (window of {} tile columns {}, panels {}, right-hand "
        "sides {}), {} on the host (matrix {})",
        size_text(device_), band_window_slots(shape_, c_.size()), size_text(m.ring),
        size_text(m.panels), size_text(m.solution), size_text(host_), size_text(m.host)));
  }

  void take() {
    const Index nrhs = system_.nrhs();
    a_ = collectively(c_.control, [&] { return band_window<B>(c_, shape_); });
    x_ = collectively(c_.control, [&] { return band_vectors<B>(c_, shape_, nrhs); });
    if (system_.places.substitution == "cpu")
      collectively(c_.control, [&] { on_host_.emplace(c_, shape_, nrhs); });
    if (system_.factor) return;
    work_ = collectively(c_.control, [&] { return BandWork<B>(shape_); });
    if (system_.places.diagonal == "cpu")
      work_.host_diagonal = collectively(c_.control, [&] { return band_host_diagonal(shape_); });
  }
  void read() {
    rows_ = Base::right_hand_sides();
    upload(c_.ahead, x_.data.view(), rows_.data());
    c_.ahead.synchronize();
    load();
  }
  void solve() {
    if (!system_.factor) failed_ = factor();
    if (failed_ != 0) return;
    if (!std::exchange(flipped_, true) && !a_.host.empty())
      flip_for_tests(Stream<Cpu>(), c_.rank(), 1, a_.host[0].data(), 8 * a_.host[0].size());
    if (on_host_)
      band_window_substitute_on_host(c_, a_, x_, *on_host_, run_.progress);
    else
      band_window_substitute(c_, a_, x_, run_.progress);
  }
  void outcome() {
    finish();
    Base::note_rate();
  }
  void check() {
    Base::judge_or_try_again(x_.rows, [&] {
      read();
      solve();
      finish();
      return true;
    });
  }

 private:
  /// Of a rank: beside the backend, and on it.
  [[nodiscard]] std::pair<Index, Index> bytes(int ranks) const {
    const Index nrhs = system_.nrhs(), word = sizeof(double);
    const BandWindowMemory m = band_window_memory(shape_, nrhs, ranks);
    const Index rows = ceil_div(shape_.tiles(), Index(ranks)) * shape_.width * nrhs;
    const Index tiles = system_.places.substitution == "cpu" ? 2 * shape_.tile() + 2 * rows : 0;
    return {m.host + (2 * rows + tiles) * word + 3 * io::piece_bytes(),
            m.device() + Base::check_bytes(ranks)};
  }
  void load() {
    if (system_.factor)
      load_window(c_, {shape_.n, shape_.half_bandwidth, file_source<B>(*system_.factor)}, a_);
    else
      load_window(c_, problem_, a_);
  }
  [[nodiscard]] Index factor() { return band_window_cholesky(c_, a_, work_, run_.progress); }
  /// rows_ := x, unless a leading minor is not definite: with --guard it has to fail once more.
  void finish() {
    if (const Index first = failed_; first != 0) {
      if (run_.options.guard) {
        run_.phase("read", [&] { load(); });
        run_.phase("solve", [&] { failed_ = factor(); });
      }
      if (failed_ != 0) Base::not_definite(failed_);
      Base::definite_after_all(first);
    }
    download(c_.ahead, rows_.data(), x_.data.view());
    c_.ahead.synchronize();
  }

  BandWindow<B> a_;
  BandVectors<B> x_;
  BandWork<B> work_;
  std::optional<HostSubstitution<B>> on_host_;
  bool flipped_ = false;
};

}  // namespace terrace
