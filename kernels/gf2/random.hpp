// The formula behind random_bits(), shared by the backends.
#pragma once
#include "kernels/base/random.hpp"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2::detail {

constexpr Word random_bits_word(const RandomBits& what, Index i, Index j) {
  const bool drawn = what.rank >= 0 ? i < what.rank : !what.even_rank || i % 2 == 0;
  Word bits = 0;
  if (drawn) {
    bits = random_sparse_word(what.seed, i, j, what.density);
  } else {  // the rows that are drawn: 0, step, 2 step, ...
    const Word drawn_rows = Word(what.rank >= 0 ? what.rank : ceil_div(what.rows, 2));
    const Index step = what.rank >= 0 ? 1 : 2;
    for (Index pick = 0; pick < 4 && drawn_rows > 0; ++pick) {
      const Word row = random_word(what.seed ^ 0x5bf03635f0a31e1dull, i, pick) % drawn_rows;
      bits ^= random_sparse_word(what.seed, step * Index(row), j, what.density);
    }
  }
  const Index left = what.columns - 64 * j;
  return left >= 64 ? bits : left <= 0 ? 0 : bits & ((Word(1) << left) - 1);
}

}  // namespace terrace::gf2::detail
