// A dense matrix of doubles with value semantics in host or device memory, and the few operations
// on row-major storage that it is made of.
//
//   Matrix<Cpu> a(stream, 2, 3);   // | 0 1 2 |  row-major, element (i, j) at i * columns() + j
//   Matrix<Cuda> b(device, a);     // | 3 4 5 |  a copy in device memory
#pragma once
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/buffer.hpp"

namespace terrace {

// --- operations on row-major storage; element (i, j) at i * ld + j -------------------------------

/// C := alpha A B + beta C; A m x k, B k x n, C m x n (not read when beta is 0). 2 m n k flops.
/// On the CPU cut into fixed tiles of rows and columns, so the bits do not depend on threads.
template <class B>
void multiply(const Stream<B>& stream, Index m, Index n, Index k, double alpha,
              std::type_identity_t<View<const double, B>> a, Index lda,
              std::type_identity_t<View<const double, B>> b, Index ldb, double beta,
              View<double, B> c, Index ldc);
/// out := alpha x + beta y, element by element; out may be x or y.
template <class B>
void add(const Stream<B>& stream, double alpha, std::type_identity_t<View<const double, B>> x,
         double beta, std::type_identity_t<View<const double, B>> y, View<double, B> out);
/// a[r, column[r]] -= 1: one unit a row.
template <class B>
void subtract_identity(const Stream<B>& stream, std::type_identity_t<View<const Index, B>> column,
                       View<double, B> a, Index ld);
/// a[r, j] *= 2^power[j], rounded once.
template <class B>
void scale_columns(const Stream<B>& stream, Index rows,
                   std::type_identity_t<View<const Index, B>> power, View<double, B> a, Index ld);
/// out[r] = sum over j of (scale x[r, j]) (scale y[r, j]): `rows` scalar products at once.
template <class B>
void row_products(const Stream<B>& stream, Index rows, Index columns, double scale,
                  std::type_identity_t<View<const double, B>> x, Index ldx,
                  std::type_identity_t<View<const double, B>> y, Index ldy, View<double, B> out);
/// out[j] = sum over rows of |scale a[r, j]|; out[r] = sum over columns.
template <class B>
void column_sums(const Stream<B>& stream, Index rows, Index columns, double scale,
                 std::type_identity_t<View<const double, B>> a, Index ld, View<double, B> out);
template <class B>
void row_sums(const Stream<B>& stream, Index rows, Index columns, double scale,
              std::type_identity_t<View<const double, B>> a, Index ld, View<double, B> out);
/// to[j, i] = from[i, j], i < rows, j < columns.
template <class B>
void transpose(const Stream<B>& stream, Index rows, Index columns,
               std::type_identity_t<View<const double, B>> from, Index ld_from, View<double, B> to,
               Index ld_to);
/// Sizes of the elements of a matrix.
struct Sizes {
  double largest = 0;                                      ///< infinity when one is NaN
  double least = std::numeric_limits<double>::infinity();  ///< zeros aside
};
/// Of |a[r, j]|, in one pass. Waits for the stream.
template <class B>
Sizes sizes_of(const Stream<B>& stream, Index rows, Index columns,
               std::type_identity_t<View<const double, B>> a, Index ld);
/// Largest |a[r, j]|, infinity when an element is NaN. Waits for the stream.
template <class B>
double max_abs(const Stream<B>& stream, Index rows, Index columns,
               std::type_identity_t<View<const double, B>> a, Index ld) {
  return sizes_of<B>(stream, rows, columns, a, ld).largest;
}
/// Largest |a[r, j]| of each column, infinity when one of its elements is NaN. Waits for the stream.
template <class B>
std::vector<double> largest_of_columns(const Stream<B>& stream, Index rows, Index columns,
                                       std::type_identity_t<View<const double, B>> a, Index ld);

// --- the container
// ---------------------------------------------------------------------------------

/// Copies are deep; operations are enqueued on the stream given at construction, that of the left
/// operand. Results of a + b + c reuse the memory of temporaries: two live matrices, not three.
template <class B>
class Matrix {
 public:
  Matrix() = default;
  /// Not initialised.
  Matrix(const Stream<B>& stream, Index rows, Index columns)
      : stream_(stream), rows_(rows), columns_(columns), data_(rows * columns) {}
  /// From values on the host, row-major.
  Matrix(const Stream<B>& stream, Index rows, Index columns, const std::vector<double>& values)
      : Matrix(stream, rows, columns) {
    upload(stream, data_.view(), values.data());
    stream.synchronize();
  }
  /// Copy of a matrix in the other memory.
  template <class Other>
  requires(!std::is_same_v<Other, B>) Matrix(const Stream<B>& stream, const Matrix<Other>& other)
      : Matrix(stream, other.rows(), other.columns()) {
    other.synchronize();
    if constexpr (std::is_same_v<B, Cpu>) {
      download(other.stream(), data_.data(), other.view());
      other.synchronize();
    } else {
      upload(stream, data_.view(), static_cast<const double*>(other.data()));
      stream.synchronize();
    }
  }
  Matrix(const Matrix& other) { *this = other; }
  Matrix(Matrix&& other) noexcept { swap(other); }
  Matrix& operator=(const Matrix& other) {
    if (this == &other) return *this;
    if (!other.stream_) return *this = Matrix();
    if (!stream_ || data_.size() != other.data_.size())
      *this = Matrix(*other.stream_, other.rows_, other.columns_);
    rows_ = other.rows_;
    columns_ = other.columns_;
    other.synchronize();
    copy<double>(*stream_, data_.view(), other.data_);
    if (stream_) stream_->synchronize();
    return *this;
  }
  Matrix& operator=(Matrix&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Matrix() {
    try {
      if (stream_ && data_.size() > 0) stream_->synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): thrown again by the stream's next owner
    }
  }
  void swap(Matrix& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(rows_, other.rows_);
    std::swap(columns_, other.columns_);
    std::swap(data_, other.data_);
  }

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] double* data() const { return data_.data(); }
  [[nodiscard]] View<double, B> view() const { return data_.view(); }
  [[nodiscard]] const Stream<B>& stream() const { return *stream_; }
  void synchronize() const {
    if (stream_) stream_->synchronize();
  }
  /// Row-major values on the host. Waits.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> result(static_cast<std::size_t>(data_.size()));
    if (stream_ && data_.size() > 0) download(*stream_, result.data(), data_.view());
    synchronize();
    return result;
  }
  /// Element (i, j) on the host; the stream must have been waited for.
  double& operator()(Index i, Index j) const requires std::is_same_v<B, Cpu> {
    return data_.data()[i * columns_ + j];
  }

  Matrix& operator+=(const Matrix& other) { return combine(1, other, 1); }
  Matrix& operator-=(const Matrix& other) { return combine(1, other, -1); }
  Matrix& operator*=(double factor) { return combine(factor, *this, 0); }

 private:
  Matrix& combine(double alpha, const Matrix& other, double beta);

  std::optional<Stream<B>> stream_;
  Index rows_ = 0, columns_ = 0;
  Buffer<double, B> data_;
};

template <class B>
Matrix<B> operator+(Matrix<B> a, const Matrix<B>& b) {
  return std::move(a += b);
}
template <class B>
Matrix<B> operator+(const Matrix<B>& a, Matrix<B>&& b) {
  return std::move(b += a);
}
template <class B>
Matrix<B> operator+(Matrix<B>&& a, Matrix<B>&& b) {
  return std::move(a += b);
}
template <class B>
Matrix<B> operator-(Matrix<B> a, const Matrix<B>& b) {
  return std::move(a -= b);
}
template <class B>
Matrix<B> operator-(const Matrix<B>& a, Matrix<B>&& b) {
  b *= -1;
  return std::move(b += a);
}
template <class B>
Matrix<B> operator-(Matrix<B>&& a, Matrix<B>&& b) {
  return std::move(a -= b);
}
template <class B>
Matrix<B> operator*(double factor, Matrix<B> a) {
  return std::move(a *= factor);
}
/// Throws Error(internal) when the shapes do not fit, as the sums do.
template <class B>
Matrix<B> operator*(const Matrix<B>& a, const Matrix<B>& b);

/// Sum of the products of all elements. Waits.
template <class B>
double dot(const Matrix<B>& a, const Matrix<B>& b);
/// One scalar product for each row. Waits.
template <class B>
std::vector<double> row_dots(const Matrix<B>& a, const Matrix<B>& b);
/// Norms; scaled against overflow and underflow of intermediate results. They wait.
template <class B>
double norm_one(const Matrix<B>& a);
template <class B>
double norm_infinity(const Matrix<B>& a);
template <class B>
double norm_frobenius(const Matrix<B>& a);
template <class B>
double norm_max(const Matrix<B>& a) {
  return a.rows() * a.columns() == 0
             ? 0.0
             : max_abs<B>(a.stream(), 1, a.rows() * a.columns(), a.view(), a.rows() * a.columns());
}

}  // namespace terrace
