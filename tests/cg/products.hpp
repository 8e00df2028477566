// Products in tests: a textbook's sums with their bounds, and CSR rows in the memory of a backend.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cg/coarsening.hpp"
#include "kernels/cg/products.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

using Vector = std::vector<double>;

inline bool same_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// What a textbook loop gives, and the sum of the terms' absolute values beside it.
struct Sums {
  std::vector<long double> value, bound;
  explicit Sums(Index size) : value(std::size_t(size), 0), bound(std::size_t(size), 0) {}
  void add(Index i, long double term) {
    value[std::size_t(i)] += term;
    bound[std::size_t(i)] += std::fabs(term);
  }
};
inline bool close(const Vector& q, const Sums& expected) {
  for (std::size_t i = 0; i < expected.value.size(); ++i)
    if (!(std::fabs(q[i] - expected.value[i]) <= 1e-14L * expected.bound[i])) return false;
  return true;
}
/// p.q of each of `wide` columns, then p.p, on top of `before`.
inline bool close_columns(const Vector& sums, const Vector& p, const Sums& product, Index wide,
                          bool with_pp, double before = 0) {
  Sums expected(2 * wide);
  for (Index j = 0; j < 2 * wide; ++j) expected.add(j, before);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const Index c = Index(i) % wide;
    expected.value[std::size_t(c)] += p[i] * product.value[i];
    expected.bound[std::size_t(c)] += std::fabs(p[i]) * product.bound[i];
    if (with_pp) expected.add(wide + c, static_cast<long double>(p[i]) * p[i]);
  }
  for (long double& bound : expected.bound) bound *= 10;  // one sum upon another
  return Index(sums.size()) == 2 * wide && close(sums, expected);
}

struct Csr {
  std::vector<Index> start{0}, row;
  std::vector<std::int32_t> column;
  Vector value;
  [[nodiscard]] Index rows() const { return Index(start.size()) - 1; }
};
template <class B>
struct CsrOn {
  Buffer<Index, B> start, row, chunk, longs;
  Buffer<std::int32_t, B> column;
  Buffer<double, B> value, partial;
  CsrOn(const Stream<B>& lane, const Csr& a, bool cut)
      : start(put(lane, a.start)),
        row(put(lane, a.row)),
        column(put(lane, a.column)),
        value(put(lane, a.value)) {
    if (!cut) return;
    cg::Scratch<B> scratch;
    cg::RowChunks<B> chunks = cg::chunks_of<B>(lane, view(), scratch);
    chunk = std::move(chunks.chunk);
    longs = std::move(chunks.longs);
    partial = std::move(chunks.partial);
  }
  [[nodiscard]] cg::CsrRows<B> view() const {
    return {start, column, value, row, chunk, longs, partial};
  }
};

}  // namespace terrace::test
