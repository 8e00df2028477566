// Sums of the CPU backend: fixed pieces by threads, added in order.
#pragma once
#include <algorithm>

#include "kernels/base/parallel.hpp"
#include "kernels/base/sums.hpp"

// One clone of a loop per vector width, chosen when the program starts. (The name of a processor, as
// haswell, would choose none on another maker's.)
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TERRACE_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TERRACE_VECTOR_CLONES
#endif

namespace terrace {

struct Pair {
  double a = 0, b = 0;
};

/// Items a piece, so that there are at most SumSpace::pieces pieces.
inline Index piece_grain(Index count, Index least) {
  return std::max(least, ceil_div(count, SumSpace<Cpu>::pieces));
}

/// result (+)= sum over [0, count) of piece(from, to), cut by `grain`.
template <class F>
void sum_pieces(Index count, Index grain, const SumTarget<Cpu>& sums, const F& piece) {
  double* partials = sums.partials.data;
  parallel_ranges(count, grain, [&](Index from, Index to) {
    const Pair s = piece(from, to);
    partials[2 * (from / grain)] = s.a;
    partials[2 * (from / grain) + 1] = s.b;
  });
  Pair total = sums.add ? Pair{sums.result.data[0], sums.result.data[1]} : Pair{};
  for (Index k = 0; k < ceil_div(count, grain); ++k) {
    total.a += partials[2 * k];
    total.b += partials[2 * k + 1];
  }
  sums.result.data[0] = total.a;
  sums.result.data[1] = total.b;
}

/// The same of columns: piece(from, to, s) adds onto 2 columns numbers s.
template <class F>
void sum_columns(Index count, Index grain, Index columns, const SumTarget<Cpu>& sums,
                 const F& piece) {
  const Index values = 2 * columns, pieces = ceil_div(count, grain);
  double* const partials = sums.partials.data;
  parallel_ranges(count, grain, [&](Index from, Index to) {
    double* const s = partials + from / grain * values;
    std::fill_n(s, values, 0.0);
    piece(from, to, s);
  });
  for (Index j = 0; j < values; ++j) {
    double total = sums.add ? sums.result.data[j] : 0;
    for (Index k = 0; k < pieces; ++k) total += partials[k * values + j];
    sums.result.data[j] = total;
  }
}

}  // namespace terrace
