#include "src/cg/reorder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "distrib/agree.hpp"
#include "distrib/communicator.hpp"
#include "distrib/deal.hpp"
#include "kernels/cg/graph_parts.hpp"
#include "src/cg/coarse_rows.hpp"
#include "src/cg/row_parts.hpp"

namespace terrace::cg {
namespace {

/// f(i, r) for each own row i of A that goes to rank r of the caller's, or comes from there, ascending.
template <class F>
void each_own(const RowOrder& order, int rank, const F& f) {
  for (Index i = order.first[at(rank)]; i < order.first[at(rank) + 1]; ++i)
    f(i, owner_of(order.callers, order.old[at(i)]));
}
/// The same for the caller's own rows: row i of A, and its rank.
template <class F>
void each_of_callers(const RowOrder& order, int rank, const F& f) {
  const Index begin = order.callers[at(rank)], end = order.callers[at(rank) + 1];
  for (std::size_t r = 0; r + 1 < order.first.size(); ++r)
    for (Index i = order.first[r]; i < order.first[r + 1]; ++i)
      if (order.old[at(i)] >= begin && order.old[at(i)] < end) f(i, int(r));
}

/// The pattern of all rows, on rank 0; nothing on the others. Collective.
RowGraph gather_graph(const Control& control, const std::vector<Index>& first,
                      const CsrSlice& slice) {
  const Index rows = slice.rows();
  const std::vector<Index> entries = control.gather_all(Index(slice.column.size()));
  RowGraph all;
  std::vector<Index> length(std::size_t(rows), 0);
  LargeVector<std::int32_t> column;
  collectively(control, [&] {
    for (Index i = 0; i < rows; ++i)
      length[std::size_t(i)] = slice.start[std::size_t(i) + 1] - slice.start[std::size_t(i)];
    column.resize(slice.column.size());
    std::transform(slice.column.begin(), slice.column.end(), column.begin(),
                   [](Index j) { return std::int32_t(j); });
    if (control.rank() > 0) return;
    Index total = 0;
    for (const Index count : entries) total += count;
    all.start.assign(std::size_t(first.back()) + 1, 0);
    all.column.resize(std::size_t(total));
  });
  const auto bytes = [](const auto& list) { return Index(list.size() * sizeof(list[0])); };
  const std::vector<Piece> out{{0, length.data(), bytes(length)},
                               {0, column.data(), bytes(column)}};
  std::vector<Piece> in;
  Index position = 0;
  for (int r = 0; r < control.size() && control.rank() == 0; ++r) {
    const Index begin = first[std::size_t(r)], count = entries[std::size_t(r)];
    in.push_back({r, all.start.data() + 1 + begin,
                  (first[std::size_t(r) + 1] - begin) * Index(sizeof(Index))});
    in.push_back({r, all.column.data() + position, count * Index(sizeof(std::int32_t))});
    position += count;
  }
  const Stream<Cpu> lane;
  Communicator<Cpu>(control).exchange(lane, out, in);
  lane.synchronize();
  for (std::size_t i = 1; i < all.start.size(); ++i) all.start[i] += all.start[i - 1];
  return all;
}

/// Entries of p that ranks need of one another.
Index halo_of(const Control& control, const std::vector<Index>& first, const CsrSlice& own) {
  const Index begin = first[at(control.rank())], end = begin + own.rows();
  const Index count = collectively(control, [&] {
    std::vector<bool> seen(at(first.back()), false);
    Index found = 0;
    for (const Index j : own.column)
      if ((j < begin || j >= end) && !seen[at(j)]) seen[at(j)] = true, ++found;
    return found;
  });
  return control.reduce(count, Reduce::sum);
}

/// Rank 0's graph on rank 1 as well. Collective.
void send_to_second(const Control& control, NearGraph& near) {
  RowGraph& graph = near.graph;
  const Index rows = control.reduce(graph.rows(), Reduce::max),
              entries = control.reduce(Index(graph.column.size()), Reduce::max);
  const bool takes = control.rank() == 1, gives = control.rank() == 0;
  collectively(control, [&] {
    if (!takes) return;
    graph.start.resize(at(rows) + 1);
    graph.column.resize(at(entries));
    near.names.resize(at(rows));
  });
  std::vector<Piece> out, in;
  const auto piece = [&](auto& list) {
    const Index bytes = Index(list.size() * sizeof(list[0]));
    if (gives) out.push_back({1, list.data(), bytes});
    if (takes) in.push_back({0, list.data(), bytes});
  };
  piece(graph.start);
  piece(graph.column);
  piece(near.names);
  const Stream<Cpu> lane;
  Communicator<Cpu>(control).exchange(lane, out, in);
  lane.synchronize();
}

/// The order of all rows, and their starts on the ranks.
RowOrder ordered(const Control& control, std::vector<Index> first, const CsrSlice& own, int parts) {
  const Index n = first.back();
  RowGraph graph = gather_graph(control, first, own);
  RowOrder order;
  order.callers = std::move(first);
  // Rank 0 cuts in halves, and beside it rank 1 by METIS.
  const bool both = parts > 1 && control.size() > 1 && !metis_version().empty();
  RowParts found;
  std::vector<Index> length;
  NearGraph near;
  collectively(control, [&] {
    if (control.rank() > 0) return;
    if (both) {
      near = near_graph(std::move(graph));
      return;
    }
    for (Index i = 0; i < n; ++i) length.push_back(graph.length(i));
    found = part_rows(std::move(graph), parts);
  });
  if (both) {
    send_to_second(control, near);
    collectively(control, [&] {
      if (control.rank() > 1) return;
      found = control.rank() == 0 ? halves(near, parts) : parts_of_metis(near, parts);
      length = near.lengths();
    });
    near = NearGraph();
  }
  const bool is_found = Index(found.first.size()) == parts + 1;
  const std::vector<Index> needed =
      control.gather_all(is_found ? found.needed : std::numeric_limits<Index>::max());
  const int root = both && needed[1] < needed[0] ? 1 : 0;
  std::vector<Index> starts, pointers{0};  // of the parts' rows; of all, in the new order
  collectively(control, [&] {
    starts.resize(at(parts + 1));
    order.old.resize(at(n));
    if (control.rank() != root) return;
    starts = found.first;
    order.method = found.method;
    std::copy(found.order.begin(), found.order.end(), order.old.begin());
    pointers.reserve(at(n) + 1);
    for (const Index i : order.old) pointers.push_back(pointers.back() + length[at(i)]);
  });
  control.broadcast(order.old.data(), n * Index(sizeof(Index)), root);
  control.broadcast(starts.data(), Index(starts.size() * sizeof(Index)), root);
  order.method = control.broadcast(order.method, root);
  const Index nonzeros = control.reduce(pointers.back(), Reduce::max);
  order.first = parts == control.size() ? starts : balanced_rows(control, n, nonzeros, 0, pointers);
  return order;
}

template <class T>
char* put(char* to, const T* from, Index count) {
  if (count > 0) std::memcpy(to, from, std::size_t(count) * sizeof(T));
  return to + std::size_t(count) * sizeof(T);
}
template <class T>
const char* take(const char* from, T* to, Index count) {
  if (count > 0) std::memcpy(to, from, std::size_t(count) * sizeof(T));
  return from + std::size_t(count) * sizeof(T);
}

constexpr std::size_t entry_bytes = sizeof(std::int32_t) + sizeof(double);

/// The caller's own rows for each rank, ascending in A, columns as A numbers them: length, columns,
/// values of each. `rows` are let go.
std::vector<LargeVector<char>> pack(const RowOrder& order, int rank, CsrSlice& rows) {
  std::vector<std::int32_t> place(order.old.size()), column;
  for (std::size_t i = 0; i < place.size(); ++i) place[at(order.old[i])] = std::int32_t(i);
  const auto each = [&](const auto& f) {
    each_of_callers(order, rank, [&](Index i, int r) {
      const Index own = order.old[at(i)] - order.callers[at(rank)], from = rows.start[at(own)];
      f(at(r), from, rows.start[at(own) + 1] - from);
    });
  };
  std::vector<std::size_t> bytes(order.first.size() - 1, 0);
  each([&](std::size_t r, Index, Index count) {
    bytes[r] += sizeof(Index) + at(count) * entry_bytes;
  });
  std::vector<LargeVector<char>> packed(bytes.size());
  std::vector<char*> end(bytes.size());
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    packed[r].resize(bytes[r]);
    end[r] = packed[r].data();
  }
  each([&](std::size_t r, Index from, Index count) {
    column.clear();
    for (Index k = from; k < from + count; ++k) column.push_back(place[at(rows.column[at(k)])]);
    end[r] = put(end[r], &count, 1);
    end[r] = put(end[r], column.data(), count);
    end[r] = put(end[r], rows.value.data() + from, count);
  });
  rows = CsrSlice();
  return packed;
}

/// Own rows of A from what each rank has packed.
CsrSlice unpack(const RowOrder& order, int rank, const std::vector<LargeVector<char>>& packed) {
  CsrSlice rows;
  const Index count = order.first[at(rank) + 1] - order.first[at(rank)];
  std::size_t bytes = 0;
  std::vector<const char*> next;
  for (const LargeVector<char>& from : packed) {
    bytes += from.size();
    next.push_back(from.data());
  }
  const std::size_t entries = (bytes - at(count) * sizeof(Index)) / entry_bytes;
  rows.start.reserve(at(count) + 1);
  rows.column.resize(entries);
  rows.value.resize(entries);
  std::vector<std::int32_t> column;
  Index to = 0, length = 0;
  each_own(order, rank, [&](Index, int r) {
    const char*& from = next[at(r)];
    from = take(from, &length, 1);
    column.resize(at(length));
    from = take(from, column.data(), length);
    std::copy(column.begin(), column.end(), rows.column.begin() + to);
    from = take(from, rows.value.data() + to, length);
    rows.start.push_back(to += length);
  });
  return rows;
}

}  // namespace

RowOrder reorder(const Control& control, std::vector<Index>& first, CsrSlice& own, int parts) {
  if (first.back() > std::numeric_limits<std::int32_t>::max())
    fail_together(Exit::usage,
                  "reordering is for matrices of up to 2^31 rows; --reorder; leave it out");
  const Index halo = halo_of(control, first, own);
  RowOrder order = ordered(control, first, own, parts);
  order.halo_before = halo;
  std::vector<LargeVector<char>> rows =
      collectively(control, [&] { return pack(order, control.rank(), own); });
  rows = deal(control, std::move(rows));
  collectively(control, [&] { own = unpack(order, control.rank(), rows); });
  first = order.first;
  return order;
}

Index reorder_bytes(Index n, Index nonzeros, int ranks) {
  const Index entries = ceil_div(nonzeros, ranks), rows = ceil_div(n, ranks);
  const Index found =
      part_rows_bytes(n, nonzeros, ranks) + 24 * n + 4 * entries;  // on rank 0; starts, order
  const Index moved = 12 * n + 12 * entries + 16 * rows;           // order, places, messages
  return 16 * entries + 8 * rows + std::max(found, moved);
}

std::vector<double> permuted(const Control& control, const RowOrder& order, Index columns,
                             const std::vector<double>& rows, bool back) {
  const int me = control.rank();
  const Index of_a = order.first[at(me)], of_callers = order.callers[at(me)];
  const auto in_a = [&](Index i) { return (i - of_a) * columns; };
  const auto in_callers = [&](Index i) { return (order.old[at(i)] - of_callers) * columns; };
  std::vector<std::vector<double>> parts(at(control.size()));
  const auto send = [&](Index from, int r) {
    parts[at(r)].insert(parts[at(r)].end(), rows.begin() + from, rows.begin() + from + columns);
  };
  collectively(control, [&] {
    if (back)
      each_own(order, me, [&](Index i, int r) { send(in_a(i), r); });
    else
      each_of_callers(order, me, [&](Index i, int r) { send(in_callers(i), r); });
  });
  parts = deal(control, std::move(parts));
  return collectively(control, [&] {
    const std::vector<Index>& first = back ? order.callers : order.first;
    std::vector<double> result(at((first[at(me) + 1] - first[at(me)]) * columns));
    std::vector<std::ptrdiff_t> next(parts.size(), 0);
    const auto take = [&](Index to, int r) {
      std::copy_n(parts[at(r)].begin() + next[at(r)], columns, result.begin() + to);
      next[at(r)] += columns;
    };
    if (back)
      each_of_callers(order, me, [&](Index i, int r) { take(in_callers(i), r); });
    else
      each_own(order, me, [&](Index i, int r) { take(in_a(i), r); });
    return result;
  });
}

}  // namespace terrace::cg
