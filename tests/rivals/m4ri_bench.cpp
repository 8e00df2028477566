// M4RI on the matrices of `terrace bench gf2`: a separate program, because M4RI is GPL.
//   m4ri_bench N SEED full|half [auto|m4ri|pluq]
// Prints the seconds of one full reduction, the rank, and the checksum that terrace prints.
#include <m4ri/m4ri.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/bits_random.hpp"

namespace {

using terrace::Index;
using terrace::Word;

// Releases before 2024 hold row pointers, later ones compute them.
template <class Matrix>
word* row_of(Matrix* m, Index i) {
  if constexpr (requires { m->rows; })
    return m->rows[i];
  else
    return mzd_row(m, int(i));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: m4ri_bench N SEED full|half [auto|m4ri|pluq]\n");
    return 2;
  }
  const Index n = std::atol(argv[1]);
  const terrace::RandomBits what{Word(std::atol(argv[2])), n, std::strcmp(argv[3], "half") == 0, n};
  const std::string method = argc > 4 ? argv[4] : "auto";
  mzd_t* a = mzd_init(int(n), int(n));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < terrace::ceil_div(n, 64); ++j)
      row_of(a, i)[j] = terrace::detail::random_bits_word(what, i, j);
  const auto start = std::chrono::steady_clock::now();
  const auto rank = method == "m4ri"   ? mzd_echelonize_m4ri(a, 1, 0)
                    : method == "pluq" ? mzd_echelonize_pluq(a, 1)
                                       : mzd_echelonize(a, 1);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Word sum = 0;
  for (Index q = 0; q < rank; ++q)
    for (Index j = 0; j < terrace::ceil_div(n, 64); ++j)
      sum ^= terrace::mix(terrace::mix(Word(q) * 0x9e3779b97f4a7c15ull + Word(j)) ^
                          Word(row_of(a, q)[j]));
  std::printf("seconds %.6f rank %ld checksum %016llx\n", seconds, long(rank),
              static_cast<unsigned long long>(sum));
  mzd_free(a);
}
