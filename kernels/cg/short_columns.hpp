// Columns of CSR rows by their distance from the row, in one byte or two: what a product on CUDA reads
// in place of four. A mesh in a good order has few distances, or small ones.
#pragma once
#include "kernels/cg/products.hpp"

namespace terrace::cg {

/// One of the two, or neither.
template <class B>
struct ShortColumns {
  // Of `column`, and room behind for copies of whole lines.
  Buffer<std::uint8_t, B> listed;    ///< column = row + distance[listed[k]]
  Buffer<std::int32_t, B> distance;  ///< at most csr_most_distances, ascending
  Buffer<std::uint16_t, B> near;     ///< column = row + near[k] - 2^15
};

/// Of all rows (no list). Nothing where neither form fits, or where less memory than `room` bytes
/// would be left. Reads each column twice; waits.
ShortColumns<Cuda> short_columns(const Stream<Cuda>&, const CsrRows<Cuda>&, Index room);
/// The CPU's product reads whole columns: looking distances up took longer than the bytes (27 points on
/// 100^3, two cores of an AMD EPYC, 1.27 to 1.6 s in place of 1.1 to 1.2).
inline ShortColumns<Cpu> short_columns(const Stream<Cpu>&, const CsrRows<Cpu>&, Index) {
  return {};
}

}  // namespace terrace::cg
