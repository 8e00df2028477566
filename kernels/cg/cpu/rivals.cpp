#include "kernels/cg/rivals.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/clock.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::cg {

bool is_csr_rival(Cpu, const std::string&) { return false; }
double cg_rival(const Stream<Cpu>&, const std::string& name, const CsrRows<Cpu>&, Index,
                CgRivalAnswer&) {
  throw Error(Exit::internal, "no rival " + name + " for CSR on the CPU");
}

bool is_cg_rival(Cpu, const std::string& name) { return name == "blas" || name == "blas-symv"; }

double cg_rival(const Stream<Cpu>& stream, const std::string& name, Index n, Index ld,
                View<const double, Cpu> a, Index iterations, CgRivalAnswer& answer) {
  stream.synchronize();
  const int count = int(n);
  std::vector<double>& x = answer.x;
  x.assign(std::size_t(n), 0.0);
  std::vector<double> r(std::size_t(n), 1.0), p = r, q(r.size());
  openblas_set_num_threads(thread_count());
  const auto start = Clock::now();
  double rr = cblas_ddot(count, r.data(), 1, r.data(), 1);
  for (Index k = 0; k < iterations; ++k) {
    if (name == "blas-symv")
      cblas_dsymv(CblasColMajor, CblasLower, count, 1.0, a.data, int(ld), p.data(), 1, 0.0,
                  q.data(), 1);
    else
      cblas_dgemv(CblasColMajor, CblasTrans, count, count, 1.0, a.data, int(ld), p.data(), 1, 0.0,
                  q.data(), 1);
    const double pq = cblas_ddot(count, p.data(), 1, q.data(), 1);
    const double alpha = rr > 0 ? rr / pq : 0;  // solved exactly: nothing moves
    cblas_daxpy(count, alpha, p.data(), 1, x.data(), 1);
    cblas_daxpy(count, -alpha, q.data(), 1, r.data(), 1);
    const double next = cblas_ddot(count, r.data(), 1, r.data(), 1);
    cblas_dscal(count, rr > 0 ? next / rr : 0, p.data(), 1);
    cblas_daxpy(count, 1.0, r.data(), 1, p.data(), 1);
    rr = next;
  }
  const double seconds = since(start);
  openblas_set_num_threads(1);
  answer.residual = std::sqrt(rr / double(std::max<Index>(1, n)));
  return seconds;
}

}  // namespace terrace::cg
