// DenseSystem's members for solutions in mixed precision.
#include <algorithm>

#include "kernels/base/matrix.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

/// The columns right of A from those of the factor's solution; `b`: this rank's rows of theirs. The
/// probes of the condition are FP64's only where the factor's condition may be another one.
template <class B>
Refinement DenseSystem<B>::refine(const std::vector<double>& b) {
  const InverseRows<B> to = held();
  Refiner<B> refiner(context_, *jordan_, doubles_.view(), norm_a_);
  std::vector<double> all(
      std::size_t(to.slots * plan_.right));  // solutions, as the slots have them
  stored(plan_.n, plan_.right)(0, to.slots, all.data());
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
  if (found.converged && found.krylov > 0 && plan_.probes > 0) {
    const Refinement of_probes = refined(plan_.rhs, plan_.probes);
    if (!of_probes.converged) found.converged = false, found.why = of_probes.why;
    found.krylov += of_probes.krylov;
  }
  if (to.slots > 0)
    copy_rows<double>(context_.ahead, to.data.data + plan_.n, to.ld, all.data(), plan_.right,
                      plan_.right, to.slots);
  context_.ahead.synchronize();
  return found;
}

template <class B>
EliminationOutcome DenseSystem<B>::solve_mixed(Progress& progress) {
  const InverseRows<B> to = held();
  std::vector<double> b(std::size_t(to.slots * plan_.right));
  stored(plan_.n, plan_.right)(0, to.slots, b.data());
  EliminationOutcome found = jordan_->run(progress);
  refinement_ = {};
  if (found.good())
    refinement_ = refine(b);
  else
    refinement_.why = found.overflow ? "a number is not finite" : "a pivot is zero";
  if (!refinement_.converged) {
    if (to.slots > 0) {
      copy_rows<double>(context_.ahead, to.data.data, to.ld, doubles_.data(), plan_.n, plan_.n,
                        to.slots);
      copy_rows<double>(context_.ahead, to.data.data + plan_.n, to.ld, b.data(), plan_.right,
                        plan_.right, to.slots);
    }
    context_.ahead.synchronize();
    jordan_->set_low(false);
    found = jordan_->run(progress);
    jordan_->set_low(true);
  }
  if (found.good() && !settles()) found.overflow = true;
  found.log_abs_determinant = powers_.log_determinant(found.log_abs_determinant);
  return found;
}

#define TERRACE_INSTANTIATE(B)                                            \
  template Refinement DenseSystem<B>::refine(const std::vector<double>&); \
  template EliminationOutcome DenseSystem<B>::solve_mixed(Progress&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
