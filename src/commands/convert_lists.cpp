// Files of positions to HDF5: SMS and alist.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/shared_text.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_coordinates.hpp"
#include "src/commands/convert_entries.hpp"

namespace terrace {

using io::Triplet;

namespace {

/// The two numbers that a file begins with; `named`: what stands there, for messages.
void read_sizes(io::TextReader& reader, Index& first, Index& second, const std::string& named) {
  first = reader.whole();
  second = reader.whole();
  if (first < 0 || second < 0) reader.fail("impossible sizes", "the file begins with " + named);
  reader.require_extents(double(first), double(second));
}

}  // namespace

Writing read_sms(Run& run, const ConvertFrom& from) {
  std::unique_ptr<io::TextReader> reader;
  Coordinates c;
  collectively(run.control, [&] {
    if (run.control.rank() != 0) return;
    reader = std::make_unique<io::TextReader>(from.file);
    read_sizes(*reader, c.rows, c.columns, "rows, columns, M");
    std::string_view kind;
    if (!reader->word(kind) || (kind[0] >= '0' && kind[0] <= '9'))
      reader->fail("no SMS header", "the file begins with rows, columns, and M");
    c.body = reader->offset();
  });
  run.control.broadcast(&c, sizeof c, 0);
  return read_coordinates(run, from, reader.get(), c);
}

namespace {

/// Behind the weights of an alist stands one line per column, then one per row:
///
///     1 3      rows of column 0, counted from one; zeros may follow
///     2
///     ...
///     1 4 0    columns of row 0
struct Lists {
  Index rows = 0, columns = 0;
  Index body = 0;              ///< byte of the first list
  std::vector<Index> weights;  ///< of the columns, then of the rows
  [[nodiscard]] Index count() const { return rows + columns; }
  /// Entry k of list `line`, numbers from one, in its place.
  [[nodiscard]] Triplet entry(Index line, Index number) const {
    return line < columns ? Triplet{number - 1, line, 1} : Triplet{line - columns, number - 1, 1};
  }
  [[nodiscard]] Index extent(Index line) const { return line < columns ? rows : columns; }
};

Lists read_lists(Run& run, const std::string& file) {
  const Control& control = run.control;
  Lists l;
  Index sizes[3] = {};
  collectively(control, [&] {
    if (control.rank() != 0) return;
    io::TextReader reader(file);
    read_sizes(reader, l.columns, l.rows, "columns, rows");
    reader.require_room(double(l.count()) + 4, 1, "the weights");
    (void)reader.whole();  // the largest weights
    (void)reader.whole();
    l.weights.resize(std::size_t(l.count()));
    double positions = 0;
    for (Index k = 0; k < l.count(); ++k) {
      const Index weight = l.weights[std::size_t(k)] = reader.whole();
      if (weight < 0 || weight > l.extent(k))
        reader.fail(fmt::format("a weight of {}", weight), fmt::format("use 0 to {}", l.extent(k)));
      positions += double(weight);
    }
    reader.require_room(double(l.count()) + 4 + positions, 1, "the lists");
    std::string rest;
    reader.line(rest);
    sizes[0] = l.rows;
    sizes[1] = l.columns;
    sizes[2] = reader.offset();
  });
  control.broadcast(sizes, sizeof sizes, 0);
  l.rows = sizes[0];
  l.columns = sizes[1];
  l.body = sizes[2];
  collectively(control, [&] { l.weights.resize(std::size_t(l.count())); });
  control.broadcast(l.weights.data(), l.count() * Index(sizeof(Index)), 0);
  return l;
}

/// The positive numbers of a line, which zeros may stand among, behind `out`. Empty, or the first
/// word that is no number up to `extent`.
std::string_view numbers_of(std::string_view line, Index extent, std::vector<Index>& out) {
  std::string_view word;
  while (io::next_word(line, word)) {
    Index value = 0;
    if (!io::is_whole(word, value) || value < 0 || value > extent) return word;
    if (value > 0) out.push_back(value);
  }
  return {};
}

/// A block of lines.
struct Block {
  std::vector<Index> numbers;  ///< of all lines
  std::vector<Index> ends;     ///< of each line, in `numbers`
  bool good = true;
};

Block parse_lists(std::string_view text) {
  Block block;
  std::string_view line;
  while (block.good && io::next_line(text, line)) {
    block.good = numbers_of(line, io::max_extent, block.numbers).empty();
    block.ends.push_back(Index(block.numbers.size()));
  }
  return block;
}

/// A block whose first list is list `line`: its entries by the lists of the columns, and by those
/// of the rows. False where one is not as it was announced.
bool take_lists(const Lists& l, const Block& block, Index line, std::vector<Triplet>& by_columns,
                std::vector<Triplet>& by_rows) {
  Index at = 0;
  for (const Index end : block.ends) {
    const Index count = end - at;
    if (line < l.count() ? count != l.weights[std::size_t(line)] : count > 0) return false;
    for (; at < end; ++at) {
      const Index number = block.numbers[std::size_t(at)];
      if (number > l.extent(line)) return false;
      (line < l.columns ? by_columns : by_rows).push_back(l.entry(line, number));
    }
    ++line;
  }
  return true;
}

/// Reads the lists in order to name what is wrong. Throws an agreed Error.
[[noreturn]] void explain_lists(const Control& control, const std::string& file, const Lists& l) {
  collectively(control, [&] {
    if (control.rank() != 0) return;
    io::TextReader reader(file);
    std::string line;
    std::string_view word;
    for (Index k = 0; k < 4 + l.count(); ++k) (void)reader.word(word);
    reader.line(line);
    std::vector<Index> numbers;
    for (Index k = 0; k < l.count(); ++k) {
      numbers.clear();
      if (!reader.line(line))
        reader.fail("the file ends too early", "give a line per column and row");
      word = numbers_of(line, l.extent(k), numbers);
      if (!word.empty())
        reader.fail(in_quotes(word) + " is not a position",
                    fmt::format("use 1 to {}", l.extent(k)));
      const Index count = l.weights[std::size_t(k)];
      if (Index(numbers.size()) != count)
        reader.fail(fmt::format("{} positions, but {} were announced", numbers.size(), count),
                    "correct the list of weights");
    }
    if (reader.word(word))
      reader.fail("more text after the lists", "give a line per column and row");
    reader.fail("the file cannot be read as lists", "do not change it while it is read");
  });
  throw Error(Exit::internal, "the lists are right after all; " + file + "; report this");
}

/// The first place that is twice in a list, and the first in one of the two lists alone.
struct Differences {
  io::Offender twice, alone;
};

/// Of a group's entries, by bits.
Differences compare(const Entries& by_columns, const Entries& by_rows, Index g) {
  const Range rows = by_rows.rows_of(g);
  const Index words = ceil_div(by_rows.columns(), 64);
  Differences found;
  std::vector<Word> bits[2];
  for (const Entries* entries : {&by_columns, &by_rows}) {
    auto& to = bits[entries == &by_rows];
    to.resize(std::size_t(rows.count * words));
    entries->each(g, [&](Index i, Index j, double) {
      Word& word = to[std::size_t((i - rows.first) * words + j / 64)];
      const Word bit = Word(1) << (j % 64);
      if ((word & bit) != 0) found.twice.note(i, j, 1);
      word |= bit;
    });
  }
  const auto at = std::mismatch(bits[0].begin(), bits[0].end(), bits[1].begin());
  if (at.first != bits[0].end()) {
    const Index word = at.first - bits[0].begin();
    found.alone.note(rows.first + word / words,
                     word % words * 64 + std::countr_zero(*at.first ^ *at.second), 1);
  }
  return found;
}

void refuse_differences(const Control& control, const std::string& file, const Entries& by_columns,
                        const Entries& by_rows) {
  std::vector<Differences> groups(std::size_t(by_rows.groups()));
  collectively(control, [&] {
    parallel_for(by_rows.groups(),
                 [&](Index g) { groups[std::size_t(g)] = compare(by_columns, by_rows, g); });
  });
  Differences all;
  for (const Differences& d : groups) {
    all.twice.note(d.twice.row, d.twice.column, 1);
    all.alone.note(d.alone.row, d.alone.column, 1);
  }
  const auto refuse = [&](const io::Offender& mine, const std::string& what) {
    if (const auto first = io::first_offender(control, mine))
      fail_together(Exit::input, fmt::format("{}; {} row {}, column {}; write it again", what, file,
                                             first->row, first->column));
  };
  refuse(all.twice, "a position twice in a list");
  refuse(all.alone, "the lists of the rows are not those of the columns");
}

}  // namespace

Writing read_alist(Run& run, const ConvertFrom& from) {
  const Control& control = run.control;
  const Lists l = read_lists(run, from.file);
  run.report["n"] = l.rows;
  run.report["columns"] = l.columns;
  const Index each = std::accumulate(l.weights.begin(), l.weights.end(), Index(0)) / control.size();
  require_memory(control, 8 * each + Entries::memory(control, each), 0);
  const io::SharedText text(control, from.file, l.body);
  show_bytes(run, Moved::read, double(text.bytes()), double(text.all_bytes()));
  const Range range = text.blocks();
  std::vector<Block> blocks(std::size_t(range.count));
  std::vector<Index> first{0};  // list of each block, of this rank
  collectively(control, [&] {
    parallel_for(range.count, [&](Index k) {
      thread_local std::vector<char> buffer;
      blocks[std::size_t(k)] = parse_lists(text.block(range.first + k, buffer));
    });
  });
  for (const Block& b : blocks) first.push_back(first.back() + Index(b.ends.size()));
  const auto lists = control.gather_all(first.back());
  const Index before = std::accumulate(lists.begin(), lists.begin() + control.rank(), Index(0));
  Entries by_columns(control, l.rows, l.columns, range.count);
  Entries by_rows(control, l.rows, l.columns, range.count);
  std::atomic<bool> good{std::accumulate(lists.begin(), lists.end(), Index(0)) >= l.count()};
  collectively(control, [&] {
    parallel_for(range.count, [&](Index k) {
      Block& block = blocks[std::size_t(k)];
      std::vector<Triplet> columns, rows;
      if (!block.good || !take_lists(l, block, before + first[std::size_t(k)], columns, rows))
        good = false;
      block = {};
      if (!good) return;
      by_columns.put(k, columns);
      by_rows.put(k, rows);
    });
  });
  if (control.reduce(Index(good), Reduce::min) == 0) explain_lists(control, from.file, l);
  by_columns.deal(control);
  by_rows.deal(control);
  refuse_differences(control, from.file, by_columns, by_rows);
  return writing_of(run, {from.file, true}, std::move(by_rows));
}

}  // namespace terrace
