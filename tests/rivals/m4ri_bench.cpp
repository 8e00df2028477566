// M4RI on the matrices of `terrace bench gf2`: a separate program, because M4RI is GPL.
//   m4ri_bench N SEED full|half [auto|m4ri|pluq [COLUMNS DENSITY RANK rref|echelon]]
// RANK -1: not limited. Prints the seconds of one reduction, the threads that M4RI may use (more
// than one where it was built with OpenMP: OMP_NUM_THREADS, or all cores that this process may run
// on), the rank, the checksum that terrace prints, and the joules of the reduction alone that the
// processor packages' counters give, or "none" and why.
#include <m4ri/m4ri.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/base/energy.hpp"
#include "kernels/gf2/random.hpp"
#include "tests/rivals/m4ri_row.hpp"

namespace {

using terrace::Index;
using terrace::row_of;
using terrace::Word;

int threads() {
  if (!__M4RI_HAVE_OPENMP) return 1;
  if (const char* text = std::getenv("OMP_NUM_THREADS")) return std::atoi(text);
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: m4ri_bench N SEED full|half [auto|m4ri|pluq [COLUMNS DENSITY RANK "
                 "rref|echelon]]\n");
    return 2;
  }
  const Index n = std::atol(argv[1]);
  const std::string method = argc > 4 ? argv[4] : "auto";
  const Index columns = argc > 5 ? std::atol(argv[5]) : n;
  const terrace::gf2::RandomBits what{Word(std::atol(argv[2])),
                                      columns,
                                      std::strcmp(argv[3], "half") == 0,
                                      n,
                                      argc > 6 ? std::atof(argv[6]) : 0.5,
                                      argc > 7 ? std::atol(argv[7]) : -1};
  const int full = argc > 8 && std::strcmp(argv[8], "echelon") == 0 ? 0 : 1;
  mzd_t* a = mzd_init(int(n), int(columns));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < terrace::ceil_div(columns, 64); ++j)
      row_of(a, i)[j] = terrace::gf2::detail::random_bits_word(what, i, j);
  const auto counter = terrace::EnergyCounter::host();
  const double before = counter.joules();
  const auto start = std::chrono::steady_clock::now();
  const auto rank = method == "m4ri"   ? mzd_echelonize_m4ri(a, full, 0)
                    : method == "pluq" ? mzd_echelonize_pluq(a, full)
                                       : mzd_echelonize(a, full);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double joules = counter.joules() - before;
  Word sum = 0;
  for (Index q = 0; q < rank; ++q)
    for (Index j = 0; j < terrace::ceil_div(columns, 64); ++j)
      sum ^= terrace::mix(terrace::mix(Word(q) * 0x9e3779b97f4a7c15ull + Word(j)) ^
                          Word(row_of(a, q)[j]));
  std::printf("seconds %.9f threads %d rank %ld checksum %016llx", seconds, threads(), long(rank),
              static_cast<unsigned long long>(sum));
  if (counter.available())
    std::printf(" joules %.9g\n", joules);
  else
    std::printf(" joules none, %s\n", counter.reason().c_str());
  mzd_free(a);
}
