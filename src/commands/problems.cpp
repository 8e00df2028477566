#include "src/commands/problems.hpp"

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/base/parallel.hpp"

namespace terrace {

namespace {

constexpr Index rows_a_piece = 4;

/// From 1 to 1 / condition, evenly on a logarithmic scale.
double graded(Index i, Index n, double condition) {
  return n < 2 ? 1.0 : std::pow(condition, -double(i) / double(n - 1));
}

std::vector<double> unit_vector(Word seed, Index n) {
  std::vector<double> v(static_cast<std::size_t>(n));
  double sum = 0;
  for (Index i = 0; i < n; ++i) {
    v[std::size_t(i)] = random_uniform(seed, i, 0);
    sum += v[std::size_t(i)] * v[std::size_t(i)];
  }
  for (double& x : v) x /= std::sqrt(sum);
  return v;
}

/// i -> (i * step + shift) % n, a permutation of [0, n).
struct Shuffle {
  Index n = 1, step = 1, shift = 0;
  Shuffle(Word seed, Index size) : n(std::max<Index>(1, size)) {
    step = std::max<Index>(1, Index(double(n) * 0.6180339887));
    while (std::gcd(step, n) != 1) ++step;
    shift = Index(mix(seed) % Word(n));
  }
  [[nodiscard]] Index operator()(Index i) const {
    return Index((Word(i) * Word(step) + Word(shift)) % Word(n));  // n < 2^32
  }
};

/// Rows in parallel.
template <class F>
void each_row(Range rows, const F& row) {
  parallel_ranges(rows.count, rows_a_piece, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) row(rows.first + i, i);
  });
}

}  // namespace

DenseProblem dense_random(Word seed, Index n) {
  return {n, [=](Range rows, double* out) {
            each_row(rows, [=](Index i, Index slot) {
              for (Index j = 0; j < n; ++j) out[slot * n + j] = random_uniform(seed, i, j);
            });
          }};
}

DenseProblem dense_condition(Word seed, Index n, double condition) {
  struct Vectors {
    std::vector<double> s, u, v, a, b;
  };
  const auto w = std::make_shared<Vectors>();
  w->u = unit_vector(seed + 1, n);
  w->v = unit_vector(seed + 2, n);
  double product = 0;  // u^T S v
  for (Index i = 0; i < n; ++i) {
    w->s.push_back(graded(i, n, condition));
    product += w->u[std::size_t(i)] * w->s.back() * w->v[std::size_t(i)];
  }
  for (std::size_t i = 0; i < std::size_t(n); ++i) {
    w->a.push_back(2 * w->s[i] * w->u[i] - 4 * product * w->v[i]);
    w->b.push_back(2 * w->s[i] * w->v[i]);
  }
  const Shuffle shuffle(seed, n);
  return {n, [=](Range rows, double* out) {
            each_row(rows, [&](Index i, Index slot) {
              const double ui = w->u[std::size_t(i)], bi = w->b[std::size_t(i)];
              for (Index j = 0; j < n; ++j)
                out[slot * n + shuffle(j)] = (i == j ? w->s[std::size_t(i)] : 0.0) -
                                             ui * w->a[std::size_t(j)] - bi * w->v[std::size_t(j)];
            });
          }};
}

DenseProblem dense_spd(Word seed, Index n, double condition) {
  struct Vectors {
    std::vector<double> d, v, w;
  };
  const auto p = std::make_shared<Vectors>();
  p->v = unit_vector(seed + 1, n);
  double product = 0;  // v^T D v
  for (Index i = 0; i < n; ++i) {
    p->d.push_back(graded(i, n, condition));
    product += p->d.back() * p->v[std::size_t(i)] * p->v[std::size_t(i)];
  }
  for (std::size_t i = 0; i < std::size_t(n); ++i)
    p->w.push_back(2 * (p->d[i] - product) * p->v[i]);
  return {n, [=](Range rows, double* out) {
            each_row(rows, [&](Index row, Index slot) {
              for (Index column = 0; column < n; ++column) {
                // The same operations for (i, j) and (j, i): symmetric to the last bit.
                const auto i = std::size_t(std::max(row, column));
                const auto j = std::size_t(std::min(row, column));
                const double first = p->v[i] * p->w[j], second = p->w[i] * p->v[j];
                out[slot * n + column] = (i == j ? p->d[i] : 0.0) - (first + second);
              }
            });
          }};
}

BandProblemFormula band_spd(Word seed, Index n, Index half_bandwidth, double condition) {
  if (condition <= 1)
    return {n, half_bandwidth,
            [=](Index i, Index j) { return band_spd_entry(seed, n, half_bandwidth, i, j); }};
  return {n, half_bandwidth, [=](Index i, Index j) {
            const double scale =
                graded(i, n, std::sqrt(condition)) * graded(j, n, std::sqrt(condition));
            return scale * band_spd_entry(seed, n, half_bandwidth, i, j);
          }};
}

BandProblemFormula band_laplace(Index n, Index points) {
  return {n, points, [=](Index i, Index j) {
            if (i == j) return 4.0;
            if (i - j == points) return -1.0;
            return i - j == 1 && i % points != 0 ? -1.0 : 0.0;
          }};
}

Index CsrLaplace::entries_before(Index i) const {
  const Index p = points, plane = p * p;
  // For each neighbour: the rows before i that have it.
  const Index left = i - ceil_div(i, p), right = i - i / p;
  const Index planes = i / plane, rest = i % plane;
  const Index down = planes * (plane - p) + std::max<Index>(0, rest - p);
  const Index up = planes * (plane - p) + std::min(rest, plane - p);
  Index total = i + left + right + down + up;
  if (dim == 3) total += std::max<Index>(0, i - plane) + std::min(i, n() - plane);
  return total;
}

int CsrLaplace::row(Index i, Index* columns, double* values) const {
  const Index p = points, plane = p * p;
  const Index x = i % p, y = i / p % p, z = i / plane;
  int count = 0;
  const auto put = [&](bool there, Index column, double value) {
    if (!there) return;
    columns[count] = column;
    values[count++] = value;
  };
  put(dim == 3 && z > 0, i - plane, -1);
  put(y > 0, i - p, -1);
  put(x > 0, i - 1, -1);
  put(true, i, 2.0 * dim);
  put(x < p - 1, i + 1, -1);
  put(y < p - 1, i + p, -1);
  put(dim == 3 && z < p - 1, i + plane, -1);
  return count;
}

namespace {
Word last_word_mask(Index columns) {
  return columns % 64 == 0 ? ~Word(0) : ~(~Word(0) << (columns % 64));
}
}  // namespace

BitProblem gf2_random(Word seed, Index rows, Index columns, double density) {
  const Index words = ceil_div(columns, 64);
  const Word mask = last_word_mask(columns);
  return {rows, columns, [=](Range range, Word* out) {
            each_row(range, [=](Index i, Index slot) {
              for (Index w = 0; w < words; ++w)
                out[slot * words + w] = random_sparse_word(seed, i, w, density);
              if (words > 0) out[slot * words + words - 1] &= mask;
            });
          }};
}

BitProblem gf2_rank(Word seed, Index rows, Index columns, Index rank) {
  const Index words = ceil_div(columns, 64);
  const Word mask = last_word_mask(columns);
  const Shuffle shuffle(seed, rows);
  // Adds row t of R: zero before its pivot, one there, random after it.
  const auto add = [=](Index t, Word* to) {
    const Index pivot = gf2_rank_pivot(columns, rank, t), first = pivot / 64;
    const Word one = Word(1) << (pivot % 64);
    to[first] ^= (random_word(seed, t, first) & ~(one | (one - 1))) | one;
    for (Index w = first + 1; w < words; ++w) to[w] ^= random_word(seed, t, w);
  };
  return {rows, columns, [=](Range range, Word* out) {
            each_row(range, [&](Index i, Index slot) {
              constexpr Index terms = 12;
              Word* to = out + slot * words;
              std::fill(to, to + words, Word(0));
              const Index s = shuffle(i), choices = std::min(s, rank);
              if (s < rank) add(s, to);
              for (Index k = 0; k < terms && choices > 0; ++k)
                add(Index(random_word(seed + 1, s, k) % Word(choices)), to);
              if (words > 0) to[words - 1] &= mask;
            });
          }};
}

}  // namespace terrace
