// Check sums of tile columns on the CPU. Roofline: a tile column is read twice, from cache where it
// was just factored; 8 flops an entry, beside the half-bandwidth in flops that its update takes.
#include "kernels/band_guard.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd.hpp"
#include "kernels/parallel.hpp"

namespace terrace {
namespace {

typedef double Vector __attribute__((vector_size(64), aligned(8), may_alias));
typedef Word Bits __attribute__((vector_size(64), aligned(8), may_alias));
constexpr Index lanes = 8;

TERRACE_INLINE void load(Vector& to, const double* from) {
  to = *reinterpret_cast<const Vector*>(from);
}
TERRACE_INLINE void absolute(Vector& x) {
  const Bits bits = reinterpret_cast<const Bits&>(x) & ~(Word(1) << 63);
  x = reinterpret_cast<const Vector&>(bits);
}

/// One column, against the weights beside it.
struct Dot {
  const double *column, *w;
  Index count;
  double *sum, *size;
};
template <simd::Level>
TERRACE_INLINE void dot_body(const Dot& p) {
  Vector s[2] = {}, z[2] = {};
  Index d = 0;
  for (; d + 2 * lanes <= p.count; d += 2 * lanes)
    for (Index q = 0; q < 2; ++q) {
      Vector a, w;
      load(a, p.column + d + q * lanes);
      load(w, p.w + d + q * lanes);
      a *= w;
      s[q] += a;
      absolute(a);
      z[q] += a;
    }
  double sum = 0, size = 0;
  for (; d < p.count; ++d) {
    const double term = p.column[d] * p.w[d];
    sum += term;
    size += std::fabs(term);
  }
  s[0] += s[1];
  z[0] += z[1];
  for (Index l = 0; l < lanes; ++l) sum += s[0][l], size += z[0][l];
  *p.sum += sum;
  *p.size += size;
}
TERRACE_MULTIVERSION(dot, dot_body, Dot)

/// `columns` columns of one tile column: rows [from, to) of it, counted from its first diagonal
/// entry; entry (i, c) is base[c * ld + i].
struct Rows {
  const double* base;
  Index ld, from, to;
  double x[4], x_size[4];
  Index columns;
  double *sum, *size;
};
template <Index columns>
TERRACE_INLINE void add_columns(const Rows& p) {
  Index i = p.from;
  for (; i + lanes <= p.to; i += lanes) {
    Vector sum, size;
    load(sum, p.sum + i);
    load(size, p.size + i);
    for (Index c = 0; c < columns; ++c) {
      Vector a;
      load(a, p.base + c * p.ld + i);
      sum += a * p.x[c];
      absolute(a);
      size += a * p.x_size[c];
    }
    *reinterpret_cast<Vector*>(p.sum + i) = sum;
    *reinterpret_cast<Vector*>(p.size + i) = size;
  }
  for (; i < p.to; ++i)
    for (Index c = 0; c < columns; ++c) {
      const double a = p.base[c * p.ld + i];
      p.sum[i] += a * p.x[c];
      p.size[i] += std::fabs(a) * p.x_size[c];
    }
}
template <simd::Level>
TERRACE_INLINE void rows_body(const Rows& p) {
  if (p.columns == 4) return add_columns<4>(p);
  for (Index c = 0; c < p.columns; ++c) {
    Rows one = p;
    one.base = p.base + c * p.ld;
    one.x[0] = p.x[c];
    one.x_size[0] = p.x_size[c];
    add_columns<1>(one);
  }
}
TERRACE_MULTIVERSION(rows_of_columns, rows_body, Rows)

}  // namespace

void weigh_band_columns(const Stream<Cpu>& stream, GuardTiles<Cpu> a, Index from, const double* w,
                        double* sum, double* size) {
  const BandShape& s = a.shape;
  const Index height = s.half_bandwidth + 1 - from;
  if (a.count <= 0 || height <= 0) return;
  stream.run([=] {
    parallel_ranges(a.count * s.width, 16, [&](Index begin, Index end) {
      for (Index c = begin; c < end; ++c) {
        const Index j = (a.first + c / s.width * a.step) * s.width + c % s.width;
        dot({a.data + c * s.column() + from, w + j + from, height, sum + j, size + j});
      }
    });
  });
}

void weigh_band_rows(const Stream<Cpu>& stream, GuardTiles<Cpu> a, double alpha, const double* x,
                     const double* x_size, double* sum, double* size) {
  const BandShape& s = a.shape;
  const Index height = s.half_bandwidth + 1;
  constexpr Index piece = 512;
  if (a.count <= 0) return;
  stream.run([=] {
    for (Index q = 0; q < a.count; ++q) {
      const double* const tile = a.data + q * s.tile();
      const Index top = (a.first + q * a.step) * s.width;
      parallel_ranges(s.width + height - 1, piece, [&](Index from, Index to) {
        for (Index c = 0; c < s.width;) {
          Rows p{tile + c * s.reach, s.reach, 0, 0, {}, {}, 1, sum + top, size + top};
          // Rows that all columns of a group have, and before and after them column by column.
          const Index group = std::min<Index>(4, s.width - c), last = c + group - 1;
          const Index first = std::clamp(last, from, to), end = std::clamp(c + height, first, to);
          const auto set = [&](Index at, Index column) {
            p.x[at] = alpha * x[top + column];
            p.x_size[at] = std::fabs(x_size[top + column]);
          };
          for (Index t = 0; t < group; ++t) {
            set(0, c + t);
            p.base = tile + (c + t) * s.reach;
            p.columns = 1;
            p.from = std::max(from, c + t);
            p.to = std::min(first, c + t + height);
            if (p.from < p.to) rows_of_columns(p);
            p.from = std::max(end, c + t);
            p.to = std::min(to, c + t + height);
            if (p.from < p.to) rows_of_columns(p);
          }
          for (Index t = 0; t < group; ++t) set(t, c + t);
          p.base = tile + c * s.reach;
          p.columns = group;
          p.from = first;
          p.to = end;
          if (first < end) rows_of_columns(p);
          c += group;
        }
      });
    }
  });
}

void judge_band_rows(const Stream<Cpu>& stream, Index from, Index to, const double* sum,
                     const double* size, double tolerance, double least, Index* bad) {
  stream.run([=] {
    bad[0] = bad[1] = to;
    for (Index i = from; i < to; ++i) {
      if (!std::isfinite(sum[i]))
        bad[1] = std::min(bad[1], i);
      else if (std::fabs(sum[i]) > tolerance * size[i] + least)
        bad[0] = std::min(bad[0], i);
    }
  });
}

}  // namespace terrace
