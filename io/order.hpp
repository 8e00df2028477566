// Which way an array lies in its dataset: stated by the attribute `order`, or recognised by
// MATLAB's mark.
#pragma once
#include "io/inspect.hpp"

namespace terrace::io {

struct Order {
  bool column_major = false;  ///< A[i, j] = dataset[j, i]
  bool matlab = false;        ///< attribute MATLAB_class: 1 x n and n x 1 are vectors too
  bool stated = false;        ///< by attribute `order`

  /// Whether 2-D `dims` are a vector where one is wanted.
  [[nodiscard]] bool is_vector(const std::vector<Index>& dims) const {
    return matlab && dims.size() == 2 && (dims[0] == 1 || dims[1] == 1);
  }
};
/// Of an object of real numbers; the same on all ranks. Throws agreed Errors(input): an unknown
/// order, one that MATLAB's mark contradicts, MATLAB data that are no numbers. What is recognised
/// rather than stated is kept for take_recognised() (io/recognised.hpp).
Order order_of(const Object& object, const std::string& where);

}  // namespace terrace::io
