// CSR matrices on the host, and those that tests of multigrid take: meshes, graphs, full and empty ones.
#pragma once
#include <array>
#include <set>

#include "kernels/base/random.hpp"
#include "kernels/cg/coarsening.hpp"
#include "tests/support/cg.hpp"
#include "tests/support/numbers.hpp"

namespace terrace::test {

/// CSR rows on the host, columns ascending.
struct Rows {
  Index columns = 0;
  std::vector<Index> start{0};
  std::vector<std::int32_t> column;
  Vector value;
  [[nodiscard]] Index rows() const { return Index(start.size()) - 1; }
  void end_row() { start.push_back(Index(column.size())); }
  void put(Index j, double v) { column.push_back(std::int32_t(j)), value.push_back(v); }
  [[nodiscard]] double at(Index i, Index j) const {
    for (Index e = start[std::size_t(i)]; e < start[std::size_t(i) + 1]; ++e)
      if (column[std::size_t(e)] == j) return value[std::size_t(e)];
    return 0;
  }
};

inline Rows rows_of(Index n, const Entry& a) {
  Rows r;
  r.columns = n;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j)
      if (const double v = a(i, j); v != 0) r.put(j, v);
    r.end_row();
  }
  return r;
}
/// Seven points on p x p x p, with weights along the axes.
inline Rows mesh(Index p, std::array<double, 3> weight) {
  Rows r;
  r.columns = p * p * p;
  const std::array<Index, 3> step{1, p, p * p};
  for (Index i = 0; i < r.columns; ++i) {
    for (int d = 2; d >= 0; --d)
      if (i / step[std::size_t(d)] % p > 0)
        r.put(i - step[std::size_t(d)], -weight[std::size_t(d)]);
    r.put(i, 2 * (weight[0] + weight[1] + weight[2]));
    for (int d = 0; d < 3; ++d)
      if (i / step[std::size_t(d)] % p < p - 1)
        r.put(i + step[std::size_t(d)], -weight[std::size_t(d)]);
    r.end_row();
  }
  return r;
}
/// Rows with up to `most` entries at random places, some of them empty.
inline Rows scattered(Index rows, Index columns, Index most, Word seed) {
  Rows r;
  r.columns = columns;
  for (Index i = 0; i < rows; ++i) {
    std::set<Index> places;
    const Index count = i % 7 == 3 ? 0 : Index(random_word(seed, i, 0) % Word(most + 1));
    for (Index k = 0; k < count; ++k)
      places.insert(Index(random_word(seed, i, k + 1) % Word(columns)));
    for (const Index j : places) r.put(j, random_uniform(seed, i, j));
    r.end_row();
  }
  return r;
}
/// A graph without dimension: symmetric, some rows alone, both signs, a diagonal that dominates.
inline Rows network(Index n, Index degree) {
  std::vector<std::set<Index>> near(std::size_t(n), std::set<Index>{});
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < degree / 2 && i % 11 != 5; ++k) {
      const Index j = Index(random_word(21, i, k) % Word(n));
      if (j == i || j % 11 == 5) continue;
      near[std::size_t(i)].insert(j);
      near[std::size_t(j)].insert(i);
    }
  Rows r;
  r.columns = n;
  for (Index i = 0; i < n; ++i) {
    near[std::size_t(i)].insert(i);
    for (const Index j : near[std::size_t(i)])
      r.put(j, i == j ? 1.01 * double(near[std::size_t(i)].size()) : (i + j) % 3 == 0 ? 0.5 : -1.0);
    r.end_row();
  }
  return r;
}

/// To a backend and back.
template <class B>
cg::SparseRows<B> there(const Stream<B>& lane, const Rows& a) {
  return {put(lane, a.start), put(lane, a.column), put(lane, a.value), a.columns};
}
template <class B>
Rows here(const Stream<B>& lane, const cg::SparseRows<B>& a) {
  return {a.columns, get(lane, a.start), get(lane, a.column), get(lane, a.value)};
}

struct Named {
  const char* name;
  Rows a;
};
inline const std::vector<Named>& matrices() {
  static const std::vector<Named> all{
      {"nothing", rows_of(0, laplace(1))},
      {"one", rows_of(1, lehmer)},
      {"two", rows_of(2, laplace(1))},
      {"diagonal",
       rows_of(70, [](Index i, Index j) { return i == j ? 1.0 + double(i % 9) : 0.0; })},
      {"square", rows_of(225, laplace(15))},
      {"cube", mesh(20, {1, 1, 1})},
      {"layers", mesh(12, {1, 1e-3, 1})},
      {"lines", mesh(12, {1e-3, 1, 1e-3})},
      {"network", network(3000, 6)},
      {"dense rows", network(600, 60)},
      {"full", rows_of(150, [](Index i, Index j) { return i == j ? 150.0 : -0.9; })}};
  return all;
}

}  // namespace terrace::test
