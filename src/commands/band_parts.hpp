// band solve from one end in one launch, from two ends, or by a partition.
#pragma once
#include "src/band/parts.hpp"
#include "src/commands/band_job.hpp"

namespace terrace {

template <class B>
class SolveByParts : public BandJob<B> {
  using Base = BandJob<B>;
  using Base::c_, Base::device_, Base::host_, Base::plan_, Base::problem_, Base::rows_, Base::run_,
      Base::shape_, Base::system_;

 public:
  SolveByParts(Run& run, Context<B>& context, const BandSystem& system, const BandPlan& plan)
      : Base(run, context, system, plan),
        own_(plan.rows_of(context.rank())),
        memory_(band_parts_memory<B>(plan, system.nrhs())),
        check_(Base::check_bytes(context.size())) {
    Base::own(own_);
    Base::take_note(host_bytes(plan), memory_.total() + check_);
  }

  [[nodiscard]] Work work() const {
    // The longest chain of tile columns, and the flops of the busiest rank.
    const double m = double(shape_.half_bandwidth);
    Index chain = 0;
    std::vector<double> flops(std::size_t(plan_.ranks), 0.0);
    for (Index p = 0; p < plan_.parts(); ++p) {
      chain = std::max(chain, plan_.tiles(p));
      flops[std::size_t(plan_.owner(p))] +=
          double(plan_.rows(p).count) * m * m * (plan_.has_arrow(p) ? 4 : 1);
    }
    if (const BandShape& s = plan_.reduced; s.n > 0) {
      chain += s.tiles();
      flops[0] += double(s.n) * double(s.half_bandwidth) * double(s.half_bandwidth);
    }
    return Base::work_of(to_string(plan_.method), chain,
                         *std::max_element(flops.begin(), flops.end()));
  }
  [[nodiscard]] PlanNeeds needs() const {
    const auto with = [this](const std::string& method, int ranks, Index more) {
      const BandPlan other = plan_band<B>(Base::request_for(method, ranks));
      const Index nrhs = system_.nrhs();
      return band_on_rank<B>(host_bytes(other),
                             (other.method == BandMethod::tile_columns
                                  ? band_memory(other.shape, nrhs, ranks, false).total()
                                  : band_parts_memory<B>(other, nrhs).total()) +
                                 more);
    };
    PlanNeeds needs = Base::needs_with_check(check_);
    needs.any_ranks = true;
    // Ends do not get shorter by more ranks than two.
    needs.memory = [this, with](int ranks) {
      if (ranks == c_.size()) return band_on_rank<B>(host_, device_);
      return with(to_string(plan_.method), ranks, Base::check_bytes(ranks));
    };
    needs.alternatives.push_back({"with --method tile-columns", [this, with] {
                                    return with("tile-columns", c_.size(), check_);
                                  }});
    needs.alternatives.push_back(Base::streamed_instead());
    return needs;
  }
  void describe() const {
    const Index last = plan_.parts() - 1, s = plan_.separator;
    Base::describe(
        fmt::format("method {}: {} parts, {} on a rank at most, tile columns of width {}",
                    to_string(plan_.method), plan_.parts(), plan_.per_rank(), shape_.width));
    if (last > 0)
      run_.say(fmt::format(
          "rows of the first part {}, of the last {}{}; separators of {} rows, their system of "
          "order {} on rank 0; one message of {} a part",
          plan_.rows(0).count, plan_.rows(last).count,
          last > 1 ? fmt::format(", of those between {}", plan_.rows(1).count) : "", s,
          plan_.reduced.n, size_text(3 * s * (s + 1) * Index(sizeof(double)))));
    run_.say(fmt::format(
        "memory per rank: {} on the backend (bands {}, inverses {}, spikes {}, separators {}, "
        "right-hand sides {}, reading {}, scratch {}, check {}), {} on the host for input and "
        "output",
        size_text(device_), size_text(memory_.band), size_text(memory_.inverses),
        size_text(memory_.spikes), size_text(memory_.reduced), size_text(memory_.vectors),
        size_text(memory_.slab), size_text(memory_.scratch), size_text(check_), size_text(host_)));
  }

  void take() {
    a_ = collectively(c_.control, [&] { return band_parts<B>(c_, plan_); });
    x_ = collectively(c_.control, [&] { return band_part_rows(a_, system_.nrhs()); });
  }
  void read() {
    rows_ = Base::right_hand_sides();
    set_rows(c_, a_, x_, rows_.data());
    if (system_.factor == nullptr)
      load_parts(c_, problem_, a_);
    else
      load_factor(c_, {shape_.n, problem_.half_bandwidth, file_source<B>(*system_.factor)}, a_);
  }
  void solve() {
    flip(1);
    if (system_.factor == nullptr) definite_ = factor_parts(c_, a_, &run_.progress);
    flip(2);
    if (definite_) solve_parts(c_, a_, x_);
  }
  /// Parts cannot know which leading minor fails first.
  [[nodiscard]] std::string gives_up() const {
    return definite_ ? "" : "a part is not positive definite";
  }
  void outcome() {
    Base::note_rate();
    get_rows(c_, a_, x_, rows_.data());
  }
  void check() {
    Base::judge_or_try_again(own_, [&] {
      read();
      if (system_.factor == nullptr && !factor_parts(c_, a_)) return false;
      solve_parts(c_, a_, x_);
      get_rows(c_, a_, x_, rows_.data());
      return true;
    });
  }

 private:
  [[nodiscard]] Index host_bytes(const BandPlan& plan) const {
    Index rows = 0;
    if (plan.method == BandMethod::tile_columns)
      rows = ceil_div(plan.shape.tiles(), Index(plan.ranks)) * plan.shape.width;
    else
      for (int rank = 0; rank < plan.ranks; ++rank) rows = std::max(rows, plan.rows_of(rank).count);
    return 2 * rows * system_.nrhs() * Index(sizeof(double)) + 3 * io::piece_bytes();
  }
  void flip(Index step) {
    if (!a_.memory.empty())
      flip_for_tests(c_.ahead, c_.rank(), step, a_.memory[0].data(), 8 * a_.memory[0].size());
  }

  const Range own_;
  const BandPartsMemory memory_;
  const Index check_;
  BandParts<B> a_;
  BandPartRows<B> x_;
  bool definite_ = true;
};

}  // namespace terrace
