// A bit matrix in row slices over the ranks, and where its rows come from.
#pragma once
#include <algorithm>
#include <functional>
#include <utility>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "kernels/gf2/bits.hpp"
#include "src/frame/kept_input.hpp"

namespace terrace::gf2 {

/// Rows dealt in blocks: about 8 blocks per rank, of at most 512 rows, so that finished rows are
/// spread evenly; one block on a single rank.
inline BlockCyclic bit_row_layout(Index rows, int ranks) {
  if (ranks == 1) return {rows, std::max<Index>(1, rows), 1};
  return {rows, std::clamp<Index>(ceil_div(rows, 8 * ranks), 1, 512), ranks};
}

/// rows x (64 * words) bits; row i is at slot layout.slot(i) of rank layout.owner(i).
///
///   | words of A | more columns (right-hand sides, a witness) | zero padding |   stride words
template <class B>
struct BitMatrix {
  BlockCyclic layout;
  int rank = 0;
  Index words = 0, stride = 0;
  Buffer<Word, B> data;

  BitMatrix() = default;
  /// Uninitialised; not collective.
  BitMatrix(BlockCyclic rows, int of_rank, Index word_count)
      : layout(rows),
        rank(of_rank),
        words(word_count),
        stride(round_up(std::max<Index>(1, word_count), bit_row_alignment)),
        data(rows.slots(of_rank) * stride) {}
  /// Zero.
  BitMatrix(const Context<B>& context, BlockCyclic row_layout, Index word_count)
      : BitMatrix(row_layout, context.rank(), word_count) {
    fill_zero(context.bulk, data.view());
    context.bulk.synchronize();
  }
  [[nodiscard]] Index slots() const { return layout.slots(rank); }
  [[nodiscard]] BitRows<Word, B> rows() const { return {data.data(), stride, slots(), nullptr}; }
  /// Bytes that a matrix of this shape takes on the fullest rank.
  static Index bytes(BlockCyclic rows, Index word_count) {
    return rows.slots(0) * round_up(std::max<Index>(1, word_count), bit_row_alignment) * 8;
  }
};

/// Takes rows [position, position + rows.count) of this rank's slice; valid during the call, or
/// until work enqueued on context.bulk has run.
template <class B>
using BitSink = std::function<void(Index position, BitRows<const Word, B> rows)>;

/// A matrix that can be read again and again in slices of this rank's rows. read() is collective.
template <class B>
struct BitSource {
  Index rows = 0, columns = 0;
  std::function<void(const BitSink<B>&)> read;
  [[nodiscard]] Index words() const { return ceil_div(columns, 64); }
};

/// The file's rows that `layout` gives to this rank.
template <class B>
BitSource<B> file_source(const Context<B>& context, const io::BitInput& input, BlockCyclic layout);
/// Those that were kept. `kept` has to outlive what is returned.
template <class B>
BitSource<B> kept_source(const KeptInput<B>& kept, BlockCyclic layout, Index columns) {
  const Index words = ceil_div(columns, 64);
  return {layout.extent, columns, [&kept, words](const BitSink<B>& sink) {
            const View<const Word, B> rows = kept.numbers();
            if (rows.size > 0) sink(0, {rows.data, words, rows.size / words, nullptr});
          }};
}
/// The same from a formula, made on the backend.
template <class B>
BitSource<B> random_source(const Context<B>& context, RandomBits what, BlockCyclic layout);
/// The identity matrix of order layout.extent.
template <class B>
BitSource<B> identity_source(const Context<B>& context, BlockCyclic layout);
/// Rows of `words` words that one piece of staging memory (16 MiB) holds; the bytes of a piece for
/// a matrix of which a rank holds `rows` rows.
constexpr Index staging_rows(Index words) {
  return std::max<Index>(1, (Index(2) << 20) / std::max<Index>(1, words));
}
constexpr Index staging_bytes(Index words, Index rows) {
  return 8 * words * std::min(rows, staging_rows(words));
}

/// Bytes of a rank on the backend, and between file and backend.
struct BitMemory {
  Index bytes = 0, staging = 0;
};
/// Host and device bytes, those of the files' buffers among them.
template <class B>
std::pair<Index, Index> host_and_device(BitMemory m) {
  constexpr bool on_host = std::is_same_v<B, Cpu>;
  const Index file_buffers = std::min(Index(64) << 20, m.bytes);
  return {(on_host ? m.bytes : 0) + m.staging + file_buffers, on_host ? 0 : m.bytes + m.staging};
}

/// Rows of `source` into words [word, ...) of the matrix.
template <class B>
void load(const Context<B>& context, const BitSource<B>& source, const BitMatrix<B>& matrix,
          Index word = 0);

/// Rows for io::Output: downloads `words` words per row from `word` on of any rows of the backend.
template <class B>
io::Source<Word> row_source(const Context<B>& context, BitRows<const Word, B> rows, Index word,
                            Index words);

}  // namespace terrace::gf2
