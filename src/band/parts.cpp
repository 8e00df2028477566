// Memory, loading and factorization of a band matrix in parts.
#include "src/band/parts.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"

namespace terrace::band {
namespace {

constexpr Index kSlabBytes = Index(64) << 20;

/// Inverses of the diagonal blocks are kept where the substitution uses them.
template <class B>
constexpr bool keeps_inverses = !std::is_same_v<B, Cpu>;

Index height(const BandPlan& plan) { return plan.shape.half_bandwidth + 1; }
/// Columns of a slab.
Index slab_columns(const BandPlan& plan) {
  Index most = 1;
  for (Index p = 0; p < plan.parts(); ++p) most = std::max(most, plan.columns(p).count);
  return std::clamp<Index>(kSlabBytes / (height(plan) * Index(sizeof(double))), 1, most);
}
/// One part is read straight to its place, in a few steps, as each is shorter than the one before.
bool reads_in_place(const BandPlan& plan) { return plan.parts() == 1; }
Index columns_at_once(const BandPlan& plan) {
  constexpr Index steps = 8;
  return reads_in_place(plan) ? std::max<Index>(1, ceil_div(plan.columns(0).count, steps))
                              : slab_columns(plan);
}
/// Slabs that `rank` reads.
Index slabs(const BandPlan& plan, int rank) {
  Index count = 0;
  const Range own = plan.parts_of(rank);
  for (Index p = own.first; p < own.end(); ++p)
    count += ceil_div(plan.columns(p).count, columns_at_once(plan));
  return count;
}

/// Part p, without memory.
template <class B>
BandPart<B> part_of(const BandPlan& plan, Index p) {
  BandPart<B> part;
  part.tiles = plan.tiles(p);
  part.window = plan.window();
  part.ring = part.tiles + part.window;
  part.arrow = plan.has_arrow(p) ? plan.separator : 0;
  return part;
}
template <class B>
std::vector<BandPart<B>> parts_without_memory(const BandPlan& plan, int rank) {
  std::vector<BandPart<B>> parts;
  const Range own = plan.parts_of(rank);
  for (Index p = own.first; p < own.end(); ++p) parts.push_back(part_of<B>(plan, p));
  return parts;
}

/// Numbers of a part, whole lines of memory.
struct PartSize {
  Index band = 0, inverse = 0, spike = 0;
  [[nodiscard]] Index total() const { return band + inverse + spike; }
};
template <class B>
PartSize size_of(const BandShape& s, const BandPart<B>& part) {
  const auto lines = [](Index numbers) { return round_up(numbers, 32); };
  return {lines(band_part_doubles(s, part.ring)),
          keeps_inverses<B> ? lines(part.ring * s.width * s.width) : Index(0),
          lines(part.arrow * part.tiles * s.width)};
}
/// Parts whose records `rank` keeps.
Index records(const BandPlan& plan, int rank) {
  return plan.parts() < 2 ? 0 : rank == 0 ? plan.parts() : plan.parts_of(rank).count;
}
template <class B>
Index factor_scratch(const BandPlan& plan, int rank) {
  const std::vector<BandPart<B>> parts = parts_without_memory<B>(plan, rank);
  const BandPart<B> reduced = reduced_part<B>(plan);
  const Index own = parts.empty() ? 0 : band_factor_scratch(B{}, plan.shape, parts);
  return rank == 0 && reduced.tiles > 0
             ? std::max(own, band_factor_scratch(B{}, plan.reduced, {&reduced, 1}))
             : own;
}

}  // namespace

template <class B>
BandPartsMemory band_parts_memory(const BandPlan& plan, Index nrhs) {
  BandPartsMemory most;
  const BandShape& s = plan.shape;
  const Index word = sizeof(double), block = plan.separator * (plan.separator + 1);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    BandPartsMemory m;
    Index rows = 0;
    const std::vector<BandPart<B>> parts = parts_without_memory<B>(plan, rank);
    for (const BandPart<B>& part : parts) {
      const PartSize size = size_of(s, part);
      m.band += size.band * word;
      m.inverses += size.inverse * word;
      m.spikes += size.spike * word;
      rows += part.ring * s.width;
    }
    m.reduced = records(plan, rank) * 3 * block * word;
    rows += records(plan, rank) * 2 * plan.separator;
    Index scratch = parts.empty() ? 0 : band_substitute_scratch(B{}, s, parts, nrhs);
    if (const BandPart<B> reduced = reduced_part<B>(plan); rank == 0 && reduced.tiles > 0) {
      const PartSize size = size_of(plan.reduced, reduced);
      m.reduced += (size.band + size.inverse) * word;
      rows += plan.reduced.padded();
      scratch = std::max(scratch, band_substitute_scratch(B{}, plan.reduced, {&reduced, 1}, nrhs));
    }
    m.vectors = rows * nrhs * word;
    if (!reads_in_place(plan)) m.slab = (slab_columns(plan) + plan.separator) * height(plan) * word;
    m.scratch = (factor_scratch<B>(plan, rank) + scratch) * word;
    if (m.total() > most.total()) most = m;
  }
  return most;
}

template <class B>
BandParts<B> band_parts(Context<B>& context, const BandPlan& plan) {
  BandParts<B> a;
  a.plan = plan;
  const int rank = context.rank();
  a.own = plan.parts_of(rank);
  Index total = 0, taken = 0;
  for (const BandPart<B>& part : parts_without_memory<B>(plan, rank))
    total += size_of(plan.shape, part).total();
  if (rank == 0 && plan.reduced.n > 0)
    total += size_of(plan.reduced, reduced_part<B>(plan)).total();
  a.memory = Buffer<double, B>(total);
  const auto take = [&](Index size) -> double* {
    double* const at = size > 0 ? a.memory.data() + taken : nullptr;
    taken += size;
    return at;
  };
  a.records = Buffer<double, B>(records(plan, rank) * 3 * a.block());
  a.parts = parts_without_memory<B>(plan, rank);
  for (Index i = 0; i < a.own.count; ++i) {
    BandPart<B>& part = a.parts[std::size_t(i)];
    const PartSize size = size_of(plan.shape, part);
    part.band = take(size.band);
    part.inverse = take(size.inverse);
    part.spike = take(size.spike);
    if (part.arrow > 0) {
      part.arrow_block = a.record(a.own.first + i, 1).data;
      part.coupling = a.record(a.own.first + i, 2).data;
    }
  }
  if (rank == 0 && plan.reduced.n > 0) {
    a.reduced = reduced_part<B>(plan);
    const PartSize size = size_of(plan.reduced, a.reduced);
    a.reduced.band = take(size.band);
    a.reduced.inverse = take(size.inverse);
  }
  if (!reads_in_place(plan)) {
    a.slab = Buffer<double, B>(slab_columns(plan) * height(plan));
    a.window = Buffer<double, B>(plan.separator * height(plan));
  }
  a.status = Buffer<Index, B>(a.own.count + 1);
  a.scratch = Buffer<Word, B>(factor_scratch<B>(plan, rank));
  return a;
}

namespace {

/// Puts slabs of natural columns into one part.
template <class B>
class PartLoader {
 public:
  PartLoader(const Stream<B>& lane, const BandParts<B>& a, Index p)
      : lane_(lane),
        a_(a),
        plan_(a.plan),
        s_(a.plan.shape),
        part_(a.parts[std::size_t(p - a.own.first)]),
        p_(p),
        height_(height(a.plan)) {}

  /// Columns `columns` lie at `from`.
  void take(Range columns, const double* from) const {
    if (plan_.reversed(p_)) {
      const Range all = plan_.columns(p_);
      return band_reverse(lane_, all.count, columns.first - all.first, columns.count, height_, from,
                          height_, column(plan_.padding(p_)), s_.column());
    }
    const Index begin = plan_.rows(p_).first, end = plan_.rows(p_).end();
    const Index window = plan_.window() > 0 ? end - plan_.separator : end;
    const auto cut = [&](Index first, Index last) {  // columns first .. last - 1 of the slab
      first = std::clamp(first, columns.first, columns.end());
      return Range{first, std::clamp(last, first, columns.end()) - first};
    };
    const auto in_slab = [&](const Range& r) { return from + (r.first - columns.first) * height_; };
    if (const Range left = cut(begin - plan_.separator, begin); left.count > 0)
      spike(left, {in_slab(left), height_, 1});
    if (const Range own = cut(begin, window); own.count > 0)
      copy_rows<double, B>(lane_, column(own.first - begin), s_.column(), in_slab(own), height_,
                           height_, own.count);
    // There and back: what reaches below the separator is left out.
    if (const Range right = cut(window, end); right.count > 0)
      band_reverse(lane_, plan_.separator, right.first - window, right.count, height_,
                   in_slab(right), height_, a_.window.data(), height_);
  }

  /// After the last slab.
  void finish() const {
    const Index padding = plan_.padding(p_);
    if (part_.window == 0) {
      detail::unit_diagonal(lane_, s_, column(plan_.rows(p_).count), padding);
    } else if (plan_.reversed(p_)) {  // the window belongs to the part before
      fill_zero(lane_, View<double, B>{column(part_.tiles * s_.width), part_.window * s_.tile()});
      detail::unit_diagonal(lane_, s_, column(0), padding);
    } else {
      band_reverse(lane_, plan_.separator, 0, plan_.separator, height_, a_.window.data(), height_,
                   column(part_.tiles * s_.width), s_.column());
    }
  }

 private:
  [[nodiscard]] double* column(Index j) const { return part_.band + j * s_.column(); }
  /// Columns of the separator before the part.
  void spike(const Range& left, const BandForm& from) const {
    const Index begin = plan_.rows(p_).first;
    const BandSpike entries{from,
                            left.count,
                            begin - left.first,
                            part_.tiles * s_.width,
                            left.first - (begin - plan_.separator),
                            part_.spike};
    band_spikes(lane_, {&entries, 1}, height_, part_.arrow);
  }

  const Stream<B>& lane_;
  const BandParts<B>& a_;
  const BandPlan& plan_;
  const BandShape& s_;
  const BandPart<B>& part_;
  const Index p_, height_;
};

/// All parts from the matrix where it lies. Each number is read once; only what the matrix does not
/// reach is cleared.
template <class B>
void place_parts(const Stream<B>& lane, const BandHere& matrix, BandParts<B>& a) {
  const BandPlan& plan = a.plan;
  const BandShape& s = plan.shape;
  const Index side = plan.separator, width = height(plan), ld = s.column();
  std::vector<BlockCopy> clears;
  std::vector<BandRun> runs;
  std::vector<BandSpike> spikes;
  double* rest = a.memory.data();  // behind the parts so far
  const auto clear = [&](double* to, Index count) {
    if (count > 0) clears.push_back({nullptr, 0, to, 0, 1, count});
  };
  for (Index p = 0; p < plan.parts(); ++p) {
    const BandPart<B>& part = a.parts[std::size_t(p)];
    if (part.ring == 0) continue;
    rest = part.band + size_of(s, part).total();
    const Index begin = plan.rows(p).first, end = plan.rows(p).end(), own = part.tiles * s.width;
    const Index padding = plan.padding(p), size = band_part_doubles(s, part.ring);
    if (plan.reversed(p)) {  // its window belongs to the part before
      clear(part.band, padding * ld);
      clears.push_back(
          {nullptr, 0, part.band + padding * ld + width, ld, own - padding, ld - width});
      clear(part.band + own * ld, size - own * ld);
      continue;
    }
    const Index window = part.window > 0 ? side : 0, columns = end - window - begin;
    clear(part.band + (columns + window) * ld, size - (columns + window) * ld);
    runs.push_back({matrix.form.behind(begin), s.n - begin, columns, part.band});
    if (window > 0)
      runs.push_back({matrix.form.behind(end - side), side, side, part.band + own * ld});
    if (part.arrow == 0) continue;
    clear(part.spike, part.arrow * std::min(part.tiles, band_reach_tiles(s)) * s.width);
    spikes.push_back({matrix.form.behind(begin - side), side, side, own, 0, part.spike});
  }
  clear(rest, a.memory.data() + a.memory.size() - rest);
  copy_blocks(lane, clears);
  lower_columns(lane, runs, width, ld, matrix.not_finite);
  band_spikes(lane, spikes, width, side, matrix.not_finite);
  const Index last = plan.parts() - 1, padding = plan.padding(last);
  const Range all = plan.columns(last);
  double* const band = a.parts[std::size_t(last)].band;
  if (plan.reversed(last))
    band_reverse(lane, all.count, 0, all.count, width, matrix.form.behind(all.first),
                 band + padding * ld, ld, side, matrix.not_finite);
  detail::unit_diagonal(lane, s, plan.reversed(last) ? band : band + all.count * ld, padding);
}

}  // namespace

template <class B>
void load_parts(Context<B>& context, const BandProblem<B>& problem, BandParts<B>& a) {
  const Stream<B>& lane = context.ahead;
  const BandPlan& plan = a.plan;
  fill_zero(lane, a.records.view());
  if (problem.here)
    place_parts(lane, problem.here, a);
  else
    fill_zero(lane, a.memory.view());
  if (a.reduced.tiles > 0)
    detail::unit_diagonal(lane, plan.reduced,
                          a.reduced.band + plan.reduced.n * plan.reduced.column(),
                          plan.reduced.padded() - plan.reduced.n);
  if (problem.here) return;
  Index steps = 0, done = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) steps = std::max(steps, slabs(plan, rank));
  const auto read = [&](Range columns) {
    ++done;
    if (!reads_in_place(plan) || columns.count == 0)
      return problem.source(context, columns, height(plan), height(plan),
                            a.slab.view().slice(0, columns.count * height(plan)));
    // Below row n stands zero already.
    const BandPart<B>& part = a.parts[0];
    const Index ld = plan.shape.column(), rows = plan.shape.n - columns.first;
    problem.source(context, columns, std::min(height(plan), rows), ld,
                   View<double, B>{part.band + columns.first * ld, columns.count * ld});
  };
  const Index most = columns_at_once(plan);
  for (Index p = a.own.first; p < a.own.end(); ++p) {
    const PartLoader<B> loader(lane, a, p);
    const Range all = plan.columns(p);
    for (Index first = all.first; first < all.end(); first += most) {
      const Range columns{first, std::min(most, all.end() - first)};
      read(columns);
      if (!reads_in_place(plan)) loader.take(columns, a.slab.data());
    }
    loader.finish();
  }
  while (done < steps) read({0, 0});
  lane.synchronize();
}

template <class B>
void reload_reversed(Context<B>& context, BandParts<B>& a,
                     std::type_identity_t<View<const double, B>> natural) {
  const Index p = a.plan.parts() - 1;
  if (p < a.own.first || p >= a.own.end() || !a.plan.reversed(p)) return;
  const BandPart<B>& part = a.parts[std::size_t(p - a.own.first)];
  const BandShape& s = a.plan.shape;
  PartLoader<B>(context.ahead, a, p).take(a.plan.columns(p), natural.data);
  fill_zero(context.ahead,
            View<double, B>{part.band + part.tiles * s.tile(), part.window * s.tile()});
}

template <class B>
void load_factor(Context<B>& context, const BandProblem<B>& factor, BandParts<B>& a) {
  load_parts(context, factor, a);
  if constexpr (keeps_inverses<B>)
    for (const BandPart<B>& part : a.parts)
      band_invert_diagonals(context.ahead, a.plan.shape, part);
  context.ahead.synchronize();
}

namespace {

/// All of the tile columns as one part.
template <class B>
BandPart<B> whole(const BandShape& s, double* band, double* inverses) {
  BandPart<B> part;
  part.tiles = part.ring = s.tiles();
  part.band = band;
  part.inverse = inverses;
  return part;
}

}  // namespace

template <class B>
std::pair<Index, Index> band_at_once_memory(const BandShape& s) {
  const BandPart<B> part = whole<B>(s, nullptr, nullptr);
  return {s.tiles() * s.width * s.width, band_factor_scratch(B{}, s, {&part, 1}) + 1};
}

template <class B>
Index band_cholesky_at_once(Context<B>& c, BandTiles<B>& a, const Buffer<double, B>& inverses,
                            const Buffer<Word, B>& scratch) {
  if (a.shape.tiles() == 0) return 0;
  const BandPart<B> part = whole<B>(a.shape, a.data.data(), inverses.data());
  Word* const last = scratch.data() + scratch.size() - 1;
  const View<Index, B> status{reinterpret_cast<Index*>(last), 1};
  band_factor_parts(c.ahead, a.shape, {&part, 1}, status,
                    scratch.view().slice(0, scratch.size() - 1));
  Index failed = 0;
  download(c.ahead, &failed, status);
  c.ahead.synchronize();
  return failed;
}

#define TERRACE_INSTANTIATE(B)                                                               \
  template BandPartsMemory band_parts_memory<B>(const BandPlan&, Index);                     \
  template BandParts<B> band_parts(Context<B>&, const BandPlan&);                            \
  template void load_parts(Context<B>&, const BandProblem<B>&, BandParts<B>&);               \
  template void reload_reversed(Context<B>&, BandParts<B>&, View<const double, B>);          \
  template void load_factor(Context<B>&, const BandProblem<B>&, BandParts<B>&);              \
  template std::pair<Index, Index> band_at_once_memory<B>(const BandShape&);                 \
  template Index band_cholesky_at_once(Context<B>&, BandTiles<B>&, const Buffer<double, B>&, \
                                       const Buffer<Word, B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
