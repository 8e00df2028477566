// Matrix Market to HDF5.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/shared_text.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_entries.hpp"

namespace terrace {

using io::Triplet;

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
    reader.fail("complex matrices are not supported", "store a real matrix");
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

/// The entries of one block of lines, behind each other from `out` on, which has room for half as
/// many as the block has bytes. How many; -1 where a line is not just an entry inside the matrix.
Index parse_block(std::string_view text, const MarketHeader& h, Triplet* out, Index& lines) {
  Triplet* to = out;
  std::string_view line;
  while (io::next_line(text, line)) {
    const char* at = line.data();
    const char* const end = at + line.size();
    if (rest_is_blank(at, end)) continue;
    Triplet t{0, 0, 1};
    if (!take_whole(at, end, t.row) || !take_whole(at, end, t.column) ||
        (!h.pattern && !take_number(at, end, t.value)) || !rest_is_blank(at, end))
      return -1;
    --t.row;
    --t.column;
    if (t.row < 0 || t.row >= h.rows || t.column < 0 || t.column >= h.columns) return -1;
    ++lines;
    *to++ = t;
    if (h.symmetric && t.row != t.column) *to++ = {t.column, t.row, h.skew ? -t.value : t.value};
  }
  return to - out;
}

/// Coordinates read by all ranks and threads. Nothing where anything is unusual: reading in order
/// then says what.
std::optional<Entries> parse_together(Run& run, const std::string& file, const MarketHeader& h) {
  const Control& control = run.control;
  if (h.body < 0) return std::nullopt;
  const io::SharedText text(control, file, h.body);
  if (!text.possible()) return std::nullopt;
  show_bytes(run, Moved::read, double(text.bytes()));
  const Range blocks = text.blocks();
  Entries entries(control, h.rows, h.columns, blocks.count);
  std::atomic<bool> good{true};
  std::atomic<Index> count{0};
  collectively(control, [&] {
    parallel_for(blocks.count, [&](Index k) {
      thread_local std::vector<char> buffer;
      thread_local LargeVector<Triplet> found;
      const std::string_view block = text.block(blocks.first + k, buffer);
      found.resize(block.size() / 2 + 2);
      Index lines = 0;
      const Index size = good ? parse_block(block, h, found.data(), lines) : -1;
      if (size < 0)
        good = false;
      else
        entries.put(k, {found.data(), std::size_t(size)});
      count += lines;
    });
  });
  if (control.reduce(Index(good), Reduce::min) == 0) return std::nullopt;
  if (control.reduce(count.load(), Reduce::sum) != h.entries) return std::nullopt;
  return entries;
}

/// Coordinates read in order by the first rank.
Entries parse_in_order(const Control& control, io::TextReader* reader, const MarketHeader& h) {
  Entries entries(control, h.rows, h.columns, 1);
  const Range rows = entries.rows();
  std::vector<Triplet> mine;
  each_market_entry(control, reader, h, [&](const Triplet& t) {
    if (t.row >= rows.first && t.row < rows.end()) mine.push_back(t);
  });
  collectively(control, [&] { entries.put(0, mine); });
  return entries;
}

}  // namespace

Writing read_matrix_market(Run& run, const ConvertFrom& from) {
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
    require_memory(control, (rows.count + 1) * 8 + Entries::memory(control, entries) + 16 * entries,
                   0);
    auto parsed = parse_together(run, from.file, h);
    if (!parsed) {
      if (reader) show_bytes(run, Moved::read, double(reader->size()));
      parsed = parse_in_order(control, reader.get(), h);
    }
    return writing_of(run, from, std::move(*parsed));
  }
  require_memory(control, rows.count * h.columns * 8, 0);
  auto mine = std::make_shared<std::vector<double>>();
  if (reader) show_bytes(run, Moved::read, double(reader->size()));
  collectively(control, [&] { mine->resize(std::size_t(rows.count * h.columns)); });
  each_market_entry(control, reader.get(), h, [&](const Triplet& t) {
    if (t.row >= rows.first && t.row < rows.end())
      (*mine)[std::size_t((t.row - rows.first) * h.columns + t.column)] = t.value;
  });
  return [=, &run](io::Output& output) {
    write_numbers(run, output, "A", from.file, h.rows, h.columns, false, from.bits, rows,
                  [&](Index p, Index count, double* out) {
                    std::copy_n(mine->begin() + p * h.columns, count * h.columns, out);
                  });
  };
}

}  // namespace terrace
