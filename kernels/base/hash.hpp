// Hashes of numbers by their places: sums, so that it does not matter who adds which part.
#pragma once
#include "kernels/base/buffer.hpp"
#include "kernels/base/random.hpp"

namespace terrace {

/// Of the 8-byte element `bits` at row-major position `position`.
constexpr Word hash_element(Word bits, Index position) {
  return mix(bits + 0x9e3779b97f4a7c15ull * (Word(position) + 1));
}
/// Sum of hash_element(data[i * ld + j], row[i] * columns + j) over i < row.size, j < columns. Waits
/// for the stream.
Word hash_rows(const Stream<Cpu>&, View<const Index, Cpu> row, Index columns, const Word* data,
               Index ld);
Word hash_rows(const Stream<Cuda>&, View<const Index, Cuda> row, Index columns, const Word* data,
               Index ld);

}  // namespace terrace
