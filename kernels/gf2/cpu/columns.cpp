// Roofline: as on CUDA, from memory or cache. The launch shape and the path of the pivot row are
// the GPU's.
#include "kernels/gf2/columns.hpp"

#include <algorithm>
#include <utility>

#include "kernels/base/parallel.hpp"

namespace terrace::gf2 {

namespace {

using Gauss = ColumnGauss<Cpu>;

Word* row_at(const Gauss& g, Index position) {
  return g.data + (g.swap ? position : g.order[position]) * g.stride;
}

void add_row(Word* row, const Word* pivot, Index first, Index last) {
  for (Index w = first; w < last; ++w) row[w] ^= pivot[w];
}

}  // namespace

void search_column(const Stream<Cpu>& stream, const Gauss& g, Index column, bool advance) {
  stream.run([g, column, advance] {
    const Index first = g.state[0] + (advance && g.state[1] >= 0 ? 1 : 0);
    Index p = first;
    while (p < g.count && ((row_at(g, p)[column / 64] >> (column % 64)) & 1) == 0) ++p;
    g.state[0] = first;
    g.state[1] = p < g.count ? p : -1;
    if (p == g.count) return;
    g.columns[first] = column;
    std::swap(g.order[first], g.order[p]);
  });
}

void clear_column(const Stream<Cpu>& stream, const Gauss& g, Index column, Index above) {
  if (g.count <= 0) return;
  stream.run([g, column, above] {
    const Index rank = g.state[0], pivot = g.state[1];
    if (pivot < 0) return;
    const Index column_word = column / 64, first_word = g.in_place ? 0 : column_word;
    const Word bit = Word(1) << (column % 64);
    Word* const from = row_at(g, rank);
    if (g.swap && pivot != rank)
      std::swap_ranges(from + first_word, from + g.words, row_at(g, pivot) + first_word);
    if (g.in_place) from[column_word] ^= bit;  // the column's own bits stay
    const Index before = rank - above, items = before + g.count - (pivot + 1);
    const Index grain = std::max<Index>(16, 32768 / (g.words - first_word));
    parallel_ranges(items, grain, [&](Index begin, Index end) {
      for (Index item = begin; item < end; ++item) {
        Word* row = row_at(g, item < before ? above + item : pivot + 1 + (item - before));
        if (row[column_word] & bit) add_row(row, from, first_word, g.words);
      }
    });
    if (g.in_place) from[column_word] ^= bit;
  });
}

}  // namespace terrace::gf2
