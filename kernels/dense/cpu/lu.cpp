// Gaussian elimination on the CPU: pivot rows come to rest at the top, and the triangle's solution.
// 32 b (columns - from) bytes a panel at most, bound by memory.
#include "kernels/dense/lu.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/base/parallel.hpp"
#include "kernels/dense/cpu/layout.hpp"

namespace terrace::dense {

namespace {

constexpr Index solve_columns = 64;  // right-hand sides of one piece

void copy_doubles(double* to, const double* from, Index count) {
  std::memcpy(to, from, std::size_t(std::max<Index>(0, count)) * sizeof(double));
}

/// Row t of Y, to `out`.
void unpack_row(const PackedRows& y, Index t, double* out) {
  for (Index first = 0, step = sliver_columns(); first < y.length; first += step) {
    const Index width = std::min(step, y.length - first);
    copy_doubles(out + first, y.y + first * y.depth + t * width, width);
  }
}

struct Retiring {
  const Rows<Cpu>& rows;
  const Panel<Cpu>& panel;
  Index top, from;
  PackedRows y;
  [[nodiscard]] double* row(Index slot) const { return rows.a.data + slot * rows.ld; }

  /// Row t of the panel comes to rest in `slot`.
  void place(Index slot, Index t, const double* left) const {
    double* const out = row(slot);
    if (left) copy_doubles(out, left, panel.first);
    copy_doubles(out + panel.first, panel.lu.data + t * panel.block, panel.width);
    unpack_row(y, t, out + from);
  }
  /// A[slot, J] := N.
  void keep(Index slot) const {
    const double* const n = slivers_of(panel).row(slot);
    for (Index k = 0, step = lanes(); k < panel.width; ++k)
      row(slot)[panel.first + k] = n[k * step];
  }
};

void move_panel_row(const Slivers& n, Index width, Index to, Index from) {
  double* const out = n.row(to);
  const double* const in = n.row(from);
  for (Index k = 0, step = lanes(); k < width; ++k) out[k * step] = in[k * step];
}
void clear_panel_row(const Slivers& n, Index width, Index slot) {
  double* const out = n.row(slot);
  for (Index k = 0, step = lanes(); k < width; ++k) out[k * step] = 0;
}

}  // namespace

template <>
void retire_rows(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                 const Retirement<Cpu>& what) {
  stream.run([=] {
    const View<const Index, Cpu> pivots = what.pivots;
    const View<Index, Cpu> ids = what.ids;
    const View<double, Cpu> room = what.room, sizes = what.sizes;
    const bool keep = what.keep;
    const Index count = pivots.size, left = keep ? 0 : panel.first, top = what.top;
    const Index from = what.from, length = rows.columns - from;
    const Slivers n = slivers_of(panel);
    const Retiring retiring{
        rows, panel, top, from,
        packed_rows(panel, length, from, false, const_cast<double*>(what.y.data))};
    Index* const column_of = rows.column_of.data;
    const std::vector<Index> list(pivots.data, pivots.data + count);
    std::vector<Index> place, id;
    std::vector<double> size;
    for (const Index p : list) {
      place.push_back(column_of[p] - panel.first);
      id.push_back(ids.data[p]);
      if (sizes.size > 0) size.push_back(sizes.data[p]);
    }
    const Index grain = piece_rows(rows.columns - left, 16);
    if (keep)
      parallel_ranges(count, grain, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i)
          copy_doubles(room.data + i * rows.columns, retiring.row(list[std::size_t(i)]),
                       panel.first);
      });
    const Moves moves = moves_of(list, top);
    parallel_ranges(Index(moves.to.size()), grain, [&](Index begin, Index end) {
      for (Index m = begin; m < end; ++m) {
        const Index to = moves.to[std::size_t(m)], source = moves.from[std::size_t(m)];
        copy_doubles(retiring.row(to) + left, retiring.row(source) + left, rows.columns - left);
        move_panel_row(n, panel.width, to, source);
        column_of[to] = -1;
        ids.data[to] = ids.data[source];
        if (sizes.size > 0) sizes.data[to] = sizes.data[source];
      }
    });
    parallel_ranges(count, grain, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index t = place[std::size_t(i)];
        retiring.place(top + i, t, keep ? room.data + i * rows.columns : nullptr);
        column_of[top + i] = panel.first + t;
        ids.data[top + i] = id[std::size_t(i)];
        if (sizes.size > 0) sizes.data[top + i] = size[std::size_t(i)];
      }
    });
    for (Index s = panel.skip; s < top + count; ++s) clear_panel_row(n, panel.width, s);
    std::fill_n(pivot_flags(rows, panel), rows.slots, 0.0);
    if (keep)
      parallel_ranges(rows.slots - top - count, piece_rows(panel.width, 64),
                      [&](Index begin, Index end) {
                        for (Index s = begin; s < end; ++s) retiring.keep(top + count + s);
                      });
  });
}

// Every right-hand side is solved for in the same order, whatever the others: rows in blocks, which
// first take away what is solved, in the order of its rows, then each other.
namespace {

constexpr Index solve_rows = 8;

/// Rows x[i] -= t[i, from ... to) x[from ... to), `count` <= solve_rows rows, columns [begin, end).
struct Rest {
  const double* t;  ///< of the first row
  Index ld;
  double* x;  ///< row 0 of all
  Index ldx, first, count, begin, end;

  void take(Index from, Index to) const {
    if (end - begin > 1 || count < solve_rows) {
      for (Index i = 0; i < count; ++i)
        for (Index k = from; k < to; ++k) {
          const double factor = t[i * ld + k];
          const double* const in = x + k * ldx;
          double* const out = x + (first + i) * ldx;
          for (Index j = begin; j < end; ++j) out[j] -= factor * in[j];
        }
      return;
    }
    double sums[solve_rows];  // eight chains in place of one
    for (Index i = 0; i < solve_rows; ++i) sums[i] = x[(first + i) * ldx + begin];
    for (Index k = from; k < to; ++k) {
      const double in = x[k * ldx + begin];
      for (Index i = 0; i < solve_rows; ++i) sums[i] -= t[i * ld + k] * in;
    }
    for (Index i = 0; i < solve_rows; ++i) x[(first + i) * ldx + begin] = sums[i];
  }
  [[nodiscard]] Rest row(Index i) const {
    return {t + i * ld, ld, x, ldx, first + i, 1, begin, end};
  }
};

}  // namespace

template <>
void solve_upper(const Stream<Cpu>& stream, Index n, Index right, View<const double, Cpu> u,
                 Index ldu, View<double, Cpu> x, Index ldx, View<double, Cpu>) {
  stream.run([=] {
    parallel_ranges(right, solve_columns, [&](Index begin, Index end) {
      for (Index last = n; last > 0;) {
        const Index first = std::max<Index>(0, last - solve_rows), count = last - first;
        const Rest rest{u.data + first * ldu, ldu, x.data, ldx, first, count, begin, end};
        rest.take(last, n);
        for (Index i = count; i-- > 0;) {
          rest.row(i).take(first + i + 1, last);
          double* const out = x.data + (first + i) * ldx;
          for (Index j = begin; j < end; ++j) out[j] /= rest.t[i * ldu + first + i];
        }
        last = first;
      }
    });
  });
}

template <>
void solve_unit_lower(const Stream<Cpu>& stream, Index n, Index right, View<const double, Cpu> l,
                      Index ldl, View<double, Cpu> x, Index ldx) {
  stream.run([=] {
    parallel_ranges(right, solve_columns, [&](Index begin, Index end) {
      for (Index first = 0; first < n; first += solve_rows) {
        const Index count = std::min(solve_rows, n - first);
        const Rest rest{l.data + first * ldl, ldl, x.data, ldx, first, count, begin, end};
        rest.take(0, first);
        for (Index i = 1; i < count; ++i) rest.row(i).take(first, first + i);
      }
    });
  });
}

template <>
void subtract_product_of(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                         Index from, Index right, View<const double, Cpu> x, Index ldx,
                         View<double, Cpu> y) {
  if (rows.slots == 0 || right == 0) return;
  stream.run([=] {
    const PackedRows packed = packed_rows(panel, rows.columns - from, from, false, y.data);
    for (Index first = 0, step = sliver_columns(); first < packed.length; first += step) {
      const Index width = std::min(step, packed.length - first);
      for (Index t = 0; t < packed.depth; ++t)
        copy_doubles(y.data + first * packed.depth + t * width, x.data + t * ldx + first, width);
    }
    // Each sliver of A is multiplied by while it is in the first cache.
    const Slivers n = slivers_of(panel);
    const Index lane = lanes();
    parallel_ranges(
        slivers(rows.slots), piece_rows(panel.width, 64) / lane, [&](Index begin, Index end) {
          for (Index s = begin; s < end; ++s) {
            // In a piece's own part of N, which stays where it is.
            const Index first = s * lane, last = std::min(rows.slots, first + lane);
            const Slivers here{n.x + begin * n.stride, 0};
            load_strip({here, last - first, panel.width, nullptr, nullptr},
                       rows.a.data + first * rows.ld + panel.first, rows.ld, 0, last - first);
            Product product{here,    packed, rows.a.data + first * rows.ld + from,
                            rows.ld, 0,      last - first,
                            0,       right};
            subtract_product(product);
          }
        });
  });
}

}  // namespace terrace::dense
