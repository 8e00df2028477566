// Gauss-Jordan elimination on the CPU. The panel stands in slivers (dense_simd.hpp) from load_panel
// on, Y from solve_lower on, so that the update reads both as its products want them.
// update: 2 slots b (c1 - c0) flops on 16 slots (c1 - c0) bytes, b / 8 flop a byte.
#include "kernels/dense/dense.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "kernels/dense/cpu/layout.hpp"

namespace terrace::dense {
namespace {

constexpr Index piece_columns = 480;             // of one product
constexpr Index piece_bytes = Index(256) << 10;  // of N, half of a second cache
constexpr Index least_rows = 64, least_columns = 96;

Strip strip_of(const Rows<Cpu>& rows, const Panel<Cpu>& panel) {
  return {slivers_of(panel), rows.slots, panel.width, rows.global_row.data, rows.column_of.data};
}
Factors factors_of(const Panel<Cpu>& panel) {
  return {panel.lu.data, panel.block, panel.lu.data + panel.block * panel.block, panel.pivots.data,
          panel.info.data};
}
/// Number within the panel of the pivot row in `slot`, or -1.
Index place_in(const Panel<Cpu>& panel, Index column) {
  return column >= panel.first && column < panel.first + panel.width ? column - panel.first : -1;
}
void write_record(const Strip& strip, const Best& best, double* record) {
  record[0] = best.key;
  record[1] = double(best.row);
  record[2] = double(best.slot);
  if (best.slot >= 0) copy_row(strip, best.slot, record + 3);
}
}  // namespace

BufferSizes sizes(Cpu, Index slots, Index tile, Index block, int ranks) {
  const Index leaves = std::max<Index>(1, ceil_div(slots, tile)), stride = sliver_stride(block);
  return {slivers(slots) * stride + slots, slivers(leaves * block * ranks) * stride, leaves, true};
}

template <>
void load_panel(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                bool fresh) {
  stream.run([=] {
    if (fresh) panel.info.data[0] = -1;
    parallel_ranges(rows.slots, piece_rows(panel.width, 64), [&](Index from, Index to) {
      load_strip(strip_of(rows, panel), rows.a.data + panel.first, rows.ld, from, to);
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
    if (winner == mine) {
      strip.column_of[Index(best[2])] = panel.first + j;
      become_unit_row(strip, Index(best[2]), j);
    }
    write_record(strip, eliminate_in_strip(strip, factors_of(panel), j), record.data);
  });
}

template <>
void choose_candidates(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                       View<double, Cpu> records, View<double, Cpu>) {
  stream.run([=] {
    // A leaf is a block of the layout, its rows in their order, wherever they lie now.
    const Index size = record_size(panel.block), leaves = records.size / size / panel.block;
    std::vector<std::pair<Index, Index>> unused;  // global row, slot
    for (Index s = 0; s < rows.slots; ++s)
      if (rows.column_of.data[s] < 0) unused.emplace_back(rows.global_row.data[s], s);
    std::sort(unused.begin(), unused.end());
    std::vector<Index> begin{0};
    for (Index i = 1; i < Index(unused.size()); ++i)
      if (unused[std::size_t(i)].first / rows.tile != unused[std::size_t(i - 1)].first / rows.tile)
        begin.push_back(i);
    begin.resize(std::size_t(leaves) + 1, Index(unused.size()));
    parallel_for(leaves, [&](Index leaf) {
      double* const out = records.data + leaf * panel.block * size;
      for (Index t = 0; t < panel.block; ++t) out[t * size] = -1;
      const Index from = begin[std::size_t(leaf)];
      const Index count = begin[std::size_t(leaf) + 1] - from;
      if (count == 0) return;
      const auto row = [&](Index i) {
        const Index slot = unused[std::size_t(from + i)].second;
        return rows.a.data + slot * rows.ld + panel.first;
      };
      const Index stride = sliver_stride(panel.block), square = panel.block * panel.block;
      std::vector<double> x(std::size_t(slivers(count) * stride)), lu(std::size_t(2 * square));
      std::vector<double> a(std::size_t(count * panel.width));
      std::vector<Index> column_of(std::size_t(count), -1), id(std::size_t(count), 0);
      std::vector<Index> pivots(static_cast<std::size_t>(panel.block));
      for (Index i = 0; i < count; ++i) {
        id[std::size_t(i)] = unused[std::size_t(from + i)].first;
        std::copy_n(row(i), panel.width, a.begin() + i * panel.width);
      }
      const Strip strip{{x.data(), stride}, count, panel.width, id.data(), column_of.data()};
      load_strip(strip, a.data(), panel.width, 0, count);
      Index info[2] = {-1, 0};
      factor_strip(strip, {lu.data(), panel.block, lu.data() + square, pivots.data(), info}, 1,
                   true);
      for (Index i = 0, t = 0; i < count; ++i) {
        if (column_of[std::size_t(i)] <= 0) continue;
        double* const record = out + t++ * size;
        record[0] = 1;
        record[1] = double(id[std::size_t(i)]);
        record[2] = double(unused[std::size_t(from + i)].second);
        std::copy_n(row(i), panel.width, record + 3);
      }
    });
  });
}

template <>
void play_final(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                View<const double, Cpu> records, View<double, Cpu> work) {
  stream.run([=] {
    const Index size = record_size(panel.block);
    std::vector<std::pair<Index, const double*>> players;  // in row order, whoever owns them
    for (const double* r = records.data; r < records.data + records.size; r += size)
      if (r[0] >= 0) players.emplace_back(Index(r[1]), r);
    std::sort(players.begin(), players.end());
    const Index count = Index(players.size());
    std::vector<Index> id(players.size()), column_of(players.size(), -1);
    const Strip strip{
        {work.data, sliver_stride(panel.block)}, count, panel.width, id.data(), column_of.data()};
    std::memset(work.data, 0, std::size_t(slivers(count) * strip.x.stride) * sizeof(double));
    for (Index i = 0; i < count; ++i) {
      const auto& [row, record] = players[std::size_t(i)];
      id[std::size_t(i)] = row;
      double* const x = strip.x.row(i);
      for (Index k = 0, step = lanes(); k < panel.width; ++k) x[k * step] = record[3 + k];
    }
    factor_strip(strip, factors_of(panel), panel.first, false);
    for (Index i = 0; i < count; ++i) {
      const Index slot = Index(players[std::size_t(i)].second[2]);
      const Index column = column_of[std::size_t(i)];
      if (column >= 0 && slot < rows.slots && rows.global_row.data[slot] == id[std::size_t(i)])
        rows.column_of.data[slot] = column;
    }
  });
}

template <>
void divide_by_upper(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                     View<double, Cpu>) {
  stream.run([=] {
    if (panel.info.data[0] >= 0) return;
    const Strip strip = strip_of(rows, panel);
    for (Index s = 0; s < rows.slots; ++s)
      if (const Index t = place_in(panel, rows.column_of.data[s]); t >= 0)
        become_unit_row(strip, s, t);
    divide_strip(strip, factors_of(panel));
  });
}

template <>
void finish_panel(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel, bool,
                  View<double, Cpu>) {
  stream.run([=] {
    const Index b = panel.width;
    const double* const lu = panel.lu.data;
    double* const summary = panel.summary.data;
    summary[0] = double(panel.info.data[0]);
    summary[1] = double(panel.info.data[1]);
    if (panel.info.data[0] >= 0) return;
    for (Index t = 0; t < b; ++t) {
      summary[2 + t] = double(panel.pivots.data[t]);
      summary[2 + panel.block + t] = lu[t * panel.block + t];
    }
    double* const flags = pivot_flags(rows, panel);
    for (Index s = 0; s < rows.slots; ++s)
      flags[s] = place_in(panel, rows.column_of.data[s]) >= 0 ? 1 : 0;
  });
}

template <>
void solve_lower(const Stream<Cpu>& stream, const Panel<Cpu>& panel, Index length, Index from,
                 bool inverse, View<double, Cpu> p, View<double, Cpu> y) {
  stream.run([=] {
    LowerSolve solve;
    solve.l = panel.lu.data;
    solve.ld = panel.block;
    solve.p = p.data;
    solve.y = packed_rows(panel, length, from, inverse, y.data);
    double* const packed = factors_of(panel).packed;
    pack_lower(solve.l, solve.ld, panel.width, packed);
    solve.packed = packed;
    const double flops = double(sliver_columns() * panel.width * panel.width);
    const Index grain = std::max<Index>(4, Index(std::ceil(least_flops / flops)));
    parallel_ranges(ceil_div(length, sliver_columns()), grain, [&](Index begin, Index end) {
      LowerSolve piece = solve;
      piece.begin = begin;
      piece.end = end;
      solve_lower_slivers(piece);
    });
  });
}

template <>
void collect_rows(const Stream<Cpu>& stream, const Rows<Cpu>& rows, View<const Index, Cpu> list,
                  Index from, View<double, Cpu> out) {
  stream.run([=] {
    const Index length = rows.columns - from;
    parallel_ranges(list.size, piece_rows(length, 16), [&](Index begin, Index end) {
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
    parallel_ranges(position.size, piece_rows(length, 16), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        std::memcpy(out.data + i * length, packed.data + position.data[i] * length,
                    std::size_t(length) * sizeof(double));
    });
  });
}

/// Nothing: update() clears its columns itself, while they are on their way to the caches.
template <>
void begin_update(const Stream<Cpu>&, const Rows<Cpu>&, const Panel<Cpu>&, Index, bool) {}

template <>
void update(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
            View<const double, Cpu> y, Index from, Index c0, Index c1) {
  if (c1 <= c0 || rows.slots <= panel.skip) return;
  stream.run([=] {
    const Index length = rows.columns - from, threads = thread_count();
    const Index all = rows.slots - panel.skip;
    const bool inverse = from <= panel.first;  // else panel's columns lie left of `from`
    // No entry depends on the cut into pieces.
    Index height = std::max(least_rows, round_up(piece_bytes / 8 / panel.width, 8));
    Index width = piece_columns;  // cut where slivers end, but for the first and the last column
    const auto across = [&] { return ceil_div(c1 - from, width) - (c0 - from) / width; };
    const auto pieces = [&] { return ceil_div(all, height) * across(); };
    const double flops = 2 * double(all) * double((c1 - c0) * panel.width);
    while (threads > 1 && double(pieces()) < std::min(4.0 * double(threads), flops / least_flops)) {
      if (width > least_columns) {
        width -= least_columns;
      } else if (height > least_rows) {
        height = std::max(least_rows, round_up(height / 2, 8));
      } else {
        break;
      }
    }
    const Index down = ceil_div(all, height), end = panel.first + panel.width;
    const double* const flags = pivot_flags(rows, panel);
    parallel_for(pieces(), [&](Index piece) {
      Product product;
      product.n = slivers_of(panel);
      product.y = packed_rows(panel, length, from, inverse, const_cast<double*>(y.data));
      product.a = rows.a.data + from;
      product.ld = rows.ld;
      product.row = panel.skip + piece % down * height;
      product.row_end = std::min(rows.slots, product.row + height);
      const Index at = ((c0 - from) / width + piece / down) * width;
      product.c0 = std::max(c0 - from, at);
      product.c1 = std::min(c1 - from, at + width);
      const Index zero = std::max(product.c0 + from, panel.first);
      const Index zero_end = std::min(product.c1 + from, end);
      for (Index s = product.row; s < product.row_end; ++s) {
        double* const a = rows.a.data + s * rows.ld;
        if (flags[s] != 0)
          std::fill(a + from + product.c0, a + from + product.c1, 0.0);
        else if (zero < zero_end)
          std::fill(a + zero, a + zero_end, 0.0);
      }
      subtract_product(product);
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
