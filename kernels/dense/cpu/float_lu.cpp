// LU in FP32 on the CPU, by LAPACK and OpenBLAS on one thread: what the GPU's is compared with.
#include "kernels/dense/float_lu.hpp"

#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <cmath>

namespace terrace::dense {
namespace {

/// What brings x below one.
int power_for(double x) {
  return x > 0 && std::isfinite(x) ? std::clamp(-1 - std::ilogb(x), -1000, 1000) : 0;
}

lapack_int* swaps_of(const FloatLu<Cpu>& lu) { return reinterpret_cast<lapack_int*>(lu.work.data); }

}  // namespace

Index float_lu_bytes(Cpu, const FloatLuShape& shape) {
  return shape.block * Index(sizeof(lapack_int));
}

template <>
void begin_float_lu(const Stream<Cpu>& stream, const FloatLu<Cpu>& lu, View<const double, Cpu> a,
                    Index lda) {
  stream.run([=] {
    const Index n = lu.shape.n, ld = lu.shape.ld();
    int* const rows = lu.powers.data;
    int* const columns = rows + n;
    for (Index i = 0; i < n; ++i) {
      double most = 0;
      for (Index j = 0; j < n; ++j) most = std::max(most, std::fabs(a.data[i * lda + j]));
      rows[i] = power_for(most);
      lu.row.data[i] = i;
    }
    for (Index j = 0; j < n; ++j) {
      double most = 0;
      for (Index i = 0; i < n; ++i)
        most = std::max(most, std::fabs(std::ldexp(a.data[i * lda + j], rows[i])));
      columns[j] = power_for(most);
    }
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < ld; ++j)
        lu.a.data[i * ld + j] =
            j < n ? float(std::ldexp(a.data[i * lda + j], rows[i] + columns[j])) : 0;
    lu.info.data[0] = -1;
    lu.info.data[1] = 0;
  });
}

template <>
void load_float_panel(const Stream<Cpu>&, const FloatLu<Cpu>&, Index) {}

template <>
void factor_float_panel(const Stream<Cpu>& stream, const FloatLu<Cpu>& lu, Index k) {
  stream.run([=] {
    if (lu.info.data[0] >= 0) return;
    const Index ld = lu.shape.ld(), first = k * lu.shape.block, width = lu.shape.width(k);
    const Index count = lu.shape.n - first;
    float* const a = lu.a.data + first * ld + first;
    const lapack_int info = LAPACKE_sgetrf(LAPACK_ROW_MAJOR, lapack_int(count), lapack_int(width),
                                           a, lapack_int(ld), swaps_of(lu));
    Index bad = info > 0 ? info - 1 : width;
    for (Index t = 0; t < width; ++t)
      if (!std::isfinite(a[t * ld + t])) bad = std::min(bad, t);
    if (bad == width) return;
    lu.info.data[0] = bad;
    lu.info.data[1] = std::isfinite(a[bad * ld + bad]) ? 1 : 2;
  });
}

template <>
void share_float_panel(const Stream<Cpu>& stream, const FloatLu<Cpu>& lu, Index k) {
  stream.run([=] {
    if (lu.info.data[0] >= 0) return;
    const Index ld = lu.shape.ld(), first = k * lu.shape.block, width = lu.shape.width(k);
    const Index end = first + width, length = lu.shape.columns() - end;
    for (Index t = 0; t < width; ++t) {
      const Index other = first + swaps_of(lu)[t] - 1, mine = first + t;
      if (other == mine) continue;
      float* const x = lu.a.data + mine * ld;
      float* const y = lu.a.data + other * ld;
      std::swap_ranges(x, x + first, y);
      std::swap_ranges(x + end, x + ld, y + end);
      std::swap(lu.row.data[mine], lu.row.data[other]);
    }
    if (length > 0)
      cblas_strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, blasint(width),
                  blasint(length), 1, lu.a.data + first * (ld + 1), blasint(ld),
                  lu.a.data + first * ld + end, blasint(ld));
  });
}

template <>
void update_floats(const Stream<Cpu>& stream, const FloatLu<Cpu>& lu, Index k, Index c0, Index c1) {
  stream.run([=] {
    const Index ld = lu.shape.ld(), first = k * lu.shape.block, width = lu.shape.width(k);
    const Index end = first + width, count = lu.shape.n - end;
    if (c1 <= c0 || count <= 0) return;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blasint(count), blasint(c1 - c0),
                blasint(width), -1, lu.a.data + end * ld + first, blasint(ld),
                lu.a.data + first * ld + c0, blasint(ld), 1, lu.a.data + end * ld + c0,
                blasint(ld));
  });
}

template <>
void solve_float_lu(const Stream<Cpu>& stream, const FloatLu<Cpu>& lu, Index right,
                    View<double, Cpu> x) {
  stream.run([=] {
    const Index n = lu.shape.n, ld = lu.shape.ld();
    const auto subtract = [&](Index i, Index from, Index to) {
      for (Index j = from; j < to; ++j) {
        const double l = lu.a.data[i * ld + j];
        for (Index c = 0; c < right; ++c) x.data[i * right + c] -= l * x.data[j * right + c];
      }
    };
    for (Index i = 0; i < n; ++i) subtract(i, 0, i);
    for (Index i = n; i-- > 0;) {
      subtract(i, i + 1, n);
      for (Index c = 0; c < right; ++c) x.data[i * right + c] /= lu.a.data[i * ld + i];
    }
  });
}

}  // namespace terrace::dense
