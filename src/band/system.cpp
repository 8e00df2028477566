#include "src/band/system.hpp"

#include <utility>

#include "src/band/guard.hpp"
#include "src/band/parts.hpp"
#include "src/band/stream.hpp"
#include "src/band/ways.hpp"
#include "src/band/window.hpp"

namespace terrace::band {

namespace {

/// Of solve_more().
template <class B>
Index bytes_of_more(const BandPlan& plan, Index more) {
  if (more == 0) return 0;
  if (plan.method == BandMethod::tile_columns || plan.tile_by_tile)
    return band_memory(plan.shape, more, plan.ranks, false).solution;
  if (plan.method == BandMethod::streamed) return band_stream_memory<B>(plan, more).vectors;
  const BandPartsMemory m = band_parts_memory<B>(plan, more);
  return m.vectors + m.scratch;
}

}  // namespace

template <class B>
BandBytes band_bytes(const BandPlan& plan, const BandSystem& system, Index nrhs, bool check) {
  const BandShape& s = plan.shape;
  constexpr Index word = sizeof(double);
  BandBytes bytes;
  Index rows = ceil_div(s.tiles(), Index(plan.ranks)) * s.width;  // of b, and of x
  const BandShape slabs = band_shape(s.n, s.half_bandwidth, 64);  // that the check reads
  if (check) bytes.check = band_memory(slabs, nrhs, plan.ranks, true).check;
  if (plan.method == BandMethod::tile_columns) {
    const BandMemory m = band_memory(s, nrhs, plan.ranks, check);
    bytes.check = m.check;
    bytes.backend = m.total() - m.check;
    if (plan.at_once) {
      const auto [numbers, words] = band_at_once_memory<B>(s);
      bytes.backend += (numbers + words) * word;
    }
    if (system.guard) bytes.backend += BandGuard<B>::bytes(s);
  } else if (plan.method == BandMethod::mixed) {
    const MixedNeeds m = mixed_needs<B>(plan, nrhs, check);
    rows = s.padded();
    if (plan.ranks > 1) {
      rows = 0;
      for (int rank = 0; rank < plan.ranks; ++rank) rows = std::max(rows, plan.rows_of(rank).count);
    }
    bytes = {4 * rows * word, m.total() - m.check, m.check};
  } else if (plan.tile_by_tile) {
    const BandWindowMemory m = band_window_memory(s, nrhs, plan.ranks, plan.kept > 0);
    bytes.host = m.host;
    if (system.places.substitution == "cpu") bytes.host += 2 * (s.tile() + rows * nrhs) * word;
    bytes.backend = m.device();
  } else if (plan.method == BandMethod::streamed) {
    const BandStreamMemory m = band_stream_memory<B>(plan, nrhs, 0, plan.kept);
    rows = s.padded();
    bytes.host = m.host;
    bytes.backend = m.device();
  } else {
    bytes.backend = band_parts_memory<B>(plan, nrhs).total();
    rows = 0;
    for (int rank = 0; rank < plan.ranks; ++rank) rows = std::max(rows, plan.rows_of(rank).count);
  }
  if (check && system.rhs_at) bytes.check += s.n * nrhs * word;  // X without gaps
  bytes.host += 2 * rows * (nrhs + system.more) * word + 3 * io::piece_bytes();
  bytes.backend += bytes_of_more<B>(plan, system.more);
  if (!std::is_same_v<B, Cpu> && system.matrix.diagonals && plan.ranks == 1)
    bytes.backend += turning_bytes(system.matrix);
  return bytes;
}

namespace {

/// A streamed factor that host memory has no room for goes to a file.
template <class B>
BandPlan with_room(BandPlan plan, const BandSystem& system, const BandRequest& request) {
  if (plan.method != BandMethod::streamed) return plan;
  const BandBytes bytes = band_bytes<B>(plan, system, request.nrhs, request.check);
  const Index backend = std::is_same_v<B, Cuda> ? 0 : bytes.backend + bytes.check;
  const Index free = request.host_bytes > 0 ? request.host_bytes : host_room().share(1);
  if (!system.scratch.empty() || bytes.host + backend > free)
    plan.kept =
        plan.tile_by_tile ? band_window_kept(plan.shape, plan.ranks) : band_stream_kept(plan);
  return plan;
}

}  // namespace

template <class B>
BandPlan plan_system(const BandSystem& system, const BandRequest& request) {
  return with_room<B>(plan_band<B>(request), system, request);
}

template <class B>
std::unique_ptr<BandResult<B>> solve_band(Context<B>& c, const BandSystem& system,
                                          const BandRequest& request, BandPlan plan,
                                          Progress& progress, const BandHooks& hooks) {
  const BandTask<B> task{c, system, request, progress, hooks};
  for (;;) {
    std::unique_ptr<BandWay<B>> way =
        plan.tile_by_tile                     ? band_way_in_window(task, plan)
        : plan.method == BandMethod::mixed    ? band_way_mixed(task, plan)
        : plan.method == BandMethod::streamed ? band_way_streamed(task, plan)
                                              : band_way_in_memory(task, plan);
    way->take();
    std::string why;
    hooks.phase("read", [&] { way->read(); });
    hooks.phase("solve", [&] {
      way->read_again();
      why = way->solve();
    });
    if (why.empty()) {
      way->settle();
      return way;
    }
    const BandNotes notes = way->notes;
    way.reset();
    const BandPlan failed =
        std::exchange(plan, with_room<B>(plan_instead<B>(request, plan, why), system, request));
    hooks.instead(failed, notes, plan);
  }
}

#define TERRACE_INSTANTIATE(B)                                                       \
  template BandBytes band_bytes<B>(const BandPlan&, const BandSystem&, Index, bool); \
  template BandPlan plan_system<B>(const BandSystem&, const BandRequest&);           \
  template std::unique_ptr<BandResult<B>> solve_band(                                \
      Context<B>&, const BandSystem&, const BandRequest&, BandPlan, Progress&, const BandHooks&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
