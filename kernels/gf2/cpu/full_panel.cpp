// A wide panel on the CPU, step by step as the GPU does it: factor_panel() for the step's pivots,
// combine() for T S and the update.
//
// Roofline: that of combine().
#include "kernels/gf2/full_panel.hpp"

#include <algorithm>
#include <vector>

#include "kernels/base/parallel.hpp"

namespace terrace::gf2 {

template <>
bool has_full_panels<Cpu>() {
  return true;
}

// T, S and T S, 512 rows each; the rows' bits in the step's columns.
template <>
Index FullPanel<Cpu>::scratch_words(Index count, Index pitch) {
  return full_columns * (max_panel_words + 2 * pitch) + count * max_panel_words;
}

namespace {

void begin(const Stream<Cpu>& stream, FullPanel<Cpu> p, BitRows<const Word, Cpu> rows,
           Index words) {
  stream.run([=] {
    for (Index x = 0; x < full_candidates; ++x) p.candidates[x] = x < p.count ? x : -1;
    std::fill_n(p.numbers, p.count, Index(-1));
    *p.done = 0;
    for (Index i = 0; i < p.count; ++i) {
      Word* const to = p.rows[0] + i * p.pitch;
      std::copy_n(rows.data + rows.row(i) * rows.stride, words, to);
      std::fill_n(to + words, p.pitch - words, Word(0));
    }
  });
}

void factor(const Stream<Cpu>& stream, FullPanel<Cpu> p, Index k) {
  stream.run([=] {
    if (*p.done != k) return;
    std::vector<Index> list, place;  // of the candidates that there are
    for (Index x = 0; x < full_candidates; ++x)
      if (p.candidates[x] >= 0) list.push_back(p.candidates[x]), place.push_back(x);
    constexpr Index words = max_panel_words, size = PanelFactor<Cpu>::info_size(words);
    std::vector<Index> info(static_cast<std::size_t>(size));
    std::vector<Word> factor(std::size_t(2 * full_columns * words));
    const Stream<Cpu> now;
    factor_panel(now, {p.before(k) + words * k, p.pitch, Index(list.size()), list.data()}, words,
                 {info.data(), factor.data(), factor.data() + full_columns * words});
    now.synchronize();
    if (info[0] < full_columns) return;
    std::copy_n(factor.begin(), full_columns * words, p.scratch);
    for (Index j = 0; j < full_columns; ++j) {
      const auto at = std::size_t(info[std::size_t(1 + full_columns + j)]);
      const Index q = full_columns * k + j, next = full_candidates + q;
      p.pivots[q] = list[at];
      p.numbers[list[at]] = q;
      p.candidates[place[at]] = next < p.count ? next : -1;
    }
    *p.done = k + 1;
  });
}

void update(const Stream<Cpu>& stream, FullPanel<Cpu> p, Index k) {
  constexpr Index words = max_panel_words;
  Word* const transform = p.scratch;
  Word* const s = transform + full_columns * words;
  Word* const reduced = s + full_columns * p.pitch;
  Word* const m = reduced + full_columns * p.pitch;
  stream.run([=] {
    if (*p.done != k + 1) return;
    const Index* pivots = p.pivots + full_columns * k;
    std::fill_n(reduced, full_columns * p.pitch, Word(0));
    for (Index q = 0; q < full_columns; ++q) {  // the words of S that become T: the identity
      Word* row = s + q * p.pitch;
      std::copy_n(p.before(k) + pivots[q] * p.pitch, p.pitch, row);
      std::fill_n(row + words * k, words, Word(0));
      row[words * k + q / 64] = Word(1) << (q % 64);
    }
    parallel_ranges(p.count, 256, [&](Index first, Index last) {
      for (Index i = first; i < last; ++i) {
        const Word* from = p.before(k) + i * p.pitch;
        Word* to = p.after(k) + i * p.pitch;
        std::copy_n(from + words * k, words, m + i * words);
        std::copy_n(from, p.pitch, to);
        std::fill_n(to + words * k, words, Word(0));
        const Index own = p.numbers[i] - full_columns * k;
        if (own < 0) continue;  // a row with an older pivot is a row as others are
        std::fill_n(to, p.pitch, Word(0));
        std::fill_n(m + i * words, words, Word(0));
        m[i * words + own / 64] = Word(1) << (own % 64);
      }
    });
    const Stream<Cpu> now;
    combine(now, {reduced, p.pitch, full_columns, nullptr},
            {transform, words, full_columns, nullptr}, {s, p.pitch, full_columns, nullptr}, 0, 0,
            p.pitch);
    combine(now, {p.after(k), p.pitch, p.count, nullptr}, {m, words, p.count, nullptr},
            {reduced, p.pitch, full_columns, nullptr}, 0, 0, p.pitch);
    now.synchronize();
  });
}

void finish(const Stream<Cpu>& stream, FullPanel<Cpu> p, Index words, PanelFactor<Cpu> out) {
  stream.run([=] {
    const Index rank = full_columns * *p.done;
    out.info[0] = rank;
    for (Index q = 0; q < rank; ++q) {
      out.info[1 + q] = q;
      out.info[1 + 64 * words + q] = p.pivots[q];
      if (rank == 64 * words)
        std::copy_n(p.before(*p.done) + p.pivots[q] * p.pitch, out.pitch,
                    out.transform + q * out.pitch);
    }
  });
}

}  // namespace

void reduce_full_panel(const Stream<Cpu>& stream, FullPanel<Cpu> panel,
                       BitRows<const Word, Cpu> rows, Index words, PanelFactor<Cpu> out) {
  begin(stream, panel, rows, words);
  for (Index k = 0; k < words / max_panel_words; ++k) {
    factor(stream, panel, k);
    update(stream, panel, k);
  }
  finish(stream, panel, words, out);
}

}  // namespace terrace::gf2
