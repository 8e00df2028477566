// What both eliminations over GF(2), by panels and by columns, do with the matrix itself: its place
// in a checkpoint, its check sums, and the loop's beginning and end.
#pragma once
#include <optional>

#include "src/frame/checkpoints.hpp"
#include "src/frame/eliminate.hpp"
#include "src/frame/guard.hpp"
#include "src/gf2/guard.hpp"
#include "src/gf2/matrix.hpp"
#include "src/gf2/plan.hpp"

namespace terrace::gf2 {

template <class B>
class GuardedMatrix {
 public:
  /// The check sums of --guard, of rows that are just read.
  void begin_guard() {
    if (guard_) guard_->begin();
  }
  /// After the updates of panel k, on the same lane.
  void guard(const Stream<B>& lane, Index k) {
    if (guard_)
      guard_->step(lane, k);
    else
      flip_for_tests(lane, context_.rank(), k + 1, matrix_.data.data(), 8 * matrix_.data.size());
  }

 protected:
  GuardedMatrix(Context<B>& context, BitMatrix<B>& matrix) : context_(context), matrix_(matrix) {}

  /// A check reads the matrix once; one per so many columns keeps it below 1 % of the time. A panel
  /// has `columns`.
  void guard_with(bool inverse, const PanelPlan& plan, Index columns) {
    const Index usual = ceil_div(std::is_same_v<B, Cpu> ? 4096 : 65536, columns);
    guard_.emplace(context_, matrix_, inverse, plan.witness,
                   plan.guard_interval > 0 ? plan.guard_interval : usual);
  }
  void archive_rows(Archive& archive) {
    archive.rows(context_.ahead, "rows", matrix_.layout.extent, matrix_.words,
                 matrix_.layout.ranges(context_.rank()), matrix_.data.data(), matrix_.stride);
  }

  Context<B>& context_;
  BitMatrix<B>& matrix_;
  std::optional<BitGuard<B>> guard_;
};

}  // namespace terrace::gf2
