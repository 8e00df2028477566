// band factor and band solve by tile columns.
#pragma once
#include "src/band/guard.hpp"
#include "src/band/parts.hpp"
#include "src/commands/band_job.hpp"

namespace terrace {

/// The factorization by tile columns on one backend.
template <class B>
class TileColumnsWay : public BandJob<B> {
  using Base = BandJob<B>;

 public:
  TileColumnsWay(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : Base(run, context, system, plan),
        rows_of_x_{shape_.padded(), shape_.width, context.size()},
        memory_(band_memory(shape_, system.nrhs(), context.size(), Base::has_check())) {
    Base::own(BlockCyclic{shape_.n, shape_.width, context.size()});
    Index device = memory_.total();
    if (plan.at_once) {
      const auto [numbers, words] = band_at_once_memory<B>(shape_);
      device += (numbers + words) * Index(sizeof(double));
    }
    if (run.options.guard) device += BandGuard<B>::bytes(shape_);
    Base::take_note(host_bytes(context.size()), device);
    if (system.factor) Base::require_check("a stored factor");
  }

  [[nodiscard]] Work work() const {
    return Base::work_of(plan_.at_once ? "at once" : "tile-columns", shape_.tiles(),
                         Base::factor_flops() / c_.size());
  }
  [[nodiscard]] PlanNeeds needs() const {
    const auto memory = [this]<class D>(D, int ranks, bool check) {
      return band_on_rank<D>(
          host_bytes(ranks),
          band_memory(shape_, system_.nrhs(), ranks, check).total() + device_ - memory_.total());
    };
    const bool check = Base::has_check();
    PlanNeeds needs;
    needs.memory = [=](int ranks) { return memory(B{}, ranks, check); };
    if (check)
      needs.alternatives.push_back(
          {"with --no-check", [=, this] { return memory(B{}, c_.size(), false); }});
    needs.alternatives.push_back(Base::streamed_instead());
    if (!std::is_same_v<B, Cpu>)
      needs.alternatives.push_back(
          {"with --backend cpu", [=, this] { return memory(Cpu{}, c_.size(), check); }});
    return needs;
  }
  void describe() const {
    Base::describe(
        fmt::format("method tile-columns: {} tile columns of width {} dealt to {} ranks; the width "
                    "{}",
                    shape_.tiles(), shape_.width, c_.size(),
                    run_.options.block > 0
                        ? "was asked for"
                        : "makes the update a matrix product of full rate while the chain "
                          "of diagonal blocks stays short"),
        system_.rhs != nullptr);
    run_.say("one panel broadcast per tile column: " + size_text(memory_.panels / 2));
    run_.say(fmt::format("on the backend: matrix {}, panels {}, right-hand sides {}, check {}",
                         size_text(memory_.matrix), size_text(memory_.panels),
                         size_text(memory_.solution), size_text(memory_.check)));
  }

  void take() {
    collectively(c_.control, [&] {
      tiles_ = band_tiles<B>(c_, shape_);
      if (system_.factor) return;
      work_ = BandWork<B>(shape_);
      if (system_.places.diagonal == "cpu" && std::is_same_v<B, Cuda>)
        work_.host_diagonal = band_host_diagonal(shape_);
    });
    if (!system_.factor && !plan_.at_once) take_guard();
  }
  void read() {
    if (!system_.factor)
      run_.report["places"]["diagonal"] =
          std::is_same_v<B, Cpu> || work_.host_diagonal.size() > 0 ? "cpu" : "gpu";
    read_tiles(c_, system_.factor ? *system_.factor : system_.matrix, tiles_);
    if (guard_) guard_->begin(tiles_);
  }

 protected:
  /// tiles_ := the factor of the matrix, or failed_.
  void factor() { failed_ = plan_.at_once ? factor_at_once() : factor_in_steps(); }
  /// What failed at once is done in steps, which know the leading minor. With --guard, a bit that
  /// flips may cost the matrix its definiteness: it has to fail once more.
  void settle() {
    if (failed_ != 0 && plan_.at_once) {
      take_guard();
      run_.phase("read", [&] { read(); });
      run_.phase("solve", [&] { failed_ = factor_in_steps(); });
    }
    if (failed_ != 0 && guard_) confirm();
    if (failed_ != 0) Base::not_definite(failed_);
    if (!system_.rhs) guard();
  }
  /// --guard with --no-check.
  void guard() {
    if (guard_ && !Base::has_check()) run_.phase("guard", [&] { guard_->verify(tiles_); });
  }
  [[nodiscard]] double factor_residual(double* reciprocal) {
    return band_factor_residual<B>(c_, problem_, tiles_, Word(run_.options.seed), reciprocal);
  }
  /// With --guard, where a check has failed: ends the job if the factor is not right any more. A
  /// factorization in one launch is done again, and its residual taken. Collective.
  void verify_factor(const typename Base::Residual& residual) {
    if (guard_) return guard_->verify(tiles_);
    Base::try_again(
        [&] {
          band_clear(c_, tiles_);
          read();
          return factor_at_once() == 0;
        },
        residual);
  }
  void copy_factor(Index position, Index count, Index height, double* out) const {
    copy_rows<double, B>(c_.ahead, out, height, tiles_.data.data() + position * shape_.column(),
                         shape_.column(), std::min(height, shape_.half_bandwidth + 1), count);
    c_.ahead.synchronize();
  }

  using Base::c_, Base::device_, Base::failed_, Base::plan_, Base::problem_, Base::run_,
      Base::shape_, Base::system_;
  const BlockCyclic rows_of_x_;
  BandTiles<B> tiles_;

 private:
  [[nodiscard]] Index host_bytes(int ranks) const {  // with x and b
    const Index rows = 2 * ceil_div(shape_.tiles(), Index(ranks)) * shape_.width * system_.nrhs();
    return rows * Index(sizeof(double)) + 3 * io::piece_bytes();
  }
  void take_guard() {
    if (run_.options.guard) collectively(c_.control, [&] { guard_.emplace(c_, shape_); });
  }
  [[nodiscard]] Index factor_in_steps() {
    work_.guard = guard_ ? &*guard_ : nullptr;
    const Index failed = band_cholesky(c_, tiles_, work_, run_.progress);
    if (failed == 0 && guard_) guard_->flip_after(tiles_);
    return failed;
  }
  /// When a pivot was bad the tiles are cleared.
  [[nodiscard]] Index factor_at_once() {
    const auto [numbers, words] = band_at_once_memory<B>(shape_);
    const Buffer<double, B> inverses(numbers);
    const Buffer<Word, B> scratch(words);
    const Index bad = band_cholesky_at_once(c_, tiles_, inverses, scratch);
    if (bad != 0) band_clear(c_, tiles_);
    return bad;
  }
  /// failed_ := the minor that fails with the matrix read again; a fault if there is none.
  void confirm() {
    Checkpoints* const kept = std::exchange(run_.progress.checkpoints, nullptr);
    const Index first = failed_;
    guard_.reset();
    band_clear(c_, tiles_);
    run_.phase("read", [&] { read(); });
    run_.phase("solve", [&] { failed_ = factor_in_steps(); });
    run_.progress.checkpoints = kept;
    run_.require_same_inputs();
    if (failed_ == 0) Base::definite_after_all(first);
  }

  const BandMemory memory_;
  BandWork<B> work_;
  std::optional<BandGuard<B>> guard_;
};

template <class B>
class SolveByTileColumns : public TileColumnsWay<B> {
  using Base = TileColumnsWay<B>;
  using Base::c_, Base::failed_, Base::rows_, Base::rows_of_x_, Base::run_, Base::shape_,
      Base::system_, Base::tiles_;

 public:
  using Base::Base;

  void take() {
    Base::take();
    const Index nrhs = system_.nrhs();
    x_ = collectively(c_.control, [&] { return band_vectors<B>(c_, shape_, nrhs); });
    if (system_.places.substitution == "cpu" && std::is_same_v<B, Cuda>)
      collectively(c_.control, [&] { host_.emplace(c_, shape_, nrhs); });
  }
  void read() {
    rows_ = Base::right_hand_sides();
    upload(c_.ahead, x_.data.view(), rows_.data());
    c_.ahead.synchronize();
    Base::read();
  }
  void solve() {
    if (system_.factor)
      flip_for_tests(c_.ahead, c_.rank(), 1, tiles_.data.data(), 8 * tiles_.data.size());
    else
      Base::factor();
    if (failed_ == 0) substitute();
  }
  void outcome() {
    Base::settle();
    run_.report["places"]["substitution"] = std::is_same_v<B, Cpu> || host_ ? "cpu" : "gpu";
    Base::note_rate();
    fetch();
    Base::guard();
  }
  void check() {
    Base::judge_solution(rows_of_x_, [&](const typename Base::Residual& residual) {
      if (!system_.factor) return Base::verify_factor(residual);
      Base::try_again(
          [&] {
            read();
            substitute();
            fetch();
            return true;
          },
          residual);
    });
  }

 private:
  void substitute() {
    if (host_)
      band_substitute_on_host(c_, tiles_, x_, *host_, run_.progress);
    else
      band_substitute(c_, tiles_, x_, run_.progress);
  }
  void fetch() {
    download(c_.ahead, rows_.data(), x_.data.view());
    c_.ahead.synchronize();
  }

  BandVectors<B> x_;
  std::optional<HostSubstitution<B>> host_;
};

}  // namespace terrace
