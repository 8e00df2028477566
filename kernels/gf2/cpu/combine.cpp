// combine() on the CPU: the Method of the Four Russians on column strips.
//
// Roofline: a row of a strip moves 64 V bytes of table for every k columns cleared; the tables of
// one pass (128 KiB V at k = 8) live in L2, so the L2 read rate of the cores is the bound.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/base/cpu/simd.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

using simd::Vector;

constexpr Index strip_words = 16;  // words of a row that one pass holds in registers
constexpr Index most_k = 14;
constexpr Index table_cache = 256;  // KiB of tables a pass

/// Tables of a pass: at most a word of multipliers, and what stays in cache.
constexpr Index tables_of(Index k) {
  return std::clamp<Index>((table_cache << 10) / (8 * strip_words << k), 1,
                           std::min<Index>(64 / k, k == 8 ? 8 : 16));
}

struct Piece {
  BitRows<Word, Cpu> out;
  BitRows<const Word, Cpu> multipliers, source;
  Index out_word, source_word, words;  // one strip
  Index first, last;                   // rows of out
  Index bits;                          // first bit of the multipliers in this pass
  Index k, tables;                     // tables of 2^k entries in this pass
  Word* table;                         // tables x 2^k x words
};

// entry e of table t = XOR of the source rows bits + k t + j over the ones j of e
template <int V>
TERRACE_INLINE void build(const Piece& p) {
  for (Index t = 0; t < p.tables; ++t) {
    Vector* entries = reinterpret_cast<Vector*>(p.table) + (t << p.k) * V;
    for (int v = 0; v < V; ++v) entries[v] = Vector{};
    for (int j = 0; j < p.k; ++j) {
      const Index q = p.bits + p.k * t + j;
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

/// Bits [p.bits, p.bits + k tables) of row i's multipliers; rows beyond the source count as zero.
TERRACE_INLINE Word multiplier(const Piece& p, Index i) {
  const Word* row = p.multipliers.data + i * p.multipliers.stride + p.bits / 64;
  const Index offset = p.bits % 64;
  Word m = row[0] >> offset;
  if (offset + p.k * p.tables > 64 && (p.bits / 64 + 1) * 64 < p.source.count)
    m |= row[1] << (64 - offset);
  return m;
}

/// K and T: k and tables where they are known, or 0.
template <int V, int K, int T>
TERRACE_INLINE void apply(const Piece& p) {
  const Vector* entries = reinterpret_cast<const Vector*>(p.table);
  const Index k = K ? K : p.k, tables = T ? T : p.tables;
  const Word mask = (Word(1) << k) - 1;
  for (Index i = p.first; i < p.last; ++i) {
    const Word m = multiplier(p, i);
    Word* row = p.out.data + p.out.row(i) * p.out.stride + p.out_word;
    if (i + 6 < p.last)
      __builtin_prefetch(p.out.data + p.out.row(i + 6) * p.out.stride + p.out_word, 1);
    Vector* to = reinterpret_cast<Vector*>(row);
    Vector sum[V];
    for (int v = 0; v < V; ++v) sum[v] = to[v];
#pragma GCC unroll 8
    for (Index t = 0; t < tables; ++t) {
      const Vector* entry = entries + ((t << k) + Index((m >> (k * t)) & mask)) * V;
      for (int v = 0; v < V; ++v) sum[v] ^= entry[v];
    }
    for (int v = 0; v < V; ++v) to[v] = sum[v];
  }
}

template <int V>
TERRACE_INLINE void combine_width(const Piece& p) {
  if (p.k == 8 && p.tables == 8)
    apply<V, 8, 8>(p);
  else if (p.k == 8)
    apply<V, 8, 0>(p);
  else
    apply<V, 0, 0>(p);
}

template <simd::Level>
TERRACE_INLINE void apply_body(const Piece& p) {
  if (p.words == 16)
    combine_width<2>(p);
  else
    combine_width<1>(p);
}
TERRACE_MULTIVERSION(apply_piece, apply_body, Piece)

template <simd::Level>
TERRACE_INLINE void build_body(const Piece& p) {
  if (p.words == 16)
    build<2>(p);
  else
    build<1>(p);
}
TERRACE_MULTIVERSION(build_piece, build_body, Piece)

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

Word* scratch(Index words) {
  struct alignas(64) Line {
    Word words[8];
  };
  static thread_local std::vector<Line> memory;
  if (Index(memory.size()) * 8 < words) memory.resize(std::size_t(ceil_div(words, 8)));
  return memory.data()->words;
}

TableShape known(TableShape shape) {
  if (shape.k == 0) shape.k = 8;
  if (shape.k > most_k) throw Error(Exit::internal, "no tables of this shape");
  if (shape.tables == 0) shape.tables = tables_of(shape.k);
  return shape;
}

/// Words of one strip's tables.
constexpr Index strip_table_words(const TableShape& shape) {
  return (shape.tables << shape.k) * strip_words;
}

/// Rows that repay their tables, few enough to share among many threads.
constexpr Index chunk_rows(Index k) { return std::max<Index>(4096, Index(8) << k); }

/// out ^= multipliers source, tables taken from `stored` (of `strips` strips) or built.
void combine_all(Piece all, const TableShape& shape, const Word* stored, Index strips_stored) {
  const Index chunk = chunk_rows(shape.k), first_strip = stored ? all.source_word / strip_words : 0;
  const Index skip = stored ? all.source_word % strip_words : 0;
  const Index strips = ceil_div(skip + all.words, strip_words);
  const Index chunks = ceil_div(all.out.count, chunk);
  const Index pass_bits = shape.k * shape.tables;
  parallel_for(strips * chunks, [&](Index number) {
    Piece p = all;
    p.k = shape.k;
    const Index from = std::max<Index>(0, number / chunks * strip_words - skip);
    const Index to = std::min(all.words, (number / chunks + 1) * strip_words - skip);
    p.first = number % chunks * chunk;
    p.last = std::min(all.out.count, p.first + chunk);
    for (Index bits = 0; bits < all.source.count; bits += pass_bits) {
      p.bits = bits;
      p.tables = std::min(shape.tables, ceil_div(all.source.count - bits, shape.k));
      // Stored tables have both halves of a strip beside each other: two passes of 8 words.
      const Index width = to - from == strip_words && !stored ? strip_words : 8;
      for (Index part = from; part < to; part += width) {
        p.words = width;
        p.out_word = all.out_word + part;
        p.source_word = all.source_word + part;
        if (stored) {
          const Index half = (p.source_word % strip_words) / 8;
          p.table =
              const_cast<Word*>(stored) +
              ((bits / pass_bits * strips_stored + first_strip + number / chunks) * 2 + half) *
                  (strip_table_words(shape) / 2);
        } else {
          p.table = scratch(strip_table_words(shape));
          build_piece(p);
        }
        apply_piece(p);
      }
    }
  });
}

}  // namespace

template <>
std::vector<TableShape> table_shapes<Cpu>() {
  std::vector<TableShape> shapes;
  for (Index k = 1; k <= most_k; ++k) shapes.push_back({k, tables_of(k)});
  shapes.push_back({8, 4});
  return shapes;
}

template <>
Index stored_table_words<Cpu>(Index inner, Index words, TableShape shape) {
  shape = known({shape.k});
  return ceil_div(inner, shape.k * shape.tables) * ceil_div(words, strip_words) *
         strip_table_words(shape);
}

void build_tables(const Stream<Cpu>& stream, BitRows<const Word, Cpu> source, Index words,
                  TableShape shape, Word* tables) {
  if (source.count <= 0 || words <= 0) return;
  shape = known({shape.k});
  stream.run([=] {
    const Index pass_bits = shape.k * shape.tables, halves = ceil_div(words, strip_words) * 2;
    parallel_for(ceil_div(source.count, pass_bits) * halves, [&](Index number) {
      Piece p{};
      p.source = source;
      p.source_word = number % halves * 8;
      if (p.source_word >= words) return;
      p.words = 8;
      p.bits = number / halves * pass_bits;
      p.k = shape.k;
      p.tables = std::min(shape.tables, ceil_div(source.count - p.bits, shape.k));
      p.table = tables + number * (strip_table_words(shape) / 2);
      build_piece(p);
    });
  });
}

void combine_stored(const Stream<Cpu>& stream, BitRows<Word, Cpu> out,
                    BitRows<const Word, Cpu> multipliers, Index inner, const Word* tables,
                    Index table_words, Index out_word, Index source_word, Index words,
                    TableShape shape) {
  if (out.count <= 0 || inner <= 0 || words <= 0) return;
  shape = known({shape.k});
  stream.run([=] {
    combine_all({out,
                 multipliers,
                 {nullptr, 0, inner, nullptr},
                 out_word,
                 source_word,
                 words,
                 0,
                 out.count,
                 0,
                 0,
                 0,
                 nullptr},
                shape, tables, ceil_div(table_words, strip_words));
  });
}

void combine(const Stream<Cpu>& stream, BitRows<Word, Cpu> out,
             BitRows<const Word, Cpu> multipliers, BitRows<const Word, Cpu> source, Index out_word,
             Index source_word, Index words, TableShape shape) {
  if (out.count <= 0 || source.count <= 0 || words <= 0) return;
  shape = known(shape);
  stream.run([=] {
    const Piece all{out, multipliers, source, out_word, source_word, words,
                    0,   out.count,   0,      0,        0,           nullptr};
    if (out.count <= 12) {
      parallel_for(out.count, [&](Index i) {
        Piece p = all;
        p.first = i, p.last = i + 1;
        add_piece(p);
      });
      return;
    }
    combine_all(all, shape, nullptr, 0);
  });
}

}  // namespace terrace::gf2
