#include "src/cg/operators_user.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"

namespace terrace::cg {

template <class B>
UserOperator<B>::UserOperator(const Context<B>& context, Index n, Range rows, Product product,
                              std::vector<double> diagonal)
    : n_(n), rows_(rows), product_(std::move(product)), diagonal_(std::move(diagonal)) {
  collectively(context.control, [&] {  // one of no rows is empty where it is given, too
    if (diagonal_.empty()) diagonal_.assign(std::size_t(rows.count), 1.0);
  });
  estimate_norm(context);
}

/// By steps of the power method from a random vector: a lower bound of the spectral norm, usually
/// within a few percent, in place of the row sums that nobody knows.
template <class B>
void UserOperator<B>::estimate_norm(const Context<B>& context) {
  std::vector<double> p(std::size_t(rows_.count)), q(p.size());
  for (Index i = 0; i < rows_.count; ++i)
    p[std::size_t(i)] = random_uniform(7, rows_.first + i, 0) - 0.5;
  for (int step = 0; step < 8 && n_ > 0; ++step) {
    double size = 0;
    for (const double x : p) size = std::max(size, std::fabs(x));
    size = context.control.reduce(size, Reduce::max);
    if (!(size > 0) || !std::isfinite(size)) break;
    for (double& x : p) x /= size;
    product_(p.data(), q.data());
    double sums[2] = {0, 0};
    for (std::size_t i = 0; i < p.size(); ++i) sums[0] += p[i] * p[i], sums[1] += q[i] * q[i];
    const double before = context.control.reduce(sums[0], Reduce::sum);
    const double after = context.control.reduce(sums[1], Reduce::sum);
    scale.norm = std::max(scale.norm, std::sqrt(after / before));
    p.swap(q);
  }
  scale.known = true;
}

template <class B>
Operand<B> UserOperator<B>::operand(const Context<B>& context, Index columns) {
  return collectively(context.control, [&] {
    Operand<B> p{Buffer<double, B>(rows_.count * columns), 0, rows_.count, columns};
    fill_zero(context.ahead, p.memory.view());
    context.ahead.synchronize();
    return p;
  });
}

template <class B>
void UserOperator<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                            View<double, B> sums, const SumSpace<B>& space, const double* skip,
                            bool, const Meanwhile& meanwhile) const {
  if (meanwhile) meanwhile();
  multiply(context.ahead, rows_.count, product_, p.own(), q, sums_to(space, sums), skip);
}

template <class B>
LocalRows local_rows(const Context<B>&, const UserOperator<B>&, Index) {
  fail_together(Exit::usage,
                "the entries of a product of the caller's are not known; the "
                "preconditioner; use none, jacobi with a diagonal, or chebyshev");
}

template class UserOperator<Cpu>;
template LocalRows local_rows(const Context<Cpu>&, const UserOperator<Cpu>&, Index);

}  // namespace terrace::cg
