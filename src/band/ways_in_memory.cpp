#include <utility>

#include "src/band/determinant.hpp"
#include "src/band/guard.hpp"
#include "src/band/parts.hpp"
#include "src/band/ways.hpp"

namespace terrace::band {
namespace {

/// To solve, or for the factor alone.
template <class B>
class ByTileColumns : public BandWay<B> {
  using Base = BandWay<B>;
  using Base::c, Base::plan, Base::system, Base::request, Base::progress, Base::problem_,
      Base::hooks, Base::failure, Base::rows, Base::solves, Base::stored, Base::kept_;

 public:
  ByTileColumns(const BandTask<B>& task, const BandPlan& plan)
      : Base(task, plan, BlockCyclic{plan.shape.n, plan.shape.width, task.c.size()}) {}

  void take() override {
    const auto on_host = [](const std::string& place) {
      return place == "cpu" && std::is_same_v<B, Cuda>;
    };
    collectively(c.control, [&] {
      tiles_ = band_tiles<B>(c, plan.shape);
      if (stored()) return;
      work_ = BandWork<B>(plan.shape);
      if (on_host(system.places.diagonal)) work_.host_diagonal = band_host_diagonal(plan.shape);
    });
    if (!stored() && !plan.at_once) take_guard();
    if (!solves()) return;
    take_rows();
    if (on_host(system.places.substitution))
      collectively(c.control, [&] { host_.emplace(c, plan.shape, request.nrhs); });
  }
  void read() override {
    read_rows();
    read_matrix();
  }
  std::string solve() override {
    if (stored())
      flip_for_tests(c.ahead, c.rank(), 1, tiles_.data.data(), 8 * tiles_.data.size());
    else
      failure.minor = plan.at_once ? factor_at_once() : factor_in_steps();
    if (solves() && failure.minor == 0) substitute();
    return {};
  }
  /// What failed at once is done in steps, which know the leading minor. With the guard, a bit that
  /// flips may cost the matrix its definiteness: it has to fail once more.
  void settle() override {
    if (failure.minor != 0 && plan.at_once) {
      take_guard();
      try_in_steps();
    }
    if (failure.minor == 0 || !guard_) return;
    Checkpoints* const kept = std::exchange(progress.checkpoints, nullptr);
    const Index first = failure.minor;
    guard_.reset();
    band_clear(c, tiles_);
    try_in_steps();
    progress.checkpoints = kept;
    if (failure.minor == 0) failure = {first, false, true};
  }
  void finish() override {
    if (solves() && Base::wants_rows()) Base::get_rows_of(x_.data.view());
    if (guard_ && !request.check) hooks.phase("guard", [&] { guard_->verify(tiles_); });
  }
  bool place(double* to) const override {
    if (c.size() > 1) return false;
    const View<double, B> x = Base::whole_rows(x_.data);
    copy<double, B>(c.ahead, {to, x.size}, x);
    c.ahead.synchronize();
    return true;
  }
  double residual(double* reciprocal) override {
    if (solves() && system.rhs_at)
      return Base::residual_there(Base::whole_rows(x_.data), reciprocal);
    return solves()
               ? Base::residual_of_rows(x_.rows, reciprocal)
               : band_factor_residual<B>(c, Base::for_check(), tiles_, system.seed, reciprocal);
  }
  bool verify() override {
    if (guard_) guard_->verify(tiles_);
    return guard_.has_value();
  }
  /// What has no sums: a stored factor, and a factorization in one launch.
  bool again() override {
    band_clear(c, tiles_);
    if (!solves()) {
      read_matrix();
      return factor_at_once() == 0;
    }
    read();
    substitute();
    Base::get_rows_of(x_.data.view());
    return true;
  }
  double log_determinant(double*) override { return band::log_determinant(c, tiles_); }
  bool solve_more(std::vector<double>& more, Index nrhs) override {
    return Base::solve_in_vectors(
        more, nrhs, [&](BandVectors<B>& x) { band_substitute(c, tiles_, x, progress); });
  }
  bool solve_again() override {
    if (right_ != request.nrhs) take_rows();
    read_rows();
    substitute();
    return true;
  }
  void copy_factor(Index position, Index count, Index height, double* out) const override {
    copy_rows<double, B>(c.ahead, out, height, tiles_.data.data() + position * plan.shape.column(),
                         plan.shape.column(), std::min(height, plan.shape.half_bandwidth + 1),
                         count);
    c.ahead.synchronize();
  }

 private:
  void take_guard() {
    if (system.guard) collectively(c.control, [&] { guard_.emplace(c, plan.shape); });
  }
  void take_rows() {
    x_ = collectively(c.control, [&] { return band_vectors<B>(c, plan.shape, request.nrhs); });
    right_ = request.nrhs;
  }
  void read_rows() {
    if (!solves()) return;
    if (system.rhs_at) {
      copy<double, B>(c.ahead, Base::whole_rows(x_.data), {system.rhs_at, Base::numbers_of_rows()});
    } else {
      rows = Base::right_hand_sides();
      Base::put_rows(x_.data.view());
    }
  }
  void read_matrix() {
    const bool keeps = Base::keeps();
    read_tiles(c, stored() ? system.factor : system.matrix, tiles_);
    if (keeps) {
      kept_.copy_from(c.ahead, static_cast<const double*>(tiles_.data.data()),
                      tiles_.shape.column());
      kept_.seal(c.ahead);
    }
    if (guard_) guard_->begin(tiles_);
  }
  void try_in_steps() {
    hooks.phase("read", [&] { read_matrix(); });
    hooks.phase("solve", [&] { failure.minor = factor_in_steps(); });
  }
  [[nodiscard]] Index factor_in_steps() {
    work_.guard = guard_ ? &*guard_ : nullptr;
    const Index failed = band_cholesky(c, tiles_, work_, progress);
    if (failed == 0 && guard_) guard_->flip_after(tiles_);
    return failed;
  }
  /// When a pivot was bad the tiles are cleared.
  [[nodiscard]] Index factor_at_once() {
    const auto [numbers, words] = band_at_once_memory<B>(plan.shape);
    const Buffer<double, B> inverses(numbers);
    const Buffer<Word, B> scratch(words);
    const Index bad = band_cholesky_at_once(c, tiles_, inverses, scratch);
    if (bad != 0) band_clear(c, tiles_);
    return bad;
  }
  void substitute() {
    if (host_)
      band_substitute_on_host(c, tiles_, x_, *host_, progress);
    else
      band_substitute(c, tiles_, x_, progress);
  }

  BandTiles<B> tiles_;
  BandWork<B> work_;
  std::optional<BandGuard<B>> guard_;
  BandVectors<B> x_;
  Index right_ = 0;  // columns that x_ has room for
  std::optional<HostSubstitution<B>> host_;
};

/// From one end in one launch, from two ends, or by a partition.
template <class B>
class InParts : public BandWay<B> {
  using Base = BandWay<B>;
  using Base::c, Base::plan, Base::system, Base::request, Base::progress, Base::problem_,
      Base::rows, Base::stored, Base::kept_;

 public:
  InParts(const BandTask<B>& task, const BandPlan& plan)
      : Base(task, plan, plan.rows_of(task.c.rank())), own_(plan.rows_of(task.c.rank())) {}

  void take() override {
    a_ = collectively(c.control, [&] { return band_parts<B>(c, plan); });
    x_ = collectively(c.control, [&] { return band_part_rows(a_, request.nrhs); });
  }
  void read() override {
    read_rows();
    if (stored())
      load_factor(c, band_problem<B>(system.factor), a_);
    else
      load_matrix();
    place_rows();
  }
  /// Parts cannot know which leading minor fails first.
  std::string solve() override {
    flip(1);
    const bool definite = stored() || factor_parts(c, a_, &progress);
    flip(2);
    if (!definite) return "a part is not positive definite";
    solve_parts(c, a_, x_);
    return {};
  }
  void finish() override {
    if (Base::wants_rows()) get_rows(c, a_, x_, rows.data());
  }
  bool place(double* to) const override {
    if (c.size() > 1) return false;
    get_rows(c, a_, x_, to, true);
    return true;
  }
  double residual(double* reciprocal) override {
    if (!system.rhs_at) return Base::residual_of_rows(own_, reciprocal);
    const Buffer<double, B> x(Base::numbers_of_rows());
    get_rows(c, a_, x_, x.data(), true);
    return Base::residual_there(x.view(), reciprocal);
  }
  bool again() override {
    read();
    if (!stored() && !factor_parts(c, a_)) return false;
    solve_parts(c, a_, x_);
    finish();
    return true;
  }
  double log_determinant(double*) override { return band::log_determinant(c, a_); }
  bool solve_again() override {
    prepare_solves(c, a_);
    if (x_.nrhs != request.nrhs)
      x_ = collectively(c.control, [&] { return band_part_rows(a_, request.nrhs); });
    read_rows();
    place_rows();
    solve_parts(c, a_, x_);
    return true;
  }
  bool solve_more(std::vector<double>& more, Index nrhs) override {
    BandPartRows<B> x = collectively(c.control, [&] { return band_part_rows(a_, nrhs); });
    set_rows(c, a_, x, more.data());
    solve_parts(c, a_, x);
    get_rows(c, a_, x, more.data());
    return true;
  }

 private:
  void read_rows() {
    if (Base::solves() && !system.rhs_at) rows = Base::right_hand_sides();
  }
  void place_rows() {
    if (Base::solves())
      set_rows(c, a_, x_, system.rhs_at ? system.rhs_at : rows.data(), bool(system.rhs_at));
  }
  /// From what is kept, which is read at one go, or slab by slab.
  void load_matrix() {
    if (!Base::keeps()) return load_parts(c, problem_, a_);
    const Index width = problem_.half_bandwidth + 1;
    fill_zero(c.ahead, kept_.numbers());  // what is outside may not come
    problem_.source(c, {0, problem_.n}, width, width, kept_.doubles());
    BandProblem<B> from = problem_;
    from.here = {{kept_.doubles().data, width, 1}};
    load_parts(c, from, a_);
    kept_.seal(c.ahead);
  }
  void flip(Index step) {
    if (!a_.parts.empty())
      flip_for_tests(c.ahead, c.rank(), step, a_.parts[0].band,
                     8 * band_part_doubles(plan.shape, a_.parts[0].ring));
  }

  const Range own_;
  BandParts<B> a_;
  BandPartRows<B> x_;
};

}  // namespace

template <class B>
std::unique_ptr<BandWay<B>> band_way_in_memory(const BandTask<B>& task, const BandPlan& plan) {
  if (plan.method == BandMethod::tile_columns)
    return std::make_unique<ByTileColumns<B>>(task, plan);
  return std::make_unique<InParts<B>>(task, plan);
}

#define TERRACE_INSTANTIATE(B) \
  template std::unique_ptr<BandWay<B>> band_way_in_memory(const BandTask<B>&, const BandPlan&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
