// band solve --precision mixed.
#pragma once
#include "src/band/mixed.hpp"
#include "src/commands/band_job.hpp"

namespace terrace {

template <class B>
class SolveMixed : public BandJob<B> {
  using Base = BandJob<B>;
  using Base::c_, Base::device_, Base::host_, Base::rows_, Base::run_, Base::shape_, Base::system_;

 public:
  SolveMixed(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : Base(run, context, system, plan),
        needs_(mixed_needs<B>(shape_, system.nrhs(), Base::has_check())) {
    run.report["precision"] = run.settings["precision"] = "mixed";
    Base::own(all_);
    Base::take_note(
        (2 * system.nrhs() + 4) * shape_.padded() * Index(sizeof(double)) + 3 * io::piece_bytes(),
        needs_.total());
  }

  [[nodiscard]] Work work() const {
    return Base::work_of("mixed", shape_.tiles(), Base::factor_flops());
  }
  [[nodiscard]] PlanNeeds needs() const {
    PlanNeeds needs = Base::needs_with_check(needs_.memory.check);
    needs.alternatives.push_back(
        {"with --precision fp64", [this] {
           const BandShape s = plan_band<B>(Base::request_for("tile-columns", 1)).shape;
           return band_on_rank<B>(host_,
                                  band_memory(s, system_.nrhs(), 1, Base::has_check()).total());
         }});
    needs.alternatives.push_back(Base::streamed_instead());
    return needs;
  }
  void describe() const {
    Base::describe(fmt::format(
        "method mixed: a factor in {} precision of {} tile columns of width {}, and conjugate "
        "gradients in double precision with it, {} right-hand sides at a time",
        std::is_same_v<B, Cuda> ? "half" : "single", shape_.tiles(), shape_.width,
        std::min(std::max<Index>(system_.nrhs(), 1), kMixedGroup)));
    run_.say(fmt::format(
        "memory: {} on the backend (matrix in FP64 {}, factor in low precision {}, vectors {}, "
        "scratch {}, check {}), {} on the host for input and output",
        size_text(device_), size_text(needs_.memory.matrix), size_text(needs_.mixed.factor),
        size_text(needs_.mixed.vectors + needs_.rows), size_text(needs_.mixed.scratch),
        size_text(needs_.memory.check), size_text(host_)));
  }

  void take() {
    const Index nrhs = system_.nrhs();
    collectively(c_.control, [&] {
      a_ = band_tiles<B>(c_, shape_);
      mixed_ = band_mixed<B>(shape_, nrhs);
      x_ = Buffer<double, B>(shape_.padded() * nrhs);
    });
  }
  void read() {
    rows_ = Base::right_hand_sides();
    fill_zero(c_.ahead, x_.view());
    upload(c_.ahead, x_.view().slice(0, Index(rows_.size())), rows_.data());
    c_.ahead.synchronize();
    read_tiles(c_, system_.matrix, a_);
  }
  void solve() {
    factored_ = mixed_resume(c_, mixed_, x_, run_.progress) || mixed_factor(c_, tiles(), mixed_);
    if (factored_) found_ = mixed_solve(c_, tiles(), mixed_, x_, {}, &run_.progress);
  }
  [[nodiscard]] std::string gives_up() {
    nlohmann::json& report = run_.report["result"];
    report["iterations"] = found_.iterations;
    report["restarts"] = found_.restarts;
    report["shift"] = mixed_.shift;
    if (!factored_) return to_string(mixed_.failure);
    report["preconditioned_eigenvalues"] = {found_.smallest, found_.largest};
    if (found_.reason != MixedReason::converged)
      return fmt::format("{} after {} iterations", to_string(found_.reason), found_.iterations);
    return {};
  }
  void outcome() {
    run_.report["result"]["backward_error"] = found_.backward_error;
    run_.phase("condition", [&] { condition_ = mixed_condition(c_, tiles(), mixed_, found_); });
    if (std::isfinite(condition_)) run_.report["condition_estimate"] = condition_;
    Base::note_rate();
    download(c_.ahead, rows_.data(), x_.view().slice(0, Index(rows_.size())));
    c_.ahead.synchronize();
  }
  void check() {  // --guard is refused
    Base::judge_solution(all_, [](const auto&) {});
  }
  [[nodiscard]] std::string sentence() const {
    return Base::sentence() +
           fmt::format(
               "\nmixed precision: {} iterations, {} restarts, backward error {:.3g}, "
               "condition about {:.3g}",
               found_.iterations, found_.restarts, found_.backward_error, condition_);
  }

 private:
  [[nodiscard]] View<const double, B> tiles() const {
    return a_.data.view().slice(0, shape_.tiles() * shape_.tile());
  }

  const Range all_{0, shape_.n};
  const MixedNeeds needs_;
  BandTiles<B> a_;
  BandMixed<B> mixed_;
  Buffer<double, B> x_;
  bool factored_ = false;
  MixedResult found_;
  double condition_ = 0;
};

}  // namespace terrace
