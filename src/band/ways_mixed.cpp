// The way in mixed precision, on one rank and from two ends; with FP64 for what does not converge.
#include <fmt/core.h>

#include "src/band/mixed_ends.hpp"
#include "src/band/ways.hpp"

namespace terrace::band {
namespace {

/// One rank's tile columns, or an end of two. Several ranks, with nothing on those beyond the ends.
template <class B>
class InMixedPrecision : public BandWay<B> {
  using Base = BandWay<B>;
  using Base::c, Base::plan, Base::system, Base::request, Base::progress, Base::hooks, Base::notes,
      Base::rows, Base::problem_;

 public:
  InMixedPrecision(const BandTask<B>& task, const BandPlan& plan)
      : Base(task, plan, rows_of(task, plan)), own_(rows_of(task, plan)) {}

  void take() override {
    collectively(c.control, [&] {
      if (in_ends()) {
        ends_ = mixed_ends<B>(c, plan, request.nrhs);
        end_rows_ = band_part_rows(ends_.parts, request.nrhs);
        mixed_ = band_mixed<B>(ends_.shape, request.nrhs);
        mixed_.ends = &ends_;
      } else {
        a_ = band_tiles<B>(c, plan.shape);
        mixed_ = band_mixed<B>(plan.shape, request.nrhs);
        x_ = Buffer<double, B>(plan.shape.padded() * request.nrhs);
      }
    });
  }
  void read() override {
    rows = Base::right_hand_sides();
    if (in_ends()) {
      set_rows(c, ends_.parts, end_rows_, rows.data());
      return load_mixed_ends(c, problem_, ends_);
    }
    fill_zero(c.ahead, x_.view());
    Base::put_rows(x_.view());
    read_tiles(c, system.matrix, a_);
  }
  std::string solve() override {
    notes.factored = mixed_resume(c, mixed_, x(), progress) || mixed_factor(c, tiles(), mixed_);
    if (notes.factored) notes.found = mixed_solve(c, tiles(), mixed_, x(), {}, &progress);
    notes.shift = mixed_.shift;
    if (!notes.factored) return to_string(mixed_.failure);
    if (notes.found.reason == MixedReason::converged) return {};
    return fmt::format("{} after {} iterations", to_string(notes.found.reason),
                       notes.found.iterations);
  }
  void finish() override {
    hooks.phase("condition",
                [&] { notes.condition = mixed_condition(c, tiles(), mixed_, notes.found); });
    if (in_ends())
      get_rows(c, ends_.parts, end_rows_, rows.data());
    else
      Base::get_rows_of(x_.view());
  }
  double residual(double* reciprocal) override { return Base::residual_of_rows(own_, reciprocal); }
  double log_determinant(double* error) override {
    return mixed_log_determinant(c, tiles(), mixed_, error);
  }

 private:
  static Range rows_of(const BandTask<B>& task, const BandPlan& plan) {
    return plan.ranks > 1 ? plan.rows_of(task.c.rank()) : Range{0, plan.shape.n};
  }
  [[nodiscard]] bool in_ends() const { return plan.ranks > 1; }
  [[nodiscard]] View<const double, B> tiles() const {
    return in_ends() ? ends_.matrix()
                     : View<const double, B>(
                           a_.data.view().slice(0, plan.shape.tiles() * plan.shape.tile()));
  }
  [[nodiscard]] View<double, B> x() const { return in_ends() ? end_rows_.rows.view() : x_.view(); }

  const Range own_;
  BandTiles<B> a_;
  MixedEnds<B> ends_;
  BandPartRows<B> end_rows_;
  BandMixed<B> mixed_;
  Buffer<double, B> x_;
};

}  // namespace

template <class B>
std::unique_ptr<BandWay<B>> band_way_mixed(const BandTask<B>& task, const BandPlan& plan) {
  return std::make_unique<InMixedPrecision<B>>(task, plan);
}

#define TERRACE_INSTANTIATE(B) \
  template std::unique_ptr<BandWay<B>> band_way_mixed(const BandTask<B>&, const BandPlan&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
