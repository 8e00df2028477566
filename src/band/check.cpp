// Residuals of the band solver: the matrix is taken again from its source, slab by slab.
//
//   slab: `columns` columns of A, each rank multiplies its share; the products reach `halo` rows
//   further, which the next slab continues. Windows are summed over the ranks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {
namespace {

constexpr double kEps = 0x1.0p-53;
constexpr Index kPiece = Index(1) << 21;  // numbers of a window at a time
constexpr Index kMost = Index(1) << 24;   // and of A: enough for a reader that runs ahead

/// How the columns are cut. A slab begins at a multiple of ranks * width.
struct Slabs {
  Index columns, share, halo;
  Slabs(const BandShape& s, Index nrhs, int ranks) {
    const Index numbers = std::clamp(s.n * s.column() / 8, kPiece, kMost);
    const Index limit = std::min(numbers / s.column(), kPiece / (std::max<Index>(nrhs, 1) * ranks));
    const Index all = ceil_div(std::max<Index>(s.tiles(), 1), ranks);
    share = std::clamp<Index>(limit / s.width, 1, all) * s.width;
    columns = share * ranks;
    halo = round_up(s.reach, s.width);
  }
  [[nodiscard]] Index rows() const { return columns + halo; }
};

/// This rank's rows among the rows first .. first + size, in blocks that are evenly apart.
struct OwnBlocks {
  Index count = 0;                  ///< blocks
  Index length = 1;                 ///< rows of a block
  Index slot = 0;                   ///< the first one's among this rank's rows
  Index place = 0;                  ///< and among the rows from `first` on
  Index distance = 1;               ///< rows from a block to the next
  std::span<const double> b = {};   ///< right-hand sides, rows without gaps; none: zeros
  const double* b_there = nullptr;  ///< or those, in memory of the backend
};
/// Of each column the largest |b - A x|, |x| and |b|, and norm(A).
struct Found {
  std::vector<double> residuals, norms, sizes;
  double norm = 0;
};

/// One pass over A: sums A X + (what `more` adds) and |A| 1 in windows of rows.
template <class B>
class BandPass {
 public:
  BandPass(Context<B>& context, const BandProblem<B>& a, const BandShape& s, Index nrhs)
      : c_(context),
        a_(a),
        s_(s),
        nrhs_(nrhs),
        height_(a.half_bandwidth + 1),
        slabs_(s, nrhs, context.size()),
        chunk_(slabs_.share * height_),
        x_(slabs_.rows() * nrhs),
        b_(slabs_.columns * nrhs),
        most_(3 * nrhs + 3) {
    for (int i = 0; i < 2; ++i) {
      y_.emplace_back(slabs_.rows() * nrhs);
      sums_.emplace_back(slabs_.rows());
    }
  }

  /// fill(first, x) puts rows first .. of X into the window on every rank; more(first, x, y) may add
  /// to the window y; own(first, rows) are those of the finished rows that this rank holds against
  /// their b. What it finds of those of all ranks, and norm(A).
  template <class Fill, class More, class Own>
  Found run(Fill&& fill, More&& more, Own&& own) {
    const Stream<B>& lane = c_.ahead;
    fill_zero(lane, most_.view());
    fill_zero(lane, y_[0].view());
    fill_zero(lane, sums_[0].view());
    for (Index first = 0, turn = 0; first < s_.n; first += slabs_.columns, turn ^= 1) {
      Buffer<double, B>&y = y_[turn], &sum = sums_[turn];
      fill(first, x_.view());
      const Index mine = first + c_.rank() * slabs_.share, at = mine - first;
      const Range columns{mine, std::clamp<Index>(a_.n - mine, 0, slabs_.share)};
      const Index height = std::clamp<Index>(a_.n - mine, 1, height_);  // no row is below n
      a_.source(c_, columns, height, height, chunk_.view().slice(0, columns.count * height));
      const BandColumns<B> part{chunk_.data(), columns.count, height, height};
      if (columns.count > 0) {
        const auto from = [&](const Buffer<double, B>& window, Index row) {
          return window.view().slice(at * row, window.size() - at * row);
        };
        band_symmetric_times(lane, part, nrhs_, from(x_, nrhs_), from(y, nrhs_), from(sum, 1));
      }
      more(first, x_.view(), y.view());
      finish(y, y_[turn ^ 1], nrhs_);
      finish(sum, sums_[turn ^ 1], 1);
      raise(own(first, slabs_.columns), a_.n - first, y);
      band_raise(lane, BandResidual<B>{{1, slabs_.columns, 1, slabs_.columns},
                                       1,
                                       nullptr,
                                       sum.data(),
                                       sum.data(),
                                       most_.data() + 3 * nrhs_});
      lane.synchronize();
    }
    std::vector<double> most(std::size_t(most_.size()));
    download(lane, most.data(), most_.view());
    lane.synchronize();
    const auto part = [&](Index k) {
      const auto at = most.begin() + k * nrhs_;
      return std::vector<double>(at, at + nrhs_);
    };
    Found found{part(0), part(1), part(2), most[std::size_t(3 * nrhs_)]};
    for (std::vector<double>* const all : {&found.residuals, &found.norms, &found.sizes})
      c_.control.reduce(*all, Reduce::max);
    return found;
  }

  [[nodiscard]] const Slabs& slabs() const { return slabs_; }

 private:
  /// Finished rows of the window y against their b; those behind the first `rows` are padding.
  void raise(const OwnBlocks& own, Index rows, const Buffer<double, B>& y) {
    if (own.count == 0) return;
    const Index at = own.place * nrhs_,
                numbers = std::min(own.count * own.length * nrhs_, Index(own.b.size()));
    if (numbers > 0) upload(c_.ahead, b_.view().slice(0, numbers), own.b.data());
    band_raise(c_.ahead, BandResidual<B>{{own.count, own.length, own.distance, rows - own.place},
                                         nrhs_,
                                         own.b_there   ? own.b_there
                                         : numbers > 0 ? b_.data()
                                                       : nullptr,
                                         y.data() + at,
                                         x_.data() + at,
                                         most_.data()});
  }
  /// The slab's rows are summed over the ranks; the halo goes on in the next window.
  void finish(const Buffer<double, B>& now, const Buffer<double, B>& next, Index row) {
    const Index done = slabs_.columns * row, halo = slabs_.halo * row;
    fill_zero(c_.ahead, next.view());
    copy<double, B>(c_.ahead, next.view().slice(0, halo), now.view().slice(done, halo));
    c_.comm.all_reduce(c_.ahead, Reduce::sum, now.view().slice(0, done));
  }

  Context<B>& c_;
  const BandProblem<B>& a_;
  const BandShape s_;
  const Index nrhs_, height_;
  const Slabs slabs_;
  Buffer<double, B> chunk_, x_, b_, most_;  // the last: what band_raise() finds
  std::vector<Buffer<double, B>> y_, sums_;
};

/// residual / (n norm(A) norm(x) eps), in an order that does not overflow.
double ratio(double residual, Index n, double norm_a, double norm_x) {
  if (!std::isfinite(norm_a)) return std::numeric_limits<double>::infinity();
  if (residual == 0) return 0;
  const double result = residual / norm_a / norm_x / (double(n) * kEps);
  return std::isfinite(result) ? result : std::numeric_limits<double>::infinity();
}

OwnBlocks own_blocks(const BlockCyclic& rows, int rank, Index first, Index size) {
  const Index slot = rows.slots_before(first, rank);
  const Index end = rows.slots_before(std::min(first + size, rows.extent), rank);
  return {(end - slot) / rows.block, rows.block, slot, rank * rows.block, rows.ranks * rows.block};
}
OwnBlocks own_blocks(const Range& rows, int, Index first, Index size) {
  const Index from = std::max(first, rows.first), to = std::min(first + size, rows.end());
  if (from >= to) return {};
  return {1, to - from, from - rows.first, from - first, to - from};
}
Index slab_width(const BlockCyclic& rows) { return rows.block; }
Index slab_width(const Range&) { return 64; }

}  // namespace

namespace {

double judge(const Found& found, Index n, double& reciprocal) {
  double worst = 0;
  for (std::size_t v = 0; v < found.norms.size(); ++v) {
    worst = std::max(worst, ratio(found.residuals[v], n, found.norm, found.norms[v]));
    const double bound = found.sizes[v] / found.norms[v] / found.norm;
    if (bound > 0)  // of zeros and NaN nothing
      reciprocal = std::min(reciprocal, bound);
  }
  return worst;
}

/// `rows`: BlockCyclic or Range.
template <class B, class Rows>
double residual_of(Context<B>& c, const BandProblem<B>& a, const Rows& rows,
                   std::span<const double> x, std::span<const double> b, Index nrhs,
                   double& reciprocal) {
  reciprocal = 1;
  if (a.n == 0 || nrhs == 0) return 0;
  const BandShape shape = band_shape(a.n, a.half_bandwidth, slab_width(rows));
  BandPass<B> pass = collectively(c.control, [&] { return BandPass<B>(c, a, shape, nrhs); });
  const auto fill = [&](Index first, View<double, B> window) {
    const OwnBlocks own = own_blocks(rows, c.rank(), first, pass.slabs().rows());
    const Index block = own.length * nrhs;
    fill_zero(c.ahead, window);
    if (own.count > 0)
      copy_rows<double, B>(c.ahead, window.data + own.place * nrhs, own.distance * nrhs,
                           x.data() + own.slot * nrhs, block, block, own.count);
    c.comm.all_reduce(c.ahead, Reduce::sum, window);
  };
  const auto against = [&](Index first, Index count) {
    OwnBlocks own = own_blocks(rows, c.rank(), first, count);
    own.b = b.subspan(std::size_t(own.slot * nrhs));
    return own;
  };
  const Found found = pass.run(
      fill, [](Index, View<double, B>, View<double, B>) {}, against);
  return judge(found, a.n, reciprocal);
}

}  // namespace

template <class B>
double band_residual(Context<B>& c, const BandProblem<B>& a, const BlockCyclic& rows,
                     std::span<const double> x, std::span<const double> b, Index nrhs,
                     double* reciprocal) {
  double ignored = 1;
  return residual_of(c, a, rows, x, b, nrhs, reciprocal ? *reciprocal : ignored);
}
template <class B>
double band_residual(Context<B>& c, const BandProblem<B>& a, const Range& rows,
                     std::span<const double> x, std::span<const double> b, Index nrhs,
                     double* reciprocal) {
  double ignored = 1;
  return residual_of(c, a, rows, x, b, nrhs, reciprocal ? *reciprocal : ignored);
}

template <class B>
double band_residual(Context<B>& c, const BandProblem<B>& a,
                     std::type_identity_t<View<const double, B>> x,
                     std::type_identity_t<View<const double, B>> b, Index nrhs,
                     double* reciprocal) {
  double found = 1;
  double result = 0;
  if (a.n > 0 && nrhs > 0) {
    BandPass<B> pass = collectively(c.control, [&] {
      return BandPass<B>(c, a, band_shape(a.n, a.half_bandwidth, slab_width(Range{})), nrhs);
    });
    const auto fill = [&](Index first, View<double, B> window) {
      const Index known = std::min(window.size, (a.n - first) * nrhs);
      fill_zero(c.ahead, window);
      copy<double, B>(c.ahead, window.slice(0, known), x.slice(first * nrhs, known));
    };
    const auto against = [&](Index first, Index count) {
      const Index rows = std::min(count, a.n - first);
      return OwnBlocks{1, rows, first, 0, rows, {}, b.data + first * nrhs};
    };
    result = judge(pass.run(
                       fill, [](Index, View<double, B>, View<double, B>) {}, against),
                   a.n, found);
  }
  if (reciprocal) *reciprocal = found;
  return result;
}

template <class B>
double band_factor_residual(Context<B>& c, const BandProblem<B>& a, const BandTiles<B>& l,
                            Word seed, double* reciprocal) {
  const TileAt<B> tile = [&](Index k) { return View<const double, B>(l.tile(k)); };
  return band_factor_residual<B>(c, a, l.shape, tile, seed, reciprocal);
}

template <class B>
double band_factor_residual(Context<B>& c, const BandProblem<B>& a, const BandShape& s,
                            const TileAt<B>& tile_at, Word seed, double* reciprocal) {
  constexpr Index vectors = 3;
  if (reciprocal) *reciprocal = 1;
  if (a.n == 0) return 0;
  struct Memory {
    BandPass<B> pass;
    Buffer<double, B> u;
  };
  Memory memory = collectively(c.control, [&] {
    return Memory{BandPass<B>(c, a, s, vectors), Buffer<double, B>(s.width * vectors)};
  });
  BandPass<B>& pass = memory.pass;
  std::vector<double> z(std::size_t(pass.slabs().rows() * vectors));
  std::vector<double> diagonal(static_cast<std::size_t>(s.width));
  double least = std::numeric_limits<double>::infinity();
  const auto fill = [&](Index first, View<double, B> window) {
    for (Index i = 0; i < window.size; ++i)
      z[std::size_t(i)] =
          first + i / vectors < a.n ? random_uniform(seed, first + i / vectors, i % vectors) : 0.0;
    upload(c.ahead, window, z.data());
    c.ahead.synchronize();
  };
  // The window of A z also gets -L (L^T z), from the tile columns that this rank owns.
  const auto more = [&](Index first, View<double, B> x, View<double, B> y) {
    const Index end = std::min(first + pass.slabs().columns, s.padded());
    for (Index k = first / s.width + c.rank(); k * s.width < end; k += c.size()) {
      const Index at = (k * s.width - first) * vectors;
      const Index count = std::min(s.width + s.reach, s.padded() - k * s.width) * vectors;
      const BandColumns<B> tile{tile_at(k).data, s.width, s.column(), s.column()};
      fill_zero(c.ahead, memory.u.view());
      band_transposed_times(c.ahead, tile, 1.0, vectors, x.slice(at, x.size - at), memory.u.view());
      band_times(c.ahead, tile, -1.0, vectors, memory.u, y.slice(at, count));
      copy_rows<double, B>(c.ahead, diagonal.data(), 1, tile.data, s.column(), 1, s.width);
      c.ahead.synchronize();
      for (Index j = 0; j < std::min(s.width, s.n - k * s.width); ++j)
        least = std::min(least, std::abs(diagonal[std::size_t(j)]));
    }
  };
  const Found found = pass.run(
      fill, more, [](Index, Index count) { return OwnBlocks{1, count, 0, 0, count, {}, nullptr}; });
  const auto most = [](const std::vector<double>& of) {
    return *std::max_element(of.begin(), of.end());
  };
  const double norm = found.norm;
  least = c.control.reduce(least, Reduce::min);
  if (reciprocal && std::isfinite(norm) && norm > 0)
    *reciprocal = std::min(1.0, least / norm * least);
  return ratio(most(found.residuals), a.n, norm, most(found.norms));
}

BandMemory band_memory(const BandShape& s, Index nrhs, int ranks, bool check) {
  const Index word = sizeof(double), tiles = ceil_div(s.tiles(), ranks);
  BandMemory m;
  m.matrix = (tiles * s.tile() + s.width * (s.width + 1)) * word;
  m.panels = (2 * s.width * s.reach + 8) * word;
  m.solution = (tiles * s.width + (ranks > 1 ? s.reach + s.width : s.padded())) * nrhs * word;
  if (check) {
    const Index vectors = std::max<Index>(nrhs, 3);
    const Slabs slabs(s, vectors, ranks);
    m.check = (slabs.share * s.column() + slabs.rows() * (3 * vectors + 2) +
               slabs.columns * vectors + 3 * vectors + 3) *
              word;
  }
  return m;
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template double band_residual<B>(Context<B>&, const BandProblem<B>&, View<const double, B>,      \
                                   View<const double, B>, Index, double*);                         \
  template double band_residual(Context<B>&, const BandProblem<B>&, const BlockCyclic&,            \
                                std::span<const double>, std::span<const double>, Index, double*); \
  template double band_residual(Context<B>&, const BandProblem<B>&, const Range&,                  \
                                std::span<const double>, std::span<const double>, Index, double*); \
  template double band_factor_residual(Context<B>&, const BandProblem<B>&, const BandTiles<B>&,    \
                                       Word, double*);                                             \
  template double band_factor_residual(Context<B>&, const BandProblem<B>&, const BandShape&,       \
                                       const TileAt<B>&, Word, double*);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
