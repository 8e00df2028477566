// Rows of an M4RI matrix, for the programs linked with it (GPL) alone.
#pragma once
#include <m4ri/m4ri.h>

#include "kernels/base/backend.hpp"

namespace terrace {

// Releases before 2024 hold row pointers, later ones compute them.
template <class Matrix>
word* row_of(Matrix* m, Index i) {
  if constexpr (requires { m->rows; })
    return m->rows[i];
  else
    return mzd_row(m, int(i));
}

}  // namespace terrace
