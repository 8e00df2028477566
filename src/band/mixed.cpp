#include "src/band/mixed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/band/mixed_group.hpp"
#include "src/frame/progress.hpp"

namespace terrace::band {

using namespace mixed;

std::string to_string(MixedReason reason) {
  switch (reason) {
    case MixedReason::converged:
      return "converged";
    case MixedReason::not_definite:
      return "a pivot of the low-precision factor is not positive";
    case MixedReason::iterations:
      return "the limit of iterations was reached";
    case MixedReason::stagnation:
      return "the residual stopped falling";
    case MixedReason::not_finite:
      return "a number is not finite";
  }
  return "";
}

namespace {

Index group_of(Index nrhs) { return std::clamp<Index>(nrhs, 1, kMixedGroup); }
Index strip_numbers(const BandShape& s, Index group) {
  return band_symmetric_scratch(s, std::max<Index>(group, 2));  // the norms are two columns
}

}  // namespace

template <class B>
MixedMemory band_mixed_memory(const BandShape& s, Index nrhs) {
  const Index group = group_of(nrhs), word = sizeof(double), rows = s.padded();
  MixedMemory memory;
  memory.factor = (band_low_words(B{}, s) + rows) * word;
  memory.vectors = (5 * rows * group + 2 * rows * std::max<Index>(group, 2)) * word;
  memory.scratch = (band_low_scratch(B{}, s, group) + strip_numbers(s, group) + band_cg_scratch +
                    (band_cg::size + 2) * group + 1) *
                   word;
  return memory;
}

template <class B>
BandMixed<B> band_mixed(const BandShape& s, Index nrhs) {
  BandMixed<B> m;
  m.shape = s;
  m.nrhs = nrhs;
  m.group = group_of(nrhs);
  const Index numbers = s.padded() * m.group, two = s.padded() * std::max<Index>(m.group, 2);
  m.low = Buffer<Word, B>(band_low_words(B{}, s));
  m.low_scratch = Buffer<Word, B>(band_low_scratch(B{}, s, m.group));
  m.scale = Buffer<double, B>(s.padded());
  for (Buffer<double, B>* v : {&m.b, &m.x, &m.r, &m.z}) *v = Buffer<double, B>(numbers);
  for (Buffer<double, B>* v : {&m.p, &m.q}) *v = Buffer<double, B>(two);
  m.state = Buffer<double, B>(band_cg::size * std::max<Index>(m.group, 2));
  m.factors = Buffer<double, B>(2 * m.group);
  m.sums = Buffer<double, B>(band_cg_scratch);
  m.strips = Buffer<double, B>(strip_numbers(s, m.group));
  m.status = Buffer<Index, B>(1);
  m.seen = PinnedBuffer<double>(m.state.size());
  m.given = PinnedBuffer<double>(2 * m.group);
  return m;
}

template <class B>
bool mixed_factor(Context<B>& c, std::type_identity_t<View<const double, B>> a, BandMixed<B>& m,
                  const MixedLimits& limits) {
  const Stream<B>& lane = c.ahead;
  const BandShape& s = m.shape;
  m.failure = MixedReason::converged;
  m.shift = 2 * band_low_roundoff(B{});
  if (order(m) == 0) return true;
  const auto status = [&] {
    Index value = 0;
    download(lane, &value, m.status.view());
    lane.synchronize();
    return value;
  };
  for (int raises = 0;; ++raises, m.shift *= 8) {
    if (m.ends) complete(lane, *m.ends, true);
    if (s.n > 0) band_low_load(lane, s, a, m.shift, m.scale, m.low, m.status, m.low_scratch);
    const bool scaled = agreed(c, m, s.n == 0 || status() == 0);
    bool good = scaled;
    if (good && s.n > 0) {
      band_low_factor(lane, s, m.low, m.status, m.low_scratch);
      good = status() == 0;
    }
    if (m.ends) complete(lane, *m.ends, false);
    good = agreed(c, m, good);
    if (good && m.ends) good = form_separator(c, *m.ends, m.low, m.scale, m.shift);
    if (good) break;
    if (!scaled || raises == limits.raises) {
      m.failure = MixedReason::not_definite;
      return false;
    }
  }
  // ||A|| and ||S A S||: largest sums of rows.
  const BandCg<B> pass = passes(m, Index(2));
  const View<double, B> ones = columns(m.p, s, Index(2)), sums = columns(m.q, s, Index(2));
  fill_zero(lane, ones);
  if (s.n > 0) band_cg_ones(lane, pass, ones);
  product(c, m, a, true, Index(2), ones, sums);
  across(c, m, Reduce::max, band_cg::r, 2, Index(2), [&] { band_cg_norms(lane, pass, sums); });
  look(lane, m, Index(2));
  m.norm = m.seen[band_cg::r * 2];
  m.scaled_norm = m.seen[band_cg::r_scaled * 2 + 1];
  if (std::isfinite(m.norm) && std::isfinite(m.scaled_norm)) return true;
  m.failure = MixedReason::not_finite;
  return false;
}

template <class B>
void archive_mixed(Context<B>& c, Archive& archive, BandMixed<B>& m,
                   std::type_identity_t<View<double, B>> x) {
  const Stream<B>& lane = c.ahead;
  archive.value("shift", m.shift);
  archive.value("norm", m.norm);
  archive.value("scaled norm", m.scaled_norm);
  archive.value("first", m.first);
  archive.value("done", m.done);
  archive.value("iterations", m.before.iterations);
  archive.value("restarts", m.before.restarts);
  archive.value("backward error", m.before.backward_error);
  archive.value("smallest", m.before.smallest);
  archive.value("largest", m.before.largest);
  archive.value("inside", m.inside);
  // Several ranks: one end's numbers behind the other's.
  const auto here = [&](Index own) {
    const std::vector<Index> all = c.control.gather_all(own);
    const auto mine = all.begin() + c.rank();
    return std::pair(Range{std::accumulate(all.begin(), mine, Index(0)), own},
                     std::accumulate(all.begin(), all.end(), Index(0)));
  };
  const auto [words, all_words] = here(m.low.size());
  archive.pieces(
      "low", all_words, -1, {&words, words.count > 0 ? 1u : 0u},
      [&](Index at, Index count, Word* to) {
        download(lane, to, m.low.view().slice(at, count));
        lane.synchronize();
      },
      [&](Index at, Index count, const Word* from) {
        upload(lane, m.low.view().slice(at, count), from);
        lane.synchronize();
      });
  const auto [own, all] = here(m.shape.padded());
  const auto vector = [&, own = own, all = all](const char* name, Index nrhs, View<double, B> v) {
    archive.rows(lane, name, all, nrhs, {&own, own.count > 0 ? 1u : 0u}, v.data, nrhs);
  };
  vector("scale", 1, m.scale.view());
  if (m.nrhs > 0) vector("x", m.nrhs, x);
  if (!m.inside) return;
  const Index nrhs = std::min(m.group, m.nrhs - m.first);
  const std::pair<const char*, const Buffer<double, B>*> vectors[] = {
      {"group b", &m.b}, {"group x", &m.x}, {"group r", &m.r},
      {"group z", &m.z}, {"group p", &m.p}, {"group q", &m.q}};
  for (const auto& [name, numbers] : vectors) vector(name, nrhs, numbers->view());
  // Equal on all ranks, which write them once.
  const Range scalars{0, band_cg::size};
  archive.rows(lane, "group state", scalars.count, nrhs,
               {&scalars, archive.loading() || c.rank() == 0 ? 1u : 0u}, m.state.data(), nrhs);
  archive.list("group numbers", m.numbers);
  archive.list("Lanczos", m.lanczos);
  archive.list("beside Lanczos", m.off_lanczos);
}

template <class B>
bool mixed_resume(Context<B>& c, BandMixed<B>& m, std::type_identity_t<View<double, B>> x,
                  const Progress& progress) {
  if (progress.checkpoints == nullptr || order(m) == 0) return false;
  m.resumed =
      progress.checkpoints->resume([&](Archive& archive) { archive_mixed(c, archive, m, x); }) > 0;
  return m.resumed && (!m.ends || form_separator(c, *m.ends, m.low, m.scale, m.shift));
}

template <class B>
MixedResult mixed_solve(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                        BandMixed<B>& m, std::type_identity_t<View<double, B>> x,
                        const MixedLimits& limits, const Progress* progress) {
  if (order(m) == 0) return {};
  if (!m.resumed) {
    m.first = m.done = 0;
    m.before = {};
    m.inside = false;
  }
  m.resumed = false;
  MixedStops stops;
  if (progress && progress->checkpoints)
    stops = {progress->checkpoints, 1 + ceil_div(m.nrhs, m.group) * limits.iterations,
             [&](Archive& archive) { archive_mixed(c, archive, m, x); }};
  if (stops.checkpoints && m.done == 0 && stops.checkpoints->due())
    stops.checkpoints->save(1, stops.steps, stops.state);
  MixedResult& result = m.before;
  for (; m.first < m.nrhs && result.reason == MixedReason::converged; m.first += m.group) {
    const Index nrhs = std::min(m.group, m.nrhs - m.first);
    const MixedResult part = Group<B>(c, a, m, nrhs, limits, stops).run(x, m.nrhs, m.first);
    result.reason = part.reason;
    result.iterations = std::max(result.iterations, part.iterations);
    result.restarts += part.restarts;
    result.backward_error = std::max(result.backward_error, part.backward_error);
    if (m.first == 0) {
      result.smallest = part.smallest;
      result.largest = part.largest;
    }
  }
  return result;
}

#define TERRACE_INSTANTIATE(B)                                                            \
  template MixedMemory band_mixed_memory<B>(const BandShape&, Index);                     \
  template BandMixed<B> band_mixed<B>(const BandShape&, Index);                           \
  template bool mixed_factor(Context<B>&, View<const double, B>, BandMixed<B>&,           \
                             const MixedLimits&);                                         \
  template MixedResult mixed_solve(Context<B>&, View<const double, B>, BandMixed<B>&,     \
                                   View<double, B>, const MixedLimits&, const Progress*); \
  template void archive_mixed(Context<B>&, Archive&, BandMixed<B>&, View<double, B>);     \
  template bool mixed_resume(Context<B>&, BandMixed<B>&, View<double, B>, const Progress&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
