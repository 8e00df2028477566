// Rows dealt to the ranks in another order.
#include "src/cg/reorder.hpp"
#include "tests/support/cg.hpp"
#include "tests/support/pattern.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

/// Rows `own` of the pattern; entry (i, j) is value(i, j).
CsrSlice slice_of(const Pattern& a, Range own, const Entry& value) {
  CsrSlice s;
  for (Index i = own.first; i < own.end(); ++i) {
    for (Index k = a.start[std::size_t(i)]; k < a.start[std::size_t(i) + 1]; ++k) {
      s.column.push_back(a.column[std::size_t(k)]);
      s.value.push_back(value(i, s.column.back()));
    }
    s.start.push_back(Index(s.column.size()));
  }
  return s;
}

}  // namespace

TEST_CASE("rows are dealt to the ranks in the order of the whole matrix, b with them") {
  const Control& control = world();
  const Index ranks = control.size(), me = control.rank();
  const Entry value = [](Index i, Index j) { return double(1000 * i + j); };
  for (const Index n : {0, 1, 2, 5, 64, 500}) {
    CAPTURE(n);
    std::set<std::pair<Index, Index>> edges;
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < 2; ++k)
        edges.insert({i, k == 0 && i % 7 != 3 ? i : Index(random_word(4, i, k) % Word(n))});
    for (auto& [i, j] : std::set(edges)) edges.erase({i, j}), edges.insert(std::minmax(i, j));
    const Pattern a = pattern(n, edges);
    // The caller's rows: few on rank 0, none on the last one of many.
    std::vector<Index> first(std::size_t(ranks) + 1, n);
    for (Index r = 0; r < ranks; ++r)
      first[std::size_t(r)] = r == 0 ? 0 : n / 3 + n * (r - 1) / ranks;
    for (Index r = 1; r <= ranks; ++r) first[std::size_t(r)] = std::min(n, first[std::size_t(r)]);
    first.back() = n;
    const std::vector<Index> callers = first;
    const int parts = int(n % 2 == 0 ? ranks : 2);  // the ranks', or of a run on two
    const Range own{first[std::size_t(me)], first[std::size_t(me) + 1] - first[std::size_t(me)]};
    CsrSlice slice = slice_of(a, own, value);
    const RowOrder order = reorder(control, first, slice, parts);
    const RowParts whole = part_rows(graph_of(a.start, a.column), parts);
    CHECK_ALL(
        std::equal(order.old.begin(), order.old.end(), whole.order.begin(), whole.order.end()));
    CHECK_ALL((parts != ranks || order.first == whole.first));
    CHECK_ALL((order.callers == callers && order.first == first));
    CHECK_ALL(
        (first.front() == 0 && first.back() == n && std::is_sorted(first.begin(), first.end())));
    // About equally many nonzeros: a row more or less.
    Index most = 0;
    for (Index i = 0; i < n; ++i)
      most = std::max(most, a.start[std::size_t(i) + 1] - a.start[std::size_t(i)]);
    const Index nonzeros = Index(a.column.size());
    CHECK_ALL(std::abs(Index(slice.column.size()) - nonzeros / ranks) <= 4 * most + 1);
    // Entry by entry.
    bool same = slice.rows() == first[std::size_t(me) + 1] - first[std::size_t(me)];
    for (Index i = 0; same && i < slice.rows(); ++i) {
      const Index old = order.old[std::size_t(first[std::size_t(me)] + i)];
      Index k = slice.start[std::size_t(i)];
      same = slice.start[std::size_t(i) + 1] - k ==
             a.start[std::size_t(old) + 1] - a.start[std::size_t(old)];
      for (Index e = a.start[std::size_t(old)]; same && e < a.start[std::size_t(old) + 1]; ++e, ++k)
        same = order.old[std::size_t(slice.column[std::size_t(k)])] == a.column[std::size_t(e)] &&
               slice.value[std::size_t(k)] == value(old, a.column[std::size_t(e)]);
    }
    CHECK_ALL(same);
    for (const Index columns : {0, 1, 3}) {
      Vector b(std::size_t(own.count * columns));
      for (Index k = 0; k < own.count * columns; ++k)
        b[std::size_t(k)] = double(own.first * columns + k);
      const Vector there = permuted(control, order, columns, b, false);
      bool right = Index(there.size()) == slice.rows() * columns;
      for (Index i = 0; right && i < slice.rows(); ++i)
        for (Index v = 0; v < columns; ++v)
          right =
              right && there[std::size_t(i * columns + v)] ==
                           double(order.old[std::size_t(first[std::size_t(me)] + i)] * columns + v);
      CHECK_ALL(right);
      CHECK_ALL(permuted(control, order, columns, there, true) == b);
    }
  }
}

TEST_CASE("a shuffled mesh needs no more of other ranks than an ordered one") {
  const Control& control = world();
  const Index p = 12, n = p * p * p;
  const std::vector<Index> at = shuffled(n, 11);
  const Pattern a = mesh(p, p, p, at);
  std::vector<Index> first(std::size_t(control.size()) + 1, n);
  for (Index r = 0; r < control.size(); ++r) first[std::size_t(r)] = n * r / control.size();
  const auto halo = [&](const CsrSlice& rows) {
    const Index begin = first[std::size_t(control.rank())],
                end = first[std::size_t(control.rank()) + 1];
    std::set<Index> needed;
    for (const Index j : rows.column)
      if (j < begin || j >= end) needed.insert(j);
    return control.reduce(Index(needed.size()), Reduce::sum);
  };
  const Index begin = first[std::size_t(control.rank())];
  CsrSlice rows = slice_of(a, {begin, first[std::size_t(control.rank()) + 1] - begin},
                           [](Index, Index) { return 1.0; });
  const Index before = halo(rows);
  const RowOrder order = reorder(control, first, rows, control.size());
  const Index after = halo(rows), ordered = 2 * p * p * (control.size() - 1);
  CAPTURE(before, after, ordered);
  CHECK_ALL(order.halo_before == before);
  CHECK_ALL(after <= ordered);
  CHECK_ALL((control.size() == 1 || before > 3 * ordered));
}
