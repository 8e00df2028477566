// Memory of a streamed band, its matrix and its right-hand sides.
#include "src/band/stream.hpp"

#include <algorithm>

#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"
#include "src/band/determinant.hpp"

namespace terrace::band {
namespace {

// A copy of a slab takes about a millisecond; where the half-bandwidth makes its factorization
// longer than the copy, slabs grow, so that launches cost little. Two ends: a slab of both.
constexpr Index kSlabBytes = Index(64) << 20;
constexpr Index kBalance = 2000, kMostTimes = 8;
constexpr Index kLeastSlabs = 32;                // nothing hides the first copy and the last
constexpr Index kPieceBytes = Index(1) << 30;    // of host memory taken at once
constexpr Index kStreamTurned = Index(1) << 20;  // numbers of rows that are turned over at a time
constexpr Index kWord = sizeof(double);

/// Sizes that follow from the plan and the slab.
struct Cut {
  Index ends, slab, back, slots;
  Cut(const BandPlan& plan, Index asked)
      : ends(plan.parts()),
        slab(asked > 0 ? asked : band_stream_slab(plan.shape, ends)),
        back(ceil_div(band_reach_tiles(plan.shape), slab)),
        // The window comes behind the last slab.
        slots(ends > 1 ? std::max(back + 3, 2 * back + 1) : back + 3) {}
  [[nodiscard]] Index tiles() const { return slab * slots; }  ///< of one ring
  [[nodiscard]] Index staged() const { return ends > 1 ? slab * (back + 3) : 0; }
};

template <class B>
Index inverse_size(const BandShape& s, Index tiles) {
  return detail::stream_keeps_inverses<B> ? tiles * s.width * s.width : 0;
}
template <class B>
BandPart<B> end_part(const BandPlan& plan, const Cut& cut, Index e) {
  BandPart<B> part;
  part.tiles = plan.tiles(e);
  part.window = plan.window();
  part.ring = cut.tiles();
  return part;
}
template <class B>
Index factor_scratch(const BandPlan& plan, const Cut& cut) {
  std::vector<BandPart<B>> parts;
  for (Index e = 0; e < cut.ends; ++e) {
    parts.push_back(end_part<B>(plan, cut, e));
    parts.back().to = std::min(cut.slab, parts.back().tiles);
  }
  if (plan.shape.n == 0) return 0;
  Index most = band_factor_scratch(B{}, plan.shape, parts);
  if (const BandPart<B> reduced = reduced_part<B>(plan); cut.ends > 1)
    most = std::max(most, band_factor_scratch(B{}, plan.reduced, {&reduced, 1}));
  return most;
}
template <class B>
Index substitute_scratch(const BandPlan& plan, const Cut& cut, Index nrhs) {
  if (nrhs == 0 || plan.shape.n == 0) return 0;
  Index most = 0, slabs = 0;
  for (Index e = 0; e < cut.ends; ++e) slabs = std::max(slabs, ceil_div(plan.tiles(e), cut.slab));
  for (const Index i : {Index(0), slabs - 2, slabs - 1}) {
    std::vector<BandPart<B>> parts;
    for (Index e = 0; e < cut.ends; ++e) {
      BandPart<B> part;
      part.tiles = std::min(cut.slab, plan.tiles(e) - i * cut.slab);
      part.window = band_reach_tiles(plan.shape);
      part.ring = part.tiles + part.window;
      if (i >= 0 && part.tiles > 0) parts.push_back(part);
    }
    most = std::max(most, band_substitute_scratch(B{}, plan.shape, parts, nrhs));
  }
  if (const BandPart<B> reduced = reduced_part<B>(plan); cut.ends > 1)
    most = std::max(most, band_substitute_scratch(B{}, plan.reduced, {&reduced, 1}, nrhs));
  return most;
}
/// Rows of the right-hand sides of all ends, their windows' included.
Index rows_of(const BandPlan& plan) {
  Index rows = 0;
  for (Index e = 0; e < plan.parts(); ++e)
    rows += (plan.tiles(e) + band_reach_tiles(plan.shape)) * plan.shape.width;
  return rows;
}
Index block_size(const BandPlan& plan) { return plan.separator * (plan.separator + 1); }

}  // namespace

Index band_stream_slab(const BandShape& s, Index ends) {
  const Index bytes = kSlabBytes * std::clamp<Index>(s.half_bandwidth / kBalance, 1, kMostTimes);
  const Index slab = round_up(ceil_div(bytes / ends, s.tile() * kWord), 2);
  return std::min(slab, std::max<Index>(1, ceil_div(s.tiles(), kLeastSlabs * ends)));
}

Index band_stream_kept(const BandPlan& plan, Index slab) {
  const Cut cut(plan, slab);
  return 2 * cut.slots + cut.back + 1;
}

BandPlan one_ended_stream(const BandShape& shape) {
  BandPlan plan;
  plan.method = BandMethod::streamed;
  plan.shape = shape;
  plan.separator = band_reach_tiles(shape) * shape.width;
  plan.begin = {0, shape.n};
  return plan;
}

template <class B>
BandStreamMemory band_stream_memory(const BandPlan& plan, Index nrhs, Index slab, Index kept) {
  const Cut cut(plan, slab);
  const BandShape& s = plan.shape;
  BandStreamMemory m;
  m.ring = cut.ends * band_part_doubles(s, cut.tiles()) * kWord;
  m.inverses = cut.ends * inverse_size<B>(s, cut.tiles()) * kWord;
  m.vectors = rows_of(plan) * nrhs * kWord;
  Index slabs = 0, tiles = 0;
  for (Index e = 0; e < cut.ends; ++e) {
    slabs += ceil_div(plan.tiles(e), cut.slab) + 1;
    tiles += kept > 0 ? std::min(plan.tiles(e), kept * cut.slab) : plan.tiles(e);
  }
  m.scratch = (factor_scratch<B>(plan, cut) + slabs + 1) * kWord;
  if (nrhs > 0) m.scratch += substitute_scratch<B>(plan, cut, nrhs) * kWord;
  m.host = tiles * s.tile() * kWord;
  if (cut.ends > 1) {
    const Index columns = plan.separator * s.column(), reduced = plan.reduced.tiles();
    m.staged = cut.staged() * s.tile() * kWord;
    m.separator = (2 * columns + 2 * block_size(plan) + band_part_doubles(plan.reduced, reduced) +
                   inverse_size<B>(plan.reduced, reduced)) *
                  kWord;
    m.vectors += plan.reduced.padded() * nrhs * kWord;
    m.host += columns * kWord;
  }
  return m;
}

template <class B>
BandStream<B> band_stream(const BandPlan& plan, Index slab, Index kept) {
  const Cut cut(plan, slab);
  const BandShape& s = plan.shape;
  BandStream<B> a;
  a.plan = plan;
  a.shape = s;
  a.slab = cut.slab;
  a.back = cut.back;
  a.slots = cut.slots;
  a.piece = std::max<Index>(1, kPieceBytes / (cut.slab * s.tile() * kWord));
  a.kept = kept;
  const Index length = a.piece * a.slab;
  for (Index e = 0; e < cut.ends; ++e) {
    BandStreamEnd<B>& end = a.ends.emplace_back();
    end.part = end_part<B>(plan, cut, e);
    const Index all = kept > 0 ? std::min(end.part.tiles, kept * cut.slab) : end.part.tiles;
    for (Index k = 0; k < all; k += length)
      end.host.emplace_back(std::min(length, all - k) * s.tile());
    end.ring = Buffer<double, B>(band_part_doubles(s, cut.tiles()));
    end.inverses = Buffer<double, B>(inverse_size<B>(s, cut.tiles()));
    end.part.band = end.ring.data();
    end.part.inverse = end.inverses.data();
  }
  if (cut.ends > 1) {
    const Index columns = plan.separator * s.column();
    a.separator_host = PinnedBuffer<double>(columns);
    a.separator = Buffer<double, B>(columns);
    a.window = Buffer<double, B>(columns);
    a.staged = Buffer<double, B>(cut.staged() * s.tile());
    a.blocks = Buffer<double, B>(2 * block_size(plan));
    a.reduced = reduced_part<B>(plan);
    a.reduced_band = Buffer<double, B>(band_part_doubles(plan.reduced, a.reduced.tiles));
    a.reduced_inverses = Buffer<double, B>(inverse_size<B>(plan.reduced, a.reduced.tiles));
    a.reduced.band = a.reduced_band.data();
    a.reduced.inverse = a.reduced_inverses.data();
  }
  a.status = Buffer<Index, B>(a.slabs() * cut.ends + 1);
  a.seen = PinnedBuffer<Index>(a.slabs() * cut.ends + 1);
  a.scratch = Buffer<Word, B>(factor_scratch<B>(plan, cut));
  return a;
}

void detail::stream_pad(const BandShape& s, Index columns, Index all, Index height, double* to) {
  parallel_ranges(columns, 1024, [&](Index from, Index end) {
    for (Index j = from; j < end; ++j)
      std::fill(to + j * s.column() + height, to + (j + 1) * s.column(), 0.0);
  });
  for (Index j = columns; j < all; ++j) {
    std::fill(to + j * s.column(), to + (j + 1) * s.column(), 0.0);
    to[j * s.column()] = 1.0;
  }
}

template <class B>
void load_stream(Context<B>& context, const BandProblem<B>& problem, BandStream<B>& a,
                 bool factor) {
  a.logs = 0;
  const Stream<B>& lane = context.ahead;
  const BandShape& s = a.shape;
  const Index height = s.half_bandwidth + 1;
  const auto load = [&](Range columns, Index all, double* to) {
    // By way of a ring, which is idle.
    const Buffer<double, B>& ring = a.ends[0].ring;
    problem.source(context, columns, height, height, ring.view().slice(0, columns.count * height));
    copy_rows<double, B>(lane, to, s.column(), ring.data(), height, height, columns.count);
    lane.synchronize();
    detail::stream_pad(s, columns.count, all, height, to);
  };
  for (Index e = 0; e < a.count(); ++e)
    for (Index i = 0; i * a.slab < a.part(e).tiles; ++i) {
      const Range tiles = a.tiles(i, e);
      load(a.columns(i, e), tiles.count * s.width, a.host_tile(tiles.first, e));
      if (factor) add_logs(a, i, e);
      if (a.kept > 0) a.put(i, e);
    }
  if (a.count() > 1) load(a.separator_columns(), a.plan.separator, a.separator_host.data());
}

template <class B>
BandStreamRows<B> band_stream_rows(const BandStream<B>& a, Index nrhs) {
  BandStreamRows<B> x;
  x.nrhs = nrhs;
  x.rows = Buffer<double, B>(rows_of(a.plan) * nrhs);
  x.scratch = Buffer<Word, B>(substitute_scratch<B>(a.plan, {a.plan, a.slab}, nrhs));
  if (a.count() > 1 && nrhs > 0) {
    x.separator = Buffer<double, B>(a.plan.reduced.padded() * nrhs);
    x.turned.resize(std::size_t(
        std::min(a.plan.rows(1).count, std::max<Index>(1, kStreamTurned / nrhs)) * nrhs));
  }
  return x;
}

namespace {

/// piece(first, count, at): natural rows first .. of end 1 lie from number `at` of its rows on, in
/// opposite order.
template <class B, class Piece>
void each_turned(const BandStream<B>& a, const BandStreamRows<B>& x, Piece&& piece) {
  const Range rows = a.plan.rows(1);
  const Index most = Index(x.turned.size()) / x.nrhs;
  const Index top = a.first_row(1) + a.plan.padding(1);
  for (Index first = rows.first; first < rows.end(); first += most) {
    const Index count = std::min(most, rows.end() - first);
    piece(first, count, (top + rows.end() - first - count) * x.nrhs);
  }
}

}  // namespace

template <class B>
void set_rows(Context<B>& context, const BandStream<B>& a, BandStreamRows<B>& x,
              const double* from) {
  const Stream<B>& lane = context.ahead;
  const Index nrhs = x.nrhs, size = a.plan.rows(0).count * nrhs;
  if (nrhs == 0) return;
  upload(lane, x.rows.view().slice(0, size), from);
  fill_zero(lane, x.rows.view().slice(size, x.rows.size() - size));
  if (a.count() > 1)
    each_turned(a, x, [&](Index first, Index count, Index at) {
      for (Index r = 0; r < count; ++r)
        std::copy_n(from + (first + r) * nrhs, nrhs, x.turned.begin() + (count - 1 - r) * nrhs);
      upload(lane, x.rows.view().slice(at, count * nrhs), x.turned.data());
      lane.synchronize();
    });
  lane.synchronize();
}
template <class B>
void get_rows(Context<B>& context, const BandStream<B>& a, BandStreamRows<B>& x, double* to) {
  const Stream<B>& lane = context.ahead;
  const Index nrhs = x.nrhs;
  if (nrhs == 0) return;
  download(lane, to, x.rows.view().slice(0, a.plan.rows(0).count * nrhs));
  if (a.count() > 1)
    each_turned(a, x, [&](Index first, Index count, Index at) {
      download(lane, x.turned.data(), x.rows.view().slice(at, count * nrhs));
      lane.synchronize();
      for (Index r = 0; r < count; ++r)
        std::copy_n(x.turned.begin() + (count - 1 - r) * nrhs, nrhs, to + (first + r) * nrhs);
    });
  lane.synchronize();
}

template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandStream<B>& l, Word seed, double* reciprocal) {
  const TileAt<B> tile = [&](Index k) {
    const View<double, B> place = l.ends[0].ring.view().slice(0, l.shape.tile());
    if (l.kept > 0) {
      context.ahead.synchronize();  // the last one has been uploaded
      l.store.get(l.stored_tile(k, 0), l.host_tile(k), l.shape.tile());
    }
    upload(context.ahead, place, l.host_tile(k));
    return place;
  };
  return band_factor_residual<B>(context, problem, l.shape, tile, seed, reciprocal);
}

template <class B>
void copy_columns(const BandStream<B>& a, Index first, Index count, Index height, Index ld,
                  double* to) {
  const BandShape& s = a.shape;
  if (a.kept > 0) {  // tile column by tile column
    for (Index j = first, end = first + count; j < end;) {
      const Index k = j / s.width, last = std::min(end, (k + 1) * s.width);
      a.store.get(a.stored_tile(k, 0), a.host_tile(k), s.tile());
      for (; j < last; ++j, to += ld)
        std::copy_n(a.host_tile(k) + j % s.width * s.column(), height, to);
    }
    return;
  }
  parallel_ranges(count, 256, [&](Index from, Index end) {
    for (Index j = first + from; j < first + end; ++j)
      std::copy_n(a.host_tile(j / s.width) + j % s.width * s.column(), height,
                  to + (j - first) * ld);
  });
}

template <class B>
void add_logs(BandStream<B>& a, Index i, Index e) {
  const Range tiles = a.tiles(i, e);
  LogProduct product;  // ones behind the matrix
  for (Index k = tiles.first; k < tiles.end(); ++k)
    for (Index j = 0; j < a.shape.width; ++j)
      product.times(a.host_tile(k, e)[j * a.shape.column()]);
  a.logs += product.log();
}

template <class B>
void scale_stream(const BandStream<B>& a, double by) {
  for (Index e = 0; e < a.count(); ++e)
    for (Index i = 0; i < a.slabs(); ++i) {
      const Range tiles = a.tiles(i, e);
      if (tiles.count == 0) continue;
      if (a.kept > 0) a.get(i, e);
      double* const numbers = a.host_tile(tiles.first, e);
      parallel_ranges(tiles.count * a.shape.tile(), 1 << 16, [&](Index from, Index to) {
        for (Index at = from; at < to; ++at) numbers[at] *= by;
      });
      if (a.kept > 0) a.put(i, e);
    }
}

#define TERRACE_INSTANTIATE(B)                                                                   \
  template BandStreamMemory band_stream_memory<B>(const BandPlan&, Index, Index, Index);         \
  template BandStream<B> band_stream(const BandPlan&, Index, Index);                             \
  template void load_stream(Context<B>&, const BandProblem<B>&, BandStream<B>&, bool);           \
  template BandStreamRows<B> band_stream_rows(const BandStream<B>&, Index);                      \
  template void set_rows(Context<B>&, const BandStream<B>&, BandStreamRows<B>&, const double*);  \
  template void get_rows(Context<B>&, const BandStream<B>&, BandStreamRows<B>&, double*);        \
  template double band_factor_residual(Context<B>&, const BandProblem<B>&, const BandStream<B>&, \
                                       Word, double*);                                           \
  template void copy_columns(const BandStream<B>&, Index, Index, Index, Index, double*);         \
  template void add_logs(BandStream<B>&, Index, Index);                                          \
  template void scale_stream(const BandStream<B>&, double);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
