// combine() on the CPU: the Method of the Four Russians on column strips.
//
// Roofline: a row of a strip moves 64 V bytes of table for every 8 columns cleared; the tables of
// one pass (128 KiB V) live in L2, so the L2 read rate of the cores is the bound.
#include <array>
#include <cstring>
#include <vector>

#include "kernels/bits.hpp"
#include "kernels/cpu/simd.hpp"
#include "kernels/parallel.hpp"

namespace terrace {
namespace {

using simd::Vector;

constexpr Index strip_words = 16;  // words of a row that one pass holds in registers
constexpr Index tables = 8;        // one word of multipliers a pass

struct Piece {
  BitRows<Word, Cpu> out;
  BitRows<const Word, Cpu> multipliers, source;
  Index out_word, source_word, words;  // one strip
  Index first, last;                   // rows of out
  Index bits;                          // first bit of the multipliers in this pass
  Word* table;                         // tables x 256 x words
};

// entry e of table t = XOR of the source rows bits + 8 t + j over the ones j of e
template <int V>
TERRACE_INLINE void build(const Piece& p, Index count) {
  for (Index t = 0; t < count; ++t) {
    Vector* entries = reinterpret_cast<Vector*>(p.table) + t * 256 * V;
    for (int v = 0; v < V; ++v) entries[v] = Vector{};
    for (int j = 0; j < 8; ++j) {
      const Index q = p.bits + 8 * t + j;
      const Index half = Index(1) << j;
      Vector row[V];
      for (int v = 0; v < V; ++v) row[v] = Vector{};
      if (q < p.source.count) {
        const Vector* from = reinterpret_cast<const Vector*>(
            p.source.data + p.source.row(q) * p.source.stride + p.source_word);
        for (int v = 0; v < V; ++v) row[v] = from[v];
      }
      for (Index e = 0; e < half; ++e)
        for (int v = 0; v < V; ++v) entries[(half + e) * V + v] = entries[e * V + v] ^ row[v];
    }
  }
}

template <int V>
TERRACE_INLINE void apply(const Piece& p, Index count) {
  const Vector* entries = reinterpret_cast<const Vector*>(p.table);
  const Word mask = count == tables ? ~Word(0) : (Word(1) << (8 * count)) - 1;
  for (Index i = p.first; i < p.last; ++i) {
    Word m = p.multipliers.data[i * p.multipliers.stride + p.bits / 64] & mask;
    Word* row = p.out.data + p.out.row(i) * p.out.stride + p.out_word;
    if (i + 6 < p.last)
      __builtin_prefetch(p.out.data + p.out.row(i + 6) * p.out.stride + p.out_word, 1);
    Vector* to = reinterpret_cast<Vector*>(row);
    Vector sum[V];
    for (int v = 0; v < V; ++v) sum[v] = to[v];
#pragma GCC unroll 8
    for (Index t = 0; t < tables; ++t) {
      if (t >= count) break;
      const Vector* entry = entries + (t * 256 + Index((m >> (8 * t)) & 255)) * V;
      for (int v = 0; v < V; ++v) sum[v] ^= entry[v];
    }
    for (int v = 0; v < V; ++v) to[v] = sum[v];
  }
}

template <simd::Level>
TERRACE_INLINE void combine_body(const Piece& p) {
  const Index left = ceil_div(p.source.count - p.bits, 8);
  const Index count = left < tables ? left : tables;
  if (p.words == 16) {
    build<2>(p, count);
    if (count == tables)
      apply<2>(p, tables);
    else
      apply<2>(p, count);
  } else {
    build<1>(p, count);
    if (count == tables)
      apply<1>(p, tables);
    else
      apply<1>(p, count);
  }
}
TERRACE_MULTIVERSION(combine_piece, combine_body, Piece)

// Few rows do not repay the tables.
template <simd::Level>
TERRACE_INLINE void add_body(const Piece& p) {
  for (Index i = p.first; i < p.last; ++i) {
    const Word* m = p.multipliers.data + i * p.multipliers.stride;
    Vector* to = reinterpret_cast<Vector*>(p.out.data + p.out.row(i) * p.out.stride + p.out_word);
    for (Index q = 0; q < p.source.count; ++q) {
      if (!((m[q / 64] >> (q % 64)) & 1)) continue;
      const Vector* from = reinterpret_cast<const Vector*>(
          p.source.data + p.source.row(q) * p.source.stride + p.source_word);
      for (Index v = 0; v < p.words / 8; ++v) to[v] ^= from[v];
    }
  }
}
TERRACE_MULTIVERSION(add_piece, add_body, Piece)

Word* scratch() {
  struct alignas(64) Line {
    Word words[8];
  };
  static thread_local std::vector<Line> memory(tables * 256 * strip_words / 8);
  return memory.data()->words;
}

}  // namespace

void combine(const Stream<Cpu>& stream, BitRows<Word, Cpu> out,
             BitRows<const Word, Cpu> multipliers, BitRows<const Word, Cpu> source, Index out_word,
             Index source_word, Index words) {
  if (out.count <= 0 || source.count <= 0 || words <= 0) return;
  stream.run([=] {
    Piece all{out, multipliers, source, out_word, source_word, words, 0, out.count, 0, nullptr};
    if (out.count <= 12) {
      parallel_for(out.count, [&](Index i) {
        Piece p = all;
        p.first = i, p.last = i + 1;
        add_piece(p);
      });
      return;
    }
    // A chunk long enough to repay its tables, short enough to share among many threads.
    const Index chunk = 4096;
    const Index strips = ceil_div(words, strip_words), chunks = ceil_div(out.count, chunk);
    parallel_for(strips * chunks, [&](Index number) {
      Piece p = all;
      p.table = scratch();
      const Index strip = number / chunks * strip_words;
      p.first = number % chunks * chunk;
      p.last = std::min(out.count, p.first + chunk);
      const Index width = std::min(strip_words, words - strip);
      for (Index bits = 0; bits < source.count; bits += 8 * tables) {
        p.bits = bits;
        for (Index part = 0; part < width; part += p.words) {
          p.words = width == strip_words ? strip_words : 8;
          p.out_word = out_word + strip + part;
          p.source_word = source_word + strip + part;
          combine_piece(p);
        }
      }
    });
  });
}

}  // namespace terrace
