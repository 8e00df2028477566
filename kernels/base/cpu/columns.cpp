// Roofline: the matrix is read once, 8 bytes for 2 flops: memory.
#include "kernels/base/cpu/columns.hpp"

#include "kernels/base/cpu/sums.hpp"

namespace terrace {
namespace {

constexpr Index together = 8, dots_together = 4;  // columns
constexpr Index lanes = 8;                        // sums of a column that grow side by side
constexpr Index side = 8;                         // of a triangle's blocks

template <int count>
[[gnu::always_inline]] inline void add_some(Index rows, double alpha, const double* a, Index ld,
                                            const double* x, double* __restrict y) {
  double factor[count];
  for (int c = 0; c < count; ++c) factor[c] = alpha * x[c];
  for (Index i = 0; i < rows; ++i) {
    double sum = y[i];
    for (int c = 0; c < count; ++c) sum += a[c * ld + i] * factor[c];
    y[i] = sum;
  }
}

template <int count>
[[gnu::always_inline]] inline void dot_some(Index rows, double alpha, const double* a, Index ld,
                                            const double* x, double* y) {
  double sum[count][lanes] = {};
  Index i = 0;
  for (; i + lanes <= rows; i += lanes)
    for (int c = 0; c < count; ++c)
      for (Index k = 0; k < lanes; ++k) sum[c][k] += a[c * ld + i + k] * x[i + k];
  for (int c = 0; c < count; ++c) {
    for (Index k = 0; i + k < rows; ++k) sum[c][k] += a[c * ld + i + k] * x[i + k];
    for (Index step = lanes / 2; step > 0; step /= 2)
      for (Index k = 0; k < step; ++k) sum[c][k] += sum[c][k + step];
    y[c] += alpha * sum[c][0];
  }
}

}  // namespace

TERRACE_VECTOR_CLONES
void add_columns(Index rows, Index columns, double alpha, const double* a, Index ld,
                 const double* x, double* y) {
  Index j = 0;
  for (; j + together <= columns; j += together)
    add_some<together>(rows, alpha, a + j * ld, ld, x + j, y);
  for (; j < columns; ++j) add_some<1>(rows, alpha, a + j * ld, ld, x + j, y);
}

TERRACE_VECTOR_CLONES
void add_dots(Index rows, Index columns, double alpha, const double* a, Index ld, const double* x,
              double* y) {
  Index j = 0;
  for (; j + dots_together <= columns; j += dots_together)
    dot_some<dots_together>(rows, alpha, a + j * ld, ld, x, y + j);
  for (; j < columns; ++j) dot_some<1>(rows, alpha, a + j * ld, ld, x, y + j);
}

void solve_lower(Index n, const double* l, Index ld, double* x) {
  for (Index first = 0; first < n; first += side) {
    const Index end = std::min(n, first + side);
    for (Index j = first; j < end; ++j) {
      x[j] /= l[j + j * ld];
      for (Index i = j + 1; i < end; ++i) x[i] -= l[i + j * ld] * x[j];
    }
    add_columns(n - end, end - first, -1.0, l + end + first * ld, ld, x + first, x + end);
  }
}

void solve_lower_transposed(Index n, const double* l, Index ld, double* x) {
  for (Index end = n; end > 0;) {
    const Index first = (end - 1) / side * side;
    add_dots(n - end, end - first, -1.0, l + end + first * ld, ld, x + end, x + first);
    for (Index j = end - 1; j >= first; --j) {
      for (Index i = j + 1; i < end; ++i) x[j] -= l[i + j * ld] * x[i];
      x[j] /= l[j + j * ld];
    }
    end = first;
  }
}

}  // namespace terrace
