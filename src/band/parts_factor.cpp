// Factorization of a band matrix in parts, and its state in checkpoints.
#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"
#include "src/band/determinant.hpp"
#include "src/band/parts.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::band {
namespace {

/// rows(p) rows of `columns` numbers of each part, at data(part), one part after the other.
template <class B, class Rows, class Data>
void archive_each(Context<B>& c, Archive& archive, const BandParts<B>& a, const std::string& name,
                  Index columns, Rows&& rows, Data&& data) {
  const Stream<B>& lane = c.ahead;
  Index all = 0;
  Range mine;
  for (Index p = 0; p < a.plan.parts(); ++p) {
    if (p == a.own.first) mine.first = all;
    if (p >= a.own.first && p < a.own.end()) mine.count += rows(p);
    all += rows(p);
  }
  if (all == 0 || columns == 0) return;
  const auto each_run = [&](Index position, Index count, auto&& run) {
    Index first = 0;
    for (Index i = 0; i < a.own.count; ++i) {
      const Index size = rows(a.own.first + i);
      const Index from = std::max(position, first), to = std::min(position + count, first + size);
      if (from < to)
        run(View<double, B>{data(a.parts[std::size_t(i)]) + (from - first) * columns,
                            (to - from) * columns},
            (from - position) * columns);
      first += size;
    }
    lane.synchronize();
  };
  archive.pieces(
      name, all, columns, {&mine, std::size_t(mine.count > 0 ? 1 : 0)},
      [&](Index position, Index count, Word* to) {
        each_run(position, count, [&](View<double, B> numbers, Index at) {
          download(lane, reinterpret_cast<double*>(to) + at, numbers);
        });
      },
      [&](Index position, Index count, const Word* from) {
        each_run(position, count, [&](View<double, B> numbers, Index at) {
          upload(lane, numbers, reinterpret_cast<const double*>(from) + at);
        });
      });
}

}  // namespace

template <class B>
void archive_parts(Context<B>& c, Archive& archive, const BandParts<B>& a, Index segments) {
  const BandPlan& plan = a.plan;
  const Index w = plan.shape.width;
  const auto factored = [&](Index p) { return tiles_after(plan, p, segments) * w; };
  const auto of_arrow = [&](Index p) { return plan.has_arrow(p) ? factored(p) : 0; };
  using Part = BandPart<B>;
  archive_each(c, archive, a, "factors", plan.shape.column(), factored,
               [](const Part& part) { return part.band; });
  archive_each(c, archive, a, "spikes", plan.separator, of_arrow,
               [](const Part& part) { return part.spike; });
  constexpr bool with_inverses = !std::is_same_v<B, Cpu>;
  if (with_inverses)
    archive_each(c, archive, a, "inverses", w, factored,
                 [](const Part& part) { return part.inverse; });
  const BandShape& r = plan.reduced;
  if (segments < part_segments(plan) || r.n == 0) return;
  const Range all{0, r.padded()};
  const std::span<const Range> rows(&all, c.rank() == 0 ? 1 : 0);
  archive.rows(c.ahead, "reduced", all.count, r.column(), rows, a.reduced.band, r.column());
  if (with_inverses)
    archive.rows(c.ahead, "reduced inverses", all.count, r.width, rows, a.reduced.inverse, r.width);
}

namespace {

/// What the own parts leave to the separators, into their records; those go to rank 0.
template <class B>
void gather_records(Context<B>& c, const BandParts<B>& a) {
  const Stream<B>& lane = c.ahead;
  const BandPlan& plan = a.plan;
  const BandShape& s = plan.shape;
  const Index side = plan.separator, high = std::min(s.column(), side);
  std::vector<BlockCopy> copies;
  for (Index i = 0; i < a.own.count; ++i) {
    const Index p = a.own.first + i;
    const BandPart<B>& part = a.parts[std::size_t(i)];
    const double* window = part.band + part.tiles * s.tile();
    if (plan.reversed(p))
      band_reverse(lane, side, 0, side, high, window, s.column(), a.record(p, 1).data, side + 1);
    else
      copies.push_back({window, s.column(), a.record(p, 0).data, side + 1, side, high});
  }
  copy_blocks(lane, copies);
  detail::exchange_records(c, plan, a.records, 3 * a.block(), true);
}

/// Rank 0: the separators' system from the records.
template <class B>
void assemble(const Stream<B>& lane, const BandParts<B>& a) {
  const BandPlan& plan = a.plan;
  const BandShape& r = plan.reduced;
  const Index side = plan.separator;
  // Zeros above the diagonal land below a block, where the coupling comes next.
  std::vector<BlockCopy> blocks, couplings;
  for (Index q = 0; q + 1 < plan.parts(); ++q)
    blocks.push_back({a.record(q, 0).data, side + 1, a.reduced.band + q * side * r.column(),
                      r.column(), side, side, a.record(q + 1, 1).data});
  for (Index q = 1; q + 1 < plan.parts(); ++q)
    couplings.push_back({a.record(q, 2).data, side,
                         a.reduced.band + (q - 1) * side * r.column() + side, r.reach, side, side});
  copy_blocks(lane, blocks);
  copy_blocks(lane, couplings);
}

}  // namespace

template <class B>
bool factor_parts(Context<B>& context, BandParts<B>& a, const Progress* progress) {
  const Stream<B>& lane = context.ahead;
  const BandPlan& plan = a.plan;
  if (plan.shape.n == 0) return true;
  Checkpoints* const checkpoints = progress ? progress->checkpoints : nullptr;
  const Index segments = checkpoints ? part_segments(plan) : 1;
  Index segment = 0;
  if (checkpoints)
    segment = checkpoints->resume(
        [&](Archive& archive) { archive_parts(context, archive, a, archive.step()); });
  std::vector<BandPart<B>> parts = a.parts;
  std::vector<Index> status(std::size_t(a.status.size()));
  while (segment < segments) {
    if (segments > 1)
      for (Index i = 0; i < a.own.count; ++i) {
        parts[std::size_t(i)].from = tiles_after(plan, a.own.first + i, segment);
        parts[std::size_t(i)].to = tiles_after(plan, a.own.first + i, segment + 1);
      }
    ++segment;
    fill_zero(lane, a.status.view());
    if (a.own.count > 0)
      band_factor_parts(lane, plan.shape, parts, a.status.view().slice(0, a.own.count), a.scratch);
    if (plan.parts() > 1 && segment == segments) gather_records(context, a);
    if (a.reduced.tiles > 0 && segment == segments) {
      assemble(lane, a);
      band_factor_parts(lane, plan.reduced, {&a.reduced, 1}, a.status.view().slice(a.own.count, 1),
                        a.scratch);
    }
    download(lane, status.data(), a.status.view());
    lane.synchronize();
    const bool failed = std::any_of(status.begin(), status.end(), [](Index s) { return s != 0; });
    if (context.control.reduce(Index(failed), Reduce::max) != 0) return false;
    if (checkpoints && checkpoints->due())
      checkpoints->save(segment, segments + 1,
                        [&](Archive& archive) { archive_parts(context, archive, a, segment); });
  }
  return true;
}

template <class B>
double log_determinant(const Context<B>& c, const BandParts<B>& a) {
  const auto sum = collectively(c.control, [&] {
    std::vector<BandDiagonal> diagonals;
    const auto add = [&](const BandShape& s, const BandPart<B>& part) {  // ones behind the matrix
      diagonals.push_back({part.band, s.column(), part.tiles * s.width});
    };
    for (const BandPart<B>& part : a.parts) add(a.plan.shape, part);
    if (a.reduced.tiles > 0) add(a.plan.reduced, a.reduced);
    return product_of<B>(c.ahead, diagonals).log();
  });
  return 2 * c.control.reduce(sum, Reduce::sum);
}

#define TERRACE_INSTANTIATE(B)                                             \
  template bool factor_parts(Context<B>&, BandParts<B>&, const Progress*); \
  template double log_determinant(const Context<B>&, const BandParts<B>&); \
  template void archive_parts(Context<B>&, Archive&, const BandParts<B>&, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
