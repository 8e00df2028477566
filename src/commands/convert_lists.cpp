// Files of positions to HDF5: SMS and alist, read by the first rank.
#include <fmt/core.h>

#include <algorithm>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/shared_text.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_entries.hpp"

namespace terrace {

using io::Triplet;

Writing writing_of_first(Run& run, const ConvertFrom& from, Index rows, Index columns,
                         const std::vector<Triplet>& entries) {
  const Control& control = run.control;
  rows = share(control, rows);
  columns = share(control, columns);
  run.report["n"] = rows;
  run.report["columns"] = columns;
  Entries all(control, rows, columns, control.rank() == 0 ? 1 : 0);
  collectively(control, [&] {
    if (control.rank() == 0) all.put(0, entries);
  });
  return writing_of(run, from, std::move(all));
}

Writing read_sms(Run& run, const ConvertFrom& from) {
  Index rows = 0, columns = 0;
  std::vector<Triplet> entries;
  collectively(run.control, [&] {
    if (run.control.rank() != 0) return;
    io::TextReader reader(from.file);
    show_bytes(run, Moved::read, double(reader.size()));
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
    if (reader.word(more))
      reader.fail("more text after the line 0 0 0", "this line must end the file");
  });
  return writing_of_first(run, from, rows, columns, entries);
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
      reader.fail(in_quotes(word) + " is not a position", fmt::format("use 1 to {}", extent));
    if (value > 0) result.push_back(value - 1);
  }
  if (Index(result.size()) != count)
    reader.fail(fmt::format("{} positions, but {} were announced", result.size(), count),
                "correct the list of weights");
  return result;
}

}  // namespace

Writing read_alist(Run& run, const ConvertFrom& from) {
  Index rows = 0, columns = 0;
  std::vector<Triplet> entries;
  collectively(run.control, [&] {
    if (run.control.rank() != 0) return;
    io::TextReader reader(from.file);
    show_bytes(run, Moved::read, double(reader.size()));
    columns = reader.whole();
    rows = reader.whole();
    if (rows < 0 || columns < 0)
      reader.fail("impossible sizes", "the file begins with columns, rows");
    reader.require_extents(double(rows), double(columns));
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
  return writing_of_first(run, {from.file, true}, rows, columns, entries);
}

}  // namespace terrace
