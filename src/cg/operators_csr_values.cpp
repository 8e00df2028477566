// Entries of a CSR operator on the host again, and new values in a pattern that stays.
#include <algorithm>
#include <limits>

#include "distrib/agree.hpp"
#include "src/cg/csr_symmetry.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {
/// Entries in columns of other ranks, on the host: start[k] .. start[k + 1] of own row row[k], columns
/// counted in the whole matrix.
template <class B>
struct CsrOperator<B>::Outer {
  std::vector<Index> row, start{0}, column;
  std::vector<double> value;
};

template <class B>
typename CsrOperator<B>::Outer CsrOperator<B>::outer_entries(const Context<B>& context) const {
  Outer outer;
  if (outer_.entries == 0) return outer;
  const CsrRows<B> part = outer_.view();
  outer.start = downloaded(context.ahead, part.start);
  outer.row = downloaded(context.ahead, part.row);
  for (const std::int32_t c :
       downloaded(context.ahead, View<const std::int32_t, B>(outer_columns_)))
    outer.column.push_back(needed_[std::size_t(c - rows_.count)]);
  outer.value = downloaded(context.ahead, View<const double, B>(outer_.values()));
  return outer;
}

template <class B>
RankRows CsrOperator<B>::all_rows(const Context<B>& context) const {
  const Stream<B>& lane = context.ahead;
  const CsrRows<B> a = inner_.view(), b = outer_.view();
  RankRows all{first_, needed_, {}};
  HostRows& rows = all.rows;
  const std::vector<Index> inner = downloaded(lane, a.start), outer = downloaded(lane, b.start);
  const std::vector<Index> listed = downloaded(lane, b.row);
  const auto column = downloaded(lane, b.column);
  const std::vector<double> value = downloaded(lane, b.value);
  rows.columns = rows_.count + Index(needed_.size());
  rows.column.resize(std::size_t(entries()));
  rows.value.resize(std::size_t(entries()));
  std::size_t k = 0;  // row of the outer part
  Index to = 0;
  for (Index i = 0; i < rows_.count; ++i) {
    rows.start.push_back(to += inner[std::size_t(i) + 1] - inner[std::size_t(i)]);
    if (k == listed.size() || listed[k] != i) continue;
    for (Index e = outer[k]; e < outer[k + 1]; ++e, ++to) {
      const std::int32_t c = column[std::size_t(e)];  // from the own part: left of it, or behind
      rows.column[std::size_t(to)] = std::int32_t(c + halo_.left() + (c < 0 ? rows_.count : 0));
      rows.value[std::size_t(to)] = value[std::size_t(e)];
    }
    rows.start.back() = to;
    ++k;
  }
  if (outer_.entries == 0) {
    download_by_threads(lane, rows.column.data(), a.column);
    download_by_threads(lane, rows.value.data(), a.value);
    return all;
  }
  const auto inner_column = downloaded(lane, a.column);
  const std::vector<double> inner_value = downloaded(lane, a.value);
  for (Index i = 0; i < rows_.count; ++i) {
    const Index from = inner[std::size_t(i)], count = inner[std::size_t(i) + 1] - from;
    std::copy_n(inner_column.begin() + from, count,
                rows.column.begin() + rows.start[std::size_t(i)]);
    std::copy_n(inner_value.begin() + from, count, rows.value.begin() + rows.start[std::size_t(i)]);
  }
  return all;
}

CsrSlice RankRows::slice(int rank) const {
  CsrSlice a;
  a.start.assign(rows.start.begin(), rows.start.end());
  a.value = rows.value;
  a.column.resize(rows.column.size());
  const Index own = first[std::size_t(rank) + 1] - first[std::size_t(rank)];
  for (std::size_t e = 0; e < a.column.size(); ++e) {
    const Index c = rows.column[e];
    a.column[e] = c < own ? first[std::size_t(rank)] + c : needed[std::size_t(c - own)];
  }
  return a;
}

/// A row's entries are, from the left: those of earlier ranks' columns, own ones, those of later
/// ranks'.
template <class B>
void CsrOperator<B>::deal_values(const Context<B>& context, const double* value) {
  const Stream<B>& lane = context.ahead;
  Outer outer = outer_entries(context);
  if (outer.row.empty()) {
    upload(lane, inner_.values(), value);
    return lane.synchronize();
  }
  const auto start = downloaded(lane, View<const Index, B>(inner_.start));
  std::vector<double> inner;
  inner.reserve(std::size_t(start.back()));
  std::size_t next = 0;  // of outer.row
  for (Index i = 0; i < rows_.count; ++i) {
    const bool reaches = next < outer.row.size() && outer.row[next] == i;
    Index k = outer.start[next];
    if (reaches) ++next;
    const Index end = outer.start[next];
    for (; k < end && outer.column[std::size_t(k)] < rows_.first; ++k)
      outer.value[std::size_t(k)] = *value++;
    const Index own = start[std::size_t(i) + 1] - start[std::size_t(i)];
    inner.insert(inner.end(), value, value + own);
    value += own;
    for (; k < end; ++k) outer.value[std::size_t(k)] = *value++;
  }
  upload(lane, inner_.values(), inner.data());
  upload(lane, outer_.values(), outer.value.data());
  lane.synchronize();
}

template <class B>
void CsrOperator<B>::put_values(const Context<B>& context, const double* value) {
  const Stream<B>& lane = context.ahead;
  Index worst = no_position;
  Buffer<double, B> diagonal;
  collectively(context.control, [&] {
    deal_values(context, value);
    diagonal = Buffer<double, B>(rows_.count);
    const Buffer<Index, B> first_pair(1);
    find_diagonal(lane, inner_.view(), diagonal.view());
    upload(lane, first_pair.view(), &worst);
    find_asymmetry(lane, inner_.view(), rows_.first, n(), diagonal.view(), first_pair.view());
    worst = downloaded(lane, first_pair.view()).front();
  });
  scale = {};
  asymmetry_ = describe_pair(context, find_across(context, diagonal, worst));
}

template <class B>
double CsrOperator<B>::stored(const Context<B>& context, Index i, Index j) const {
  const Stream<B>& lane = context.ahead;
  const auto in_row = [&](Index from, Index end, const auto& columns, Index column,
                          View<const double, B> values) {
    const auto at = std::lower_bound(columns.begin() + from, columns.begin() + end, column);
    if (at == columns.begin() + end || *at != column) return 0.0;
    return downloaded(lane, values.slice(at - columns.begin(), 1)).front();
  };
  if (j >= rows_.first && j < rows_.end()) {
    const CsrRows<B> a = inner_.view();
    const auto bounds = downloaded(lane, a.start.slice(i - rows_.first, 2));
    const Index count = bounds[1] - bounds[0];
    return in_row(0, count, downloaded(lane, a.column.slice(bounds[0], count)), j - rows_.first,
                  a.value.slice(bounds[0], count));
  }
  const Outer outer = outer_entries(context);
  const auto row = std::lower_bound(outer.row.begin(), outer.row.end(), i - rows_.first);
  if (row == outer.row.end() || *row != i - rows_.first) return 0;
  const auto k = std::size_t(row - outer.row.begin());
  return in_row(outer.start[k], outer.start[k + 1], outer.column, j, outer_.view().value);
}

template <class B>
std::optional<Asymmetry> CsrOperator<B>::describe_pair(const Context<B>& context,
                                                       Index mine) const {
  const Control& control = context.control;
  const Index found = control.reduce(mine, Reduce::min);
  if (found == no_position) return {};
  Asymmetry result{found / n(), found % n(), 0, 0};
  const auto value = [&](Index i, Index j) {
    const bool own = i >= rows_.first && i < rows_.end();
    const double here = collectively(control, [&] { return own ? stored(context, i, j) : 0.0; });
    return control.reduce(here, Reduce::sum);
  };
  result.value = value(result.row, result.column);
  result.transposed = value(result.column, result.row);
  return result;
}

#define TERRACE_INSTANTIATE(B)                                                \
  template void CsrOperator<B>::put_values(const Context<B>&, const double*); \
  template RankRows CsrOperator<B>::all_rows(const Context<B>&) const;        \
  template std::optional<Asymmetry> CsrOperator<B>::describe_pair(const Context<B>&, Index) const;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
