// Bit matrices as textbooks have them: one byte an entry, no code shared with ours.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/gf2/bits.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

struct PlainBits {
  Index rows = 0, columns = 0;
  std::vector<std::uint8_t> entries;

  PlainBits(Index m, Index n) : rows(m), columns(n), entries(std::size_t(m * n), 0) {}
  std::uint8_t& operator()(Index i, Index j) { return entries[std::size_t(i * columns + j)]; }
  std::uint8_t operator()(Index i, Index j) const { return entries[std::size_t(i * columns + j)]; }
  bool operator==(const PlainBits&) const = default;
};

/// In a source of its own, which the sanitizers leave alone: it would take more than the test.
PlainBits random_plain(Index rows, Index columns, unsigned seed, double density = 0.5);

TERRACE_ORACLE inline PlainBits operator*(const PlainBits& a, const PlainBits& b) {
  PlainBits product(a.rows, b.columns);
  const std::uint8_t* const left = a.entries.data();
  for (Index i = 0; i < a.rows; ++i) {
    std::uint8_t* const c = product.entries.data() + i * b.columns;
    for (Index k = 0; k < a.columns; ++k) {
      const std::uint8_t* const row = b.entries.data() + k * b.columns;
      if (left[i * a.columns + k])
        for (Index j = 0; j < b.columns; ++j) c[j] ^= row[j];
    }
  }
  return product;
}

/// Textbook Gauss-Jordan with row exchanges on the first `columns` columns; returns the pivots.
TERRACE_ORACLE inline std::vector<Index> reduce_plain(PlainBits& a, Index columns) {
  std::vector<Index> pivots;
  std::uint8_t* const all = a.entries.data();
  const Index width = a.columns;
  for (Index j = 0; j < columns; ++j) {
    const Index r = Index(pivots.size());
    Index p = r;
    while (p < a.rows && !all[p * width + j]) ++p;
    if (p == a.rows) continue;
    std::uint8_t* const pivot = all + r * width;
    if (p != r) std::swap_ranges(pivot, pivot + width, all + p * width);
    for (Index i = 0; i < a.rows; ++i) {
      std::uint8_t* const row = all + i * width;
      if (i != r && row[j])
        for (Index c = j; c < width; ++c) row[c] ^= pivot[c];
    }
    pivots.push_back(j);
  }
  return pivots;
}

/// Row i of `plain` as `words` words from word `word` on.
inline std::vector<Word> pack_row(const PlainBits& plain, Index i, Index words) {
  std::vector<Word> row(std::size_t(words), 0);
  for (Index j = 0; j < plain.columns; ++j)
    row[std::size_t(j / 64)] |= Word(plain(i, j)) << (j % 64);
  return row;
}

}  // namespace terrace::test
