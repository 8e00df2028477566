#include "src/commands/convert_coordinates.hpp"

#include <fmt/core.h>

#include <atomic>
#include <charconv>
#include <cmath>
#include <optional>

#include "io/shared_text.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert_entries.hpp"

namespace terrace {

using io::Triplet;

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

namespace {

/// What a block of lines held.
struct Parsed {
  bool good = true, ends = false;  ///< only entries inside the matrix; the line 0 0 0 behind them
  Index entries = 0;               ///< lines
  Index size = 0;                  ///< with the other halves of symmetric ones
};

/// The entries of one block of lines, behind each other from `out` on, which has room for half as
/// many as the block has bytes.
Parsed parse_block(std::string_view text, const Coordinates& c, Triplet* out) {
  Parsed parsed;
  Triplet* to = out;
  std::string_view line;
  while (parsed.good && io::next_line(text, line)) {
    const char* at = line.data();
    const char* const end = at + line.size();
    if (rest_is_blank(at, end)) continue;
    Triplet t{0, 0, 1};
    parsed.good = !parsed.ends && take_whole(at, end, t.row) && take_whole(at, end, t.column) &&
                  (c.pattern != 0 || take_number(at, end, t.value)) && rest_is_blank(at, end);
    if (c.entries < 0 && t.row == 0 && t.column == 0 && t.value == 0) {
      parsed.ends = true;
      continue;
    }
    if (t.row < 1 || t.row > c.rows || t.column < 1 || t.column > c.columns) parsed.good = false;
    --t.row;
    --t.column;
    ++parsed.entries;
    *to++ = t;
    if (c.symmetric != 0 && t.row != t.column)
      *to++ = {t.column, t.row, c.skew != 0 ? -t.value : t.value};
  }
  parsed.size = to - out;
  return parsed;
}

/// Whether the blocks, from block `first` on, are the whole text and nothing else. Collective.
bool complete(const Control& control, const Coordinates& c, Index first,
              const std::vector<Parsed>& blocks) {
  Index good = 1, entries = 0, ends = 0, last = -1, end = -1;
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    const Parsed& b = blocks[k];
    good = good && b.good;
    entries += b.entries;
    if (b.entries > 0) last = first + Index(k);
    if (b.ends) end = first + Index(k);
    ends += b.ends;
  }
  good = control.reduce(good, Reduce::min);
  entries = control.reduce(entries, Reduce::sum);
  ends = control.reduce(ends, Reduce::sum);
  last = control.reduce(last, Reduce::max);
  end = control.reduce(end, Reduce::max);
  return good != 0 && (c.entries < 0 ? ends == 1 && last <= end : entries == c.entries);
}

/// Nothing where anything is unusual.
std::optional<Entries> parse_together(Run& run, const std::string& file, const Coordinates& c) {
  const Control& control = run.control;
  const io::SharedText text(control, file, c.body);
  show_bytes(run, Moved::read, double(text.bytes()), double(text.all_bytes()));
  const Range blocks = text.blocks();
  Entries entries(control, c.rows, c.columns, blocks.count);
  std::vector<Parsed> parsed(std::size_t(blocks.count));
  std::atomic<bool> good{true};
  collectively(control, [&] {
    parallel_for(blocks.count, [&](Index k) {
      thread_local std::vector<char> buffer;
      thread_local LargeVector<Triplet> found;
      if (!good) return;
      const std::string_view block = text.block(blocks.first + k, buffer);
      found.resize(block.size() / 2 + 2);
      const Parsed p = parsed[std::size_t(k)] = parse_block(block, c, found.data());
      if (!p.good) good = false;
      if (p.good) entries.put(k, {found.data(), std::size_t(p.size)});
    });
  });
  if (!complete(control, c, blocks.first, parsed)) return std::nullopt;
  return entries;
}

/// The next entry in order; false behind the last one, `done` before it.
bool next_entry(io::TextReader& reader, const Coordinates& c, Index done, Triplet& t) {
  std::string_view more;
  if (done == c.entries) {
    if (reader.word(more))
      reader.fail(fmt::format("more than {} entries", c.entries), "correct the sizes");
    return false;
  }
  t.row = reader.whole() - 1;
  t.column = reader.whole() - 1;
  t.value = c.pattern != 0 ? 1.0 : reader.number();
  if (c.entries < 0 && t.row == -1 && t.column == -1 && t.value == 0) {
    if (reader.word(more))
      reader.fail("more text after the line 0 0 0", "this line must end the file");
    return false;
  }
  if (t.row < 0 || t.row >= c.rows || t.column < 0 || t.column >= c.columns)
    reader.fail(fmt::format("entry ({}, {}) lies outside the matrix", t.row + 1, t.column + 1),
                fmt::format("indices go from 1 to {} and {}", c.rows, c.columns));
  return true;
}

Entries parse_in_order(const Control& control, io::TextReader* reader, const Coordinates& c) {
  Entries entries(control, c.rows, c.columns, 1);
  const Range rows = entries.rows();
  std::vector<Triplet> mine;
  const auto keep = [&](const Triplet& t) {
    if (t.row >= rows.first && t.row < rows.end()) mine.push_back(t);
  };
  Index done = 0;
  each_in_order(
      control, [&](Triplet& t) { return next_entry(*reader, c, done++, t); },
      [&](const Triplet& t) {
        keep(t);
        if (c.symmetric != 0 && t.row != t.column)
          keep({t.column, t.row, c.skew != 0 ? -t.value : t.value});
      });
  collectively(control, [&] { entries.put(0, mine); });
  return entries;
}

}  // namespace

Writing read_coordinates(Run& run, const ConvertFrom& from, io::TextReader* reader,
                         const Coordinates& c) {
  const Control& control = run.control;
  run.report["n"] = c.rows;
  run.report["columns"] = c.columns;
  const Index each = std::max<Index>(0, c.entries) / control.size() * (c.symmetric != 0 ? 2 : 1);
  require_memory(
      control,
      8 * (own_slice(control, c.rows).count + 1) + Entries::memory(control, each) + 16 * each, 0);
  std::optional<Entries> entries;
  if (c.body >= 0) entries = parse_together(run, from.file, c);
  if (!entries) {
    if (reader) show_bytes(run, Moved::read, double(reader->size()), double(reader->size()));
    entries = parse_in_order(control, reader, c);
  }
  entries->deal(control);
  return writing_of(run, from, std::move(*entries));
}

}  // namespace terrace
