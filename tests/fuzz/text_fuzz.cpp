// Text, Matrix Market, .npy and FILE:/path. The first byte chooses; the rest is the file.
#include <algorithm>
#include <vector>

#include "src/commands/convert_market.cpp"  // its parsers have no header
#include "tests/fuzz/fuzz.hpp"

using namespace terrace;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Control& control = fuzz::world();
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
        if (header.coordinate) {
          std::vector<Triplet> block(text.size() / 2 + 2);  // as parse_together() makes room
          Index lines = 0;
          const Index found =
              parse_block(text.substr(std::size_t(header.body)), header, block.data(), lines);
          if (found > Index(block.size()) || (found >= 0 && lines > found)) std::abort();
        }
        each_market_entry(control, &reader, header, [&](const Triplet& t) {
          if (t.row < 0 || t.row >= header.rows || t.column < 0 || t.column >= header.columns)
            std::abort();
        });
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
