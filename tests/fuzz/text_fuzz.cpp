// Text, Matrix Market, .npy and FILE:/path. The first byte chooses; the rest is the file.
#include <algorithm>
#include <vector>

#include "src/commands/convert_coordinates.cpp"  // their parsers have no header
#include "src/commands/convert_market.cpp"
#include "tests/fuzz/fuzz.hpp"

using namespace terrace;

namespace {

/// The blocks' parser and the one in order: what the first accepts, the second reads alike.
void coordinates(io::TextReader& reader, const MarketHeader& h, std::string_view body) {
  std::vector<Triplet> block(body.size() / 2 + 2);  // as parse_together() makes room
  const Parsed all = parse_block(body, h, block.data());
  if (all.size > Index(block.size()) || all.entries > all.size) std::abort();
  const bool whole = all.good && all.entries == h.entries;
  Index done = 0, at = 0;
  try {
    for (Triplet t; next_entry(reader, h, done, t); ++done) {
      if (t.row < 0 || t.row >= h.rows || t.column < 0 || t.column >= h.columns) std::abort();
      if (!whole) continue;
      const Triplet& same = block[std::size_t(at)];
      if (same.row != t.row || same.column != t.column || same.value != t.value) std::abort();
      at += h.symmetric != 0 && t.row != t.column ? 2 : 1;
    }
  } catch (const Error&) {
    if (whole) std::abort();
    throw;
  }
  if (whole && at != all.size) std::abort();
}
void array(io::TextReader& reader, const MarketHeader& h, std::string_view body) {
  LargeVector<double> numbers;
  const bool good = parse_numbers(body, numbers) && Index(numbers.size()) == h.entries;
  for (Index k = 0; k < h.entries; ++k) {
    const double number = reader.number();
    if (good && number != numbers[std::size_t(k)]) std::abort();
  }
  each_place(h, {0, h.rows}, 0, h.entries, [&](Index i, Index j, Index k, int) {
    if (i < 0 || i >= h.rows || j < 0 || j >= h.columns || k < 0 || k >= h.entries) std::abort();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)fuzz::world();
  if (size < 1) return 0;
  const std::string path = fuzz::file_of(data + 1, size - 1);
  constexpr Index most = 1 << 16;  // numbers looked at
  fuzz::contract([&] {
    switch (data[0] % 5) {
      case 0: {
        io::TextReader reader(path);
        const Index n = reader.whole();
        for (Index i = 0; i < std::min(n, most); ++i) (void)reader.number();
        break;
      }
      case 1: {
        io::TextReader reader(path);
        std::string line;
        std::string_view word;
        while (reader.line(line) && reader.word(word))
          if (word.empty()) std::abort();
        break;
      }
      case 2: {
        io::TextReader reader(path);
        const MarketHeader header = read_market_header(reader);
        const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
        const std::string_view body = std::string_view(text).substr(std::size_t(header.body));
        header.coordinate != 0 ? coordinates(reader, header, body) : array(reader, header, body);
        break;
      }
      case 3: {
        const io::NpyHeader header = io::read_npy_header(path);
        Index count = 1;
        for (const Index extent : header.shape) {
          if (extent < 0 || extent > Index(size)) count = 0;
          count = std::min(count * extent, most);
        }
        std::vector<double> values(static_cast<std::size_t>(std::max<Index>(count, 0)));
        io::read_npy(path, header, 0, count, values.data());
        break;
      }
      default: {
        const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
        const io::Location location = io::parse_location(text, "in.h5");
        if (location.file.empty() || (!location.path.empty() && location.path[0] != '/'))
          std::abort();
      }
    }
  });
  return 0;
}
