// Files of entries: Matrix Market, SMS and alist.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/shared_text.hpp"
#include "kernels/base/large_vector.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

using io::Triplet;
using Parts = std::vector<std::vector<Triplet>>;

Range own_slice(const Control& control, Index extent) {
  const auto ranges = contiguous(extent, control.size()).ranges(control.rank());
  return ranges.empty() ? Range{extent, 0} : ranges[0];
}

Index share(const Control& control, Index value) {
  return control.reduce(control.rank() == 0 ? value : 0, Reduce::sum);
}

Parts deal_by_rows(const Control& control, Index rows, Parts parts) {
  if (control.size() == 1) return parts;
  const Index block = contiguous(rows, control.size()).block;
  Parts to(static_cast<std::size_t>(control.size()));
  for (auto& part : parts) {
    for (const Triplet& t : part) to[std::size_t(t.row / block)].push_back(t);
    part = {};
  }
  return deal(control, std::move(to));
}

namespace {

/// Rows `rows` in compressed form: sorted by column, duplicates summed in file order.
struct Compressed {
  std::vector<Index> start;
  LargeVector<Index> column;
  LargeVector<double> value;

  Compressed(Range rows, const Parts& parts) : start(std::size_t(rows.count) + 1) {
    for (const auto& part : parts)
      for (const Triplet& t : part) ++start[std::size_t(t.row - rows.first) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    column.resize(std::size_t(start.back()));
    value.resize(std::size_t(start.back()));
    std::vector<Index> next(start.begin(), start.end() - 1);
    for (const auto& part : parts)
      for (const Triplet& t : part) {
        const auto at = std::size_t(next[std::size_t(t.row - rows.first)]++);
        column[at] = t.column;
        value[at] = t.value;
      }
    std::atomic<bool> shorter{false};
    parallel_ranges(rows.count, 1024, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        const Index kept = tidy(start[std::size_t(i)], start[std::size_t(i) + 1]);
        next[std::size_t(i)] = kept;
        if (kept != start[std::size_t(i) + 1] - start[std::size_t(i)]) shorter = true;
      }
    });
    if (shorter) close_gaps(next);
  }

 private:
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
  void close_gaps(const std::vector<Index>& kept) {
    Index to = 0;
    for (std::size_t i = 0; i + 1 < start.size(); ++i) {
      const Index from = start[i];
      start[i] = to;
      std::copy_n(column.begin() + from, kept[i], column.begin() + to);
      std::copy_n(value.begin() + from, kept[i], value.begin() + to);
      to += kept[i];
    }
    start.back() = to;
    column.resize(std::size_t(to));
    value.resize(std::size_t(to));
  }
};

void write_csr(Run& run, io::Output& output, Index all_rows, Index columns, const Range& rows,
               const Parts& parts) {
  const Control& control = run.control;
  Compressed mine = collectively(control, [&] { return Compressed(rows, parts); });
  const Index kept = mine.start.back();
  const auto counts = control.gather_all(kept);
  const Index before = std::accumulate(counts.begin(), counts.begin() + control.rank(), Index(0));
  const Index nonzeros = std::accumulate(counts.begin(), counts.end(), Index(0));
  const bool last = rows.end() == all_rows && (rows.count > 0 || control.rank() == 0);
  const std::vector<Range> entries{{before, kept}};
  const std::vector<Range> pointer_rows{{rows.first, rows.count + (last ? 1 : 0)}};
  output.group("A");
  output.write<Index>("indptr", all_rows + 1, -1, pointer_rows,
                      [&](Index p, Index count, Index* out) {
                        for (Index i = 0; i < count; ++i)
                          out[i] = before + mine.start[std::size_t(p + i)];
                      });
  const auto put = [&]<class T>(const char* name, const LargeVector<T>& from) {
    output.write<T>(name, nonzeros, -1, entries, [&](Index p, Index count, T* out) {
      parallel_ranges(count, 1 << 16, [&](Index first, Index end) {
        std::copy(from.begin() + p + first, from.begin() + p + end, out + first);
      });
    });
  };
  put("indices", mine.column);
  put("data", mine.value);
  output.attribute("shape", std::vector<Index>{all_rows, columns});
  output.attribute("encoding-type", std::string("csr_matrix"));
  output.attribute("encoding-version", std::string("0.1.0"));
  output.group("");
  run.report["nonzeros"] = nonzeros;
}

void write_bits(Run& run, io::Output& output, const std::string& file, Index all_rows,
                Index columns, const Range& rows, const Parts& parts) {
  const Control& control = run.control;
  const Index words = ceil_div(columns, 64);
  require_memory(control, rows.count * words * 8, 0);
  io::Offender fraction;
  const auto bits = collectively(control, [&] {
    std::vector<Word> result(std::size_t(rows.count * words));
    for (const auto& part : parts)
      for (const Triplet& t : part) {
        const double odd = std::fabs(std::fmod(t.value, 2.0));
        if (odd == 1)
          result[std::size_t((t.row - rows.first) * words + t.column / 64)] ^= Word(1)
                                                                               << (t.column % 64);
        else if (odd != 0)
          fraction.note(t.row, t.column, t.value);
      }
    return result;
  });
  if (const auto first = io::first_offender(control, fraction))
    fail_together(Exit::input, fmt::format("a value that is not whole: {}; {} row {}, column {}; "
                                           "over GF(2) values are odd or even",
                                           first->value, file, first->row, first->column));
  output.write<Word>("A", all_rows, words, {&rows, 1},
                     [&](Index p, Index count, Word* out) {
                       std::copy_n(bits.begin() + p * words, count * words, out);
                     },
                     {{"columns", columns}, {"format", std::string("bits")}});
}

}  // namespace

void write_entries(Run& run, io::Output& output, const ConvertFrom& from, Index rows, Index columns,
                   const Parts& mine) {
  const Range slice = own_slice(run.control, rows);
  if (from.bits)
    write_bits(run, output, from.file, rows, columns, slice, mine);
  else
    write_csr(run, output, rows, columns, slice, mine);
}

namespace {

struct MarketHeader {
  Index coordinate = 0, pattern = 0, symmetric = 0, skew = 0, rows = 0, columns = 0, entries = 0;
  Index body = 0;  ///< byte of the first entry; -1: of a stream
};

MarketHeader read_market_header(io::TextReader& reader) {
  std::string line;
  reader.line(line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return char(std::tolower(c)); });
  const auto says = [&](const char* word) { return line.find(word) != std::string::npos; };
  if (line.rfind("%%matrixmarket", 0) != 0 || !says(" matrix"))
    reader.fail("no Matrix Market header", "the first line is '%%MatrixMarket matrix ...'");
  if (says("complex") || says("hermitian"))
    reader.fail("complex matrices are not taken", "store a real matrix");
  MarketHeader h;
  h.coordinate = says("coordinate");
  if (!h.coordinate && !says("array"))
    reader.fail("neither coordinate nor array", "the first line names one of them");
  h.pattern = says("pattern");
  h.skew = says("skew-symmetric");
  h.symmetric = says("symmetric");
  if (h.pattern && !h.coordinate) reader.fail("an array has no pattern", "use coordinate");
  for (;;) {  // comments, then the sizes
    if (!reader.line(line))
      reader.fail("the file ends before its sizes", "give rows, columns, entries");
    const auto first = line.find_first_not_of(" \t");
    if (first != std::string::npos && line[first] != '%') break;
  }
  Index rows = 0, columns = 0, entries = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  for (Index* const size : {&rows, &columns, &entries}) {
    if (size == &entries && !h.coordinate) break;
    while (at < end && (*at == ' ' || *at == '\t')) ++at;
    const auto [next, error] = std::from_chars(at, end, *size);
    const bool ends = next == end || *next == ' ' || *next == '\t' || *next == '\r';
    if (error != std::errc() || !ends || *size < 0)
      reader.fail(error == std::errc::result_out_of_range ? "impossible sizes: " + in_quotes(line)
                                                          : "no sizes: " + in_quotes(line),
                  h.coordinate ? "give rows, columns, entries" : "give rows, columns");
    at = next;
  }
  reader.require_extents(double(rows), double(columns));
  h.rows = rows;
  h.columns = columns;
  if (h.symmetric && rows != columns) reader.fail("symmetric but not square", "use general");
  const double half = h.skew ? 0.5 * (double(rows) - 1) : 0.5 * (double(rows) + 1);
  const double numbers = h.coordinate  ? double(entries)
                         : h.symmetric ? double(rows) * half
                                       : double(rows) * double(columns);
  const double least = !h.coordinate ? 1 : h.pattern ? 3 : 5;  // "1", "1 1" and "1 1 1"
  reader.require_room(numbers, least, fmt::format("{:.17g} entries", numbers));
  h.entries = h.coordinate ? entries : h.symmetric ? rows * (rows + 1) / 2 : rows * columns;
  if (h.skew && !h.coordinate) h.entries = rows * (rows - 1) / 2;
  h.body = reader.offset();
  return h;
}

/// Rank 0 reads the entries in pieces and tells them to all; keep(triplet) on every rank. Symmetric
/// entries come twice. What is wrong is named with its line.
template <class F>
void each_market_entry(const Control& control, io::TextReader* reader, const MarketHeader& h,
                       const F& keep) {
  constexpr Index piece = Index(1) << 18;
  std::vector<Triplet> entries;
  Index row = h.skew ? 1 : 0, column = 0;  // of the array form
  for (Index done = 0; done < h.entries; done += piece) {
    const Index count = std::min(piece, h.entries - done);
    collectively(control, [&] {
      entries.resize(std::size_t(count));
      if (control.rank() != 0) return;
      for (Triplet& t : entries) {
        if (h.coordinate) {
          t.row = reader->whole() - 1;
          t.column = reader->whole() - 1;
          if (t.row < 0 || t.row >= h.rows || t.column < 0 || t.column >= h.columns)
            reader->fail(
                fmt::format("entry ({}, {}) lies outside the matrix", t.row + 1, t.column + 1),
                fmt::format("indices go from 1 to {} and {}", h.rows, h.columns));
          t.value = h.pattern ? 1.0 : reader->number();
        } else {
          t = {row, column, reader->number()};
          if (++row == h.rows) row = h.symmetric ? ++column + h.skew : (++column, 0);
        }
      }
      std::string_view more;
      if (done + count == h.entries && reader->word(more))
        reader->fail(fmt::format("more than {} entries", h.entries), "correct the sizes");
    });
    control.broadcast(entries.data(), count * Index(sizeof(Triplet)), 0);
    for (const Triplet& t : entries) {
      keep(t);
      if (h.symmetric && t.row != t.column) keep({t.column, t.row, h.skew ? -t.value : t.value});
    }
  }
}

/// One line's whole number; moves behind it and the blanks around it.
bool take_whole(const char*& at, const char* end, Index& value) {
  while (at < end && (*at == ' ' || *at == '\t')) ++at;
  const char* const first = at;
  Index sum = 0;
  for (; at < end && *at >= '0' && *at <= '9'; ++at) sum = sum * 10 + (*at - '0');
  value = sum;
  return at > first && at - first <= 18 && (at == end || *at == ' ' || *at == '\t' || *at == '\r');
}

bool take_number(const char*& at, const char* end, double& value) {
  while (at < end && (*at == ' ' || *at == '\t')) ++at;
  if (at < end && *at == '+') ++at;
  const auto [next, error] = std::from_chars(at, end, value);
  at = next;
  return error == std::errc() && std::isfinite(value) &&
         (at == end || *at == ' ' || *at == '\t' || *at == '\r');
}

bool rest_is_blank(const char* at, const char* end) {
  return std::all_of(at, end, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
}

/// The entries of one block of lines; false where a line is not just an entry inside the matrix.
bool parse_block(std::string_view text, const MarketHeader& h, std::vector<Triplet>& out,
                 Index& count) {
  out.reserve(text.size() / 16);
  std::string_view line;
  while (io::next_line(text, line)) {
    const char* at = line.data();
    const char* const end = at + line.size();
    if (rest_is_blank(at, end)) continue;
    Triplet t{0, 0, 1};
    if (!take_whole(at, end, t.row) || !take_whole(at, end, t.column) ||
        (!h.pattern && !take_number(at, end, t.value)) || !rest_is_blank(at, end))
      return false;
    --t.row;
    --t.column;
    if (t.row < 0 || t.row >= h.rows || t.column < 0 || t.column >= h.columns) return false;
    ++count;
    out.push_back(t);
    if (h.symmetric && t.row != t.column)
      out.push_back({t.column, t.row, h.skew ? -t.value : t.value});
  }
  return true;
}

/// Coordinates read by all ranks and threads. False where anything is unusual: reading in order
/// then says what.
bool parse_together(const Control& control, const std::string& file, const MarketHeader& h,
                    Parts& parts) {
  if (h.body < 0 || !h.coordinate) return false;
  const io::SharedText text(control, file, h.body);
  if (!text.possible()) return false;
  const Range blocks = text.blocks();
  parts.assign(std::size_t(blocks.count), {});
  std::atomic<bool> good{true};
  std::atomic<Index> count{0};
  collectively(control, [&] {
    parallel_for(blocks.count, [&](Index k) {
      thread_local std::vector<char> buffer;
      Index mine = 0;
      if (!parse_block(text.block(blocks.first + k, buffer), h, parts[std::size_t(k)], mine))
        good = false;
      count += mine;
    });
  });
  if (control.reduce(Index(good), Reduce::min) == 0) return false;
  return control.reduce(count.load(), Reduce::sum) == h.entries;
}

}  // namespace

void matrix_market_to_hdf5(Run& run, const ConvertFrom& from, io::Output& output) {
  const Control& control = run.control;
  std::unique_ptr<io::TextReader> reader;
  MarketHeader h;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    reader = std::make_unique<io::TextReader>(from.file);
    h = read_market_header(*reader);
  });
  control.broadcast(&h, sizeof h, 0);
  run.report["n"] = h.rows;
  run.report["columns"] = h.columns;
  const Range rows = own_slice(control, h.rows);
  if (h.coordinate) {
    const Index entries = h.entries / control.size() * (h.symmetric ? 2 : 1);
    require_memory(control, (rows.count + 1) * 8 + entries * Index(sizeof(Triplet)), 0);
    Parts parts;
    if (!parse_together(control, from.file, h, parts)) {
      parts.assign(1, {});
      each_market_entry(control, reader.get(), h, [&](const Triplet& t) {
        if (t.row >= rows.first && t.row < rows.end()) parts[0].push_back(t);
      });
    } else {
      parts = deal_by_rows(control, h.rows, std::move(parts));
    }
    return write_entries(run, output, from, h.rows, h.columns, parts);
  }
  require_memory(control, rows.count * h.columns * 8, 0);
  std::vector<double> mine = collectively(
      control, [&] { return std::vector<double>(std::size_t(rows.count * h.columns)); });
  each_market_entry(control, reader.get(), h, [&](const Triplet& t) {
    if (t.row >= rows.first && t.row < rows.end())
      mine[std::size_t((t.row - rows.first) * h.columns + t.column)] = t.value;
  });
  write_numbers(output, "A", from.file, h.rows, h.columns, false, from.bits, rows,
                [&](Index p, Index count, double* out) {
                  std::copy_n(mine.begin() + p * h.columns, count * h.columns, out);
                });
}

namespace {

/// Entries that rank 0 has read, to the ranks of their rows; sizes to all.
void write_from_first(Run& run, io::Output& output, const ConvertFrom& from, Index rows,
                      Index columns, std::vector<Triplet> entries) {
  rows = share(run.control, rows);
  columns = share(run.control, columns);
  run.report["n"] = rows;
  run.report["columns"] = columns;
  Parts parts(1, std::move(entries));
  write_entries(run, output, from, rows, columns,
                deal_by_rows(run.control, rows, std::move(parts)));
}

}  // namespace

void sms_to_hdf5(Run& run, const ConvertFrom& from, io::Output& output) {
  Index rows = 0, columns = 0;
  std::vector<Triplet> entries;
  collectively(run.control, [&] {
    if (run.control.rank() != 0) return;
    io::TextReader reader(from.file);
    rows = reader.whole();
    columns = reader.whole();
    if (rows < 0 || columns < 0)
      reader.fail("impossible sizes", "the file begins with rows, columns, M");
    reader.require_extents(double(rows), double(columns));
    std::string_view kind;
    if (!reader.word(kind) || (kind[0] >= '0' && kind[0] <= '9'))
      reader.fail("no SMS header", "the file begins with rows, columns, and M");
    for (;;) {
      Triplet t;
      t.row = reader.whole() - 1;
      t.column = reader.whole() - 1;
      t.value = reader.number();
      if (t.row == -1 && t.column == -1 && t.value == 0) break;
      if (t.row < 0 || t.row >= rows || t.column < 0 || t.column >= columns)
        reader.fail(fmt::format("entry ({}, {}) lies outside the matrix", t.row + 1, t.column + 1),
                    fmt::format("indices go from 1 to {} and {}", rows, columns));
      entries.push_back(t);
    }
    std::string_view more;
    if (reader.word(more)) reader.fail("more behind the line 0 0 0", "that line ends the matrix");
  });
  write_from_first(run, output, from, rows, columns, std::move(entries));
}

namespace {

/// The positive numbers of a line, which zeros may follow.
std::vector<Index> numbered(io::TextReader& reader, Index count, Index extent) {
  std::string line;
  if (!reader.line(line)) reader.fail("the file ends too early", "give a line per column and row");
  std::string_view text = line, word;
  std::vector<Index> result;
  while (io::next_word(text, word)) {
    Index value = 0;
    if (!io::is_whole(word, value) || value < 0 || value > extent)
      reader.fail(in_quotes(word) + " is no position", fmt::format("use 1 to {}", extent));
    if (value > 0) result.push_back(value - 1);
  }
  if (Index(result.size()) != count)
    reader.fail(fmt::format("{} positions, where {} are announced", result.size(), count),
                "correct the weights");
  return result;
}

}  // namespace

void alist_to_hdf5(Run& run, const ConvertFrom& from, io::Output& output) {
  Index rows = 0, columns = 0;
  std::vector<Triplet> entries;
  collectively(run.control, [&] {
    if (run.control.rank() != 0) return;
    io::TextReader reader(from.file);
    columns = reader.whole();
    rows = reader.whole();
    if (rows < 0 || columns < 0)
      reader.fail("impossible sizes", "the file begins with columns, rows");
    reader.require_room(double(rows) + double(columns) + 4, 1, "the weights");
    (void)reader.whole();  // the largest weights
    (void)reader.whole();
    std::vector<Index> of_column(static_cast<std::size_t>(columns)),
        of_row(static_cast<std::size_t>(rows));
    for (auto* weights : {&of_column, &of_row})
      for (Index& weight : *weights) weight = reader.whole();
    std::string rest;
    reader.line(rest);
    for (Index j = 0; j < columns; ++j)
      for (const Index i : numbered(reader, of_column[std::size_t(j)], rows))
        entries.push_back({i, j, 1});
    std::vector<std::pair<Index, Index>> by_columns, by_rows;
    for (const Triplet& t : entries) by_columns.emplace_back(t.row, t.column);
    for (Index i = 0; i < rows; ++i)
      for (const Index j : numbered(reader, of_row[std::size_t(i)], columns))
        by_rows.emplace_back(i, j);
    std::sort(by_columns.begin(), by_columns.end());
    std::sort(by_rows.begin(), by_rows.end());
    if (by_rows != by_columns)
      reader.fail("the lists of the rows are not those of the columns", "write it again");
    if (std::adjacent_find(by_rows.begin(), by_rows.end()) != by_rows.end())
      reader.fail("a position twice in a list", "write it again");
  });
  write_from_first(run, output, {from.file, true}, rows, columns, std::move(entries));
}

}  // namespace terrace
