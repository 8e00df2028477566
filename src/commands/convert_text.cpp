// Text and CSV: n and then n x n numbers, or rows of numbers.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/shared_text.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

namespace {

/// How a file begins, as rank 0 sees it; the same bytes on every rank.
struct Beginning {
  Index words = 0;   ///< of the first line that is no comment
  Index n = -1;      ///< its first word as a whole number, or -1
  Index first = 0;   ///< the byte where that line begins
  Index behind = 0;  ///< where the next one begins
  Index names = 0;   ///< 1: a line of names before it was left out (CSV)
  Index stream = 0;  ///< 1: standard input, of which nothing was read
};

bool is_comment(std::string_view line) {
  const auto at = line.find_first_not_of(" \t\r,");
  return at == std::string_view::npos || line[at] == '#' || line[at] == '%';
}

/// Refuses a first line whose numbers would be taken apart wrongly: with decimal commas, semicolons or quotes.
void check_separators(const io::TextReader& reader, std::string_view line) {
  const auto digit = [&](std::size_t at) {
    return at < line.size() && line[at] >= '0' && line[at] <= '9';
  };
  const auto gap = [&](std::size_t at) {
    return at < line.size() && (line[at] == ' ' || line[at] == '\t');
  };
  bool comma = false, blanks = false, other = false;  // 1,5; 1 5; 1;5
  for (std::size_t i = 1; i < line.size(); ++i) {
    comma = comma || (line[i] == ',' && digit(i - 1) && digit(i + 1));
    other = other || (line[i] == ';' && (digit(i - 1) || digit(i + 1)));
    std::size_t end = i;
    while (gap(end)) ++end;
    blanks =
        blanks || (end > i && digit(i - 1) &&
                   (digit(end) || (end < line.size() && (line[end] == '-' || line[end] == '+'))));
  }
  if (other)
    reader.fail("numbers with a ';' between them",
                "separate them by commas or blanks, with decimal points");
  if (comma && blanks)
    reader.fail("numbers with commas in them and blanks between them",
                "write decimal points, or separate by commas alone");
  if (line.find_first_of("0123456789") != std::string_view::npos &&
      (line[0] == '"' || line[0] == '\'') && digit(1))
    reader.fail("numbers in quotes", "write them without quotes");
}

Beginning look_at(const std::string& file, FileForm form) {
  Beginning b;
  if (file == io::standard_stream) {
    b.stream = 1;
    return b;
  }
  io::TextReader reader(file);
  std::string line;
  for (Index at = 0; reader.line(line); at = reader.offset()) {
    if (is_comment(line)) continue;
    check_separators(reader, line);
    std::string_view text = line, word;
    Index words = 0, names = 0, n = -1;
    for (; io::next_word(text, word); ++words) {
      double value = 0;
      names += !io::is_number(word, value);
      if (words == 0 && (!io::is_whole(word, n) || n < 1)) n = -1;
    }
    if (form == FileForm::csv && b.names == 0 && names == words) {
      b.names = 1;
      continue;
    }
    b.words = words;
    b.n = n;
    b.first = std::max(at, reader.begin());
    b.behind = reader.offset();
    return b;
  }
  reader.fail("no numbers in the file", "give rows of numbers");
}

/// Rows of this rank: blocks of lines as numbers.
struct Lines {
  std::vector<std::vector<double>> blocks;
  std::vector<Index> count;  ///< lines of each block
  Index lines = 0;           ///< of all ranks
};

/// Numbers of a line behind `out`; how many, -1 where a word is none, or a field of CSV is empty.
Index parse_line(std::string_view line, bool csv, std::vector<double>& out) {
  if (csv) {
    bool empty = true;
    for (const char c : line) {
      if (c == ',' && empty) return -1;
      if (c == ',') empty = true;
      if (c != ',' && c != ' ' && c != '\t' && c != '\r') empty = false;
    }
    if (empty) return -1;
  }
  Index words = 0;
  std::string_view word;
  for (double value = 0; io::next_word(line, word); ++words) {
    if (!io::is_number(word, value)) return -1;
    out.push_back(value);
  }
  return words;
}

/// All lines from byte `from` on, which must have `words` numbers each; nothing where one has not.
std::optional<Lines> parse_lines(Run& run, const std::string& file, Index from, Index words,
                                 bool csv) {
  const Control& control = run.control;
  const io::SharedText text(control, file, from);
  const Range range = text.blocks();
  show_bytes(run, Moved::read, double(text.bytes()), double(text.all_bytes()));
  Lines result;
  result.blocks.resize(std::size_t(range.count));
  result.count.resize(std::size_t(range.count));
  std::atomic<bool> good{true};
  collectively(control, [&] {
    parallel_for(range.count, [&](Index k) {
      thread_local std::vector<char> buffer;
      std::string_view block = text.block(range.first + k, buffer), line;
      auto& numbers = result.blocks[std::size_t(k)];
      while (good && io::next_line(block, line)) {
        if (is_comment(line)) continue;
        if (parse_line(line, csv, numbers) != words) good = false;
        ++result.count[std::size_t(k)];
      }
    });
  });
  if (control.reduce(Index(good), Reduce::min) == 0) return std::nullopt;
  result.lines = control.reduce(std::accumulate(result.count.begin(), result.count.end(), Index(0)),
                                Reduce::sum);
  return result;
}

Writing writing_of_lines(Run& run, const ConvertFrom& from, Lines read, Index columns) {
  const auto lines = std::make_shared<const Lines>(std::move(read));
  const Index mine = std::accumulate(lines->count.begin(), lines->count.end(), Index(0));
  const auto counts = run.control.gather_all(mine);
  const Range slice{std::accumulate(counts.begin(), counts.begin() + run.control.rank(), Index(0)),
                    mine};
  std::vector<Index> start{0};  // of each block, in rows of this rank
  for (const Index count : lines->count) start.push_back(start.back() + count);
  run.report["n"] = lines->lines;
  if (columns != lines->lines) run.report["columns"] = columns;
  const bool vector = columns == 1 && lines->lines > 1;
  const auto rows = [=](Index position, Index count, double* out) {
    while (count > 0) {
      const auto k =
          std::size_t(std::upper_bound(start.begin(), start.end(), position) - start.begin() - 1);
      const Index now = std::min(count, start[k + 1] - position);
      std::copy_n(lines->blocks[k].begin() + (position - start[k]) * columns, now * columns, out);
      out += now * columns;
      position += now;
      count -= now;
    }
  };
  return [=, &run](io::Output& output) {
    write_numbers(run, output, vector ? "b" : "A", from.file, lines->lines, columns, vector,
                  from.bits, slice, rows);
  };
}

/// n, then n x n numbers, read by rank 0 word by word while they are written.
Writing writing_of_counted(Run& run, const ConvertFrom& from) {
  const Control& control = run.control;
  std::shared_ptr<io::TextReader> reader;
  Index n = 0;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    reader = std::make_shared<io::TextReader>(from.file);
    n = reader->whole();
    if (n < 1) reader->fail("the order of the matrix is not positive", "the file begins with n");
    reader->require_room(1 + double(n) * double(n), 1, fmt::format("{0} x {0} numbers", n));
  });
  n = share(control, n);
  run.report["n"] = n;
  const Range rows{control.rank() == 0 ? 0 : n, control.rank() == 0 ? n : 0};
  const auto numbers = [=](Index position, Index count, double* out) {
    for (Index i = 0; i < count * n; ++i) out[i] = reader->number();
    std::string_view more;
    if (position + count == n && reader->word(more))
      reader->fail(fmt::format("more than {} x {} numbers", n, n),
                   "the file holds n, then n x n numbers");
  };
  return [=, &run](io::Output& output) {
    write_numbers(run, output, "A", from.file, n, n, false, from.bits, rows, numbers);
  };
}

/// The first line that is not as the others. Throws an agreed Error.
void explain_rows(const Control& control, const std::string& file, FileForm form,
                  const Beginning& b) {
  collectively(control, [&] {
    if (control.rank() != 0) return;
    io::TextReader reader(file);
    std::string line;
    std::vector<double> numbers;
    while (reader.line(line)) {
      if (reader.offset() <= b.first || is_comment(line)) continue;
      const Index words = parse_line(line, form == FileForm::csv, numbers);
      std::string_view text = line, word;
      double value = 0;
      while (words < 0 && io::next_word(text, word))
        if (!io::is_number(word, value))
          reader.fail(in_quotes(word) + " is not a finite number", "write it as 1.5 or 1.5e-3");
      if (words < 0) reader.fail("an empty field", "give every row all its numbers");
      if (words != b.words)
        reader.fail(fmt::format("a row of {} numbers, but the first row has {}", words, b.words),
                    "give every row the same count, or n first and then n x n numbers");
    }
    reader.fail("the file cannot be read as rows of numbers", "do not change it while it is read");
  });
}

}  // namespace

void write_numbers(Run& run, io::Output& output, const std::string& name, const std::string& from,
                   Index rows, Index columns, bool vector, bool bits, const Range& slice,
                   const std::function<void(Index, Index, double*)>& fill) {
  const double row = 8.0 * double(bits ? ceil_div(columns, 64) : columns);
  show_bytes(run, Moved::written, row * double(slice.count), row * double(rows));
  if (!bits) {
    output.write<double>(name, rows, vector ? -1 : columns, {&slice, 1}, fill);
    return;
  }
  const Index words = ceil_div(columns, 64);
  std::vector<double> part;
  const auto pack = [&](const double* row, Index i, Word* out) {
    std::fill(out, out + words, Word(0));
    for (Index j = 0; j < columns; ++j) {
      if (row[j] != 0 && row[j] != 1)
        throw Error(Exit::input,
                    fmt::format("a value other than 0 and 1: {}; {} row {}, column {}; a bit "
                                "matrix holds 0 and 1 only",
                                row[j], from, i, j));
      out[j / 64] |= Word(row[j] != 0) << (j % 64);
    }
  };
  output.write<Word>(name, rows, words, {&slice, 1},
                     [&](Index position, Index count, Word* out) {
                       constexpr Index block = 64;
                       for (Index i = 0; i < count; i += block) {
                         const Index now = std::min(block, count - i);
                         part.resize(std::size_t(now * columns));
                         fill(position + i, now, part.data());
                         for (Index r = 0; r < now; ++r)
                           pack(part.data() + r * columns, slice.first + position + i + r,
                                out + (i + r) * words);
                       }
                     },
                     {{"columns", columns}, {"format", std::string("bits")}});
}

Writing read_text(Run& run, const ConvertFrom& from, FileForm form) {
  const Control& control = run.control;
  Beginning b;
  collectively(control, [&] {
    if (control.rank() == 0) b = look_at(from.file, form);
  });
  control.broadcast(&b, sizeof b, 0);
  const bool csv = form == FileForm::csv;
  if (b.stream != 0) return writing_of_counted(run, from);
  if (!csv && b.words == 1 && b.n >= 1) {
    auto rows = parse_lines(run, from.file, b.behind, b.n, csv);
    if (rows && rows->lines == b.n) return writing_of_lines(run, from, std::move(*rows), b.n);
  }
  auto rows = parse_lines(run, from.file, b.first, b.words, csv);
  const bool counted =
      !csv && b.n >= 1 &&
      (!rows || double(rows->lines) * double(b.words) == 1 + double(b.n) * double(b.n));
  if (counted) return writing_of_counted(run, from);
  if (!rows) explain_rows(control, from.file, form, b);
  if (b.names != 0)
    run.warn("a header line was skipped; " + from.file + "; the numbers below it are the matrix");
  if (!csv && b.words == 1 && b.n >= 1)
    run.warn(
        fmt::format("the first number, {}, is not the order of the numbers that follow, so it was "
                    "read as one of them; {}; if the file begins with its order, it is incomplete",
                    b.n, from.file));
  return writing_of_lines(run, from, std::move(*rows), b.words);
}

}  // namespace terrace
