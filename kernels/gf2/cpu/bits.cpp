// The smaller bit kernels on the CPU.
//
// Roofline: each reads its rows once from memory; multiply_words does 64 ANDs and XORs a word, by
// vectors of 8 of the 64 products, and stays in cache for its second operand.
#include "kernels/gf2/bits.hpp"

#include <algorithm>
#include <atomic>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/base/cpu/simd.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::gf2 {

using simd::Vector;

void copy_bits(const Stream<Cpu>& stream, BitRows<Word, Cpu> to, BitRows<const Word, Cpu> from,
               Index from_word, Index words) {
  if (to.count <= 0 || words <= 0) return;
  stream.run([=] {
    parallel_ranges(to.count, 256, [&](Index first, Index last) {
      for (Index i = first; i < last; ++i)
        std::copy_n(from.data + from.row(i) * from.stride + from_word, words,
                    to.data + to.row(i) * to.stride);
    });
  });
}

void clear_bits(const Stream<Cpu>& stream, BitRows<Word, Cpu> rows, Index word, Index words) {
  if (rows.count <= 0 || words <= 0) return;
  stream.run([=] {
    for (Index i = 0; i < rows.count; ++i)
      std::fill_n(rows.data + rows.row(i) * rows.stride + word, words, Word(0));
  });
}

void flip_bits(const Stream<Cpu>& stream, Word* data, Index stride, const Index* rows,
               const Index* columns, Index count) {
  if (count <= 0) return;
  stream.run([=] {
    for (Index x = 0; x < count; ++x)
      data[rows[x] * stride + columns[x] / 64] ^= Word(1) << (columns[x] % 64);
  });
}

namespace {

// --- extract -------------------------------------------------------------------------------------

struct Extract {
  BitRows<Word, Cpu> out;
  BitRows<const Word, Cpu> rows;
  Index word, words;
  const Word* masks;  // of the pivot columns in each word
  Index first, last;
};

template <simd::Level level>
TERRACE_INLINE Word gather_ones(Word bits, Word mask) {
#if defined(__x86_64__)
  if constexpr (level != simd::Level::plain) {
    Word gathered;  // clang takes the builtin in functions for that instruction set only
    asm("pext %2, %1, %0" : "=r"(gathered) : "r"(bits), "rm"(mask));
    return gathered;
  }
#endif
  Word result = 0;
  for (int to = 0; mask; mask &= mask - 1, ++to)
    if (bits & mask & -mask) result |= Word(1) << to;
  return result;
}

template <simd::Level level>
TERRACE_INLINE void extract_body(const Extract& p) {
  for (Index i = p.first; i < p.last; ++i) {
    const Word* from = p.rows.data + p.rows.row(i) * p.rows.stride + p.word;
    Word* to = p.out.data + p.out.row(i) * p.out.stride;
    for (Index w = 0; w < p.words; ++w) to[w] = 0;
    Index filled = 0;
    for (Index w = 0; w < p.words; ++w) {
      const Word mask = p.masks[w];
      if (!mask) continue;
      const Word bits = mask == ~Word(0) ? from[w] : gather_ones<level>(from[w], mask);
      to[filled / 64] |= bits << (filled % 64);
      if (filled % 64 && filled / 64 + 1 < p.words)
        to[filled / 64 + 1] |= bits >> (64 - filled % 64);
      filled += __builtin_popcountll(mask);
    }
  }
}
#if defined(__x86_64__)
__attribute__((target("avx2,bmi2,popcnt"))) void extract_bmi(const Extract& p) {
  extract_body<simd::Level::avx2>(p);
}
#endif
void extract_rows(const Extract& p) {
#if defined(__x86_64__)
  if (simd::level() != simd::Level::plain) return extract_bmi(p);
#endif
  extract_body<simd::Level::plain>(p);
}

// --- add -----------------------------------------------------------------------------------------

struct Addition {
  BitRows<Word, Cpu> out;
  BitRows<const Word, Cpu> a, b;
  Index words, a_words, b_words;
  Index first, last;
};

template <simd::Level>
TERRACE_INLINE void add_rows_body(const Addition& p) {
  constexpr Index width = bit_row_alignment;  // words of a Vector
  for (Index i = p.first; i < p.last; ++i) {
    Vector* to = reinterpret_cast<Vector*>(p.out.data + i * p.out.stride);
    const Vector* a = reinterpret_cast<const Vector*>(p.a.data + i * p.a.stride);
    const Vector* b = reinterpret_cast<const Vector*>(p.b.data + i * p.b.stride);
    const Index all = p.words / width;
    const Index of_a = i < p.a.count ? std::min(all, p.a_words / width) : 0;
    const Index of_b = i < p.b.count ? std::min(all, p.b_words / width) : 0;
    const Index both = std::min(of_a, of_b);
    for (Index v = 0; v < both; ++v) to[v] = a[v] ^ b[v];
    for (Index v = both; v < of_a; ++v) to[v] = a[v];
    for (Index v = both; v < of_b; ++v) to[v] = b[v];
    for (Index v = std::max(of_a, of_b); v < all; ++v) to[v] = Vector{};
  }
}
TERRACE_MULTIVERSION(add_rows, add_rows_body, Addition)

// --- multiply_words ------------------------------------------------------------------------------

struct Products {
  Word* out;
  BitRows<const Word, Cpu> rows;
  Index word, words;
  const Word* sliced;
  Index first, last;
};

template <simd::Level>
TERRACE_INLINE void products_body(const Products& p) {
  for (Index i = p.first; i < p.last; ++i) {
    const Word* row = p.rows.data + p.rows.row(i) * p.rows.stride + p.word;
    Vector sum[8] = {};
    for (Index w = 0; w < p.words; ++w) {
      const Vector* z = reinterpret_cast<const Vector*>(p.sliced + 64 * w);
      const Word bits = row[w];
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) sum[v] ^= z[v] & bits;
    }
    Word parity = 0;
    for (int t = 0; t < 64; ++t) parity |= Word(__builtin_popcountll(sum[t / 8][t % 8]) & 1) << t;
    p.out[i] ^= parity;
  }
}
TERRACE_MULTIVERSION(products, products_body, Products)

}  // namespace

void add_bits(const Stream<Cpu>& stream, BitRows<Word, Cpu> out, Index words,
              BitRows<const Word, Cpu> a, Index a_words, BitRows<const Word, Cpu> b,
              Index b_words) {
  if (out.count <= 0 || words <= 0) return;
  stream.run([=] {
    parallel_ranges(out.count, 64, [&](Index first, Index last) {
      add_rows({out, a, b, words, a_words, b_words, first, last});
    });
  });
}

void extract_bits(const Stream<Cpu>& stream, BitRows<Word, Cpu> out, BitRows<const Word, Cpu> rows,
                  Index word, Index words, const Index* info) {
  if (rows.count <= 0) return;
  stream.run([=] {
    Word masks[max_wide_words] = {};
    for (Index q = 0; q < info[0]; ++q) masks[info[1 + q] / 64] |= Word(1) << (info[1 + q] % 64);
    parallel_ranges(rows.count, 1024, [&](Index first, Index last) {
      extract_rows({out, rows, word, words, masks, first, last});
    });
  });
}

void nonzero_rows(const Stream<Cpu>& stream, BitRows<const Word, Cpu> rows, Index word, Index words,
                  Index* list, Index* count) {
  stream.run([=] {
    Index found = 0;
    for (Index i = 0; i < rows.count; ++i) {
      const Word* from = rows.data + rows.row(i) * rows.stride + word;
      if (std::any_of(from, from + words, [](Word x) { return x != 0; })) list[found++] = i;
    }
    *count = found;
  });
}

void first_nonzero_word(const Stream<Cpu>& stream, BitRows<const Word, Cpu> rows, Index from,
                        Index to, Index* result) {
  stream.run([=] {
    std::atomic<Index> best{to};
    parallel_ranges(rows.count, 64, [&](Index first, Index last) {
      Index mine = best.load(std::memory_order_relaxed);
      for (Index i = first; i < last; ++i) {
        const Word* row = rows.data + rows.row(i) * rows.stride;
        mine = std::find_if(row + from, row + mine, [](Word x) { return x != 0; }) - row;
      }
      Index seen = best.load();
      while (mine < seen && !best.compare_exchange_weak(seen, mine)) {
      }
    });
    *result = best.load();
  });
}

void random_bits(const Stream<Cpu>& stream, BitRows<Word, Cpu> out, const Index* numbers,
                 RandomBits what) {
  stream.run([=] {
    const Index words = ceil_div(what.columns, 64);
    parallel_ranges(out.count, 64, [&](Index first, Index last) {
      for (Index i = first; i < last; ++i)
        for (Index j = 0; j < words; ++j)
          out.data[out.row(i) * out.stride + j] = detail::random_bits_word(what, numbers[i], j);
    });
  });
}

void slice_words(const Stream<Cpu>& stream, View<const Word, Cpu> z, View<Word, Cpu> sliced) {
  stream.run([=] {
    parallel_ranges(sliced.size / 64, 64, [&](Index first, Index last) {
      for (Index w = first; w < last; ++w)
        for (Index t = 0; t < 64; ++t) {
          Word bits = 0;
          const Index columns = std::min<Index>(64, z.size - 64 * w);
          for (Index c = 0; c < columns; ++c) bits |= ((z.data[64 * w + c] >> t) & 1) << c;
          sliced.data[64 * w + t] = bits;
        }
    });
  });
}

void multiply_words(const Stream<Cpu>& stream, Word* out, BitRows<const Word, Cpu> rows, Index word,
                    Index words, const Word* sliced) {
  if (rows.count <= 0 || words <= 0) return;
  stream.run([=] {
    parallel_ranges(rows.count, 64, [&](Index first, Index last) {
      products({out, rows, word, words, sliced, first, last});
    });
  });
}

void permute_bits(const Stream<Cpu>& stream, BitRows<Word, Cpu> out, BitRows<const Word, Cpu> in,
                  const Index* from, Index columns) {
  if (out.count <= 0) return;
  stream.run([=] {
    parallel_ranges(out.count, 16, [&](Index first, Index last) {
      for (Index i = first; i < last; ++i) {
        const Word* row = in.data + in.row(i) * in.stride;
        Word* to = out.data + out.row(i) * out.stride;
        for (Index w = 0; w < ceil_div(columns, 64); ++w) {
          Word bits = 0;
          const Index count = std::min<Index>(64, columns - 64 * w);
          for (Index c = 0; c < count; ++c) {
            const Index j = from[64 * w + c];
            bits |= ((row[j / 64] >> (j % 64)) & 1) << c;
          }
          to[w] = bits;
        }
      }
    });
  });
}

void kernel_rows(const Stream<Cpu>& stream, BitRows<Word, Cpu> out,
                 BitRows<const Word, Cpu> reduced, const Index* slots, Index columns,
                 const Index* free_columns, bool add_unit) {
  if (out.count <= 0 || columns <= 0) return;
  stream.run([=] {
    const Index words = ceil_div(columns, 64);
    parallel_for(words, [&](Index w) {  // a column of words: one reader of each reduced row
      for (Index f = 0; f < out.count; ++f) out.data[out.row(f) * out.stride + w] = 0;
      const Index last = std::min(columns, 64 * w + 64);
      for (Index p = 64 * w; p < last; ++p) {
        if (slots[p] < 0) continue;
        const Word* row = reduced.data + slots[p] * reduced.stride;
        for (Index f = 0; f < out.count; ++f) {
          const Index c = free_columns[f];
          out.data[out.row(f) * out.stride + w] |= ((row[c / 64] >> (c % 64)) & 1) << (p % 64);
        }
      }
    });
    if (add_unit)
      for (Index f = 0; f < out.count; ++f) {
        const Index c = free_columns[f];
        out.data[out.row(f) * out.stride + c / 64] |= Word(1) << (c % 64);
      }
  });
}

}  // namespace terrace::gf2
