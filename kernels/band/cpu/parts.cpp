// Roofline: n m^2 flops (and those of the arrow) in products of up to 256 x w x w, at nearly
// OpenBLAS's DGEMM rate. Tile columns are taken left-looking: tile column j gathers the updates of
// the reach_tiles before it, then its diagonal block and its rows are solved.
//
//   block b of tile column k: its rows b w .. b w + w - 1, counted from its first diagonal entry
//   b < edge         inside the band: read and written in place, leading dimension reach
//   edge <= b <= D   partly outside (one or two of them): kept as dense w x w copies with zeros, of
//                    the last D + 1 tile columns
//
// Every BLAS call works on one fixed tile: bits depend on the width alone.
#include "kernels/band/parts.hpp"

#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index kRows = 256;  // rows of a product in one task, about

int as_int(Index i) { return static_cast<int>(i); }

/// c (m x n) -= a (m x k) b (n x k)^T, column-major.
void subtract_product(Index m, Index n, Index k, const double* a, Index lda, const double* b,
                      Index ldb, double* c, Index ldc) {
  if (m > 0 && n > 0 && k > 0)
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, as_int(m), as_int(n), as_int(k), -1.0, a,
                as_int(lda), b, as_int(ldb), 1.0, c, as_int(ldc));
}

/// Lower part of c (n x n) -= a (n x k) a^T.
void subtract_square(Index n, Index k, const double* a, Index lda, double* c, Index ldc) {
  if (n > 0 && k > 0)
    cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, as_int(n), as_int(k), -1.0, a, as_int(lda),
                1.0, c, as_int(ldc));
}

struct Block {
  double* data = nullptr;
  Index ld = 1;
};

/// How the blocks of all parts are cut into tasks.
struct Cut {
  Index reach_tiles;  ///< D
  Index edge;         ///< first block that is partly outside the band
  Index group;        ///< blocks, or arrow rows / w, of one task
  Index inner;        ///< tasks of a tile column's blocks inside the band
  explicit Cut(const BandShape& s)
      : reach_tiles(band_reach_tiles(s)),
        edge(s.reach / s.width),
        group(std::max<Index>(1, kRows / s.width)),
        inner(ceil_div(edge, group)) {}
  [[nodiscard]] Index edges() const { return reach_tiles - edge + 1; }
  /// Doubles of one part's copies.
  [[nodiscard]] Index copies(const BandShape& s) const {
    return (reach_tiles + 1) * edges() * s.width * s.width;
  }
  [[nodiscard]] Index tasks(const BandShape& s, const BandPart<Cpu>& part) const {
    return inner + edges() + ceil_div(part.arrow, group * s.width);
  }
};

class PartFactor {
 public:
  PartFactor(const BandShape& s, const BandPart<Cpu>& part, Index& status, double* copies)
      : s_(s), cut_(s), part_(part), status_(status), copies_(copies) {
    status_ = 0;
    for (Index k = std::max<Index>(0, part.from - cut_.reach_tiles); k < part.from; ++k)
      for (Index b = cut_.edge; b <= last_block(k); ++b) copy_in(k, b);
  }

  [[nodiscard]] Index tasks() const { return cut_.tasks(s_, part_); }
  [[nodiscard]] bool failed() const { return status_ != 0; }
  /// Tile columns of work: those to be eliminated, then the window.
  [[nodiscard]] Index begin() const { return part_.from; }
  [[nodiscard]] Index end() const {
    return part_.complete() ? part_.tiles + part_.window : part_.end();
  }

  [[nodiscard]] bool eliminates(Index j) const { return j < part_.tiles; }

  /// Tile column j -= what the tile columns before it leave, piece by piece.
  void update(Index j, Index task) const {
    if (task < cut_.inner) return update_inner(j, task * cut_.group);
    task -= cut_.inner;
    if (task < cut_.edges()) return update_edge(j, cut_.edge + task);
    if (j < part_.tiles) update_arrow(j, task - cut_.edges());
  }

  void diagonal(Index j) {
    double* tile = part_.tile(s_, j);
    const int info =
        LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', as_int(s_.width), tile, as_int(s_.reach));
    Index order = info;
    for (Index c = 0; order == 0 && c < s_.width; ++c)
      if (!(std::isfinite(tile[c * s_.column()]) && tile[c * s_.column()] > 0)) order = c + 1;
    if (order > 0)
      status_ = j * s_.width + order;
    else
      invert(s_, part_, j);
  }

  static void invert(const BandShape& s, const BandPart<Cpu>& part, Index j) {
    if (!part.inverse) return;
    const Index w = s.width;
    const double* tile = part.tile(s, j);
    double* inverse = part.diagonal_inverse(s, j);
    for (Index c = 0; c < w; ++c) {
      std::fill_n(inverse + c * w, c, 0.0);
      std::copy_n(tile + c * s.reach + c, w - c, inverse + c * w + c);
    }
    LAPACKE_dtrtri_work(LAPACK_COL_MAJOR, 'L', 'N', as_int(w), inverse, as_int(w));
  }

  /// Rows below the diagonal block, and the arrow's, times L^-T.
  void solve(Index j, Index task) const {
    const double* diagonal = part_.tile(s_, j);
    const auto times_inverse = [&](Index rows, double* x, Index ld) {
      if (rows > 0)
        cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, as_int(rows),
                    as_int(s_.width), 1.0, diagonal, as_int(s_.reach), x, as_int(ld));
    };
    if (task < cut_.inner) {
      const Index from = std::max<Index>(1, task * cut_.group),
                  to = inner_end(j, task * cut_.group);
      return times_inverse((to - from) * s_.width, block(j, from).data, s_.reach);
    }
    task -= cut_.inner;
    if (task < cut_.edges()) {
      const Index b = cut_.edge + task;
      if (b > last_block(j)) return;
      times_inverse(s_.width, block(j, b).data, s_.width);
      return copy_out(j, b);
    }
    const Index row = (task - cut_.edges()) * cut_.group * s_.width;
    times_inverse(std::min(cut_.group * s_.width, part_.arrow - row), arrow(row, j), part_.arrow);
  }

  /// arrow_block -= W W^T, coupling -= R W^T: tasks of square tiles.
  [[nodiscard]] Index last_tasks() const {
    if (!part_.complete() || part_.arrow == 0) return 0;
    const Index side = cut_.group * s_.width, across = ceil_div(part_.arrow, side);
    return across * (across + part_.window);
  }
  void last(Index task) const {
    const Index side = cut_.group * s_.width, across = ceil_div(part_.arrow, side);
    const Index column = task % across * side, columns = std::min(side, part_.arrow - column);
    const Index row = task / across * side, length = part_.tiles * s_.width;
    if (task / across < across) {
      double* c = part_.arrow_block + row + column * part_.arrow;
      if (row == column)
        subtract_square(columns, length, arrow(row, 0), part_.arrow, c, part_.arrow);
      else if (row > column)
        subtract_product(std::min(side, part_.arrow - row), columns, length, arrow(row, 0),
                         part_.arrow, arrow(column, 0), part_.arrow, c, part_.arrow);
      return;
    }
    const Index a = task / across - across, ld = part_.window * s_.width;  // tile row of the window
    for (Index k = std::max<Index>(0, part_.tiles + a - cut_.reach_tiles); k < part_.tiles; ++k) {
      const Block r = block(k, part_.tiles + a - k);
      subtract_product(s_.width, columns, s_.width, r.data, r.ld, arrow(column, k), part_.arrow,
                       part_.coupling + a * s_.width + column * ld, ld);
    }
  }

 private:
  /// Last block of tile column j that has rows in this part.
  [[nodiscard]] Index last_block(Index j) const {
    return std::min(cut_.reach_tiles, part_.tiles + part_.window - 1 - j);
  }
  [[nodiscard]] Index inner_end(Index j, Index from) const {
    return std::min({from + cut_.group, cut_.edge, last_block(j) + 1});
  }
  [[nodiscard]] Block block(Index k, Index b) const {
    if (b < cut_.edge) return {part_.tile(s_, k) + b * s_.width, s_.reach};
    const Index slot = k % (cut_.reach_tiles + 1) * cut_.edges() + b - cut_.edge;
    return {copies_ + slot * s_.width * s_.width, s_.width};
  }
  [[nodiscard]] double* arrow(Index row, Index k) const {
    return part_.spike + row + k * s_.width * part_.arrow;
  }
  /// Rows of column c of block b that are in the band.
  [[nodiscard]] Index inside(Index b, Index c) const {
    return std::clamp<Index>(s_.reach + c + 1 - b * s_.width, 0, s_.width);
  }
  void copy_in(Index k, Index b) const {
    const double* from = part_.tile(s_, k) + b * s_.width;
    double* to = block(k, b).data;
    for (Index c = 0; c < s_.width; ++c) {
      std::copy_n(from + c * s_.reach, inside(b, c), to + c * s_.width);
      std::fill_n(to + c * s_.width + inside(b, c), s_.width - inside(b, c), 0.0);
    }
  }
  void copy_out(Index k, Index b) const {
    const double* from = block(k, b).data;
    double* to = part_.tile(s_, k) + b * s_.width;
    for (Index c = 0; c < s_.width; ++c)
      std::copy_n(from + c * s_.width, inside(b, c), to + c * s_.reach);
  }
  /// Tile columns before j that reach it and are eliminated.
  [[nodiscard]] Index first_before(Index j) const {
    return std::max<Index>(0, j - cut_.reach_tiles);
  }

  /// Blocks from .. of tile column j, which are inside the band.
  void update_inner(Index j, Index from) const {
    const Index to = inner_end(j, from), w = s_.width;
    if (from >= to) return;
    for (Index k = first_before(j); k < std::min(j, part_.tiles); ++k) {
      const Index t = j - k;
      const Block right = block(k, t);
      if (from == 0) subtract_square(w, w, right.data, right.ld, block(j, 0).data, s_.reach);
      const Index first = std::max<Index>(from, 1);
      const Index middle = std::clamp(cut_.edge - t, first, std::max(first, to));
      if (middle > first)
        subtract_product((middle - first) * w, w, w, block(k, first + t).data, s_.reach, right.data,
                         right.ld, block(j, first).data, s_.reach);
      for (Index b = middle; b < to && b + t <= cut_.reach_tiles; ++b)
        subtract_product(w, w, w, block(k, b + t).data, w, right.data, right.ld, block(j, b).data,
                         s_.reach);
    }
  }
  void update_edge(Index j, Index b) const {
    if (b > last_block(j)) return;
    copy_in(j, b);
    for (Index k = std::max(first_before(j), j + b - cut_.reach_tiles);
         k < std::min(j, part_.tiles); ++k) {
      const Block left = block(k, b + j - k), right = block(k, j - k), out = block(j, b);
      subtract_product(s_.width, s_.width, s_.width, left.data, left.ld, right.data, right.ld,
                       out.data, out.ld);
    }
    if (j >= part_.tiles) copy_out(j, b);
  }
  void update_arrow(Index j, Index task) const {
    const Index row = task * cut_.group * s_.width;
    const Index rows = std::min(cut_.group * s_.width, part_.arrow - row);
    for (Index c = 0; c < s_.width && j >= cut_.reach_tiles; ++c)
      std::fill_n(arrow(row, j) + c * part_.arrow, rows, 0.0);
    for (Index k = first_before(j); k < j; ++k) {
      const Block right = block(k, j - k);
      subtract_product(rows, s_.width, s_.width, arrow(row, k), part_.arrow, right.data, right.ld,
                       arrow(row, j), part_.arrow);
    }
  }

  const BandShape s_;
  const Cut cut_;
  const BandPart<Cpu> part_;
  Index& status_;
  double* copies_;
};

/// All parts step by step, each step's tasks together.
void factor(std::vector<PartFactor>& parts) {
  const Index count = Index(parts.size());
  Index steps = 0, tasks = 1, last = 0;
  for (const PartFactor& part : parts) {
    steps = std::max(steps, part.end() - part.begin());
    tasks = std::max(tasks, part.tasks());
    last = std::max(last, part.last_tasks());
  }
  const auto each = [&](Index step, Index work, auto&& action) {
    parallel_for(count * work, [&](Index i) {
      PartFactor& part = parts[std::size_t(i / work)];
      const Index j = part.begin() + step;
      if (!part.failed() && j < part.end() && i % work < std::max<Index>(part.tasks(), 1))
        action(part, j, i % work);
    });
  };
  for (Index step = 0; step < steps; ++step) {
    each(step, tasks, [](PartFactor& part, Index j, Index task) { part.update(j, task); });
    each(step, 1, [](PartFactor& part, Index j, Index) {
      if (part.eliminates(j)) part.diagonal(j);
    });
    each(step, tasks, [](PartFactor& part, Index j, Index task) {
      if (part.eliminates(j)) part.solve(j, task);
    });
  }
  parallel_for(count * last, [&](Index i) {
    PartFactor& part = parts[std::size_t(i / last)];
    if (!part.failed() && i % last < part.last_tasks()) part.last(i % last);
  });
}

}  // namespace

Index band_factor_scratch(Cpu, BandShape s, std::span<const BandPart<Cpu>> parts) {
  return Index(parts.size()) * Cut(s).copies(s);
}

void band_factor_parts(const Stream<Cpu>& stream, BandShape s, std::span<const BandPart<Cpu>> parts,
                       View<Index, Cpu> status, View<Word, Cpu> scratch) {
  stream.run([=, parts = std::vector(parts.begin(), parts.end())] {
    double* copies = reinterpret_cast<double*>(scratch.data);
    const Index count = Index(parts.size()), size = Cut(s).copies(s);
    const auto some = [&](Index from, Index to) {
      std::vector<PartFactor> work;
      for (Index p = from; p < to; ++p)
        work.emplace_back(s, parts[std::size_t(p)], status.data[p], copies + p * size);
      factor(work);
    };
    if (count >= thread_count())
      parallel_for(count, [&](Index p) { some(p, p + 1); });
    else
      some(0, count);
  });
}

void band_invert_diagonals(const Stream<Cpu>& stream, BandShape s, const BandPart<Cpu>& part) {
  stream.run([=] {
    parallel_for(part.end() - part.from,
                 [&](Index i) { PartFactor::invert(s, part, part.from + i); });
  });
}

}  // namespace terrace::band
