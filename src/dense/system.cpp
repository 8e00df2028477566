#include "src/dense/system.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/random.hpp"
#include "kernels/dense/probes.hpp"
#include "src/frame/guard.hpp"

namespace terrace::dense {

template <class B>
DenseSystem<B>::DenseSystem(Context<B>& context, const DensePlan& plan, RowReader a, RowReader b)
    : context_(context),
      plan_(plan),
      a_(std::move(a)),
      b_(std::move(b)),
      first_(plan.inverse || plan.factor ? 0 : plan.n),
      width_(plan.inverse || plan.factor ? plan.n : plan.rhs) {}

template <class B>
DenseSystem<B>::DenseSystem(Context<B>& context, const DensePlan& plan, RowReader a, RowReader b,
                            StoredFactor factor)
    : DenseSystem(context, plan, std::move(a), std::move(b)) {
  stored_ = std::move(factor);
}

template <class B>
InverseRows<B> DenseSystem<B>::held() const {
  return textbook_ ? InverseRows<B>(*textbook_) : InverseRows<B>(*jordan_);
}

/// Columns [from, from + columns) of this rank's rows, to the host.
template <class B>
io::Source<double> DenseSystem<B>::stored(Index from, Index columns) const {
  return [this, held = held(), from, columns](Index position, Index count, double* out) {
    copy_rows<double>(context_.ahead, out, columns, held.data.data + position * held.ld + from,
                      held.ld, columns, count);
    context_.ahead.synchronize();
  };
}

/// Rows of this rank from `read`, at column `from`.
template <class B>
void DenseSystem<B>::load(Index from, Index columns, const RowReader& read, ColumnSizes* sizes) {
  const InverseRows<B> to = held();
  const auto copy = [&](Index position, Index count, const double* rows) {
    copy_rows<double>(context_.ahead, to.data.data + position * to.ld + from, to.ld, rows, columns,
                      columns, count);
  };
  const std::vector<Range> ranges = to.rows.ranges(context_.rank());
  if (!sizes)
    return read.for_copying(ranges, [&](Index position, Index count, const double* rows) {
      copy(position, count, rows);
      context_.ahead.synchronize();
    });
  read(ranges, [&](Index position, Index count, const double* rows) {
    copy(position, count, rows);
    sizes->take(count, rows);
    context_.ahead.synchronize();
  });
}

/// Columns [from, ...) of the rows, where they are.
template <class B>
void DenseSystem<B>::scale(Index from, const Powers& powers) {
  const InverseRows<B> rows = held();
  if (!scales(powers) || rows.slots == 0) return;
  scale(rows.slots, rows.data.slice(from, rows.data.size - from), rows.ld, powers);
}
template <class B>
void DenseSystem<B>::scale(Index rows, View<double, B> columns, Index ld, const Powers& powers) {
  const Buffer<Index, B> power(Index(powers.size()));
  upload(context_.ahead, power.view(), powers.data());
  scale_columns<B>(context_.ahead, rows, power.view(), columns, ld);
  context_.ahead.synchronize();
}

/// Their columns, right of B.
template <class B>
View<double, B> DenseSystem<B>::probes() const {
  const View<double, B> all = held().data;
  const Index from = std::min(all.size, plan_.n + plan_.rhs);
  return all.slice(from, all.size - from);
}

/// Of A's rows: the same estimate from the elimination and from its factors that are read again.
template <class B>
void DenseSystem<B>::put_probes() {
  const InverseRows<B> to = held();
  if (to.slots == 0 || plan_.probes == 0) return;
  std::vector<Index> rows(static_cast<std::size_t>(to.slots));
  for (Index s = 0; s < to.slots; ++s)
    rows[std::size_t(s)] = stored_ ? row_of_factor(s) : to.rows.global(s, context_.rank());
  const Buffer<Index, B> row(to.slots);
  upload(context_.ahead, row.view(), rows.data());
  terrace::dense::put_probes<B>(context_.ahead, row, probes(), to.ld);
  context_.ahead.synchronize();
}

/// A for the check, where all that this asks of it are products.
template <class B>
void DenseSystem<B>::keep_matrix() {
  if (plan_.guard || textbook_ || plan_.mixed ||
      (plan_.inverse && (plan_.exact_check || is_checked_exactly(plan_.n))))
    return;
  const InverseRows<B> to = held();
  const std::vector<Range> ranges = to.rows.ranges(context_.rank());
  if (!kept_.take(context_, reread_, ranges, plan_.n, plan_.bytes)) return;
  kept_.copy_from(context_.ahead, static_cast<const double*>(to.data.data), to.ld);
  kept_.seal(context_.ahead);
}

/// Of row i of A; any numbers will do.
double test_number(Index i) { return random_uniform(0x7e57, i, 0); }

template <class B>
void DenseSystem<B>::put_test(bool factored) {
  const InverseRows<B> to = held();
  std::vector<double> column(static_cast<std::size_t>(to.slots));
  for (Index s = 0; s < to.slots; ++s) {
    const Index row = factored ? row_of_factor(s) : to.rows.global(s, context_.rank());
    column[std::size_t(s)] = test_number(row);
  }
  if (to.slots > 0)
    copy_rows<double>(context_.ahead, to.data.data + plan_.n, to.ld, column.data(), 1, 1, to.slots);
  context_.ahead.synchronize();
}

template <class B>
Index DenseSystem<B>::row_of_factor(Index slot) const {
  const std::vector<Index>& rows = stored_ ? stored_->rows : jordan_->pivot_rows();
  return rows[std::size_t(jordan_->destination()[std::size_t(slot)])];
}

template <class B>
void DenseSystem<B>::load_factored(Index power) {
  const InverseRows<B> to = held();
  std::vector<Index> slot_of(static_cast<std::size_t>(plan_.n), Index(-1));  // of rows of B
  for (Index s = 0; s < to.slots; ++s) slot_of[std::size_t(row_of_factor(s))] = s;
  std::vector<double> own(std::size_t(to.slots * plan_.rhs));
  ColumnSizes of_b(plan_.rhs);
  const Range all{0, plan_.n};
  b_({&all, 1}, [&](Index position, Index count, const double* rows) {
    of_b.take(count, rows);
    for (Index i = 0; i < count; ++i)
      if (const Index s = slot_of[std::size_t(position + i)]; s >= 0)
        std::copy_n(rows + i * plan_.rhs, plan_.rhs, own.begin() + s * plan_.rhs);
  });
  if (to.slots > 0)
    copy_rows<double>(context_.ahead, to.data.data + plan_.n, to.ld, own.data(), plan_.rhs,
                      plan_.rhs, to.slots);
  context_.ahead.synchronize();
  of_b.reduce(context_.control);
  powers_ = SystemPowers(plan_.n, power, of_b);
  scale(plan_.n, powers_.b);
}

template <class B>
void DenseSystem<B>::read_stored() {
  load(0, plan_.n, stored_->read);
  jordan_->adopt_factors();
  if (plan_.factor) {
    powers_ = SystemPowers(plan_.n, stored_->power, ColumnSizes(0));
    put_test(true);
  } else {
    load_factored(stored_->power);
  }
  put_probes();
  norm_a_ = stored_->norm;
}

template <class B>
void DenseSystem<B>::read() {
  if (textbook_)
    textbook_->reset();
  else if (plan_.method == "textbook")
    textbook_.emplace(context_, plan_textbook(plan_.n, plan_.launch));
  else if (!jordan_)
    jordan_.emplace(context_, plan_);
  if (plan_.float_block > 0) {
    if (!floats_) floats_.emplace(context_, FloatLuShape{plan_.n, plan_.float_block}, plan_.right);
  } else if (plan_.mixed) {
    collectively(context_.control, [&] {
      const Index numbers = plan_.rows.slots(context_.rank()) * plan_.n;
      if (doubles_.size() != numbers) doubles_ = Buffer<double, B>(numbers);
    });
  }
  if (stored_) return read_stored();
  load(0, plan_.n, a_);
  keep_matrix();
  const InverseRows<B> rows = held();
  Sizes of_a = sizes_of<B>(context_.ahead, rows.slots, plan_.n, rows.data, rows.ld);
  of_a.largest = context_.control.reduce(of_a.largest, Reduce::max);
  of_a.least = context_.control.reduce(of_a.least, Reduce::min);
  if (!std::isfinite(of_a.largest) && refuse_) refuse_();
  if (plan_.inverse || plan_.factor) {
    powers_ = SystemPowers(plan_.n, of_a);
    if (plan_.factor) powers_.result = Powers(std::size_t(plan_.n), 0);
    if (plan_.factor) put_test(false);
  } else {
    ColumnSizes of_b(plan_.rhs);
    load(plan_.n, plan_.rhs, b_, &of_b);
    of_b.reduce(context_.control);
    if (!of_b.finite() && refuse_) refuse_();
    powers_ = SystemPowers(plan_.n, of_a, of_b);
  }
  scale(0, powers_.a);
  if (kept_.holds() && scales(powers_.a) && rows.slots > 0)
    scale(rows.slots, kept_.doubles(), plan_.n, powers_.a);
  scale(plan_.n, powers_.b);
  if (plan_.mixed && !floats_ && rows.slots > 0)
    copy_rows<double>(context_.ahead, doubles_.data(), plan_.n, rows.data.data, rows.ld, plan_.n,
                      rows.slots);
  if (!plan_.inverse) put_probes();
  norm_a_ = norm_of_rows<B>(context_, plan_.inverse ? Norm::one : Norm::infinity, rows.slots,
                            plan_.n, rows.data, rows.ld);
}

template <class B>
EliminationOutcome DenseSystem<B>::solve(Progress& progress, const StageTimes<B>& stages) {
  kept_.begin();
  if (stored_) {
    EliminationOutcome found = jordan_->solve_factored(plan_.right);
    if (found.good() && !settles()) found.overflow = true;
    found.log_abs_determinant = stored_->log_abs_determinant;
    found.determinant_sign = stored_->determinant_sign;
    return found;
  }
  if (plan_.mixed) return solve_mixed(progress, stages);
  EliminationOutcome found =
      textbook_ ? textbook_->run(progress) : jordan_->run_guarded(progress, [this] { read(); });
  if (found.good() && !settles()) found.overflow = true;
  moduli_ = plan_.moduli;
  if (moduli_ < accurate_moduli && !is_accepted(found)) {
    moduli_ = accurate_moduli;
    jordan_->set_moduli(moduli_);
    Checkpoints* const checkpoints = std::exchange(progress.checkpoints, nullptr);
    read();
    kept_.begin();
    found = jordan_->run_guarded(progress, [this] { read(); });
    progress.checkpoints = checkpoints;
    if (found.good() && !settles()) found.overflow = true;
    jordan_->set_moduli(plan_.moduli);
  }
  found.log_abs_determinant = powers_.log_determinant(found.log_abs_determinant);
  return found;
}

/// With fewer moduli: by the residual, which check() then need not form again.
template <class B>
bool DenseSystem<B>::is_accepted(const EliminationOutcome& found) {
  if (!found.good()) return false;
  const double ratio = residual([&](const InverseResidual& r) { seen_ = r; });
  if (ratio < 1) {
    ratio_ = ratio;
    return true;
  }
  seen_.reset();
  return false;
}

template <class B>
EliminationOutcome DenseSystem<B>::solve_again(Index right, RowReader b) {
  plan_.rhs = width_ = right;
  first_ = plan_.n;
  again_ = true;
  b_ = std::move(b);
  load_factored(powers_.a.empty() ? 0 : powers_.a[0]);
  EliminationOutcome found = jordan_->solve_factored(right);
  if (found.good() && !settles()) found.overflow = true;
  return found;
}

/// The result gets the bits that it will have once it is multiplied by its powers; false when that
/// is not finite.
template <class B>
bool DenseSystem<B>::settles() {
  if (!scales(powers_.result)) return true;
  scale(first_, powers_.result);
  const InverseRows<B> x = held();
  const double mine = x.slots == 0 || width_ == 0
                          ? 0.0
                          : max_abs<B>(context_.ahead, x.slots, width_,
                                       x.data.slice(first_, x.data.size - first_), x.ld);
  const bool finite = std::isfinite(context_.control.reduce(mine, Reduce::max));
  scale(first_, opposite(powers_.result));
  return finite;
}

template <class B>
double DenseSystem<B>::reciprocal_condition() {
  if (plan_.n == 0) return 1;
  if (plan_.inverse)
    return safe_reciprocal(norm_a_, norm_of_inverse<B>(context_, Norm::one, held()));
  const InverseRows<B> y = held();
  const double own = norm_from_probes<B>(context_.ahead, y.slots, probes(), y.ld);
  return safe_reciprocal(norm_a_, context_.control.reduce(own, Reduce::max));
}

template <class B>
double DenseSystem<B>::residual(const std::function<void(const InverseResidual&)>& seen) {
  const InverseRows<B> x = held();
  kept_.require_same(context_.control, where_);
  RowReader b = scaled(b_, powers_.b);
  if (plan_.factor && !again_) {
    put_test(true);
    if (!jordan_->solve_factored(1).good()) return std::numeric_limits<double>::infinity();
    b = [](std::span<const Range> ranges, const io::Sink<double>& sink) {
      Index position = 0;
      for (const Range& range : ranges) {
        std::vector<double> values;
        for (Index i = range.first; i < range.end(); ++i) values.push_back(test_number(i));
        sink(position, range.count, values.data());
        position += range.count;
      }
    };
  }
  if (plan_.inverse) {
    const InverseResidual r = check_inverse(context_, x, scaled(a_, powers_.a), 1.0,
                                            plan_.exact_check, plan_.seed, &kept_);
    if (seen) seen(r);
    return r.right;
  }
  return check_solution<B>(
      context_, plan_.n, plan_.rhs, x.rows.ranges(context_.rank()),
      [&](Index first, Index count, double* out) {
        std::vector<double> own(std::size_t(x.slots * count));
        stored(plan_.n + first, count)(0, x.slots, own.data());
        for (Index s = 0; s < x.slots; ++s)
          std::copy_n(own.data() + s * count, count, out + x.destination[std::size_t(s)] * count);
      },
      scaled(a_, powers_.a), b, 1.0, &kept_);
}

template <class B>
double DenseSystem<B>::check(Progress& progress,
                             const std::function<void(const InverseResidual&)>& seen) {
  if (ratio_ && seen_ && seen) seen(*seen_);
  const double ratio = ratio_ ? *ratio_ : residual(seen);
  ratio_.reset();
  if (!plan_.guard || again_ || ratio <= residual_limit) return ratio;
  read();
  const double now = solve(progress).good() ? residual(seen) : INFINITY;
  if (now <= residual_limit)
    confirmed_fault(context_.control,
                    fmt::format("the residual was {:.3g}, but is {:.3g} with the matrix read and "
                                "solved again",
                                ratio, now));
  return ratio;
}

template <class B>
StoredFactor DenseSystem<B>::factor(const EliminationOutcome& found) const {
  StoredFactor factor;
  factor.rows = stored_ ? stored_->rows : jordan_->pivot_rows();
  factor.power = powers_.a.empty() ? 0 : powers_.a[0];
  factor.norm = norm_a_;
  factor.log_abs_determinant = found.log_abs_determinant;
  factor.determinant_sign = found.determinant_sign;
  return factor;
}

template <class B>
RowSource DenseSystem<B>::rows() const {
  const InverseRows<B> x = held();
  RowSource rows{stored(first_, width_), true, x.data.data + first_, x.ld};
  return scaled(std::move(rows), powers_.result);
}

#define TERRACE_INSTANTIATE(B) template class DenseSystem<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
