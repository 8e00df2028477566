#include "src/dense/refine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::dense {

namespace {

constexpr double eps = 0x1.0p-53;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// max, where what is no number is infinite.
double larger(double a, double b) { return b <= a ? a : std::isnan(b) ? infinity : b; }

double product(const double* x, const double* y, Index count) {
  double sums[8] = {};
  Index i = 0;
  for (; i + 8 <= count; i += 8)
    for (Index l = 0; l < 8; ++l) sums[l] += x[i + l] * y[i + l];
  for (; i < count; ++i) sums[0] += x[i] * y[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// Some columns of rows of `width` numbers, and back.
std::vector<double> columns_of(const std::vector<double>& rows, Index width,
                               const std::vector<Index>& columns) {
  const Index count = Index(columns.size()),
              height = Index(rows.size()) / std::max<Index>(1, width);
  std::vector<double> out(std::size_t(height * count));
  for (Index i = 0; i < height; ++i)
    for (Index c = 0; c < count; ++c)
      out[std::size_t(i * count + c)] = rows[std::size_t(i * width + columns[std::size_t(c)])];
  return out;
}
void put_columns(const std::vector<double>& some, Index width, const std::vector<Index>& columns,
                 std::vector<double>& rows) {
  const Index count = Index(columns.size()),
              height = Index(rows.size()) / std::max<Index>(1, width);
  for (Index i = 0; i < height; ++i)
    for (Index c = 0; c < count; ++c)
      rows[std::size_t(i * width + columns[std::size_t(c)])] = some[std::size_t(i * count + c)];
}

}  // namespace

/// A cycle of GMRES for `columns` columns: vectors column by column, Hessenberg matrices made
/// triangular by rotations.
template <class B>
struct Refiner<B>::Krylov {
  Index columns, slots, most, steps = 0;
  std::vector<Values> v;                // orthonormal: column c of vector k from c slots on
  std::vector<Values> h;                // of column c, most + 1 numbers a step
  std::vector<Values> cosine, sine, g;  // rotations; the right-hand side under them
  Krylov(Index columns, Index slots, Index most)
      : columns(columns),
        slots(slots),
        most(most),
        h(std::size_t(columns), Values(std::size_t((most + 1) * most), 0.0)),
        cosine(std::size_t(columns), Values(std::size_t(most), 1.0)),
        sine(std::size_t(columns), Values(std::size_t(most), 0.0)),
        g(std::size_t(columns), Values(std::size_t(most) + 1, 0.0)) {}

  /// Rows of `columns` numbers to columns, and back.
  [[nodiscard]] Values by_columns(const Values& rows) const {
    Values out(rows.size());
    for (Index i = 0; i < slots; ++i)
      for (Index c = 0; c < columns; ++c)
        out[std::size_t(c * slots + i)] = rows[std::size_t(i * columns + c)];
    return out;
  }
  [[nodiscard]] Values by_rows(const Values& vectors) const {
    Values out(vectors.size());
    for (Index i = 0; i < slots; ++i)
      for (Index c = 0; c < columns; ++c)
        out[std::size_t(i * columns + c)] = vectors[std::size_t(c * slots + i)];
    return out;
  }
  [[nodiscard]] Values norms(const Control& control, const Values& w) const {
    Values sums;
    for (Index c = 0; c < columns; ++c)
      sums.push_back(product(w.data() + c * slots, w.data() + c * slots, slots));
    control.reduce(sums, Reduce::sum);
    for (double& s : sums) s = std::sqrt(s);
    return sums;
  }
  /// Vector k := w / lengths; zero where there is none.
  void add(Values w, const Values& lengths) {
    for (Index c = 0; c < columns; ++c) {
      const double length = lengths[std::size_t(c)];
      for (Index i = 0; i < slots; ++i) {
        double& x = w[std::size_t(c * slots + i)];
        x = length > 0 ? x / length : 0;
      }
    }
    v.push_back(std::move(w));
  }
  /// The rotations on column `steps` of H, whose entries are there; one more step is done.
  void rotate() {
    const auto k = std::size_t(steps);
    for (std::size_t c = 0; c < std::size_t(columns); ++c) {
      double* const column = h[c].data() + steps * (most + 1);
      for (std::size_t j = 0; j < k; ++j) {
        const double up = column[j], down = column[j + 1];
        column[j] = cosine[c][j] * up + sine[c][j] * down;
        column[j + 1] = -sine[c][j] * up + cosine[c][j] * down;
      }
      const double length = std::hypot(column[k], column[k + 1]);
      cosine[c][k] = length > 0 ? column[k] / length : 1;
      sine[c][k] = length > 0 ? column[k + 1] / length : 0;
      column[k] = length;
      g[c][k + 1] = -sine[c][k] * g[c][k];
      g[c][k] *= cosine[c][k];
    }
    ++steps;
  }
  /// The combination of the vectors with the least residual.
  [[nodiscard]] Values combined() const {
    Values u(std::size_t(columns * slots), 0.0);
    for (Index c = 0; c < columns; ++c) {
      Values y = g[std::size_t(c)];
      const Values& r = h[std::size_t(c)];
      for (Index k = steps; k-- > 0;) {
        for (Index j = k + 1; j < steps; ++j)
          y[std::size_t(k)] -= r[std::size_t(j * (most + 1) + k)] * y[std::size_t(j)];
        const double d = r[std::size_t(k * (most + 1) + k)];
        y[std::size_t(k)] = d != 0 ? y[std::size_t(k)] / d : 0;
        const double* const vector = v[std::size_t(k)].data() + c * slots;
        for (Index i = 0; i < slots; ++i)
          u[std::size_t(c * slots + i)] += y[std::size_t(k)] * vector[i];
      }
    }
    return u;
  }
};

Index refine_bytes(Index n, Index slots, Index right) {
  const RefineLimits limits;
  const Index group = std::min(right, limits.group);
  return 8 * (3 * n * right + 3 * slots * right + group * slots * (limits.restart + 4));
}

template <class B>
Refiner<B>::Refiner(Context<B>& context, const System& system, Solve solve)
    : context_(context),
      solve_(std::move(solve)),
      a_(system.a),
      lda_(system.lda),
      n_(system.n),
      slots_(system.slots),
      norm_(system.norm) {}

template <class B>
std::vector<double> Refiner<B>::times(Index columns, const Values& x) {
  const Stream<B>& lane = context_.ahead;
  if (x_.size() < n_ * columns) x_ = Buffer<double, B>(n_ * columns);
  if (product_.size() < slots_ * columns) product_ = Buffer<double, B>(slots_ * columns);
  Values out(std::size_t(slots_ * columns));
  if (out.empty()) return out;
  upload(lane, x_.view().slice(0, n_ * columns), x.data());
  multiply<B>(lane, slots_, columns, n_, 1.0, a_, lda_, x_.view(), columns, 0.0, product_.view(),
              columns);
  download(lane, out.data(), product_.view().slice(0, slots_ * columns));
  lane.synchronize();
  return out;
}

template <class B>
std::vector<double> Refiner<B>::residual(Index columns, const Values& b, const Values& x,
                                         Values& error) {
  Values r = times(columns, x);
  Values size(std::size_t(columns), 0.0);
  error.assign(std::size_t(columns), 0.0);
  for (std::size_t i = 0; i < r.size(); ++i) {
    r[i] = b[i] - r[i];
    double& most = error[i % std::size_t(columns)];
    most = larger(most, std::fabs(r[i]));
  }
  context_.control.reduce(error, Reduce::max);
  for (std::size_t i = 0; i < x.size(); ++i) {
    double& most = size[i % std::size_t(columns)];
    most = larger(most, std::fabs(x[i]));
  }
  for (std::size_t c = 0; c < error.size(); ++c)
    if (error[c] != 0) error[c] = larger(0, error[c] / norm_ / size[c]);
  return r;
}

/// w -= V V^T w, twice, V^T w into H: classical Gram-Schmidt.
template <class B>
void Refiner<B>::orthogonalize(Krylov& k, Values& w) {
  const Index count = k.steps + 1;
  for (int pass = 0; pass < 2; ++pass) {
    Values sums(std::size_t(count * k.columns));
    parallel_for(k.columns, [&](Index c) {
      for (Index j = 0; j < count; ++j)
        sums[std::size_t(c * count + j)] =
            product(k.v[std::size_t(j)].data() + c * slots_, w.data() + c * slots_, slots_);
    });
    context_.control.reduce(sums, Reduce::sum);
    parallel_for(k.columns, [&](Index c) {
      for (Index j = 0; j < count; ++j) {
        const double factor = sums[std::size_t(c * count + j)];
        k.h[std::size_t(c)][std::size_t(k.steps * (k.most + 1) + j)] += factor;
        const double* const v = k.v[std::size_t(j)].data() + c * slots_;
        for (Index i = 0; i < slots_; ++i) w[std::size_t(c * slots_ + i)] -= factor * v[i];
      }
    });
  }
}

/// By GMRES: until all columns are done, or it gives up.
template <class B>
void Refiner<B>::refine_group(Index columns, const Values& b, Values& x, const RefineLimits& limits,
                              Refinement& found) {
  const double good = refined_limit(n_) * eps;
  Values error;
  Values r = residual(columns, b, x, error);
  double worst = *std::max_element(error.begin(), error.end());
  for (Index done = 0; worst > good;) {
    if (!std::isfinite(worst)) return void(found.why = "a number is not finite");
    if (done >= limits.krylov)
      return void(found.why = fmt::format("GMRES did not converge in {} steps", limits.krylov));
    Krylov k(columns, slots_, std::min(limits.restart, limits.krylov - done));
    Values start = k.by_columns(r);
    Values lengths = k.norms(context_.control, start), target = lengths;
    for (std::size_t c = 0; c < target.size(); ++c) {
      k.g[c][0] = lengths[c];
      // What the sums of a cycle can tell, or half of what is wanted.
      const double wanted = error[c] > 0 ? 0.5 * good / error[c] : 1;
      target[c] = lengths[c] * std::max(1e-10, std::min(1.0, wanted));
    }
    k.add(std::move(start), lengths);
    const auto reached = [&] {
      for (std::size_t c = 0; c < target.size(); ++c)
        if (!(std::fabs(k.g[c][std::size_t(k.steps)]) <= target[c])) return false;
      return true;
    };
    while (k.steps < k.most && !reached()) {
      Values w = k.by_columns(times(columns, solve_(columns, k.by_rows(k.v.back()))));
      orthogonalize(k, w);
      lengths = k.norms(context_.control, w);
      for (Index c = 0; c < columns; ++c)
        k.h[std::size_t(c)][std::size_t(k.steps * (k.most + 1) + k.steps + 1)] =
            lengths[std::size_t(c)];
      k.add(std::move(w), lengths);
      k.rotate();
    }
    done += k.steps;
    found.krylov += k.steps;
    const Values step = solve_(columns, k.by_rows(k.combined()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += step[i];
    r = residual(columns, b, x, error);
    const double now = *std::max_element(error.begin(), error.end());
    if (now > good && !(now <= worst / 2))
      return void(found.why =
                      fmt::format("the residual stopped falling after {} steps of GMRES", done));
    worst = now;
  }
}

template <class B>
Refinement Refiner<B>::refine(Index right, const Values& b, Values& x, const RefineLimits& limits) {
  Refinement found;
  const double good = refined_limit(n_) * eps;
  Values error, before;
  std::vector<Index> left;
  for (Index i = 0;; ++i) {
    const Values r = residual(right, b, x, error);
    left.clear();
    bool falls = i == 0 || i <= limits.steps;
    for (std::size_t c = 0; c < error.size(); ++c) {
      if (!std::isfinite(error[c])) return found.why = "a number is not finite", found;
      if (error[c] <= good) continue;
      left.push_back(Index(c));
      falls = falls && i < limits.steps && (i == 0 || error[c] <= before[c] / limits.fall);
      found.halves = found.halves && (i == 0 || error[c] <= before[c] / 2);
    }
    if (left.empty() || !falls) break;
    before = error;
    const Values step = solve_(Index(left.size()), columns_of(r, right, left));
    Values some = columns_of(x, right, left);
    for (std::size_t k = 0; k < some.size(); ++k) some[k] += step[k];
    put_columns(some, right, left, x);
    ++found.steps;
  }
  for (std::size_t first = 0; first < left.size(); first += std::size_t(limits.group)) {
    const std::size_t end = std::min(left.size(), first + std::size_t(limits.group));
    const std::vector<Index> group(left.begin() + Index(first), left.begin() + Index(end));
    Values some = columns_of(x, right, group);
    refine_group(Index(group.size()), columns_of(b, right, group), some, limits, found);
    if (!found.why.empty()) return found;
    put_columns(some, right, group, x);
  }
  if (!left.empty()) (void)residual(right, b, x, error);
  found.converged = true;
  for (const double e : error) found.backward_error = std::max(found.backward_error, e);
  return found;
}

#define INSTANTIATE(B) template class Refiner<B>;
TERRACE_FOR_EACH_BACKEND(INSTANTIATE)
#undef INSTANTIATE

}  // namespace terrace::dense
