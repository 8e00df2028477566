// factor_panel() on the CPU: Gauss-Jordan on [rows | transform], one thread, in L1 and L2.
//
// Roofline: c pivots x m rows x 2 c bits; 320 rows x 256 columns are 5 MB of cache traffic, 0.1 ms.
#include <vector>

#include "kernels/base/cpu/simd.hpp"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

using simd::Vector;

struct Step {
  Word* work;  // m rows of [row | transform], 8 V words each
  Index rows, vectors, pivot, word, bit;
};

// Clears the pivot's column in all other rows.
template <simd::Level>
TERRACE_INLINE void clear_body(const Step& s) {
  const Vector* pivot = reinterpret_cast<const Vector*>(s.work) + s.pivot * s.vectors;
  if (s.vectors == 2) {
    const Vector p0 = pivot[0], p1 = pivot[1];
    for (Index i = 0; i < s.rows; ++i) {
      Vector* row = reinterpret_cast<Vector*>(s.work) + i * 2;
      const Word mask = -((s.work[i * 16 + s.word] >> s.bit) & Word(i != s.pivot));
      row[0] ^= p0 & mask;
      row[1] ^= p1 & mask;
    }
  } else {
    const Vector p0 = pivot[0];
    for (Index i = 0; i < s.rows; ++i) {
      Vector* row = reinterpret_cast<Vector*>(s.work) + i;
      const Word mask = -((s.work[i * 8 + s.word] >> s.bit) & Word(i != s.pivot));
      row[0] ^= p0 & mask;
    }
  }
}
TERRACE_MULTIVERSION(clear_column, clear_body, Step)

void factor(BitRows<const Word, Cpu> rows, Index words, PanelFactor<Cpu> out) {
  const Index m = rows.count, columns = 64 * words, vectors = ceil_div(2 * words, 8);
  const Index width = 8 * vectors;
  static thread_local std::vector<Word> memory(max_candidates * 2 * max_panel_words);
  static thread_local std::vector<char> done(max_candidates);
  Word* work = memory.data();
  for (Index i = 0; i < m; ++i) {
    const Word* from = rows.data + rows.row(i) * rows.stride;
    std::copy_n(from, words, work + i * width);
    std::fill_n(work + i * width + words, width - words, Word(0));
    done[std::size_t(i)] = 0;
  }
  Index rank = 0;
  for (Index j = 0; j < columns && rank < m; ++j) {
    Index pivot = 0;
    while (pivot < m &&
           (done[std::size_t(pivot)] || !((work[pivot * width + j / 64] >> (j % 64)) & 1)))
      ++pivot;
    if (pivot == m) continue;
    done[std::size_t(pivot)] = 1;
    work[pivot * width + words + rank / 64] |= Word(1) << (rank % 64);
    out.info[1 + rank] = j;
    out.info[1 + columns + rank] = pivot;
    ++rank;
    clear_column({work, m, vectors, pivot, j / 64, j % 64});
  }
  out.info[0] = rank;
  for (Index q = 0; q < columns; ++q) {
    const Word* row = q < rank ? work + out.info[1 + columns + q] * width : nullptr;
    for (Index w = 0; w < max_panel_words; ++w) {
      const bool used = row && w < words;
      out.reduced[q * max_panel_words + w] = used ? row[w] : 0;
      out.transform[q * max_panel_words + w] = used ? row[words + w] : 0;
    }
  }
}

}  // namespace

void factor_panel(const Stream<Cpu>& stream, BitRows<const Word, Cpu> rows, Index words,
                  PanelFactor<Cpu> out) {
  stream.run([=] { factor(rows, words, out); });
}

}  // namespace terrace::gf2
