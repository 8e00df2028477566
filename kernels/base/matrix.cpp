// The container's operations, the same text for both memories.
#include "kernels/base/matrix.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/base/error.hpp"

namespace terrace {

namespace {

void require_shapes(bool fit, const char* what, Index rows_a, Index columns_a, Index rows_b,
                    Index columns_b) {
  if (fit) return;
  throw Error(Exit::internal, std::string("shapes do not fit; ") + what + " of " +
                                  std::to_string(rows_a) + " x " + std::to_string(columns_a) +
                                  " and " + std::to_string(rows_b) + " x " +
                                  std::to_string(columns_b));
}
template <class B>
void require_same(const char* what, const Matrix<B>& a, const Matrix<B>& b) {
  require_shapes(a.rows() == b.rows() && a.columns() == b.columns(), what, a.rows(), a.columns(),
                 b.rows(), b.columns());
}

/// Values of a short device vector.
template <class B>
std::vector<double> on_host(const Stream<B>& stream, const Buffer<double, B>& buffer) {
  std::vector<double> values(static_cast<std::size_t>(buffer.size()));
  if (buffer.size() > 0) download(stream, values.data(), buffer.view());
  stream.synchronize();
  return values;
}

/// Largest element, and the factor that brings it near one.
template <class B>
std::pair<double, double> largest_and_scale(const Matrix<B>& a) {
  const double most = norm_max(a);
  if (most == 0 || most == std::numeric_limits<double>::infinity()) return {most, 1.0};
  int exponent = 0;
  std::frexp(most, &exponent);
  return {most, std::ldexp(1.0, std::clamp(-exponent, -1022, 1022))};
}

}  // namespace

template <class B>
Matrix<B>& Matrix<B>::combine(double alpha, const Matrix& other, double beta) {
  require_same(beta < 0 ? "difference" : "sum", *this, other);
  if (data_.size() == 0) return *this;
  if (&other != this) other.synchronize();
  add<B>(*stream_, alpha, data_, beta, other.data_, data_.view());
  return *this;
}

template <class B>
Matrix<B> operator*(const Matrix<B>& a, const Matrix<B>& b) {
  require_shapes(a.columns() == b.rows(), "product", a.rows(), a.columns(), b.rows(), b.columns());
  Matrix<B> c(a.stream(), a.rows(), b.columns());
  b.synchronize();
  if (a.columns() == 0) fill_zero(a.stream(), c.view());
  multiply<B>(a.stream(), a.rows(), b.columns(), a.columns(), 1.0, a.view(), a.columns(), b.view(),
              b.columns(), 0.0, c.view(), b.columns());
  c.synchronize();
  return c;
}

template <class B>
double dot(const Matrix<B>& a, const Matrix<B>& b) {
  require_same("scalar product", a, b);
  const Index size = a.rows() * a.columns();
  if (size == 0) return 0;
  b.synchronize();
  const Buffer<double, B> out(1);
  row_products<B>(a.stream(), 1, size, 1.0, a.view(), size, b.view(), size, out.view());
  return on_host(a.stream(), out)[0];
}

template <class B>
std::vector<double> row_dots(const Matrix<B>& a, const Matrix<B>& b) {
  require_same("scalar products", a, b);
  if (a.rows() == 0) return {};
  b.synchronize();
  const Buffer<double, B> out(a.rows());
  row_products<B>(a.stream(), a.rows(), a.columns(), 1.0, a.view(), a.columns(), b.view(),
                  a.columns(), out.view());
  return on_host(a.stream(), out);
}

template <class B>
double norm_one(const Matrix<B>& a) {
  const auto [most, scale] = largest_and_scale(a);
  if (most == 0) return most;
  const Buffer<double, B> out(a.columns());
  column_sums<B>(a.stream(), a.rows(), a.columns(), scale, a.view(), a.columns(), out.view());
  const std::vector<double> sums = on_host(a.stream(), out);
  return *std::max_element(sums.begin(), sums.end()) / scale;
}

template <class B>
double norm_infinity(const Matrix<B>& a) {
  const auto [most, scale] = largest_and_scale(a);
  if (most == 0) return most;
  const Buffer<double, B> out(a.rows());
  row_sums<B>(a.stream(), a.rows(), a.columns(), scale, a.view(), a.columns(), out.view());
  const std::vector<double> sums = on_host(a.stream(), out);
  return *std::max_element(sums.begin(), sums.end()) / scale;
}

template <class B>
double norm_frobenius(const Matrix<B>& a) {
  const auto [most, scale] = largest_and_scale(a);
  if (most == 0) return most;
  const Index size = a.rows() * a.columns();
  const Buffer<double, B> out(1);
  row_products<B>(a.stream(), 1, size, scale, a.view(), size, a.view(), size, out.view());
  return std::sqrt(on_host(a.stream(), out)[0]) / scale;
}

#define INSTANTIATE(B)                                                       \
  template class Matrix<B>;                                                  \
  template Matrix<B> operator*(const Matrix<B>&, const Matrix<B>&);          \
  template double dot(const Matrix<B>&, const Matrix<B>&);                   \
  template std::vector<double> row_dots(const Matrix<B>&, const Matrix<B>&); \
  template double norm_one(const Matrix<B>&);                                \
  template double norm_infinity(const Matrix<B>&);                           \
  template double norm_frobenius(const Matrix<B>&);
TERRACE_FOR_EACH_BACKEND(INSTANTIATE)
#undef INSTANTIATE

}  // namespace terrace
