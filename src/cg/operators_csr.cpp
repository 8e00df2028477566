// The CSR operator: rows dealt by nonzeros, columns renumbered for the halo, symmetry checked by
// sending each entry that couples two ranks to the other one.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {
namespace {

constexpr Index no_position = std::numeric_limits<Index>::max();

/// A[row, column] of a normalised slice, zero where nothing is stored. `row` counts in the slice.
double stored(const CsrSlice& a, Index row, Index column) {
  const Index* const base = a.column.data();
  const Index* const end = base + a.start[std::size_t(row) + 1];
  const Index* const at = std::lower_bound(base + a.start[std::size_t(row)], end, column);
  return at != end && *at == column ? a.value[std::size_t(at - base)] : 0.0;
}

struct Coupling {  // an entry as it travels to the owner of row `column`
  Index row, column;
  double value, diagonal;
};

void lower(std::atomic<Index>& best, Index position) {
  Index seen = best;
  while (position < seen && !best.compare_exchange_weak(seen, position)) {
  }
}
double pair_scale(double a, double b) { return std::sqrt(std::fabs(a)) * std::sqrt(std::fabs(b)); }

std::optional<Asymmetry> find_asymmetry(const Control& control, const std::vector<Index>& first,
                                        const CsrSlice& a, const std::vector<double>& diagonal) {
  const int ranks = control.size(), me = control.rank();
  const Index n = first.back(), r0 = first[std::size_t(me)], rows = a.rows();
  std::atomic<Index> best = no_position;
  const auto judge = [&](Index i, Index j, double value, double transposed, double scale) {
    if (!symmetric_pair(value, transposed, scale)) lower(best, std::min(i, j) * n + std::max(i, j));
  };
  parallel_ranges(rows, 1024, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      for (Index k = a.start[std::size_t(i)]; k < a.start[std::size_t(i) + 1]; ++k) {
        const Index j = a.column[std::size_t(k)] - r0;
        if (j >= 0 && j < rows && j != i)
          judge(r0 + i, r0 + j, a.value[std::size_t(k)], stored(a, j, r0 + i),
                pair_scale(diagonal[std::size_t(i)], diagonal[std::size_t(j)]));
      }
    }
  });
  const Communicator<Cpu> comm(control);
  const Stream<Cpu> lane;
  std::vector<Coupling> out, in;
  for (int step = 0; step < ranks && ranks > 1; ++step) {
    const int peer = (step - me + ranks) % ranks;
    const Index c0 = first[std::size_t(peer)], c1 = first[std::size_t(peer) + 1];
    Index mine = 0, theirs = 0;
    collectively(control, [&] {
      out.clear();
      for (Index i = 0; i < rows && peer != me; ++i) {
        const Index* const base = a.column.data();
        const Index* const end = base + a.start[std::size_t(i) + 1];
        const Index* at = std::lower_bound(base + a.start[std::size_t(i)], end, c0);
        for (; at != end && *at < c1; ++at)
          out.push_back({r0 + i, *at, a.value[std::size_t(at - base)], diagonal[std::size_t(i)]});
      }
      mine = Index(out.size());
    });
    const Piece tell{peer, &mine, sizeof mine}, hear{peer, &theirs, sizeof theirs};
    comm.exchange(lane, {&tell, 1}, {&hear, 1});
    lane.synchronize();
    collectively(control, [&] { in.resize(std::size_t(theirs)); });
    const Piece send{peer, out.data(), mine * Index(sizeof(Coupling))};
    const Piece receive{peer, in.data(), theirs * Index(sizeof(Coupling))};
    comm.exchange(lane, {&send, 1}, {&receive, 1});
    lane.synchronize();
    for (const Coupling& c : in) {
      const Index j = c.column - r0;
      judge(c.row, c.column, c.value, stored(a, j, c.row),
            pair_scale(c.diagonal, diagonal[std::size_t(j)]));
    }
  }
  const Index found = control.reduce(Index(best), Reduce::min);
  if (found == no_position) return {};
  Asymmetry result{found / n, found % n, 0, 0};
  const auto value = [&](Index i, Index j) {
    const bool own = i >= r0 && i < r0 + rows;
    return control.reduce(own ? stored(a, i - r0, j) : 0.0, Reduce::sum);
  };
  result.value = value(result.row, result.column);
  result.transposed = value(result.column, result.row);
  return result;
}

}  // namespace

void CsrSlice::normalise() {
  std::vector<Index> count(std::size_t(rows()), 0);
  parallel_ranges(rows(), 1024, [&](Index from, Index to) {
    std::vector<Index> order;
    std::vector<Index> old_column;
    std::vector<double> old_value;
    for (Index i = from; i < to; ++i) {
      const Index begin = start[std::size_t(i)], size = start[std::size_t(i) + 1] - begin;
      Index* const c = column.data() + begin;
      double* const v = value.data() + begin;
      count[std::size_t(i)] = size;
      if (std::adjacent_find(c, c + size, std::greater_equal<>()) == c + size) continue;
      order.resize(std::size_t(size));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](Index x, Index y) { return c[x] < c[y]; });
      old_column.assign(c, c + size);
      old_value.assign(v, v + size);
      Index last = -1;
      for (Index k : order) {
        if (last >= 0 && c[last] == old_column[std::size_t(k)]) {
          v[last] += old_value[std::size_t(k)];
        } else {
          ++last;
          c[last] = old_column[std::size_t(k)];
          v[last] = old_value[std::size_t(k)];
        }
      }
      count[std::size_t(i)] = last + 1;
    }
  });
  Index to = 0;
  for (Index i = 0; i < rows(); ++i) {
    const Index from = start[std::size_t(i)], size = count[std::size_t(i)];
    if (from != to) {
      std::copy_n(column.data() + from, size, column.data() + to);
      std::copy_n(value.data() + from, size, value.data() + to);
    }
    start[std::size_t(i)] = to;
    to += size;
  }
  start.back() = to;
  column.resize(std::size_t(to));
  value.resize(std::size_t(to));
}

namespace {

/// The columns named that are rows of other ranks, ascending.
std::vector<Index> number_halo(const CsrSlice& a, Range own) {
  std::vector<Index> needed;
  std::mutex collecting;
  parallel_ranges(Index(a.column.size()), 1 << 18, [&](Index from, Index to) {
    std::vector<Index> mine;
    for (Index k = from; k < to; ++k) {
      const Index c = a.column[std::size_t(k)];
      if (c < own.first || c >= own.end()) mine.push_back(c);
    }
    if (mine.empty()) return;
    const std::lock_guard lock(collecting);
    needed.insert(needed.end(), mine.begin(), mine.end());
  });
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  needed.shrink_to_fit();
  if (own.count + Index(needed.size()) > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::resources,
                "more than 2^31 rows and halo entries on one rank; in the CSR matrix; use more "
                "ranks");
  return needed;
}

/// A CSR matrix on the host; `value` may have room behind.
struct HostPart {
  std::vector<Index> start, row;
  LargeVector<std::int32_t> column;
  LargeVector<double> value;
};

/// Into own columns and others', numbered from the own part of p. Own values move up within the
/// slice's memory, so that no second copy of them exists on the host.
std::pair<HostPart, HostPart> split_columns(CsrSlice&& a, Range own,
                                            const std::vector<Index>& needed, Index left) {
  HostPart inner, outer;
  const Index rows = own.count;
  const auto is_own = [&](Index c) { return c >= own.first && c < own.end(); };
  std::vector<Index>& start = inner.start;
  start.assign(std::size_t(rows) + 1, 0);
  parallel_ranges(rows, 1024, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      start[std::size_t(i) + 1] =
          std::count_if(a.column.begin() + a.start[std::size_t(i)],
                        a.column.begin() + a.start[std::size_t(i) + 1], is_own);
  });
  for (Index i = 0; i < rows; ++i) start[std::size_t(i) + 1] += start[std::size_t(i)];
  inner.column = LargeVector<std::int32_t>(std::size_t(start.back()));
  parallel_ranges(rows, 1024, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      Index at = start[std::size_t(i)];
      for (Index k = a.start[std::size_t(i)]; k < a.start[std::size_t(i) + 1]; ++k)
        if (is_own(a.column[std::size_t(k)]))
          inner.column[std::size_t(at++)] = std::int32_t(a.column[std::size_t(k)] - own.first);
    }
  });
  outer.start = {0};
  Index at_in = 0;
  for (Index i = 0; i < rows && !needed.empty(); ++i) {
    for (Index k = a.start[std::size_t(i)]; k < a.start[std::size_t(i) + 1]; ++k) {
      const Index c = a.column[std::size_t(k)];
      const double v = a.value[std::size_t(k)];
      if (is_own(c)) {
        a.value[std::size_t(at_in++)] = v;
        continue;
      }
      const Index at = std::lower_bound(needed.begin(), needed.end(), c) - needed.begin();
      outer.column.push_back(std::int32_t(at - left + (c < own.first ? 0 : rows)));
      outer.value.push_back(v);
    }
    if (Index(outer.column.size()) > outer.start.back()) {
      outer.start.push_back(Index(outer.column.size()));
      outer.row.push_back(i);
    }
  }
  a.column = LargeVector<Index>();  // "= {}" would keep the memory
  a.start = std::vector<Index>();
  inner.value = std::move(a.value);
  return {std::move(inner), std::move(outer)};
}

/// To the memory of the backend, array by array; those on the host are given back.
template <class B, class Part>
void place_part(const Stream<B>& lane, Part& part, HostPart& host) {
  const auto put = [&](auto& buffer, auto& from, Index count) {
    buffer = std::remove_reference_t<decltype(buffer)>(count);
    upload(lane, buffer.view(), from.data());
    lane.synchronize();
    from = std::remove_reference_t<decltype(from)>();
  };
  const Index rows = Index(host.start.size()) - 1, entries = host.start.back();
  if constexpr (std::is_same_v<B, Cuda>) {
    part.scattered = csr_scattered(host.start.data(), host.column.data(), rows);
    CsrChunks chunks = csr_chunks(host.start.data(), rows);
    if (!chunks.longs.empty()) part.partial = Buffer<double, B>(chunks.count());
    put(part.chunk, chunks.chunk, Index(chunks.chunk.size()));
    put(part.longs, chunks.longs, Index(chunks.longs.size()));
  }
  put(part.column, host.column, entries);
  put(part.value, host.value, entries);
  put(part.start, host.start, rows + 1);
  put(part.row, host.row, Index(host.row.size()));
}

}  // namespace

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, std::vector<Index> first, CsrSlice&& given)
    : first_(std::move(first)) {
  const Control& control = context.control;
  CsrSlice a = std::move(given);
  rows_ = {first_[std::size_t(context.rank())], a.rows()};
  collectively(control, [&] {
    a.normalise();
    needed_ = number_halo(a, rows_);
    diagonal_.resize(std::size_t(rows_.count));
    parallel_ranges(rows_.count, 4096, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) diagonal_[std::size_t(i)] = stored(a, i, rows_.first + i);
    });
  });
  nonzeros_ = control.reduce(Index(a.column.size()), Reduce::sum);
  asymmetry_ = find_asymmetry(control, first_, a, diagonal_);
  halo_ = Halo<B>(control, context.ahead, first_, needed_);
  collectively(control, [&] {
    auto [inner, outer] = split_columns(std::move(a), rows_, needed_, halo_.left());
    place_part(context.ahead, inner_, inner);
    place_part(context.ahead, outer_, outer);
    context.ahead.synchronize();
  });
}

template <class B>
OperatorMemory CsrOperator<B>::memory(Index n, Index nonzeros, int ranks) {
  // While the slice is split, 20 bytes an entry stand on the host (in all, on the CPU backend).
  const Index rows = ceil_div(n, ranks), entries = ceil_div(nonzeros, ranks);
  const Index split = std::is_same_v<B, Cpu> ? 8 : 20;
  return {split * entries + 40 * rows, 12 * entries + entries / 10 + 24 * rows};
}

template <class B>
Operand<B> CsrOperator<B>::operand(const Context<B>& context, Index columns) {
  if (columns > 1) halo_columns_ = halo_of_columns(context, first_, needed_, columns);
  return collectively(context.control, [&] {
    const Index origin = round_up(halo_.left(), 32);
    Operand<B> p{Buffer<double, B>((origin + rows_.count + halo_.right()) * columns), origin,
                 rows_.count, columns};
    fill_zero(context.ahead, p.memory.view());
    return p;
  });
}

template <class B>
void CsrOperator<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                           View<double, B> sums, const SumSpace<B>& space, const double* skip,
                           bool absolute, const Meanwhile& meanwhile) const {
  double* const own = p.own().data;
  const auto product = [&](const Stream<B>& lane, const Part& part, bool add) {
    if (p.columns > 1)
      multiply_columns(lane, part.view(), own, q, add, p.columns, skip);
    else
      multiply(lane, part.view(), own, q, sums_to(space, sums, add), absolute, skip);
  };
  if (context.size() == 1) {
    if (meanwhile) meanwhile();
    return product(context.ahead, inner_, false);
  }
  context.bulk.wait(context.ahead.record());
  product(context.bulk, inner_, false);
  if (meanwhile) meanwhile();
  (p.columns > 1 ? halo_columns_ : halo_).exchange(context.comm, context.ahead, own);
  context.ahead.wait(context.bulk.record());
  if (outer_.view().rows() > 0) product(context.ahead, outer_, true);
}

template <class B>
void CsrOperator<B>::multiply_by(const Context<B>& context, int power) {
  multiply_by_power<B>(context, inner_.value.view(), power);
  multiply_by_power<B>(context, outer_.value.view(), power);
  for (double& value : diagonal_) value = std::ldexp(value, power);
}
template <class B>
double CsrOperator<B>::largest(const Context<B>& context) const {
  double most = 0;
  for (const Part* part : {&inner_, &outer_}) {
    const Index count = part->value.size();
    most =
        std::max(most, max_abs<B>(context.ahead, 1, count, part->value, std::max<Index>(1, count)));
  }
  return context.control.reduce(most, Reduce::max);
}

template <class B>
LocalRows CsrOperator<B>::own_rows(const Context<B>& context, Index block) const {
  const auto host = [&]<class T>(const Buffer<T, B>& from) {
    std::vector<T> to(std::size_t(from.size()));
    download(context.ahead, to.data(), from.view());
    return to;
  };
  const std::vector<Index> start = host(inner_.start);
  const std::vector<std::int32_t> column = host(inner_.column);
  const std::vector<double> value = host(inner_.value);
  context.ahead.synchronize();
  LocalRows local;
  for (Index i = 0; i < rows_.count; ++i) {
    const Index least = block > 0 ? i / block * block : 0;
    for (Index k = start[std::size_t(i)]; k < start[std::size_t(i) + 1]; ++k) {
      const Index j = column[std::size_t(k)];
      if (j < least || j > i) continue;
      local.column.push_back(j);
      local.value.push_back(value[std::size_t(k)]);
    }
    local.start.push_back(Index(local.column.size()));
  }
  return local;
}

std::vector<Index> balanced_rows(const Control& control, Index n, Index nonzeros, Index first,
                                 const std::vector<Index>& pointers) {
  // Boundary r is the first row with at least r / ranks of the nonzeros before it. The piece that
  // holds it names it; the largest wins.
  const int ranks = control.size();
  std::vector<Index> result(std::size_t(ranks) + 1, 0);
  for (int r = 1; r < ranks; ++r) {
    const Index target = nonzeros / ranks * r + nonzeros % ranks * r / ranks;
    const auto at = std::lower_bound(pointers.begin(), pointers.end(), target);
    if (at == pointers.begin()) continue;
    result[std::size_t(r)] =
        first + std::min<Index>(at - pointers.begin(), Index(pointers.size()) - 1);
  }
  control.reduce(result, Reduce::max);
  result.front() = 0;
  result.back() = n;
  return result;
}

#define TERRACE_INSTANTIATE(B) template class CsrOperator<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
