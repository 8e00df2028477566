// The way of a window, tile column by tile column: src/band/window.hpp.
#include <utility>

#include "io/scratch.hpp"
#include "src/band/determinant.hpp"
#include "src/band/ways.hpp"
#include "src/band/window.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::band {
namespace {

/// This rank's tile columns in host memory or in its scratch file. To solve, or for the factor
/// alone.
template <class B>
class InWindow : public BandWay<B> {
  using Base = BandWay<B>;
  using Base::c, Base::plan, Base::system, Base::request, Base::progress, Base::hooks,
      Base::problem_, Base::failure, Base::rows, Base::solves, Base::stored;

 public:
  InWindow(const BandTask<B>& task, const BandPlan& plan)
      : Base(task, plan, BlockCyclic{plan.shape.n, plan.shape.width, task.c.size()}) {}

  void take() override {
    const BandShape& s = plan.shape;
    const bool in_file = plan.kept > 0;
    a_ = collectively(c.control, [&] { return band_window<B>(c, s, in_file); });
    if (in_file) {
      file_ = collectively(c.control, [&] {
        return io::ScratchFile(Base::scratch_folder(), a_.own * s.tile() * Index(sizeof(double)));
      });
      a_.store = band_store(file_);
    }
    if (solves()) x_ = collectively(c.control, [&] { return band_vectors<B>(c, s, request.nrhs); });
    if (system.places.substitution == "cpu")
      collectively(c.control, [&] { on_host_.emplace(c, s, request.nrhs); });
    if (stored()) return;
    work_ = collectively(c.control, [&] { return BandWork<B>(s); });
    if (system.places.diagonal == "cpu")
      work_.host_diagonal = collectively(c.control, [&] { return band_host_diagonal(s); });
  }
  void read() override {
    if (solves()) {
      rows = Base::right_hand_sides();
      Base::put_rows(x_.data.view());
    }
    load();
  }
  std::string solve() override {
    if (!stored()) factor();
    if (failure.minor != 0) return {};
    flip();
    if (!solves()) return {};
    if (on_host_)
      band_window_substitute_on_host(c, a_, x_, *on_host_, progress);
    else
      band_window_substitute(c, a_, x_, progress);
    return {};
  }
  /// With the guard a leading minor that is not definite has to fail once more.
  void settle() override {
    const Index first = failure.minor;
    if (first == 0 || !system.guard) return;
    Checkpoints* const kept = std::exchange(progress.checkpoints, nullptr);
    hooks.phase("read", [&] { load(); });
    hooks.phase("solve", [&] { factor(); });
    progress.checkpoints = kept;
    if (failure.minor == 0) failure = {first, false, true};
  }
  void finish() override {
    if (solves()) Base::get_rows_of(x_.data.view());
  }
  double residual(double* reciprocal) override {
    return solves() ? Base::residual_of_rows(x_.rows, reciprocal)
                    : band_factor_residual<B>(c, problem_, a_, system.seed, reciprocal);
  }
  double log_determinant(double*) override {
    const BandShape& s = a_.shape;
    std::vector<double> of_tiles(std::size_t(s.tiles()), 0.0);
    for (Index k = c.rank(); k < s.tiles(); k += c.size()) {
      LogProduct product;
      for (Index j = 0; j < std::min(s.width, s.n - k * s.width); ++j)
        product.times(a_.kept > 0 ? a_.diagonal[std::size_t(a_.number(k) * s.width + j)]
                                  : a_.host_tile(k)[j * s.column()]);
      of_tiles[std::size_t(k)] = product.log();
    }
    return band::log_determinant(c.control, std::move(of_tiles));
  }
  bool again() override {
    Checkpoints* const kept = std::exchange(progress.checkpoints, nullptr);
    read();
    solve();
    settle();
    progress.checkpoints = kept;
    if (failure.minor == 0) finish();
    return failure.minor == 0;
  }
  bool solve_more(std::vector<double>& more, Index nrhs) override {
    return Base::solve_in_vectors(
        more, nrhs, [&](BandVectors<B>& x) { band_window_substitute(c, a_, x, progress); });
  }
  void copy_factor(Index position, Index count, Index height, double* out) const override {
    const Index ld = plan.shape.column(), stored = std::min(height, plan.shape.half_bandwidth + 1);
    each_host_run(a_, position, count, [&](const double* from, Index columns) {
      for (Index j = 0; j < columns; ++j, out += height) std::copy_n(from + j * ld, stored, out);
    });
  }

 private:
  void load() { load_window(c, stored() ? band_problem<B>(system.factor) : problem_, a_); }
  void factor() { failure.minor = band_window_cholesky(c, a_, work_, progress); }
  /// TERRACE_TEST_FLIP, step 1: in the factor on the host, once.
  void flip() {
    if (std::exchange(flipped_, true) || a_.host.empty()) return;
    flip_for_tests(Stream<Cpu>(), c.rank(), 1, a_.host[0].data(), 8 * a_.host[0].size());
  }

  io::ScratchFile file_;
  BandWindow<B> a_;
  BandVectors<B> x_;
  BandWork<B> work_;
  std::optional<HostSubstitution<B>> on_host_;
  bool flipped_ = false;
};

}  // namespace

template <class B>
std::unique_ptr<BandWay<B>> band_way_in_window(const BandTask<B>& task, const BandPlan& plan) {
  return std::make_unique<InWindow<B>>(task, plan);
}

#define TERRACE_INSTANTIATE(B) \
  template std::unique_ptr<BandWay<B>> band_way_in_window(const BandTask<B>&, const BandPlan&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
