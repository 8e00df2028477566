// Counter-based random numbers: the same value for (seed, i, j) on any rank, thread and backend.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace {

/// Finaliser of splitmix64 (Steele, Lea, Flood 2014).
constexpr Word mix(Word x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
/// 64 random bits for entry (i, j) of stream `seed`.
constexpr Word random_word(Word seed, Index i, Index j) {
  return mix(mix(mix(seed) ^ Word(i)) + 0xd1342543de82ef95ull * Word(j));
}
/// Uniform in (-1, 1), 53 bits.
constexpr double random_uniform(Word seed, Index i, Index j) {
  return (double(random_word(seed, i, j) >> 11) + 0.5) * 0x1.0p-52 - 1.0;
}
/// A word whose bits are one with probability p (the low 32 bits of p are kept: 32 words drawn).
constexpr Word random_sparse_word(Word seed, Index i, Index j, double p) {
  if (p == 0.5) return random_word(seed, i, j);
  // Bits of p from the last to the first: or for a one, and for a zero.
  Word bits = 0;
  const Word scaled = Word(p * 4294967296.0);
  if (scaled >= 4294967296ull) return ~Word(0);
  for (int b = 0; b < 32; ++b) {
    const Word draw = random_word(seed + Word(b + 1) * 0x632be59bd9b4e019ull, i, j);
    bits = (scaled >> b) & 1 ? (bits | draw) : (bits & draw);
  }
  return bits;
}

}  // namespace terrace
