#include "src/cg/coarse_rows.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"

namespace terrace::cg {

std::vector<Index> distinct(std::vector<Index> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

ColumnNumbers columns_of(const Control& control, const std::vector<Index>& first,
                         const std::vector<Index>& needed) {
  const auto me = at(control.rank());
  return {first[me + 1] - first[me], first[me], needed};
}

namespace {

/// give(i, out) appends what a rank that asked for own row i gets; what came for the needed rows, in
/// their order. Collective.
template <class T, class F>
std::vector<T> from_owners(const Control& control, const AskedEntries& asked, const F& give) {
  std::vector<std::vector<T>> parts(asked.size());
  collectively(control, [&] {
    for (std::size_t r = 0; r < asked.size(); ++r)
      for (const Index i : asked[r]) give(i, parts[r]);
  });
  parts = deal(control, std::move(parts));
  return collectively(control, [&] {
    std::vector<T> all;
    for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  });
}

/// Sums over the ranks of `t`, whose rows are own ones and `needed_rows` of other ranks, and whose
/// columns are numbered by `number`. Collective.
RankRows gathered(const Control& control, const std::vector<Index>& first_row,
                  const std::vector<Index>& needed_rows, const HostRows& t,
                  const std::vector<Index>& first_column, const ColumnNumbers& number) {
  const Index own = first_row[at(control.rank()) + 1] - first_row[at(control.rank())];
  // Of each row for another rank its number, the number of its entries and their columns; and beside it
  // their values.
  std::vector<std::vector<Index>> lines(at(control.size()));
  std::vector<std::vector<double>> values(lines.size());
  collectively(control, [&] {
    for (std::size_t k = 0; k < needed_rows.size(); ++k) {
      const auto r = at(owner_of(first_row, needed_rows[k]));
      const Index from = t.start[at(own) + k], to = t.start[at(own) + k + 1];
      lines[r].insert(lines[r].end(), {needed_rows[k] - first_row[r], to - from});
      for (Index e = from; e < to; ++e) {
        lines[r].push_back(number(t.column[at(e)]));
        values[r].push_back(t.value[at(e)]);
      }
    }
  });
  lines = deal(control, std::move(lines));
  values = deal(control, std::move(values));
  // f(row, its entries, their columns, their values) of the rows that came, in the order of the ranks.
  const auto each = [&](const auto& f) {
    for (std::size_t r = 0; r < lines.size(); ++r) {
      const double* value = values[r].data();
      for (const Index *line = lines[r].data(), *end = line + lines[r].size(); line != end;) {
        const Index row = line[0], count = line[1];
        f(row, count, line + 2, value);
        line += 2 + count;
        value += count;
      }
    }
  };
  return collectively(control, [&] {
    CsrSlice all;
    all.start.assign(at(own) + 1, 0);
    for (Index i = 0; i < own; ++i) all.start[at(i) + 1] = t.start[at(i) + 1] - t.start[at(i)];
    each([&](Index row, Index count, const Index*, const double*) {
      all.start[at(row) + 1] += count;
    });
    for (Index i = 0; i < own; ++i) all.start[at(i) + 1] += all.start[at(i)];
    all.column.resize(at(all.start.back()));
    all.value.resize(at(all.start.back()));
    std::vector<Index> next(all.start.begin(), all.start.end() - 1);
    const auto put = [&](Index i, Index column, double value) {
      all.column[at(next[at(i)])] = column;
      all.value[at(next[at(i)]++)] = value;
    };
    for (Index i = 0; i < own; ++i)
      for (Index e = t.start[at(i)]; e < t.start[at(i) + 1]; ++e)
        put(i, number(t.column[at(e)]), t.value[at(e)]);
    each([&](Index row, Index count, const Index* column, const double* value) {
      for (Index e = 0; e < count; ++e) put(row, column[e], value[e]);
    });
    all.normalise();  // adds in the order of the ranks
    return numbered(first_column, control.rank(), all);
  });
}

}  // namespace

RankRows with_needed_rows(const Control& control, const RankRows& a, const RankRows& p) {
  const AskedEntries asked = asked_entries(control, a.first, a.needed);
  const ColumnNumbers number = columns_of(control, p.first, p.needed);
  const auto entries = [&](Index i, const auto& f) {
    for (Index e = p.rows.start[at(i)]; e < p.rows.start[at(i) + 1]; ++e) f(e);
  };
  // Of each row the number of its entries and their columns; and beside it their values.
  const std::vector<Index> lines =
      from_owners<Index>(control, asked, [&](Index i, std::vector<Index>& out) {
        out.push_back(p.rows.start[at(i) + 1] - p.rows.start[at(i)]);
        entries(i, [&](Index e) { out.push_back(number(p.rows.column[at(e)])); });
      });
  const std::vector<double> values =
      from_owners<double>(control, asked, [&](Index i, std::vector<double>& out) {
        entries(i, [&](Index e) { out.push_back(p.rows.value[at(e)]); });
      });
  return collectively(control, [&] {
    CsrSlice all = p.slice(control.rank());
    for (auto k = lines.begin(); k != lines.end();) {
      const Index count = *k++;
      all.column.insert(all.column.end(), k, k + count);
      all.start.push_back(Index(all.column.size()));
      k += count;
    }
    all.value.insert(all.value.end(), values.begin(), values.end());
    return numbered(p.first, control.rank(), all);
  });
}

RankRows prolongation_of(const Control& control, const RankRows& a,
                         const std::vector<double>& diagonal, double threshold,
                         Aggregates& aggregates, bool smooth) {
  const AskedEntries asked = asked_entries(control, a.first, a.needed);
  const std::vector<double> other_diagonal = from_owners<double>(
      control, asked, [&](Index i, std::vector<double>& out) { out.push_back(diagonal[at(i)]); });
  LargeVector<char> strong;
  collectively(control, [&] {
    std::vector<double> all = diagonal;
    all.insert(all.end(), other_diagonal.begin(), other_diagonal.end());
    strong = strong_entries(a.rows.view(), {all.data(), Index(all.size())}, threshold);
    if (aggregates.of.empty()) aggregates = aggregate(a.rows.view(), strong);
  });
  RankRows p;
  p.first.push_back(0);
  for (const Index count : control.gather_all(aggregates.count))
    p.first.push_back(p.first.back() + count);
  if (!smooth) {
    collectively(control, [&] { p.rows = tentative_prolongation(aggregates); });
    return p;
  }
  const Index begin = p.first[at(control.rank())], own = a.rows.rows();
  std::vector<Index> other =
      from_owners<Index>(control, asked, [&](Index i, std::vector<Index>& out) {
        out.push_back(aggregates.of[at(i)] < 0 ? -1 : begin + aggregates.of[at(i)]);
      });
  collectively(control, [&] {
    Aggregates reached = aggregates;  // and those of other ranks
    std::vector<char> used(other.size(), 0);
    for (std::size_t e = 0; e < strong.size(); ++e)
      if (strong[e] && a.rows.column[e] >= own) used[at(a.rows.column[e] - own)] = 1;
    for (std::size_t k = 0; k < other.size(); ++k) {
      if (!used[k]) other[k] = -1;
      if (other[k] >= 0) p.needed.push_back(other[k]);
    }
    p.needed = distinct(std::move(p.needed));
    for (const Index number : other) {
      const Index place =
          std::lower_bound(p.needed.begin(), p.needed.end(), number) - p.needed.begin();
      reached.of.push_back(std::int32_t(number < 0 ? -1 : aggregates.count + place));
    }
    reached.count += Index(p.needed.size());
    p.rows = smoothed_prolongation(a.rows, strong, diagonal, reached);
  });
  return p;
}

RankRows restriction_of(const Control& control, const RankRows& p, const HostRows& turned,
                        const std::vector<Index>& first) {
  if (control.size() == 1) return {first, {}, turned};
  const std::vector<Index> none;
  return gathered(control, p.first, p.needed, turned, first, columns_of(control, first, none));
}

double expected_nonzeros(const Control& control, const RankRows& a, const RankRows& p,
                         const HostRows& turned, const RankRows& all) {
  constexpr Index samples = 200;
  const double mine = collectively(control, [&] {
    const Index own = p.first[at(control.rank()) + 1] - p.first[at(control.rank())];
    const Index step = std::max<Index>(1, own / samples);
    HostRows some;
    some.columns = turned.columns;
    for (Index i = 0; i < own; i += step) {
      const Index from = turned.start[at(i)], to = turned.start[at(i) + 1];
      some.column.insert(some.column.end(), turned.column.begin() + from,
                         turned.column.begin() + to);
      some.value.insert(some.value.end(), turned.value.begin() + from, turned.value.begin() + to);
      some.start.push_back(Index(some.column.size()));
    }
    const HostRows rows = product(product(some, a.rows), all.rows);
    return double(rows.nonzeros()) * double(own) / double(std::max<Index>(1, rows.rows()));
  });
  return control.reduce(mine, Reduce::sum);
}

RankRows coarse_rows(const Control& control, const RankRows& a, const RankRows& p,
                     const HostRows& turned, const RankRows& all,
                     const std::vector<double>& diagonal, bool& definite) {
  HostRows mine = collectively(control, [&] { return product(turned, product(a.rows, all.rows)); });
  RankRows coarse{p.first, {}, {}};
  if (control.size() == 1)
    coarse.rows = transposed(mine);  // itself, with sorted columns
  else
    coarse = gathered(control, p.first, p.needed, mine, p.first,
                      columns_of(control, p.first, all.needed));
  const bool positive =
      collectively(control, [&] { return settle_null_vectors(coarse.rows, p.rows, diagonal); });
  definite = control.reduce(Index(positive), Reduce::min) > 0;
  return coarse;
}

RankRows numbered(std::vector<Index> first, int rank, const CsrSlice& a) {
  RankRows result{std::move(first), {}, {}};
  const Index begin = result.first[at(rank)], end = result.first[at(rank) + 1];
  const auto is_own = [&](Index c) { return c >= begin && c < end; };
  for (const Index c : a.column)
    if (!is_own(c)) result.needed.push_back(c);
  result.needed = distinct(std::move(result.needed));
  HostRows& rows = result.rows;
  rows.start.assign(a.start.begin(), a.start.end());
  rows.value = a.value;
  rows.columns = end - begin + Index(result.needed.size());
  rows.column.resize(a.column.size());
  const auto from = result.needed.begin(), to = result.needed.end();
  for (std::size_t e = 0; e < a.column.size(); ++e) {
    const Index c = a.column[e];
    rows.column[e] =
        std::int32_t(is_own(c) ? c - begin : end - begin + (std::lower_bound(from, to, c) - from));
  }
  return result;
}

}  // namespace terrace::cg
