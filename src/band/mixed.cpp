#include "src/band/mixed.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/random.hpp"
#include "src/band/determinant.hpp"
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
  if (s.n == 0) return true;
  const auto status = [&] {
    Index value = 0;
    download(lane, &value, m.status.view());
    lane.synchronize();
    return value;
  };
  for (int raises = 0;; ++raises, m.shift *= 8) {
    band_low_load(lane, s, a, m.shift, m.scale, m.low, m.status, m.low_scratch);
    bool good = status() == 0;
    const bool scaled = good;
    if (good) {
      band_low_factor(lane, s, m.low, m.status, m.low_scratch);
      good = status() == 0;
    }
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
  band_cg_ones(lane, pass, ones);
  band_symmetric_times(lane, s, a, true, 2, ones, sums, m.strips);
  band_cg_norms(lane, pass, sums);
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
  const Range words{0, m.low.size()};
  archive.pieces(
      "low", words.count, -1, {&words, 1},
      [&](Index at, Index count, Word* to) {
        download(lane, to, m.low.view().slice(at, count));
        lane.synchronize();
      },
      [&](Index at, Index count, const Word* from) {
        upload(lane, m.low.view().slice(at, count), from);
        lane.synchronize();
      });
  const Range all{0, m.shape.padded()};
  archive.vector(lane, "scale", all.count, 1, all, m.scale.view());
  if (m.nrhs > 0) archive.vector(lane, "x", all.count, m.nrhs, all, x);
  if (!m.inside) return;
  const Index nrhs = std::min(m.group, m.nrhs - m.first);
  const std::pair<const char*, const Buffer<double, B>*> vectors[] = {
      {"group b", &m.b}, {"group x", &m.x}, {"group r", &m.r},
      {"group z", &m.z}, {"group p", &m.p}, {"group q", &m.q}};
  for (const auto& [name, vector] : vectors)
    archive.vector(lane, name, all.count, nrhs, all, vector->view());
  const Range scalars{0, band_cg::size};
  archive.vector(lane, "group state", scalars.count, nrhs, scalars, m.state.view());
  archive.list("group numbers", m.numbers);
  archive.list("Lanczos", m.lanczos);
  archive.list("beside Lanczos", m.off_lanczos);
}

template <class B>
bool mixed_resume(Context<B>& c, BandMixed<B>& m, std::type_identity_t<View<double, B>> x,
                  const Progress& progress) {
  if (progress.checkpoints == nullptr || m.shape.n == 0) return false;
  m.resumed =
      progress.checkpoints->resume([&](Archive& archive) { archive_mixed(c, archive, m, x); }) > 0;
  return m.resumed;
}

template <class B>
MixedResult mixed_solve(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                        BandMixed<B>& m, std::type_identity_t<View<double, B>> x,
                        const MixedLimits& limits, const Progress* progress) {
  if (m.shape.n == 0) return {};
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

template <class B>
double mixed_condition(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                       BandMixed<B>& m, const MixedResult& solved, const MixedLimits& limits) {
  const Stream<B>& lane = c.ahead;
  const Index n = m.shape.n;
  if (n == 0) return 0;
  std::vector<double> v(std::size_t(n), 1.0 / double(n)), sign(v.size(), 0.0), before(v.size());
  const Buffer<double, B> w(m.shape.padded());
  fill_zero(lane, w.view());
  const auto apply = [&] {  // v := A^-1 v, or M^-1 v where that is nearly the same
    upload(lane, w.view().slice(0, n), v.data());
    if (solved.smallest >= 0.5 ||
        Group<B>(c, a, m, 1, limits).run(w, 1, 0).reason != MixedReason::converged)
      band_low_solve(lane, m.shape, m.low, m.scale, 1, w, w, m.low_scratch);
    download(lane, v.data(), w.view().slice(0, n));
    lane.synchronize();
  };
  const auto size = [&] {
    double sum = 0;
    for (const double value : v) sum += std::abs(value);
    return sum;
  };
  apply();
  double found = size();
  for (int round = 0; round < 5 && n > 1; ++round) {
    before.swap(sign);
    for (std::size_t i = 0; i < v.size(); ++i) sign[i] = v[i] < 0 ? -1.0 : 1.0;
    if (sign == before) break;
    v = sign;
    apply();  // the gradient of ||A^-1 v||
    const auto at = std::max_element(v.begin(), v.end(), [](double one, double other) {
      return std::abs(one) < std::abs(other);
    });
    const std::size_t unit = std::size_t(at - v.begin());
    std::fill(v.begin(), v.end(), 0.0);
    v[unit] = 1;
    apply();
    const double now = size();
    if (!(now > found)) break;
    found = now;
  }
  if (n > 1) {
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = (i % 2 == 0 ? 1.0 : -1.0) * (1 + double(i) / double(n - 1));
    apply();
    found = std::max(found, 2 * size() / (3 * double(n)));
  }
  return m.norm * found;
}

template <class B>
double mixed_log_determinant(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                             BandMixed<B>& m, double* error, Index probes) {
  const Stream<B>& lane = c.ahead;
  const BandShape& s = m.shape;
  const Index n = s.n, group = m.group;
  if (n == 0) return 0;
  const auto size = [&](Index count) { return std::size_t(count); };
  std::vector<double> scale(size(s.padded())), diagonal(scale.size());
  band_low_diagonal(lane, s, m.low, m.r.view().slice(0, s.padded()));
  download(lane, diagonal.data(), m.r.view().slice(0, s.padded()));
  download(lane, scale.data(), m.scale.view());
  lane.synchronize();
  LogProduct of_factor, of_scale;
  for (Index i = 0; i < n; ++i) {
    of_factor.times(diagonal[size(i)]);
    of_scale.times(scale[size(i)]);
  }
  // z.log(I + E) z for vectors z of signs; I + E = S^-1 (M^-1 A) S has a unit diagonal's size.
  std::vector<double> z(size(s.padded() * group), 0.0), w(z.size());
  double sum = 0, squares = 0;
  Index done = 0;
  const View<double, B> x = columns(m.p, s, group), y = columns(m.q, s, group);
  for (; done < probes; done += group) {
    for (Index i = 0; i < n * group; ++i)
      z[size(i)] = random_uniform(0x10b, done * n + i, 0) < 0 ? -1.0 : 1.0;
    std::vector<double> terms(size(group), 0.0), e = z;  // e = E^k z
    for (int k = 1; k <= 3; ++k) {
      for (Index i = 0; i < n * group; ++i) w[size(i)] = e[size(i)] * scale[size(i / group)];
      upload(lane, x, w.data());
      band_symmetric_times(lane, s, a, false, group, x, y, m.strips);
      band_low_solve(lane, s, m.low, m.scale, group, y, y, m.low_scratch);
      download(lane, w.data(), y);
      lane.synchronize();
      for (Index i = 0; i < n * group; ++i) {
        e[size(i)] = w[size(i)] / scale[size(i / group)] - e[size(i)];
        terms[size(i % group)] += (k % 2 == 1 ? 1.0 : -1.0) / k * z[size(i)] * e[size(i)];
      }
    }
    for (const double term : terms) {
      sum += term;
      squares += term * term;
    }
  }
  const double mean = sum / double(done);
  if (error)
    *error = std::sqrt(std::max(0.0, squares / double(done) - mean * mean) / double(done - 1));
  return 2 * (of_factor.log() - of_scale.log()) + mean;
}

#define TERRACE_INSTANTIATE(B)                                                              \
  template MixedMemory band_mixed_memory<B>(const BandShape&, Index);                       \
  template BandMixed<B> band_mixed<B>(const BandShape&, Index);                             \
  template bool mixed_factor(Context<B>&, View<const double, B>, BandMixed<B>&,             \
                             const MixedLimits&);                                           \
  template MixedResult mixed_solve(Context<B>&, View<const double, B>, BandMixed<B>&,       \
                                   View<double, B>, const MixedLimits&, const Progress*);   \
  template void archive_mixed(Context<B>&, Archive&, BandMixed<B>&, View<double, B>);       \
  template bool mixed_resume(Context<B>&, BandMixed<B>&, View<double, B>, const Progress&); \
  template double mixed_log_determinant(Context<B>&, View<const double, B>, BandMixed<B>&,  \
                                        double*, Index);                                    \
  template double mixed_condition(Context<B>&, View<const double, B>, BandMixed<B>&,        \
                                  const MixedResult&, const MixedLimits&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
