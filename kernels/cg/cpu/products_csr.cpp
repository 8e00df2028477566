// CSR times vector on the CPU. Bound by memory: 12 bytes a nonzero, 8 a row pointer, 16 a row. Rows
// of up to 8 entries are unrolled whole: a loop's end costs more than its sums there.
#include <cmath>

#include "kernels/cg/cpu/products.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {
namespace {

/// Brings entries of a later row, 1,024 on, past the caches that keep p: rows are short pieces of two
/// streams among those of p, and processors do not bring them early enough (cg.md).
template <class T>
[[gnu::always_inline]] inline void fetch_ahead(const std::int32_t* column, const T* value) {
  constexpr Index far = 1024;
  __builtin_prefetch(value + far, 0, 0);
  __builtin_prefetch(column + far, 0, 0);
}

/// `count` entries in two chains.
template <int count, bool absolute, class T>
[[gnu::always_inline]] inline double few(const std::int32_t* column, const T* value,
                                         const double* p) {
  double s[2] = {};
  for (int c = 0; c < count; ++c) s[c & 1] += entry<absolute>(value[c]) * p[column[c]];
  return s[0] + s[1];
}

template <bool absolute, class T>
[[gnu::always_inline]] inline double tail(const std::int32_t* column, const T* value, Index count,
                                          const double* p) {
  switch (count) {
    case 0:
      return 0;
    case 1:
      return few<1, absolute>(column, value, p);
    case 2:
      return few<2, absolute>(column, value, p);
    case 3:
      return few<3, absolute>(column, value, p);
    case 4:
      return few<4, absolute>(column, value, p);
    case 5:
      return few<5, absolute>(column, value, p);
    case 6:
      return few<6, absolute>(column, value, p);
    case 7:
      return few<7, absolute>(column, value, p);
    default:
      return few<8, absolute>(column, value, p);
  }
}

template <bool absolute, class T>
[[gnu::always_inline]] inline double row_dot(const std::int32_t* column, const T* value,
                                             Index count, const double* p) {
  if (count <= 8) {
    fetch_ahead(column, value);
    return tail<absolute>(column, value, count, p);
  }
  double s[4] = {};
  Index k = 0;
  for (; k + 8 <= count; k += 8) {
    fetch_ahead(column + k, value + k);
    for (int c = 0; c < 8; ++c) s[c & 3] += entry<absolute>(value[k + c]) * p[column[k + c]];
  }
  return ((s[0] + s[1]) + (s[2] + s[3])) + tail<absolute>(column + k, value + k, count - k, p);
}

template <bool absolute, bool listed, class T>
[[gnu::always_inline]] inline Pair rows_of(const CsrRows<Cpu>& m, const T* value, const double* p,
                                           double* q, bool add, Index from, Index to) {
  Pair s;
  const Index* const start = m.start.data;
  for (Index k = from; k < to; ++k) {
    const Index begin = start[k];
    const double v =
        row_dot<absolute>(m.column.data + begin, value + begin, start[k + 1] - begin, p);
    const Index i = listed ? m.row.data[k] : k;
    q[i] = add ? q[i] + v : v;
    s.a += p[i] * v;
    if (!add) s.b += p[i] * p[i];
  }
  return s;
}

TERRACE_VECTOR_CLONES
Pair rows_of_piece(const CsrRows<Cpu>& m, const double* p, double* q, bool add, bool absolute,
                   Index from, Index to) {
  const double* const v = m.value.data;
  if (absolute)
    return m.row.size > 0 ? rows_of<true, true>(m, v, p, q, add, from, to)
                          : rows_of<true, false>(m, v, p, q, add, from, to);
  return m.row.size > 0 ? rows_of<false, true>(m, v, p, q, add, from, to)
                        : rows_of<false, false>(m, v, p, q, add, from, to);
}
TERRACE_VECTOR_CLONES
Pair rows_of_heads(const CsrRows<Cpu>& m, const double* p, double* q, bool add, Index from,
                   Index to) {
  const std::uint32_t* const v = m.head.data;
  return m.row.size > 0 ? rows_of<false, true>(m, v, p, q, add, from, to)
                        : rows_of<false, false>(m, v, p, q, add, from, to);
}

}  // namespace

void multiply(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, const double* p,
              View<double, Cpu> q, const SumTarget<Cpu>& sums, bool absolute, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    sum_pieces(m.rows(), piece_grain(m.rows(), 1024), sums, [&](Index from, Index to) {
      return m.head.size > 0 ? rows_of_heads(m, p, q.data, sums.add, from, to)
                             : rows_of_piece(m, p, q.data, sums.add, absolute, from, to);
    });
  });
}

bool multiply_short_rows(const Stream<Cpu>&, const CsrRows<Cpu>&, const double*, View<double, Cpu>,
                         const double*) {
  return false;
}

}  // namespace terrace::cg
