// Kernels on rows of packed bits: everything that elimination and products over GF(2) need.
//
//   row i = words at data + r * stride, r = list ? list[i] : i;  bit j % 64 of word j / 64 is
//   column j
//
// Arithmetic is exact, so every backend and every cut of the work gives the same bits.
#pragma once
#include <vector>

#include "kernels/base/backend.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/stream.hpp"

namespace terrace::gf2 {

/// `count` rows of packed bits in the memory of B; does not own.
template <class T, class B>
struct BitRows {
  T* data = nullptr;
  Index stride = 0;  ///< in words
  Index count = 0;
  const Index* list = nullptr;  ///< in the memory of B; null: rows 0, 1, 2, ...

  // NOLINTNEXTLINE(google-explicit-constructor)
  operator BitRows<const T, B>() const requires(!std::is_const_v<T>) {
    return {data, stride, count, list};
  }
  [[nodiscard]] constexpr Index row(Index i) const { return list ? list[i] : i; }
};

constexpr Index max_panel_words = 8;    ///< widest panel of factor_panel: 512 columns
constexpr Index max_candidates = 1024;  ///< rows that factor_panel takes at most
constexpr Index max_wide_words = 64;    ///< widest panel: 4,096 columns
constexpr Index bit_row_alignment = 8;  ///< words; strides and column ranges of combine()

/// Reduced form of a few rows within one panel of 64 * words columns.
///   info       [0] rank r; [1 + q] column of pivot q, ascending; [1 + 64 words + q] the number
///              among the candidates of the row that became pivot q       (1 + 128 words)
///   transform  r x r bits in rows of `pitch` words: reduced = transform * pivot rows
///   reduced    r rows of `pitch` words: identity in the pivot columns
/// Words from `words` on are zero. pitch is max_panel_words for factor_panel.
template <class B>
struct PanelFactor {
  Index* info = nullptr;
  Word* transform = nullptr;
  Word* reduced = nullptr;
  Index pitch = max_panel_words;
  [[nodiscard]] static constexpr Index info_size(Index words) { return 1 + 128 * words; }
};

/// Pivots of at most max_candidates rows of words <= max_panel_words words each: the leftmost
/// independent columns, and for each a remaining row with a one there. 2 m c^2 bit
/// operations for m rows and c columns, c dependent steps.
void factor_panel(const Stream<Cpu>&, BitRows<const Word, Cpu> rows, Index words, PanelFactor<Cpu>);
void factor_panel(const Stream<Cuda>&, BitRows<const Word, Cuda> rows, Index words,
                  PanelFactor<Cuda>);

/// to[i][0, words) = from[i][from_word, from_word + words) for i < to.count.
void copy_bits(const Stream<Cpu>&, BitRows<Word, Cpu> to, BitRows<const Word, Cpu> from,
               Index from_word, Index words);
void copy_bits(const Stream<Cuda>&, BitRows<Word, Cuda> to, BitRows<const Word, Cuda> from,
               Index from_word, Index words);

/// rows[i][word, word + words) = 0.
void clear_bits(const Stream<Cpu>&, BitRows<Word, Cpu> rows, Index word, Index words);
void clear_bits(const Stream<Cuda>&, BitRows<Word, Cuda> rows, Index word, Index words);

/// out[i][j] = a[i][j] ^ b[i][j], i < out.count, j < words; a counts as zero from row a.count and
/// word a_words on, b likewise. Rows without lists; words, a_words, b_words and strides are
/// multiples of bit_row_alignment, rows begin at multiples of 16 bytes. out may be a or b. 24 bytes
/// a word.
void add_bits(const Stream<Cpu>&, BitRows<Word, Cpu> out, Index words, BitRows<const Word, Cpu> a,
              Index a_words, BitRows<const Word, Cpu> b, Index b_words);
void add_bits(const Stream<Cuda>&, BitRows<Word, Cuda> out, Index words,
              BitRows<const Word, Cuda> a, Index a_words, BitRows<const Word, Cuda> b,
              Index b_words);

/// Toggles bit columns[x] of row rows[x], x < count; the rows differ.
void flip_bits(const Stream<Cpu>&, Word* data, Index stride, const Index* rows,
               const Index* columns, Index count);
void flip_bits(const Stream<Cuda>&, Word* data, Index stride, const Index* rows,
               const Index* columns, Index count);

/// Bit q of out[i] = bit columns[q] of rows[i][word ...], q < r; other bits zero. r = info[0] and
/// columns = info + 1 as factor_panel left them. out: rows.count x words, words <= max_wide_words.
void extract_bits(const Stream<Cpu>&, BitRows<Word, Cpu> out, BitRows<const Word, Cpu> rows,
                  Index word, Index words, const Index* info);
void extract_bits(const Stream<Cuda>&, BitRows<Word, Cuda> out, BitRows<const Word, Cuda> rows,
                  Index word, Index words, const Index* info);

/// Tables of combine(); every shape gives the same bits. Zeros: the backend's default.
struct TableShape {
  Index k = 0;        ///< source rows that a table combines, 1 to 14: 2^k entries
  Index tables = 0;   ///< tables a pass
  Index rows = 0;     ///< rows of `out` that a thread holds (CUDA)
  Index threads = 0;  ///< of a block (CUDA)
};
/// The shapes that a backend has; the first of each k is its default.
template <class B>
std::vector<TableShape> table_shapes();
template <>
std::vector<TableShape> table_shapes<Cpu>();
template <>
std::vector<TableShape> table_shapes<Cuda>();

/// out[i][out_word + x] ^= XOR over q < source.count with bit q of multipliers[i] set of
/// source[q][source_word + x], 0 <= x < words. By tables of all 2^k combinations of k source rows
/// (the Method of the Four Russians), k = 8 by default. words, out_word, source_word and both
/// strides are multiples of bit_row_alignment. out does not overlap the others. Moves 64 words
/// bytes per row and k source rows; out itself once per few tables.
void combine(const Stream<Cpu>&, BitRows<Word, Cpu> out, BitRows<const Word, Cpu> multipliers,
             BitRows<const Word, Cpu> source, Index out_word, Index source_word, Index words,
             TableShape shape = {});
void combine(const Stream<Cuda>&, BitRows<Word, Cuda> out, BitRows<const Word, Cuda> multipliers,
             BitRows<const Word, Cuda> source, Index out_word, Index source_word, Index words,
             TableShape shape = {});

/// The same in two steps: all tables of `source` (inner rows of `words` words) into `tables`
/// (stored_table_words() words, aligned to 64 bytes), and the update from them; 2^k / k times the
/// bytes of the source. Of `shape` only k counts.
template <class B>
Index stored_table_words(Index inner, Index words, TableShape shape);
template <>
Index stored_table_words<Cpu>(Index inner, Index words, TableShape shape);
template <>
Index stored_table_words<Cuda>(Index inner, Index words, TableShape shape);
void build_tables(const Stream<Cpu>&, BitRows<const Word, Cpu> source, Index words,
                  TableShape shape, Word* tables);
void build_tables(const Stream<Cuda>&, BitRows<const Word, Cuda> source, Index words,
                  TableShape shape, Word* tables);
void combine_stored(const Stream<Cpu>&, BitRows<Word, Cpu> out,
                    BitRows<const Word, Cpu> multipliers, Index inner, const Word* tables,
                    Index table_words, Index out_word, Index source_word, Index words,
                    TableShape shape);
void combine_stored(const Stream<Cuda>&, BitRows<Word, Cuda> out,
                    BitRows<const Word, Cuda> multipliers, Index inner, const Word* tables,
                    Index table_words, Index out_word, Index source_word, Index words,
                    TableShape shape);

/// Numbers i, ascending, of the rows with a one in words [word, word + words): list[0, *count). The
/// list has room for nonzero_room(rows.count) numbers.
constexpr Index nonzero_room(Index rows) { return rows + rows / 64 + 1; }
void nonzero_rows(const Stream<Cpu>&, BitRows<const Word, Cpu> rows, Index word, Index words,
                  Index* list, Index* count);
void nonzero_rows(const Stream<Cuda>&, BitRows<const Word, Cuda> rows, Index word, Index words,
                  Index* list, Index* count);

/// *result = the first word in [from, to) that is nonzero in some row, or `to`.
void first_nonzero_word(const Stream<Cpu>&, BitRows<const Word, Cpu> rows, Index from, Index to,
                        Index* result);
void first_nonzero_word(const Stream<Cuda>&, BitRows<const Word, Cuda> rows, Index from, Index to,
                        Index* result);

/// How random_bits() fills a matrix whose row i has number numbers[i].
struct RandomBits {
  Word seed = 1;
  Index columns = 0;
  /// Word j of row i is random_sparse_word(seed, i, j, density), as gf2_random() of
  /// src/commands/problems.hpp. With even_rank, rows of odd number are the XOR of four rows of even
  /// number drawn from the seed among the first `rows`: the rank is (almost surely) min(ceil(rows /
  /// 2), columns).
  bool even_rank = false;
  Index rows = 0;
  double density = 0.5;
  /// Not negative: rows from this number on are the XOR of four rows before it; the rank is (almost
  /// surely) min(rank, rows, columns). even_rank does not count then.
  Index rank = -1;
};
void random_bits(const Stream<Cpu>&, BitRows<Word, Cpu> out, const Index* numbers, RandomBits);
void random_bits(const Stream<Cuda>&, BitRows<Word, Cuda> out, const Index* numbers, RandomBits);

/// 64 vectors at once, for certificates: z has a word per column, bit t belongs to vector t.
/// sliced[64 w + t] bit c = bit t of z[64 w + c]; z[j] counts as zero for j >= size.
void slice_words(const Stream<Cpu>&, View<const Word, Cpu> z, View<Word, Cpu> sliced);
void slice_words(const Stream<Cuda>&, View<const Word, Cuda> z, View<Word, Cuda> sliced);
/// out[i] ^= rows[i][word, word + words) times the 64 vectors in `sliced` (64 words each).
void multiply_words(const Stream<Cpu>&, Word* out, BitRows<const Word, Cpu> rows, Index word,
                    Index words, const Word* sliced);
void multiply_words(const Stream<Cuda>&, Word* out, BitRows<const Word, Cuda> rows, Index word,
                    Index words, const Word* sliced);

/// Bit c of out[i] = bit from[c] of in[i], c < columns; the rest of the last word zero.
void permute_bits(const Stream<Cpu>&, BitRows<Word, Cpu> out, BitRows<const Word, Cpu> in,
                  const Index* from, Index columns);
void permute_bits(const Stream<Cuda>&, BitRows<Word, Cuda> out, BitRows<const Word, Cuda> in,
                  const Index* from, Index columns);

/// Rows of the kernel basis from a reduced form. out[f] bit p = bit free_columns[f] of row
/// slots[p] of `reduced` where slots[p] >= 0, else zero; with add_unit also bit free_columns[f]
/// = 1.
void kernel_rows(const Stream<Cpu>&, BitRows<Word, Cpu> out, BitRows<const Word, Cpu> reduced,
                 const Index* slots, Index columns, const Index* free_columns, bool add_unit);
void kernel_rows(const Stream<Cuda>&, BitRows<Word, Cuda> out, BitRows<const Word, Cuda> reduced,
                 const Index* slots, Index columns, const Index* free_columns, bool add_unit);

namespace detail {
/// Word j of row i of the matrix that `what` describes.
constexpr Word random_bits_word(const RandomBits& what, Index i, Index j);
}  // namespace detail

}  // namespace terrace::gf2

#include "kernels/gf2/random.hpp"
