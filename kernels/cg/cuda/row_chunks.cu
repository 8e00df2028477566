// Chunks of rows for products, cut where the row pointers are, in pieces of 96 or 128 rows, one thread
// each. Floor: the row pointers twice, 16 bytes a row; bound by the walk of a thread, about 20 us.
#include "kernels/cg/cuda/coarsening.cuh"

namespace terrace::cg {
namespace {

/// Whole chunks fill a piece where rows are alike: of mean rows of more than 7 to 9 entries 96 make one.
Index piece_rows(Index rows, Index entries) {
  const Index fit = csr_chunk_entries * rows / entries;
  return fit >= 96 && fit < csr_chunk_rows ? 96 : csr_chunk_rows;
}

/// chunk(k, entry) of each chunk's begin, ~k in a long row; and at the end of a long row
/// long_row(k, pieces).
template <class Chunk, class LongRow>
__device__ __forceinline__ void walk_rows(const Index* start, Index first, Index last, Index room,
                                          const Chunk& chunk, const LongRow& long_row) {
  constexpr Index lanes = 32;
  for (Index k = first; k < last;) {
    const Index from = start[k], own = start[k + 1];
    if (own - from > csr_chunk_entries) {
      for (Index e = from; e < own; e += csr_chunk_entries) chunk(~k, e);
      long_row(k, ceil_div(own - from, csr_chunk_entries));
      ++k;
      continue;
    }
    Index end = k + 1;
    while (end < last && end - k < csr_chunk_rows && start[end + 1] - from <= room) ++end;
    if (end - k > lanes && end < last) end = k + (end - k) / lanes * lanes;
    chunk(k, from);
    k = end;
  }
}

__global__ void __launch_bounds__(block_threads)
    count_chunks_kernel(const Index* __restrict__ start, Index rows, Index piece, Index pieces,
                        Index room, Index* chunks, Index* longs) {
  for (Index c = first_item(); c <= pieces; c += item_stride()) {
    Index mine = 0, long_rows = 0;
    if (c < pieces)
      walk_rows(
          start, c * piece, min(rows, (c + 1) * piece), room, [&](Index, Index) { ++mine; },
          [&](Index, Index) { ++long_rows; });
    chunks[c] = mine;
    longs[c] = long_rows;
  }
}

__global__ void __launch_bounds__(block_threads)
    fill_chunks_kernel(const Index* __restrict__ start, Index rows, Index piece, Index pieces,
                       Index room, const Index* __restrict__ chunks,
                       const Index* __restrict__ longs, Index* chunk, Index* long_rows) {
  for (Index c = first_item(); c < pieces; c += item_stride()) {
    Index to = chunks[c], to_long = longs[c];
    walk_rows(
        start, c * piece, min(rows, (c + 1) * piece), room,
        [&](Index k, Index entry) {
          chunk[2 * to] = k;
          chunk[2 * to + 1] = entry;
          ++to;
        },
        [&](Index k, Index parts) {
          long_rows[3 * to_long] = k;
          long_rows[3 * to_long + 1] = to - parts;
          long_rows[3 * to_long + 2] = to;
          ++to_long;
        });
    if (c == pieces - 1) {
      chunk[2 * to] = rows;
      chunk[2 * to + 1] = start[rows];
    }
  }
}

}  // namespace

template <>
RowChunks<Cuda> chunks_of(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                          Scratch<Cuda>& scratch) {
  constexpr Index wanted = 4096;  // chunks that keep an H200 busy
  const Index rows = a.rows(), entries = a.column.size;
  const Index room = std::clamp<Index>(entries / wanted, csr_chunk_entries / 8, csr_chunk_entries);
  RowChunks<Cuda> cut;
  if (entries == 0) return cut;
  const Index piece = piece_rows(rows, entries), pieces = ceil_div(rows, piece);
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto both = scratch.take<Index>(2 * (pieces + 1));
  Index* const chunks = both.data;
  Index* const longs = both.data + pieces + 1;
  count_chunks_kernel<<<blocks_for(pieces + 1), block_threads, 0, native(stream)>>>(
      a.start.data, rows, piece, pieces, room, chunks, longs);
  check_launch();
  coarsening::sum_before(stream, {chunks, pieces + 1}, scratch);
  coarsening::sum_before(stream, {longs, pieces + 1}, scratch);
  const Index all = coarsening::read_one(stream, chunks + pieces),
              all_longs = coarsening::read_one(stream, longs + pieces);
  cut.chunk = Buffer<Index, Cuda>(2 * (all + 1));
  cut.longs = Buffer<Index, Cuda>(3 * all_longs);
  if (all_longs > 0) cut.partial = Buffer<double, Cuda>(all);
  fill_chunks_kernel<<<blocks_for(pieces), block_threads, 0, native(stream)>>>(
      a.start.data, rows, piece, pieces, room, chunks, longs, cut.chunk.data(), cut.longs.data());
  check_launch();
  return cut;
}

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
