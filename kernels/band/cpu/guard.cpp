// Check sums of tile columns on the CPU. Roofline: a tile column is read from the cache where it
// was just factored, groups of its columns twice; 4 flops an entry, beside the half-bandwidth in
// flops that its updates take.
#include "kernels/band/guard.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/cpu/simd.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index group = 8;  // columns that are read together

template <Index lanes>
struct Of;
template <>
struct Of<8> {
  typedef double Vector __attribute__((vector_size(64), aligned(8), may_alias));
  typedef Word Bits __attribute__((vector_size(64), aligned(8), may_alias));
};
template <>
struct Of<4> {
  typedef double Vector __attribute__((vector_size(32), aligned(8), may_alias));
  typedef Word Bits __attribute__((vector_size(32), aligned(8), may_alias));
};

template <Index lanes>
TERRACE_INLINE void absolute(typename Of<lanes>::Vector& x) {
  using Bits = typename Of<lanes>::Bits;
  const Bits bits = reinterpret_cast<const Bits&>(x) & ~(Word(1) << 63);
  x = reinterpret_cast<const typename Of<lanes>::Vector&>(bits);
}

/// `columns` columns of `count` entries, `ld` apart, against the weights beside them: column c
/// against w + c.
struct Dots {
  const double *columns, *w;
  Index count, ld, size_of;
  double *sum, *size;
};
template <Index lanes, bool sizes, Index columns>
TERRACE_INLINE void dots(const Dots& p, Index c0) {
  using Vector = typename Of<lanes>::Vector;
  Vector s[columns] = {}, z[columns] = {};
  Index d = 0;
  for (; d + lanes <= p.count; d += lanes)
    for (Index c = 0; c < columns; ++c) {
      Vector a = *reinterpret_cast<const Vector*>(p.columns + (c0 + c) * p.ld + d);
      const Vector w = *reinterpret_cast<const Vector*>(p.w + c0 + c + d);
      if constexpr (sizes) {
        a *= w;
        s[c] += a;
        absolute<lanes>(a);
        z[c] += a;
      } else {
        s[c] += a * w;
      }
    }
  for (Index c = 0; c < columns; ++c) {
    double sum = 0, size = 0;
    for (Index e = d; e < p.count; ++e) {
      const double term = p.columns[(c0 + c) * p.ld + e] * p.w[c0 + c + e];
      sum += term;
      if constexpr (sizes) size += std::fabs(term);
    }
    for (Index l = 0; l < lanes; ++l) {
      sum += s[c][l];
      if constexpr (sizes) size += z[c][l];
    }
    p.sum[c0 + c] += sum;
    if constexpr (sizes) p.size[c0 + c] += size;
  }
}
template <Index lanes>
TERRACE_INLINE void dots_body(const Dots& p) {
  Index c = 0;
  for (; c + 4 <= p.size_of; c += 4)
    if (p.size)
      dots<lanes, true, 4>(p, c);
    else
      dots<lanes, false, 4>(p, c);
  for (; c < p.size_of; ++c)
    if (p.size)
      dots<lanes, true, 1>(p, c);
    else
      dots<lanes, false, 1>(p, c);
}

/// Rows [from, to) of a tile column, counted from its first diagonal entry, of `columns` of its
/// columns; entry (i, c) is base[c * ld + i].
struct Rows {
  const double* base;
  Index ld, from, to;
  double x[group], x_size[group];
  Index columns;
  double *sum, *size;
};
template <Index lanes, bool sizes, Index columns>
TERRACE_INLINE void add_columns(const Rows& p, Index c0) {
  using Vector = typename Of<lanes>::Vector;
  Index i = p.from;
  for (; i + lanes <= p.to; i += lanes) {
    Vector& sum = *reinterpret_cast<Vector*>(p.sum + i);
    Vector s = sum, z = {};
    if constexpr (sizes) z = *reinterpret_cast<const Vector*>(p.size + i);
    for (Index c = 0; c < columns; ++c) {
      Vector a = *reinterpret_cast<const Vector*>(p.base + (c0 + c) * p.ld + i);
      s += a * p.x[c0 + c];
      if constexpr (sizes) {
        absolute<lanes>(a);
        z += a * p.x_size[c0 + c];
      }
    }
    sum = s;
    if constexpr (sizes) *reinterpret_cast<Vector*>(p.size + i) = z;
  }
  for (; i < p.to; ++i)
    for (Index c = c0; c < c0 + columns; ++c) {
      const double a = p.base[c * p.ld + i];
      p.sum[i] += a * p.x[c];
      if constexpr (sizes) p.size[i] += std::fabs(a) * p.x_size[c];
    }
}
template <Index lanes>
TERRACE_INLINE void rows_body(const Rows& p) {
  if (p.columns == group)
    return p.size ? add_columns<lanes, true, group>(p, 0) : add_columns<lanes, false, group>(p, 0);
  for (Index c = 0; c < p.columns; ++c)
    if (p.size)
      add_columns<lanes, true, 1>(p, c);
    else
      add_columns<lanes, false, 1>(p, c);
}

#if defined(__x86_64__)
#define TERRACE_BY_LEVEL(name, body, Parameter)                                            \
  __attribute__((target("avx512f,avx2,fma"))) void name##_avx512(const Parameter& p) {     \
    body<8>(p);                                                                            \
  }                                                                                        \
  __attribute__((target("avx2,fma"))) void name##_avx2(const Parameter& p) { body<4>(p); } \
  void name(const Parameter& p) {                                                          \
    if (simd::level() == simd::Level::avx512) return name##_avx512(p);                     \
    if (simd::level() == simd::Level::avx2 && __builtin_cpu_supports("fma"))               \
      return name##_avx2(p);                                                               \
    body<4>(p);                                                                            \
  }
#else
#define TERRACE_BY_LEVEL(name, body, Parameter) \
  void name(const Parameter& p) { body<4>(p); }
#endif
TERRACE_BY_LEVEL(columns_times_weights, dots_body, Dots)
TERRACE_BY_LEVEL(add_rows, rows_body, Rows)

/// Columns [begin, end) of one tile column.
struct Piece {
  const BandShape& s;
  const double* tile;
  Index top, begin, end;
};

void weigh_columns(const Piece& p, Index from, const GuardSums& to) {
  const Index j = p.top + p.begin, height = p.s.half_bandwidth + 1 - from;
  if (height > 0)
    columns_times_weights({p.tile + p.begin * p.s.column() + from, to.w + j + from, height,
                           p.s.column(), p.end - p.begin, to.t + j,
                           to.t_size ? to.t_size + j : nullptr});
}

/// Rows [from, to) of them.
void weigh_rows(const Piece& p, Index from, Index to, double alpha, const GuardSums& sums) {
  const Index height = p.s.half_bandwidth + 1;
  for (Index c = p.begin; c < p.end; c += group) {
    const Index columns = std::min(group, p.end - c);
    Rows r{};
    r.ld = p.s.reach;
    r.sum = sums.sum + p.top;
    r.size = sums.size ? sums.size + p.top : nullptr;
    const auto add = [&](Index t, Index count, Index first, Index last) {
      if (first >= last) return;
      r.base = p.tile + (c + t) * r.ld;
      r.columns = count;
      r.from = first;
      r.to = last;
      for (Index q = 0; q < count; ++q) {
        r.x[q] = alpha * sums.x[p.top + c + t + q];
        if (r.size) r.x_size[q] = std::fabs(sums.x_size[p.top + c + t + q]);
      }
      add_rows(r);
    };
    // Rows that all the columns have, and column by column those before and behind.
    const Index first = std::clamp(c + columns - 1, from, to);
    const Index last = std::clamp(c + height, first, to);
    for (Index t = 0; t < columns; ++t) {
      add(t, 1, std::max(from, c + t), std::min(first, c + t + height));
      add(t, 1, std::max(last, c + t), std::min(to, c + t + height));
    }
    add(0, columns, first, last);
  }
}

}  // namespace

void weigh_band(const Stream<Cpu>& stream, GuardTiles<Cpu> a, Index from, double alpha,
                GuardSums to) {
  const BandShape& s = a.shape;
  const Index rows = s.width + s.half_bandwidth;
  stream.run([=] {
    for (Index q = 0; q < a.count; ++q) {
      const double* const tile = a.data + q * s.tile();
      const Index top = (a.first + q * a.step) * s.width;
      if (thread_count() == 1) {
        for (Index c = 0; c < s.width; c += group) {
          const Piece piece{s, tile, top, c, std::min(c + group, s.width)};
          weigh_columns(piece, from, to);
          weigh_rows(piece, c, rows, alpha, to);
        }
        continue;
      }
      parallel_ranges(s.width, group, [&](Index begin, Index end) {
        weigh_columns({s, tile, top, begin, end}, from, to);
      });
      parallel_ranges(rows, 512, [&](Index begin, Index end) {
        weigh_rows({s, tile, top, 0, s.width}, begin, end, alpha, to);
      });
    }
  });
}

void draw_weights(const Stream<Cpu>& stream, GuardTiles<Cpu> a, double* w) {
  stream.run([=] {
    const BandShape& s = a.shape;
    parallel_for(a.count, [&](Index q) {
      const Index top = (a.first + q * a.step) * s.width;
      for (Index c = 0; c < s.width; ++c)
        w[top + c] = band_weight(a.data[q * s.tile() + c * s.column()], top + c);
    });
  });
}
void judge_band_rows(const Stream<Cpu>& stream, Index from, Index to, const double* w,
                     const double* sum, const double* size, double tolerance, double least,
                     Index* bad) {
  stream.run([=] {
    *bad = to;
    for (Index i = from; i < to; ++i) {
      const double bound = tolerance * (size ? size[i] : 1 / std::fabs(w[i])) + least;
      if (w[i] == 0 || std::fabs(sum[i]) <= bound) continue;
      *bad = i;
      return;
    }
  });
}

}  // namespace terrace::band
