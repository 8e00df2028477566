// Check sums over words, for --guard.
#pragma once
#include "kernels/base/stream.hpp"

namespace terrace {

/// Rows of a group whose sum is checked at once, at most.
constexpr Index guard_height = 64;

/// `count` rows of words in the stream's memory, `stride` words apart.
struct WordRows {
  Word* data = nullptr;
  Index stride = 0, count = 0;
};

/// out[g][w] = XOR of rows[i][w] over height g <= i < height (g + 1), w < words. Reads
/// each row once: 8 bytes a word.
void xor_groups(const Stream<Cpu>&, WordRows out, WordRows rows, Index words,
                Index height = guard_height);
void xor_groups(const Stream<Cuda>&, WordRows out, WordRows rows, Index words,
                Index height = guard_height);

}  // namespace terrace
