#include "kernels/cg/products.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;

TEST_CASE("chunks hold every entry once, long rows in pieces") {
  for (const Index rows : {0, 1, 40, 5000}) {
    std::vector<Index> start{0};
    for (Index i = 0; i < rows; ++i)
      start.push_back(start.back() + (i % 1000 == 3 ? 1400 : i % 37 == 0 ? 0 : i % 90));
    const CsrChunks cut = csr_chunks(start.data(), rows);
    std::vector<Index> pieces(std::size_t(rows), 0);
    bool right =
        cut.chunk[std::size_t(2 * cut.count())] == rows && cut.chunk.back() == start.back();
    Index row = 0;
    for (Index c = 0; c < cut.count(); ++c) {
      const auto at = [&](Index k) { return cut.chunk[std::size_t(k)]; };
      const Index begin = at(2 * c), next = at(2 * c + 2);
      const Index end = next < 0 ? ~next : next, entries = at(2 * c + 3) - at(2 * c + 1);
      right = right && entries >= 0 && entries <= csr_chunk_entries;
      if (begin >= 0) {
        right = right && begin == row && end > begin && end - begin <= csr_chunk_rows &&
                at(2 * c + 1) == start[std::size_t(begin)];
        row = end;
      } else {
        right = right && ~begin == row && entries > 0;
        ++pieces[std::size_t(row)];
        if (next != begin) ++row;
      }
    }
    right = right && row == rows;
    Index named = 0;
    for (std::size_t l = 0; l < cut.longs.size(); l += 3) {
      right = right && pieces[std::size_t(cut.longs[l])] == cut.longs[l + 2] - cut.longs[l + 1];
      named += cut.longs[l + 2] - cut.longs[l + 1];
    }
    for (const Index k : pieces) named -= k;
    CHECK((right && named == 0));
  }
}
