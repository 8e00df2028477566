// DenseSystem's members for solutions in mixed precision.
#include <algorithm>

#include "kernels/base/clock.hpp"
#include "kernels/base/matrix.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

/// All rows of M^-1 r by the factor of the rows of all ranks; `r`: this rank's rows.
template <class B>
std::vector<double> DenseSystem<B>::solved_by_rows(Index columns, const std::vector<double>& r) {
  const Stream<B>& lane = context_.ahead;
  const BlockCyclic& rows = plan_.rows;
  const Index slots = jordan_->slots();
  std::vector<double> own(r.size()), out(std::size_t(plan_.n * columns), 0.0);
  for (Index s = 0; s < slots; ++s) {
    const Index j = jordan_->destination()[std::size_t(s)];
    const Index from = rows.slot(jordan_->pivot_rows()[std::size_t(j)]);
    std::copy_n(r.begin() + from * columns, columns, own.begin() + s * columns);
  }
  double* const there = jordan_->data().data + plan_.n;
  if (slots > 0) copy_rows<double>(lane, there, jordan_->ld(), own.data(), columns, columns, slots);
  lane.synchronize();
  (void)jordan_->solve_factored(columns);  // what is not finite shows in the residual
  if (slots > 0) copy_rows<double>(lane, own.data(), columns, there, jordan_->ld(), columns, slots);
  lane.synchronize();
  for (Index s = 0; s < slots; ++s)
    std::copy_n(own.begin() + s * columns, columns,
                out.begin() + jordan_->destination()[std::size_t(s)] * columns);
  context_.control.reduce(out, Reduce::sum);
  return out;
}

/// The columns right of A, from `all`, those that the factor gave; `b`: this rank's rows of theirs.
/// The probes of the condition are refined too.
template <class B>
Refinement DenseSystem<B>::refine(const std::vector<double>& b, std::vector<double> all) {
  const auto start = Clock::now();
  const InverseRows<B> to = held();
  typename Refiner<B>::System system{doubles_.view(), plan_.n, plan_.n, to.slots, norm_a_};
  if (floats_) system.a = to.data, system.lda = to.ld;
  Refiner<B> refiner(context_, system, [&](Index columns, const std::vector<double>& r) {
    return floats_ ? floats_->solve(columns, r) : solved_by_rows(columns, r);
  });
  const auto refined = [&](Index first, Index count) {
    std::vector<double> x(std::size_t(plan_.n * count), 0.0), own(std::size_t(to.slots * count));
    for (Index s = 0; s < to.slots; ++s) {
      std::copy_n(all.begin() + s * plan_.right + first, count,
                  x.begin() + to.destination[std::size_t(s)] * count);
      std::copy_n(b.begin() + s * plan_.right + first, count, own.begin() + s * count);
    }
    context_.control.reduce(x, Reduce::sum);
    Refinement found = refiner.refine(count, own, x);
    for (Index s = 0; s < to.slots; ++s)
      std::copy_n(x.begin() + to.destination[std::size_t(s)] * count, count,
                  all.begin() + s * plan_.right + first);
    return found;
  };
  Refinement found = refined(0, plan_.rhs);
  if (found.converged && plan_.probes > 0) {
    const Refinement of_probes = refined(plan_.rhs, plan_.probes);
    if (!of_probes.converged) found.converged = false, found.why = of_probes.why;
    found.krylov += of_probes.krylov;
  }
  if (to.slots > 0)
    copy_rows<double>(context_.ahead, to.data.data + plan_.n, to.ld, all.data(), plan_.right,
                      plan_.right, to.slots);
  context_.ahead.synchronize();
  found.seconds = since(start);
  return found;
}

/// By a factor in low precision; where that does not do, refinement() says why.
template <class B>
EliminationOutcome DenseSystem<B>::try_low(const std::vector<double>& b, Progress& progress,
                                           const StageTimes<B>& stages) {
  EliminationOutcome found;
  refinement_ = {};
  if (floats_) {
    const InverseRows<B> a = held();
    refinement_.why = floats_->factor(a.data, a.ld, progress, stages);
    jordan_->adopt_factors();  // rows of X stand as those of A do
    if (refinement_.why.empty()) refinement_ = refine(b, floats_->solve(plan_.right, b));
    return found;
  }
  found = jordan_->run(progress, stages);
  if (found.good()) {
    std::vector<double> x(b.size());  // as the slots have it
    stored(plan_.n, plan_.right)(0, jordan_->slots(), x.data());
    refinement_ = refine(b, std::move(x));
  } else {
    refinement_.why = found.overflow ? "a number is not finite" : "a pivot is zero";
  }
  return found;
}

template <class B>
EliminationOutcome DenseSystem<B>::solve_mixed(Progress& progress, const StageTimes<B>& stages) {
  const InverseRows<B> to = held();
  std::vector<double> b(std::size_t(to.slots * plan_.right));
  stored(plan_.n, plan_.right)(0, to.slots, b.data());
  EliminationOutcome found = try_low(b, progress, stages);
  if (!refinement_.converged) {
    if (to.slots > 0) {
      if (!floats_)
        copy_rows<double>(context_.ahead, to.data.data, to.ld, doubles_.data(), plan_.n, plan_.n,
                          to.slots);
      copy_rows<double>(context_.ahead, to.data.data + plan_.n, to.ld, b.data(), plan_.right,
                        plan_.right, to.slots);
    }
    context_.ahead.synchronize();
    jordan_->set_low(false);
    found = jordan_->run(progress);
    jordan_->set_low(!floats_);
  }
  if (found.good() && !settles()) found.overflow = true;
  found.log_abs_determinant = powers_.log_determinant(found.log_abs_determinant);
  return found;
}

#define TERRACE_INSTANTIATE(B)                                                                    \
  template std::vector<double> DenseSystem<B>::solved_by_rows(Index, const std::vector<double>&); \
  template Refinement DenseSystem<B>::refine(const std::vector<double>&, std::vector<double>);    \
  template EliminationOutcome DenseSystem<B>::try_low(const std::vector<double>&, Progress&,      \
                                                      const StageTimes<B>&);                      \
  template EliminationOutcome DenseSystem<B>::solve_mixed(Progress&, const StageTimes<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
