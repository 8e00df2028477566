// The textbook's inversion in one thread.
#include "kernels/dense/textbook.hpp"

#include <algorithm>
#include <cmath>

namespace terrace::dense::textbook {

namespace {

/// to[j] -= factor * from[j].
void subtract(Index count, double factor, const double* from, double* to) {
  for (Index j = 0; j < count; ++j) to[j] -= factor * from[j];
}

}  // namespace

template <>
void begin(const Stream<Cpu>& stream, const System<Cpu>& s) {
  stream.run([s] {
    std::fill_n(s.x.data, s.n * s.n, 0.0);
    for (Index i = 0; i < s.n; ++i) s.x.data[i * s.n + i] = 1;
    s.info.data[0] = -1;
    s.info.data[1] = 0;
  });
}

template <>
void choose_pivot(const Stream<Cpu>& stream, const System<Cpu>& s, Index k) {
  stream.run([s, k] {
    Index row = k;
    double most = std::fabs(s.a.data[k * s.n + k]);
    for (Index i = k + 1; i < s.n && !std::isnan(most); ++i) {
      const double value = std::fabs(s.a.data[i * s.n + k]);
      if (!(value <= most)) {
        row = i;
        most = value;
      }
    }
    s.pivot_row.data[k] = row;
    s.pivot.data[k] = s.a.data[row * s.n + k];
    if (s.info.data[0] < 0 && !(most > 0 && std::isfinite(most))) {
      s.info.data[0] = k;
      s.info.data[1] = most == 0 ? 1 : 2;
    }
  });
}

template <>
void exchange_rows(const Stream<Cpu>& stream, const System<Cpu>& s, Index k) {
  stream.run([s, k] {
    const Index row = s.pivot_row.data[k];
    if (row == k) return;
    for (double* const m : {s.a.data, s.x.data})
      std::swap_ranges(m + k * s.n, m + (k + 1) * s.n, m + row * s.n);
  });
}

template <>
void subtract_below(const Stream<Cpu>& stream, const System<Cpu>& s, Index k) {
  stream.run([s, k] {
    const double* const row = s.a.data + k * s.n;
    for (Index i = k + 1; i < s.n; ++i) {
      double* const other = s.a.data + i * s.n;
      const double factor = other[k] / row[k];
      subtract(s.n - k - 1, factor, row + k + 1, other + k + 1);
      subtract(s.n, factor, s.x.data + k * s.n, s.x.data + i * s.n);
    }
  });
}

template <>
void clear_below(const Stream<Cpu>& stream, const System<Cpu>& s, Index k) {
  stream.run([s, k] {
    for (Index i = k + 1; i < s.n; ++i) s.a.data[i * s.n + k] = 0;
  });
}

template <>
void subtract_above(const Stream<Cpu>& stream, const System<Cpu>& s, Index k) {
  stream.run([s, k] {
    const double* const row = s.a.data + k * s.n;
    for (Index i = k - 1; i >= 0; --i) {
      double* const other = s.a.data + i * s.n;
      const double factor = other[k] / row[k];
      subtract(k, factor, row, other);
      subtract(s.n, factor, s.x.data + k * s.n, s.x.data + i * s.n);
    }
  });
}

template <>
void clear_above(const Stream<Cpu>& stream, const System<Cpu>& s, Index k) {
  stream.run([s, k] {
    for (Index i = 0; i < k; ++i) s.a.data[i * s.n + k] = 0;
  });
}

template <>
void divide_inverse(const Stream<Cpu>& stream, const System<Cpu>& s) {
  stream.run([s] {
    for (Index i = 0; i < s.n; ++i)
      for (Index j = 0; j < s.n; ++j) s.x.data[i * s.n + j] /= s.a.data[i * s.n + i];
  });
}

template <>
void divide_matrix(const Stream<Cpu>& stream, const System<Cpu>& s) {
  stream.run([s] {
    for (Index i = 0; i < s.n; ++i) s.a.data[i * s.n + i] = 1;
  });
}

}  // namespace terrace::dense::textbook
