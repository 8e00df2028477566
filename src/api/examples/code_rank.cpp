// Dimension of a random linear code: the rank over GF(2) of its parity checks, and a word of it.
// ./code_rank 300 500
#include <cstdio>
#include <cstdlib>
#include <random>
#include <terrace/gf2.hpp>

int main(int argc, char** argv) {
  const std::int64_t checks = argc > 1 ? std::atoll(argv[1]) : 300;
  const std::int64_t length = argc > 2 ? std::atoll(argv[2]) : 500, words = (length + 63) / 64;
  std::mt19937_64 draw(1);
  std::vector<std::uint64_t> h(checks * words, 0);
  for (std::int64_t i = 0; i < checks; ++i)
    for (int ones = 0; ones < 6; ++ones) {
      const std::int64_t j = std::int64_t(draw() % std::uint64_t(length));
      h[i * words + j / 64] |= std::uint64_t(1) << (j % 64);
    }
  terrace::Context here;  // one process, no MPI
  const auto code =
      terrace::gf2::kernel(here, checks, {h.data(), terrace::Rows::all(checks), length});
  int weight = 0;
  for (std::int64_t w = 0; w < words && code.dimension > 0; ++w)
    weight += __builtin_popcountll(code.words[w]);
  std::printf("rank %lld, dimension %lld, certified %d, weight of the first word %d\n",
              (long long)code.report.rank, (long long)code.dimension, code.report.certified,
              weight);
}
