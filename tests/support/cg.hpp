// Tests of conjugate gradients: every operator on every backend.
#pragma once
#include "src/cg/conjugate_gradients.hpp"
#include "tests/support/systems.hpp"

#if TERRACE_WITH_CUDA
#define OPERATORS_ON_BACKENDS                                                     \
  (Case<Cpu, Dense>), (Case<Cpu, Triangle>), (Case<Cpu, Band>), (Case<Cpu, Csr>), \
      (Case<Cuda, Dense>), (Case<Cuda, Triangle>), (Case<Cuda, Band>), (Case<Cuda, Csr>)
#define OPERATORS_WITH_HEADS                                                          \
  (Case<Cpu, Triangle>), (Case<Cpu, Band>), (Case<Cpu, Csr>), (Case<Cuda, Triangle>), \
      (Case<Cuda, Band>), (Case<Cuda, Csr>)
#define BACKENDS Cpu, Cuda
#else
#define OPERATORS_ON_BACKENDS \
  (Case<Cpu, Dense>), (Case<Cpu, Triangle>), (Case<Cpu, Band>), (Case<Cpu, Csr>)
#define OPERATORS_WITH_HEADS (Case<Cpu, Triangle>), (Case<Cpu, Band>), (Case<Cpu, Csr>)
#define BACKENDS Cpu
#endif

namespace terrace::test {

template <class B, class Kind>
struct Case {
  using Backend = B;
  using Operator = Kind;
};

inline Vector zeros(Index n) { return Vector(std::size_t(n), 0.0); }
inline double relative_residual(const Entry& a, const Vector& b, const Vector& x) {
  return norm(minus(b, times(a, x))) / norm(b);
}

}  // namespace terrace::test
