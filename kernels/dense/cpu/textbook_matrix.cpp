// The textbook's sum and product in one thread, by the formulas.
#include "kernels/dense/textbook_matrix.hpp"

namespace terrace::dense::textbook {

template <>
void add(const Stream<Cpu>& stream, Index rows, Index columns, View<const double, Cpu> a,
         View<const double, Cpu> b, View<double, Cpu> c) {
  stream.run([=] {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        c.data[i * columns + j] = a.data[i * columns + j] + b.data[i * columns + j];
  });
}

template <>
void multiply(const Stream<Cpu>& stream, Product, Index m, Index n, Index k,
              View<const double, Cpu> a, View<const double, Cpu> b, View<double, Cpu> c) {
  stream.run([=] {
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        double sum = 0;
        for (Index l = 0; l < k; ++l) sum += a.data[i * k + l] * b.data[l * n + j];
        c.data[i * n + j] = sum;
      }
  });
}

}  // namespace terrace::dense::textbook
