#include "src/cg/row_parcels.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

constexpr Index grain = 4096;  // entries or rows that a thread takes at a time

}  // namespace

RowParcel::RowParcel(Index rows, Index entries) {
  if (rows == 0) return;
  bytes_.resize(at(8 * (2 + rows + rows + 1 + 2 * entries)));
  *word(0) = rows;
  *word(1) = entries;
  start()[0] = 0;
}

RowParcel parcel_of(const Index* start, Index begin, Index count, const std::int32_t* column,
                    const double* value, const ColumnNumbers& number) {
  const Index from = start[begin] - start[0], entries = start[begin + count] - start[begin];
  RowParcel parcel(count, entries);
  if (count == 0) return parcel;
  for (Index i = 0; i <= count; ++i) parcel.start()[i] = start[begin + i] - start[begin];
  parallel_ranges(entries, grain, [&](Index e, Index end) {
    std::copy(value + from + e, value + from + end, parcel.value() + e);
    for (; e < end; ++e) parcel.column()[e] = number(column[from + e]);
  });
  return parcel;
}

std::vector<RowParcel> exchanged(const Control& control, std::vector<RowParcel> parcels) {
  std::vector<LargeVector<char>> bytes(parcels.size());
  for (std::size_t r = 0; r < bytes.size(); ++r) bytes[r] = parcels[r].take();
  bytes = deal_bytes(control, std::move(bytes));
  for (std::size_t r = 0; r < bytes.size(); ++r) parcels[r] = RowParcel(std::move(bytes[r]));
  return parcels;
}

std::vector<RowParcel> sent_to_owners(const Control& control, const std::vector<Index>& first_row,
                                      const std::vector<Index>& rows, const Index* start,
                                      const std::int32_t* column, const double* value,
                                      const ColumnNumbers& number) {
  std::vector<RowParcel> parcels(at(control.size()));
  collectively(control, [&] {
    auto from = rows.begin();
    for (std::size_t r = 0; r < parcels.size(); ++r) {
      const auto end = std::lower_bound(from, rows.end(), first_row[r + 1]);
      parcels[r] = parcel_of(start, from - rows.begin(), end - from, column, value, number);
      std::copy(from, end, parcels[r].row());
      from = end;
    }
  });
  return exchanged(control, std::move(parcels));
}

MoreColumns::MoreColumns(const ColumnNumbers& number, const std::vector<RowParcel>& parcels)
    : number_(number) {
  Index highest = -1;
  lowest_ = std::numeric_limits<Index>::max();
  const auto reach = [&](Index c) {
    lowest_ = std::min(lowest_, c);
    highest = std::max(highest, c);
  };
  if (!number.needed.empty()) reach(number.needed.front()), reach(number.needed.back());
  for (const RowParcel& p : parcels)
    for (Index e = 0; e < p.entries(); ++e)
      if (const Index c = p.column()[e]; !number.owns(c)) reach(c);
  if (highest >= 0) set_.resize(at((highest - lowest_) / 64 + 1));
  const auto set = [&](Index c) {
    std::atomic_ref<std::uint64_t> word(set_[at((c - lowest_) / 64)]);
    const std::uint64_t bit = std::uint64_t(1) << ((c - lowest_) % 64);
    if ((word.load(std::memory_order_relaxed) & bit) == 0)
      word.fetch_or(bit, std::memory_order_relaxed);
  };
  for (const Index c : number.needed) set(c);
  for (const RowParcel& p : parcels)
    parallel_ranges(p.entries(), grain, [&](Index e, Index end) {
      for (; e < end; ++e)
        if (const Index c = p.column()[e]; !number.owns(c)) set(c);
    });
  before_.reserve(set_.size());
  for (std::size_t w = 0; w < set_.size(); ++w) {
    before_.push_back(Index(needed_.size()));
    for (std::uint64_t left = set_[w]; left != 0; left &= left - 1)
      needed_.push_back(lowest_ + 64 * Index(w) + __builtin_ctzll(left));
  }
}

void MoreColumns::locate(const RowParcel& rows, std::int32_t* to) const {
  parallel_ranges(rows.entries(), grain, [&](Index e, Index end) {
    for (; e < end; ++e) to[e] = local(rows.column()[e]);
  });
}

std::vector<std::int32_t> MoreColumns::places() const {
  std::vector<std::int32_t> places;
  places.reserve(number_.needed.size());
  for (const Index c : number_.needed) places.push_back(std::int32_t(local(c) - number_.own));
  return places;
}

SummedRows summed(const std::vector<RowParcel>& parcels, const MoreColumns& columns, Index begin) {
  SummedRows sum;
  for (const RowParcel& p : parcels) sum.row.insert(sum.row.end(), p.row(), p.row() + p.rows());
  if (std::adjacent_find(sum.row.begin(), sum.row.end(), std::greater_equal<>()) != sum.row.end())
    sum.row = distinct(std::move(sum.row));
  const auto rows = Index(sum.row.size());
  // Of each rank in turn the place of the row in its parcel, or -1; and where the row may begin.
  std::vector<std::vector<Index>> place(parcels.size());
  std::vector<Index> most(at(rows + 1), 0);
  for (std::size_t r = 0; r < parcels.size(); ++r) {
    const RowParcel& p = parcels[r];
    if (p.rows() == 0) continue;
    place[r].assign(at(rows), -1);
    for (Index i = 0, k = 0; i < p.rows(); ++i, ++k) {
      while (sum.row[at(k)] != p.row()[i]) ++k;
      place[r][at(k)] = i;
      most[at(k) + 1] += p.start()[i + 1] - p.start()[i];
    }
  }
  for (Index k = 0; k < rows; ++k) most[at(k) + 1] += most[at(k)];
  LargeVector<std::int32_t> column(at(most.back()));
  LargeVector<double> value(at(most.back()));
  sum.start.assign(at(rows + 1), 0);
  parallel_ranges(rows, grain / 16, [&](Index k, Index end) {
    struct Entry {
      std::int32_t column, order;
      double value;
    };
    std::vector<Entry> row;
    for (; k < end; ++k) {
      row.clear();
      for (std::size_t r = 0; r < parcels.size(); ++r) {
        if (place[r].empty() || place[r][at(k)] < 0) continue;
        const RowParcel& p = parcels[r];
        const Index i = place[r][at(k)];
        for (Index e = p.start()[i]; e < p.start()[i + 1]; ++e)
          row.push_back({columns.local(p.column()[e]), std::int32_t(row.size()), p.value()[e]});
      }
      std::sort(row.begin(), row.end(), [](const Entry& x, const Entry& y) {
        return x.column != y.column ? x.column < y.column : x.order < y.order;
      });
      Index next = most[at(k)];
      for (std::size_t e = 0; e < row.size(); ++e) {
        if (e > 0 && row[e].column == row[e - 1].column) {
          value[at(next - 1)] += row[e].value;
          continue;
        }
        column[at(next)] = row[e].column;
        value[at(next++)] = row[e].value;
      }
      sum.start[at(k) + 1] = next - most[at(k)];
    }
  });
  for (Index k = 0; k < rows; ++k) sum.start[at(k) + 1] += sum.start[at(k)];
  sum.column.resize(at(sum.start.back()));
  sum.value.resize(at(sum.start.back()));
  parallel_ranges(rows, grain, [&](Index k, Index end) {
    for (; k < end; ++k) {
      const Index from = most[at(k)], count = sum.start[at(k) + 1] - sum.start[at(k)];
      std::copy_n(column.begin() + from, count, sum.column.begin() + sum.start[at(k)]);
      std::copy_n(value.begin() + from, count, sum.value.begin() + sum.start[at(k)]);
      sum.row[at(k)] -= begin;
    }
  });
  return sum;
}

}  // namespace terrace::cg
