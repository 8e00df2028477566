// log |det A| from the diagonal of a Cholesky factor: twice the sum of log L_jj.
#pragma once
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/band/parts.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

/// log of a product of numbers that are not zero: no number of them leaves the range of double, and
/// no term is rounded but by the product of mantissas.
class LogProduct {
 public:
  void times(double number) {
    int exponent = 0;
    mantissa_ *= std::frexp(std::abs(number), &exponent);
    exponent_ += exponent;
    if (mantissa_ < 0x1p-900) {
      mantissa_ = std::frexp(mantissa_, &exponent);
      exponent_ += exponent;
    }
  }
  /// The product of numbers as mantissa and exponent.
  void times(double mantissa, Index exponent) {
    times(mantissa);
    exponent_ += exponent;
  }
  [[nodiscard]] double log() const {
    return std::log(mantissa_) + double(exponent_) * std::numbers::ln2;
  }

 private:
  double mantissa_ = 1;
  Index exponent_ = 0;
};

/// The product of all of them. Takes a little memory of the backend, and waits for the lane.
template <class B>
LogProduct product_of(const Stream<B>& lane, const std::vector<BandDiagonal>& diagonals);

/// `count` numbers of memory of B, `ld` apart, on the host. Takes a little memory of the backend,
/// and waits for the lane.
template <class B>
std::vector<double> diagonal_of(const Stream<B>& lane, const double* first, Index ld, Index count);

/// log |det A| of a factor in tile columns: the same bits on any number of ranks. Collective.
template <class B>
double log_determinant(const Context<B>& context, const BandTiles<B>& l);

/// The same from logs of each tile column's part of the diagonal, zero for those of other ranks.
double log_determinant(const Control& control, std::vector<double> of_tiles);

}  // namespace terrace::band
