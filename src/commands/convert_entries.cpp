#include "src/commands/convert_entries.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

using io::Triplet;

Entries::Entries(const Control& control, Index rows, Index columns, Index parts)
    : all_rows_(rows),
      columns_(columns),
      block_(contiguous(rows, control.size()).block),
      rows_(own_slice(control, rows)),
      ranks_(control.size()),
      read_(std::size_t(parts)) {
  const Index wished = std::clamp<Index>(1024 / ranks_, 16, 256);
  while (ceil_div(block_, Index(1) << shift_) > wished) ++shift_;
  per_rank_ = ceil_div(block_, Index(1) << shift_);
}

Index Entries::memory(const Control& control, Index entries) {
  return entries * Index(sizeof(Entry)) * (control.size() > 1 ? 3 : 1);
}

void Entries::put(Index k, std::span<const Triplet> part) {
  Read& to = read_[std::size_t(k)];
  const auto group_of = [&](Index row) {
    const Index rank = ranks_ == 1 ? 0 : row / block_;
    return std::size_t(rank * per_rank_ + ((row - rank * block_) >> shift_));
  };
  to.start.assign(std::size_t(ranks_ * per_rank_ + 1), 0);
  for (const Triplet& t : part) ++to.start[group_of(t.row) + 1];
  std::partial_sum(to.start.begin(), to.start.end(), to.start.begin());
  to.entries.resize(part.size());
  std::vector<Index> next(to.start.begin(), to.start.end() - 1);
  const Index mask = (Index(1) << shift_) - 1;
  for (const Triplet& t : part) {
    const Index in_rank = ranks_ == 1 ? t.row : t.row % block_;
    to.entries[std::size_t(next[group_of(t.row)]++)] = {
        Word(in_rank & mask) << column_bits | Word(t.column), t.value};
  }
}

/// For each part: where the groups of `rank` begin, and their entries.
LargeVector<char> Entries::message(Index rank) const {
  const Index first = rank * per_rank_, table = (per_rank_ + 1) * Index(sizeof(Index));
  std::size_t bytes = 0;
  for (const Read& part : read_)
    bytes += std::size_t(
        table + (part.start[std::size_t(first + per_rank_)] - part.start[std::size_t(first)]) *
                    Index(sizeof(Entry)));
  LargeVector<char> text;
  text.resize(bytes);
  char* to = text.data();
  for (const Read& part : read_) {
    const Index* const start = part.start.data() + first;
    for (Index g = 0; g <= per_rank_; ++g) {
      const Index relative = start[g] - start[0];
      std::memcpy(to + g * Index(sizeof relative), &relative, sizeof relative);
    }
    to += table;
    const auto size = std::size_t(start[per_rank_] - start[0]) * sizeof(Entry);
    if (size > 0) std::memcpy(to, part.entries.data() + start[0], size);
    to += size;
  }
  return text;
}

void Entries::take(const LargeVector<char>& message) {
  for (const char* at = message.data(); at < message.data() + message.size();) {
    Part part;
    part.start = reinterpret_cast<const Index*>(at);
    part.entries = reinterpret_cast<const Entry*>(part.start + per_rank_ + 1);
    at = reinterpret_cast<const char*>(part.entries + part.start[per_rank_]);
    parts_.push_back(part);
  }
}

void Entries::deal(const Control& control) {
  const Index own = control.rank();
  if (ranks_ > 1) {
    std::vector<LargeVector<char>> to(static_cast<std::size_t>(ranks_));
    collectively(control, [&] {
      for (Index r = 0; r < ranks_; ++r)
        if (r != own) to[std::size_t(r)] = message(r);
    });
    received_ = terrace::deal(control, std::move(to));
  }
  parts_.clear();
  for (Index r = 0; r < ranks_; ++r) {
    if (r != own) {
      take(received_[std::size_t(r)]);
      continue;
    }
    for (const Read& part : read_)
      parts_.push_back({part.start.data() + own * per_rank_, part.entries.data()});
  }
}

namespace {

/// This rank's rows in compressed form: sorted by column, duplicates summed in file order.
class Compressed {
 public:
  /// Takes 16 bytes per entry and 8 per row.
  explicit Compressed(const Entries& entries) {
    std::vector<Index> begin{0};  // of each group
    for (Index g = 0; g < entries.groups(); ++g) begin.push_back(begin.back() + entries.count(g));
    end_.resize(std::size_t(entries.rows().count));
    column.resize(std::size_t(begin.back()));
    value.resize(std::size_t(begin.back()));
    std::vector<Index> end(begin.size());
    parallel_for(entries.groups(),
                 [&](Index g) { end[std::size_t(g)] = put(entries, g, begin[std::size_t(g)]); });
    for (Index g = 0; g < entries.groups(); ++g)
      append(entries, g, begin[std::size_t(g)], end[std::size_t(g)]);
    column.resize(std::size_t(size_));
    value.resize(std::size_t(size_));
  }
  /// Where this rank's row i begins; its last row plus one: the number of entries.
  [[nodiscard]] Index start(Index i) const { return i == 0 ? 0 : end_[std::size_t(i - 1)]; }
  [[nodiscard]] Index size() const { return size_; }
  LargeVector<Index> column;
  LargeVector<double> value;

 private:
  /// Group g from `begin` on, sorted by rows; where it ends.
  Index put(const Entries& entries, Index g, Index begin) {
    const Range rows = entries.rows_of(g);
    Index* const next = end_.data() + (rows.first - entries.rows().first);
    std::fill_n(next, rows.count, Index(0));
    entries.each(g, [&](Index row, Index, double) { ++next[row - rows.first]; });
    Index sum = begin;
    for (Index i = 0; i < rows.count; ++i) sum += std::exchange(next[i], sum);
    entries.each(g, [&](Index row, Index j, double v) {
      const auto at = std::size_t(next[row - rows.first]++);
      column[at] = j;
      value[at] = v;
    });
    Index to = begin;  // behind what is kept
    for (Index i = 0, from = begin; i < rows.count; ++i) {
      const Index end = next[i];
      const Index kept = tidy(from, end);
      move(from, kept, to);
      next[i] = to += kept;
      from = end;
    }
    return to;
  }
  /// Moves what is left of group g to the end of the groups before it.
  void append(const Entries& entries, Index g, Index begin, Index end) {
    const Range rows = entries.rows_of(g);
    const Index back = begin - size_, first = rows.first - entries.rows().first;
    move(begin, end - begin, size_);
    if (back > 0)
      for (Index i = first; i < first + rows.count; ++i) end_[std::size_t(i)] -= back;
    size_ += end - begin;
  }
  void move(Index from, Index count, Index to) {
    if (from == to) return;
    std::copy_n(column.begin() + from, count, column.begin() + to);
    std::copy_n(value.begin() + from, count, value.begin() + to);
  }
  /// Sorts and sums entries [begin, end) of one row; how many are left.
  Index tidy(Index begin, Index end) {
    const auto first = column.begin() + begin, last = column.begin() + end;
    if (std::adjacent_find(first, last, std::greater_equal<>()) == last) return end - begin;
    std::vector<std::pair<Index, double>> row;
    for (Index k = begin; k < end; ++k)
      row.emplace_back(column[std::size_t(k)], value[std::size_t(k)]);
    std::stable_sort(row.begin(), row.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Index kept = 0;
    for (const auto& [j, v] : row) {
      const auto at = std::size_t(begin + kept);
      if (kept > 0 && column[at - 1] == j) {
        value[at - 1] += v;
        continue;
      }
      column[at] = j;
      value[at] = v;
      ++kept;
    }
    return kept;
  }

  LargeVector<Index> end_;  // of each row
  Index size_ = 0;
};

void write_csr(Run& run, io::Output& output, const Entries& entries) {
  const Control& control = run.control;
  const Compressed mine = collectively(control, [&] { return Compressed(entries); });
  const Range rows = entries.rows();
  const auto counts = control.gather_all(mine.size());
  const Index before = std::accumulate(counts.begin(), counts.begin() + control.rank(), Index(0));
  const Index nonzeros = std::accumulate(counts.begin(), counts.end(), Index(0));
  const bool last = rows.end() == entries.all_rows() && (rows.count > 0 || control.rank() == 0);
  const std::vector<Range> own{{before, mine.size()}};
  const std::vector<Range> pointers{{rows.first, rows.count + (last ? 1 : 0)}};
  show_bytes(run, Moved::written, 16.0 * double(mine.size()) + 8.0 * double(rows.count),
             16.0 * double(nonzeros) + 8.0 * double(entries.all_rows()));
  output.group("A");
  output.write<Index>("indptr", entries.all_rows() + 1, -1, pointers,
                      [&](Index p, Index count, Index* out) {
                        for (Index i = 0; i < count; ++i) out[i] = before + mine.start(p + i);
                      });
  output.write_held("indices", nonzeros, -1, own, mine.column.data());
  output.write_held("data", nonzeros, -1, own, mine.value.data());
  output.attribute("shape", std::vector<Index>{entries.all_rows(), entries.columns()});
  output.attribute("encoding-type", std::string("csr_matrix"));
  output.attribute("encoding-version", std::string("0.1.0"));
  output.group("");
  run.report["nonzeros"] = nonzeros;
}

void write_bits(Run& run, io::Output& output, const std::string& file, const Entries& entries) {
  const Control& control = run.control;
  const Range rows = entries.rows();
  const Index words = ceil_div(entries.columns(), 64);
  require_memory(control, rows.count * words * 8, 0);
  std::vector<io::Offender> fractions(std::size_t(entries.groups()));
  const auto bits = collectively(control, [&] {
    std::vector<Word> result(std::size_t(rows.count * words));
    parallel_for(entries.groups(), [&](Index g) {
      entries.each(g, [&](Index i, Index j, double value) {
        const double odd = std::fabs(std::fmod(value, 2.0));
        if (odd == 1)
          result[std::size_t((i - rows.first) * words + j / 64)] ^= Word(1) << (j % 64);
        else if (odd != 0)
          fractions[std::size_t(g)].note(i, j, value);
      });
    });
    return result;
  });
  io::Offender fraction;
  for (const io::Offender& f : fractions) fraction.note(f.row, f.column, f.value);
  if (const auto first = io::first_offender(control, fraction))
    fail_together(Exit::input, fmt::format("a value that is not whole: {}; {} row {}, column {}; "
                                           "over GF(2) values are odd or even",
                                           first->value, file, first->row, first->column));
  output.write_held("A", entries.all_rows(), words, {&rows, 1}, bits.data(),
                    {{"columns", entries.columns()}, {"format", std::string("bits")}});
}

}  // namespace

Writing writing_of(Run& run, const ConvertFrom& from, Entries entries) {
  const auto all = std::make_shared<const Entries>(std::move(entries));
  return [&run, from, all](io::Output& output) {
    if (from.bits)
      write_bits(run, output, from.file, *all);
    else
      write_csr(run, output, *all);
  };
}

}  // namespace terrace
