#include "src/gf2/backend.hpp"

#include <algorithm>
#include <cmath>

namespace terrace::gf2 {

namespace {
/// Solves alone are faster on an H200 from n = 256 on, but a process with a GPU starts 0.15 s
/// later: whole commands took the same time at n = 8,192 to 20,000, by the cores of the host.
constexpr double least_gpu_size = 8192;
}  // namespace

BackendHint product_hint(Index rows, Index inner, Index columns) {
  return {std::cbrt(double(rows) * double(inner) * double(columns)), least_gpu_size};
}
BackendHint elimination_hint(Index rows, Index columns) {
  return product_hint(rows, std::min(rows, columns), columns);
}

}  // namespace terrace::gf2
