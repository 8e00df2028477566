// Preconditioners on the CPU. Bound by memory: the blocks 4 (b + 2) + 16 bytes per row, the factor 12
// bytes an entry twice, a Chebyshev pass 64 bytes per row.
#include "kernels/cg/preconditioner.hpp"

#include <algorithm>

#include "kernels/base/cpu/sums.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

constexpr Index grain = 4096;

bool skipped(const double* skip) { return skip && *skip != 0; }

// z = M r for one block of h rows; z has a stride, r is gathered twice in a row.
TERRACE_VECTOR_CLONES
void multiply_block(Index h, const double* m, const double* r, double* z) {
  double mine[2 * most_block], other[2 * most_block];
  for (Index i = 0; i < 2 * h; ++i) other[i] = 0;
  for (Index i = 0; i < h; ++i) mine[i] = m[i] * r[i];
  const Index pairs = (h - 1) / 2;
  for (Index d = 1; d <= pairs; ++d) {
    const double* const row = m + d * h;
    for (Index i = 0; i < h; ++i) mine[i] += row[i] * r[i + d];
    for (Index i = 0; i < h; ++i) other[i + d] += row[i] * r[i];
  }
  if (h % 2 == 0) {
    const double* const row = m + h / 2 * h;
    for (Index i = 0; i < h; ++i) mine[i] += row[i] * r[i + h / 2];
  }
  for (Index i = 0; i < h; ++i) z[i] = mine[i] + (other[i] + other[i + h]);
}

}  // namespace

void multiply_blocks(const Stream<Cpu>& stream, const DiagonalBlocks<Cpu>& blocks, Index columns,
                     View<const double, Cpu> r, View<double, Cpu> z, const double* skip) {
  stream.run([=] {
    if (skipped(skip)) return;
    const Index b = blocks.block;
    const Index few = std::max<Index>(1, grain / b);
    parallel_ranges(ceil_div(blocks.rows, b), few, [&](Index from, Index to) {
      double twice[2 * most_block], result[most_block];
      for (Index k = from; k < to; ++k) {
        const Index h = std::min(b, blocks.rows - k * b);
        const double* const m = blocks.value.data + k * DiagonalBlocks<Cpu>::stride(b);
        for (Index c = 0; c < columns; ++c) {
          for (Index i = 0; i < h; ++i) twice[i] = twice[i + h] = r.data[(k * b + i) * columns + c];
          multiply_block(h, m, twice, result);
          for (Index i = 0; i < h; ++i) z.data[(k * b + i) * columns + c] = result[i];
        }
      }
    });
  });
}

// --- triangles -----------------------------------------------------------------------------------

namespace {

// One row of a triangular solve: x = (r - L x) / diagonal.
inline void solve_row(const TriangleView<Cpu>& t, double inverse, Index i, Index columns,
                      const double* r, const double* known, double* x) {
  const Index from = t.start.data[i], to = t.start.data[i + 1];
  if (columns == 1) {
    double sum = *r;
    for (Index e = from; e < to; ++e) sum -= t.value.data[e] * known[t.column.data[e]];
    *x = sum * inverse;
    return;
  }
  for (Index c = 0; c < columns; ++c) x[c] = r[c];
  for (Index e = from; e < to; ++e) {
    const double value = t.value.data[e];
    const double* const row = known + t.column.data[e] * columns;
    for (Index c = 0; c < columns; ++c) x[c] -= value * row[c];
  }
  for (Index c = 0; c < columns; ++c) x[c] *= inverse;
}

void solve_in_order(const FactorView<Cpu>& f, Index k, const double* r, double* z) {
  const Index n = f.rows();
  const double* const inverse = f.inverse_diagonal.data;
  double* const y = f.y.data;
  for (Index i = 0; i < n; ++i) solve_row(f.lower, inverse[i], i, k, r + i * k, y, y + i * k);
  for (Index i = n; i-- > 0;) solve_row(f.upper, inverse[i], i, k, y + i * k, z, z + i * k);
}

void solve_by_level(const FactorView<Cpu>& f, Index k, const double* r, double* z,
                    const Team& team) {
  const double* const inverse = f.inverse_diagonal.data;
  const std::int32_t* const order = f.order.data;
  double *const y = f.y.data, *const x = f.x.data;
  const Index levels = f.level.size - 1;
  const auto share = [&](Index level, const auto& row) {  // 8 rows share a cache line
    const Index first = f.level.data[level], count = f.level.data[level + 1] - first;
    const Index each = round_up(ceil_div(count, team.size), 8);
    const Index from = std::min(count, each * team.rank), to = std::min(count, from + each);
    for (Index i = first + from; i < first + to; ++i) row(i);
    team.barrier();
  };
  for (Index l = 0; l < levels; ++l)
    share(l,
          [&](Index i) { solve_row(f.lower, inverse[i], i, k, r + order[i] * k, y, y + i * k); });
  for (Index l = levels; l-- > 0;)
    share(l, [&](Index i) {
      solve_row(f.upper, inverse[i], i, k, y + i * k, x, x + i * k);
      for (Index c = 0; c < k; ++c) z[order[i] * k + c] = x[i * k + c];
    });
}

}  // namespace

namespace {

/// Threads of a solve by level: each gets 512 rows a level or more, some 5 us, against the barrier.
Index solve_threads(Index rows, Index levels) {
  return std::min<Index>(thread_count(), rows / (512 * std::max<Index>(1, levels)));
}

}  // namespace

bool wants_levels(Cpu, Index rows, Index levels) { return solve_threads(rows, levels) > 1; }

void prepare_solve(const Stream<Cpu>&, const FactorView<Cpu>&) {}

void solve_factor(const Stream<Cpu>& stream, const FactorView<Cpu>& factor, Index columns,
                  View<const double, Cpu> r, View<double, Cpu> z, const double* skip) {
  stream.run([=] {
    if (skipped(skip)) return;
    if (factor.order.size == 0)
      solve_in_order(factor, columns, r.data, z.data);
    else
      parallel_team(
          std::max<Index>(1, solve_threads(factor.rows(), factor.level.size - 1)),
          [&](const Team& team) { solve_by_level(factor, columns, r.data, z.data, team); });
  });
}

// --- Chebyshev polynomial ------------------------------------------------------------------------

namespace {

TERRACE_VECTOR_CLONES
void start_range(double factor, Index k, const double* s, const double* r, double* d, double* z,
                 Index from, Index to) {
  if (k == 1) {
    for (Index i = from; i < to; ++i) d[i] = factor * (s[i] * r[i]);
  } else {
    for (Index i = from; i < to; ++i)
      for (Index c = 0; c < k; ++c) d[i * k + c] = factor * (s[i] * r[i * k + c]);
  }
  for (Index i = from * k; z && i < to * k; ++i) z[i] = d[i];
}

TERRACE_VECTOR_CLONES
void step_range(double a, double b, Index k, const double* s, const double* before, const double* q,
                double* rest, double* d, double* z, bool first, Index from, Index to) {
  for (Index i = from * k; i < to * k; ++i) rest[i] = before[i] - q[i];
  for (Index i = from * k; first && i < to * k; ++i) z[i] = d[i];
  if (k == 1) {
    for (Index i = from; i < to; ++i) d[i] = a * d[i] + b * (s[i] * rest[i]);
  } else {
    for (Index i = from; i < to; ++i)
      for (Index c = 0; c < k; ++c) d[i * k + c] = a * d[i * k + c] + b * (s[i] * rest[i * k + c]);
  }
  for (Index i = from * k; i < to * k; ++i) z[i] += d[i];
}

TERRACE_VECTOR_CLONES
void correct_range(double factor, Index k, const double* s, const double* q, double* rest,
                   double* d, double* z, Index from, Index to) {
  for (Index i = from * k; i < to * k; ++i) rest[i] -= q[i];
  for (Index i = from * k; i < to * k; ++i) z[i] += d[i];
  if (k == 1) {
    for (Index i = from; i < to; ++i) d[i] = factor * (s[i] * rest[i]);
  } else {
    for (Index i = from; i < to; ++i)
      for (Index c = 0; c < k; ++c) d[i * k + c] = factor * (s[i] * rest[i * k + c]);
  }
  for (Index i = from * k; i < to * k; ++i) z[i] += d[i];
}

}  // namespace

void chebyshev_start(const Stream<Cpu>& stream, double factor, Index columns,
                     View<const double, Cpu> inverse_diagonal, View<const double, Cpu> r,
                     View<double, Cpu> d, View<double, Cpu> z, const double* skip) {
  stream.run([=] {
    if (skipped(skip)) return;
    parallel_ranges(inverse_diagonal.size, 2048, [&](Index from, Index to) {
      start_range(factor, columns, inverse_diagonal.data, r.data, d.data, z.data, from, to);
    });
  });
}

void chebyshev_step(const Stream<Cpu>& stream, double a, double b, Index columns,
                    View<const double, Cpu> inverse_diagonal, View<const double, Cpu> from,
                    View<const double, Cpu> q, View<double, Cpu> rest, View<double, Cpu> d,
                    View<double, Cpu> z, const ChebyshevStep& which, const double* skip) {
  stream.run([=] {
    if (skipped(skip)) return;
    parallel_ranges(inverse_diagonal.size, 2048, [&](Index begin, Index end) {
      step_range(a, b, columns, inverse_diagonal.data, from.data, q.data, rest.data, d.data, z.data,
                 which.first, begin, end);
    });
  });
}

void chebyshev_correct(const Stream<Cpu>& stream, double factor, Index columns,
                       View<const double, Cpu> inverse_diagonal, View<const double, Cpu> q,
                       View<double, Cpu> rest, View<double, Cpu> d, View<double, Cpu> z,
                       const double* skip) {
  stream.run([=] {
    if (skipped(skip)) return;
    parallel_ranges(inverse_diagonal.size, 2048, [&](Index begin, Index end) {
      correct_range(factor, columns, inverse_diagonal.data, q.data, rest.data, d.data, z.data,
                    begin, end);
    });
  });
}

}  // namespace terrace::cg
