// The vectors that an operator multiplies, with the room around them that its product needs.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace::cg {

/// `columns` vectors, row-major. The operator reads all of memory; the rank's own entries are
/// `rows` rows from row `origin` on.
template <class B>
struct Operand {
  Buffer<double, B> memory;
  Index origin = 0, rows = 0, columns = 1;
  [[nodiscard]] View<double, B> own() const {
    return memory.view().slice(origin * columns, rows * columns);
  }
};

}  // namespace terrace::cg
