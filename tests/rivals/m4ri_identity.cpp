// M4RI on the matrices of families.hpp: a separate program, because M4RI is GPL.
//   m4ri_identity [NUMBERS]     numbers as "3,10-20"; "" is all of them
// Prints a line a matrix: number, name, rank, checksums of the pivot columns and of the bits of the
// reduced form.
#include <m4ri/m4ri.h>

#include <cstdio>
#include <string>

#include "tests/rivals/families.hpp"
#include "tests/rivals/m4ri_row.hpp"

namespace {

using terrace::Index;
using terrace::row_of;
using terrace::Word;

void reduce(const terrace::rivals::Family& family) {
  Word pivots = 0, bits = 0;
  Index rank = 0;
  if (family.rows > 0 && family.columns > 0) {
    const Index words = (family.columns + 63) / 64;
    mzd_t* a = mzd_init(int(family.rows), int(family.columns));
    const auto fill = family.prepare();
    std::vector<Word> row(static_cast<std::size_t>(words));
    for (Index i = 0; i < family.rows; ++i) {
      std::fill(row.begin(), row.end(), 0);
      fill(i, {row.data(), family.columns});
      std::copy(row.begin(), row.end(), row_of(a, i));
    }
    rank = mzd_echelonize(a, 1);
    for (Index q = 0; q < rank; ++q) {
      Index column = 0;
      while (!mzd_read_bit(a, int(q), int(column))) ++column;
      pivots ^= terrace::rivals::mixed_pivot(q, column);
      for (Index j = 0; j < words; ++j)
        bits ^= terrace::rivals::mixed_bit_word(q, j, Word(row_of(a, q)[j]));
    }
    mzd_free(a);
  }
  std::printf("%s\n", terrace::rivals::line_of(family, rank, pivots, bits).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const auto list = terrace::rivals::families();
  const auto take = terrace::rivals::chosen(argc > 1 ? argv[1] : "", list.size());
  if (take.empty()) {
    std::fprintf(stderr, "usage: m4ri_identity [NUMBERS]\n");
    return 2;
  }
  for (const auto& family : list)
    if (take[std::size_t(family.number)]) reduce(family);
}
