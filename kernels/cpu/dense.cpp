// Gauss-Jordan elimination on the CPU: rank-b update of all local rows.
// update: 2 slots b (c1 - c0) flops on 16 slots (c1 - c0) bytes, b / 8 flop a byte: bound by DGEMM,
// and runs at 85 to 95 % of it for b = 128.
#include "kernels/dense.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/dense_panel.hpp"
#include "kernels/parallel.hpp"
#include "kernels/random.hpp"

namespace terrace::dense {
namespace {

constexpr Index column_tile = 1024;  // columns of one product

Index panel_ld(Index block) { return round_up(block, inner_width) + 8; }

Strip strip_of(const Rows<Cpu>& rows, const Panel<Cpu>& panel) {
  return {panel.n.data, panel_ld(panel.block), rows.slots,         panel.width,
          rows.tile,    rows.global_row.data,  rows.column_of.data};
}
Factors factors_of(const Panel<Cpu>& panel) {
  return {panel.lu.data, panel.block, panel.pivots.data, panel.info.data};
}
/// Number within the panel of the pivot row in `slot`, or -1.
Index place_in(const Panel<Cpu>& panel, Index column) {
  return column >= panel.first && column < panel.first + panel.width ? column - panel.first : -1;
}
void write_record(const Strip& strip, const Best& best, double* record) {
  record[0] = best.key;
  record[1] = double(best.row);
  record[2] = double(best.slot);
  if (best.slot >= 0)
    std::memcpy(record + 3, strip.x + best.slot * strip.ld,
                std::size_t(strip.width) * sizeof(double));
}

}  // namespace

Sizes sizes(Cpu, Index slots, Index tile, Index block, int ranks) {
  const Index leaves = std::max<Index>(1, ceil_div(slots, tile));
  return {slots * panel_ld(block), leaves * block * panel_ld(block) * ranks, leaves};
}

template <>
void load_panel(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                bool fresh) {
  stream.run([=] {
    const Index ld = panel_ld(panel.block);
    if (fresh) panel.info.data[0] = -1;
    parallel_ranges(rows.slots, 256, [&](Index from, Index to) {
      for (Index s = from; s < to; ++s)
        std::memcpy(panel.n.data + s * ld, rows.a.data + s * rows.ld + panel.first,
                    std::size_t(panel.width) * sizeof(double));
    });
  });
}

template <>
void factor_panel(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                  View<double, Cpu>) {
  stream.run([=] { factor_strip(strip_of(rows, panel), factors_of(panel), panel.first, false); });
}

template <>
void first_candidate(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                     View<double, Cpu> record, View<double, Cpu>) {
  stream.run([=] {
    const Strip strip = strip_of(rows, panel);
    write_record(strip, best_in_column(strip, 0), record.data);
  });
}

template <>
void eliminate_column(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                      Index j, View<const double, Cpu> records, Index mine,
                      View<double, Cpu> record, View<double, Cpu>) {
  stream.run([=] {
    const Strip strip = strip_of(rows, panel);
    const Index size = record_size(panel.block), count = records.size / size;
    const double* best = records.data;
    Index winner = 0;
    for (Index r = 1; r < count; ++r) {
      const double* other = records.data + r * size;
      if (other[0] > best[0] || (other[0] == best[0] && other[1] < best[1])) {
        best = other;
        winner = r;
      }
    }
    if (!take_pivot(strip, factors_of(panel), j, best[0], Index(best[1]), best + 3)) return;
    if (winner == mine) strip.column_of[Index(best[2])] = panel.first + j;
    write_record(strip, eliminate_in_strip(strip, factors_of(panel), j), record.data);
  });
}

template <>
void choose_candidates(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                       View<double, Cpu> records, View<double, Cpu>) {
  stream.run([=] {
    const Index size = record_size(panel.block), leaves = records.size / size / panel.block;
    parallel_for(leaves, [&](Index leaf) {
      double* const out = records.data + leaf * panel.block * size;
      for (Index t = 0; t < panel.block; ++t) out[t * size] = -1;
      Strip strip = strip_of(rows, panel);
      const Index from = std::min(rows.slots, leaf * rows.tile);
      strip.rows = std::min(rows.slots, from + rows.tile) - from;
      strip.x += from * strip.ld;
      strip.id += from;
      std::vector<Index> column_of(strip.column_of + from, strip.column_of + from + strip.rows);
      strip.column_of = column_of.data();
      std::vector<double> lu(panel.block * panel.block);
      std::vector<Index> pivots(panel.block);
      for (Index& column : column_of) column = column >= 0 ? 0 : -1;
      Index info[2] = {-1, 0};
      factor_strip(strip, {lu.data(), panel.block, pivots.data(), info}, 1, true);
      for (Index s = 0, t = 0; s < strip.rows; ++s) {
        if (column_of[s] <= 0) continue;
        double* const record = out + t++ * size;
        record[0] = 1;
        record[1] = double(strip.id[s]);
        record[2] = double(from + s);
        std::memcpy(record + 3, rows.a.data + (from + s) * rows.ld + panel.first,
                    std::size_t(panel.width) * sizeof(double));
      }
    });
  });
}

template <>
void play_final(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                View<const double, Cpu> records, View<double, Cpu> work) {
  stream.run([=] {
    const Index size = record_size(panel.block), ld = panel_ld(panel.block);
    std::vector<std::pair<Index, const double*>> players;  // in row order, whoever owns them
    for (const double* r = records.data; r < records.data + records.size; r += size)
      if (r[0] >= 0) players.emplace_back(Index(r[1]), r);
    std::sort(players.begin(), players.end());
    const Index count = Index(players.size());
    std::vector<Index> id(count), column_of(count, -1);
    for (Index i = 0; i < count; ++i) {
      id[i] = players[i].first;
      std::memcpy(work.data + i * ld, players[i].second + 3,
                  std::size_t(panel.width) * sizeof(double));
    }
    factor_strip({work.data, ld, count, panel.width, rows.tile, id.data(), column_of.data()},
                 factors_of(panel), panel.first, false);
    for (Index i = 0; i < count; ++i) {
      const Index slot = Index(players[i].second[2]);
      if (column_of[i] >= 0 && slot < rows.slots && rows.global_row.data[slot] == id[i])
        rows.column_of.data[slot] = column_of[i];
    }
  });
}

template <>
void divide_by_upper(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                     View<double, Cpu>) {
  stream.run([=] {
    if (panel.info.data[0] >= 0) return;
    const Index ld = panel_ld(panel.block);
    parallel_ranges(rows.slots, rows.tile, [&](Index from, Index to) {
      cblas_dtrsm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasNonUnit, int(to - from),
                  int(panel.width), 1.0, panel.lu.data, int(panel.block), panel.n.data + from * ld,
                  int(ld));
    });
  });
}

template <>
void finish_panel(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                  bool final, View<double, Cpu>) {
  stream.run([=] {
    const Index b = panel.width, ld = panel_ld(panel.block);
    const double* const lu = panel.lu.data;
    double* const summary = panel.summary.data;
    summary[0] = double(panel.info.data[0]);
    summary[1] = double(panel.info.data[1]);
    if (panel.info.data[0] >= 0) return;
    for (Index t = 0; t < b; ++t) {
      summary[2 + t] = double(panel.pivots.data[t]);
      summary[2 + panel.block + t] = lu[t * panel.block + t];
    }
    if (final) return;
    double* const upper = panel.lu.data + panel.block * panel.block;  // -U^-1
    std::memset(upper, 0, std::size_t(panel.block * panel.block) * sizeof(double));
    for (Index t = 0; t < b; ++t) upper[t * panel.block + t] = -1;
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasUpper, CblasNoTrans, CblasNonUnit, int(b), int(b),
                1.0, lu, int(panel.block), upper, int(panel.block));
    for (Index s = 0; s < rows.slots; ++s)
      if (const Index t = place_in(panel, rows.column_of.data[s]); t >= 0)
        std::memcpy(panel.n.data + s * ld, upper + t * panel.block,
                    std::size_t(b) * sizeof(double));
  });
}

template <>
void solve_lower(const Stream<Cpu>& stream, const Panel<Cpu>& panel, Index length, Index from,
                 bool inverse, View<double, Cpu> p) {
  stream.run([=] {
    if (inverse)
      for (Index t = 0; t < panel.width; ++t) {
        double* const row = p.data + t * length + panel.first - from;
        std::memset(row, 0, std::size_t(panel.width) * sizeof(double));
        row[t] = 1;
      }
    parallel_ranges(length, 256, [&](Index begin, Index end) {
      cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, int(panel.width),
                  int(end - begin), 1.0, panel.lu.data, int(panel.block), p.data + begin,
                  int(length));
    });
  });
}

template <>
void collect_rows(const Stream<Cpu>& stream, const Rows<Cpu>& rows, View<const Index, Cpu> list,
                  Index from, View<double, Cpu> out) {
  stream.run([=] {
    const Index length = rows.columns - from;
    parallel_ranges(list.size, 16, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        std::memcpy(out.data + i * length, rows.a.data + list.data[i] * rows.ld + from,
                    std::size_t(length) * sizeof(double));
    });
  });
}

template <>
void place_rows(const Stream<Cpu>& stream, Index length, View<const Index, Cpu> position,
                View<const double, Cpu> packed, View<double, Cpu> out) {
  stream.run([=] {
    parallel_ranges(position.size, 16, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        std::memcpy(out.data + i * length, packed.data + position.data[i] * length,
                    std::size_t(length) * sizeof(double));
    });
  });
}

template <>
void begin_update(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                  Index from, bool inverse) {
  stream.run([=] {
    parallel_ranges(rows.slots, 64, [&](Index begin, Index end) {
      for (Index s = begin; s < end; ++s) {
        double* const a = rows.a.data + s * rows.ld;
        if (place_in(panel, rows.column_of.data[s]) >= 0)
          std::memset(a + from, 0, std::size_t(rows.columns - from) * sizeof(double));
        if (inverse) std::memset(a + panel.first, 0, std::size_t(panel.width) * sizeof(double));
      }
    });
  });
}

template <>
void update(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
            View<const double, Cpu> y, Index from, Index c0, Index c1) {
  if (c1 <= c0) return;
  stream.run([=] {
    const Index ld = panel_ld(panel.block), length = rows.columns - from;
    const Index across = ceil_div(c1 - c0, column_tile), down = ceil_div(rows.slots, rows.tile);
    parallel_for(across * down, [&](Index piece) {
      const Index s = piece / across * rows.tile, c = c0 + piece % across * column_tile;
      const Index height = std::min(rows.tile, rows.slots - s);
      const Index width = std::min(column_tile, c1 - c);
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(height), int(width),
                  int(panel.width), -1.0, panel.n.data + s * ld, int(ld), y.data + c - from,
                  int(length), 1.0, rows.a.data + s * rows.ld + c, int(rows.ld));
    });
  });
}

template <>
void permute_columns(const Stream<Cpu>& stream, const Rows<Cpu>& rows,
                     View<const Index, Cpu> target, View<double, Cpu>) {
  stream.run([=] {
    parallel_ranges(rows.slots, 32, [&](Index from, Index to) {
      std::vector<double> row(target.size);
      for (Index s = from; s < to; ++s) {
        double* const a = rows.a.data + s * rows.ld;
        for (Index k = 0; k < target.size; ++k) row[target.data[k]] = a[k];
        std::memcpy(a, row.data(), std::size_t(target.size) * sizeof(double));
      }
    });
  });
}

template <>
void fill_random(const Stream<Cpu>& stream, const Rows<Cpu>& rows, Index columns, Word seed) {
  stream.run([=] {
    parallel_ranges(rows.slots, 32, [&](Index from, Index to) {
      for (Index s = from; s < to; ++s)
        for (Index j = 0; j < columns; ++j)
          rows.a.data[s * rows.ld + j] = random_uniform(seed, rows.global_row.data[s], j);
    });
  });
}

}  // namespace terrace::dense
