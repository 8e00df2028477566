// A vector that an operator can multiply.
#pragma once
#include "kernels/buffer.hpp"

namespace terrace {

/// `columns` vectors, row-major: this rank's rows, with room for the entries of other ranks around
/// them.
template <class B>
struct Operand {
  Buffer<double, B> memory;
  Index origin = 0, rows = 0, columns = 1;
  [[nodiscard]] View<double, B> own() const {
    return memory.view().slice(origin * columns, rows * columns);
  }
};

}  // namespace terrace
