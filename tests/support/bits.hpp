// Bit matrices as textbooks have them: one byte an entry, no code shared with ours.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/gf2/bits.hpp"
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

inline PlainBits random_plain(Index rows, Index columns, unsigned seed, double density = 0.5) {
  PlainBits result(rows, columns);
  std::mt19937 random(seed);
  std::bernoulli_distribution one(density);
  for (auto& entry : result.entries) entry = one(random);
  return result;
}

inline PlainBits operator*(const PlainBits& a, const PlainBits& b) {
  PlainBits c(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i)
    for (Index k = 0; k < a.columns; ++k)
      if (a(i, k))
        for (Index j = 0; j < b.columns; ++j) c(i, j) ^= b(k, j);
  return c;
}

/// Textbook Gauss-Jordan with row exchanges on the first `columns` columns; returns the pivots.
inline std::vector<Index> reduce_plain(PlainBits& a, Index columns) {
  std::vector<Index> pivots;
  for (Index j = 0; j < columns; ++j) {
    const Index r = Index(pivots.size());
    Index p = r;
    while (p < a.rows && !a(p, j)) ++p;
    if (p == a.rows) continue;
    for (Index c = 0; c < a.columns; ++c) std::swap(a(p, c), a(r, c));
    for (Index i = 0; i < a.rows; ++i)
      if (i != r && a(i, j))
        for (Index c = j; c < a.columns; ++c) a(i, c) ^= a(r, c);
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
