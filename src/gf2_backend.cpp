#include <algorithm>
#include <cmath>

#include "src/gf2.hpp"

namespace terrace {

namespace {
/// Below it the panels' chain of small steps takes a GPU longer than the CPU needs for everything.
constexpr double least_gpu_size = 2048;
}  // namespace

BackendHint product_hint(Index rows, Index inner, Index columns) {
  return {std::cbrt(double(rows) * double(inner) * double(columns)), least_gpu_size};
}
BackendHint elimination_hint(Index rows, Index columns) {
  return product_hint(rows, std::min(rows, columns), columns);
}

}  // namespace terrace
