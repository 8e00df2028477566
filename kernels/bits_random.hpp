// The formula behind random_bits(), shared by the backends.
#pragma once
#include "kernels/bits.hpp"
#include "kernels/random.hpp"

namespace terrace::detail {

constexpr Word random_bits_word(const RandomBits& what, Index i, Index j) {
  Word bits = 0;
  if (!what.even_rank || i % 2 == 0) {
    bits = random_word(what.seed, i, j);
  } else {
    const Word even_rows = Word(ceil_div(what.rows, 2));
    for (Index pick = 0; pick < 4; ++pick) {
      const Word row = random_word(what.seed ^ 0x5bf03635f0a31e1dull, i, pick) % even_rows;
      bits ^= random_word(what.seed, 2 * Index(row), j);
    }
  }
  const Index left = what.columns - 64 * j;
  return left >= 64 ? bits : left <= 0 ? 0 : bits & ((Word(1) << left) - 1);
}

}  // namespace terrace::detail
