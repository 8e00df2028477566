#include "src/cg/conjugate_gradients.hpp"

#include "src/cg/operators_triangle.hpp"
#include "src/cg/operators_user.hpp"
#include "src/cg/solve.hpp"

namespace terrace::cg {

std::string to_string(CgReason reason) {
  switch (reason) {
    case CgReason::rtol:
      return "rtol";
    case CgReason::atol:
      return "atol";
    case CgReason::max_iterations:
      return "max-iterations";
    case CgReason::indefinite_matrix:
      return "indefinite-matrix";
    case CgReason::indefinite_preconditioner:
      return "indefinite-preconditioner";
    case CgReason::nan_or_inf:
      return "nan-or-inf";
    case CgReason::breakdown:
      return "breakdown";
    case CgReason::stagnation:
      return "stagnation";
  }
  return "";
}

void archive_result(Archive& archive, const std::string& name, CgResult& r) {
  int reason = int(r.reason);
  archive.value(name + " reason", reason);
  r.reason = CgReason(reason);
  archive.value(name + " iterations", r.iterations);
  archive.value(name + " true_residual", r.true_residual);
  archive.value(name + " recurrence_residual", r.recurrence_residual);
  archive.value(name + " initial_residual", r.initial_residual);
  archive.value(name + " scaled_residual", r.scaled_residual);
  archive.value(name + " position", r.position);
  archive.value(name + " restarts", r.restarts);
  archive.list(name + " history", r.history);
  archive.list(name + " alpha", r.alpha);
  archive.list(name + " beta", r.beta);
}

template <class B, class A>
std::vector<CgResult> conjugate_gradients_columns(const Context<B>& context, A& a, CgWork<B>& work,
                                                  const CgOptions& options,
                                                  const CgRows<const double>& b,
                                                  const CgRows<double>& x) {
  return CgSolve<B, A>(context, a, work, options, b, x).run();
}

#define TERRACE_INSTANTIATE_FOR(B, A)                                                      \
  template std::vector<CgResult> conjugate_gradients_columns(                              \
      const Context<B>&, A<B>&, CgWork<B>&, const CgOptions&, const CgRows<const double>&, \
      const CgRows<double>&);
#define TERRACE_INSTANTIATE(B) TERRACE_FOR_EACH_OPERATOR(TERRACE_INSTANTIATE_FOR, B)
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
TERRACE_INSTANTIATE_FOR(Cpu, UserOperator)
#undef TERRACE_INSTANTIATE
#undef TERRACE_INSTANTIATE_FOR

}  // namespace terrace::cg
