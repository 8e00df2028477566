#include <algorithm>

#include "kernels/cg/products.hpp"

namespace terrace::cg {

CsrChunks csr_chunks(const Index* start, Index rows) {
  constexpr Index lanes = 32, wanted = 4096;  // chunks that keep an H200 busy
  CsrChunks result;
  const Index mean = (start[rows] - start[0]) / wanted;
  const Index room = std::clamp<Index>(mean, csr_chunk_entries / 8, csr_chunk_entries);
  for (Index k = 0; k < rows;) {
    const Index from = start[k];
    if (start[k + 1] - from > csr_chunk_entries) {
      result.longs.insert(result.longs.end(), {k, Index(result.chunk.size()) / 2, 0});
      for (Index e = from; e < start[k + 1]; e += csr_chunk_entries)
        result.chunk.insert(result.chunk.end(), {~k, e});
      result.longs.back() = Index(result.chunk.size()) / 2;
      ++k;
      continue;
    }
    Index end = k + 1;
    while (end < rows && end - k < csr_chunk_rows && start[end + 1] - from <= room) ++end;
    if (end - k > lanes && end < rows) end = k + (end - k) / lanes * lanes;
    result.chunk.insert(result.chunk.end(), {k, from});
    k = end;
  }
  result.chunk.insert(result.chunk.end(), {rows, start[rows]});
  return result;
}

}  // namespace terrace::cg
