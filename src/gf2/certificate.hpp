// Certificates over GF(2): what is checked after every solve, against the input read again.
//
// 64 random vectors at a time, one word per row: an error escapes with probability 2^-64.
#pragma once
#include <string>
#include <vector>

#include "src/gf2/echelon.hpp"

namespace terrace::gf2 {

/// Bounds the rank from both sides. With pivot rows I, pivot columns P and the reduced form R:
///   x   X with A[I, P] X = B, B random: row r of B is random_word(seed, I[r], 0). A[I, P] is
///       regular, or X could not exist (each of the 64 columns misses a deficient range with
///       probability 1/2)
///   y   Y = R Z, Z random: row j of Z is random_word(seed + 1, j, 0). A Z = A[:, P] Y says that
///       all rows of A lie in the span of R, so the rank is at most |P|, and that R is the
///       reduced form.
/// Equal on all ranks; one word a pivot.
struct Witness {
  Word seed = 0;
  std::vector<Word> x, y;
};

/// The seed of the witness vectors, apart from the seeds of generated matrices.
Word witness_seed(Index seed);

/// Word `word` of row i = random_word(seed, i, 0).
template <class B>
void put_witness(const Context<B>& context, const BitMatrix<B>& matrix, Index word, Word seed);

/// X and Y from a reduced form (or the inverse's, whose Y is void) that carried the witness word.
template <class B>
Witness witness_of_reduced(const Context<B>& context, const BitMatrix<B>& matrix, Index columns,
                           Index word, const Pivots& pivots, Word seed);
/// X and Y from an echelon form, by back substitution over the panels on the rows where they lie:
/// one broadcast of 64 bytes a pivot per panel.
template <class B>
Witness witness_of_echelon(const Context<B>& context, const BitMatrix<B>& matrix, Index columns,
                           Index word, const Pivots& pivots, Word seed);

/// Empty when both bounds hold for the matrix that `source` reads again; otherwise what is broken.
template <class B>
std::string check_rank(const Context<B>& context, const BitSource<B>& source, BlockCyclic layout,
                       const Pivots& pivots, const Witness& witness);

/// A v for the 64 vectors in v (one word per column, replicated), a word for each of this rank's rows
/// of A, read again.
template <class B>
std::vector<Word> multiply_again(const Context<B>& context, const BitSource<B>& source,
                                 BlockCyclic layout, const std::vector<Word>& v);
/// The same for rows in memory: words [word, ...) of `rows` times v.
template <class B>
std::vector<Word> multiply_rows(const Context<B>& context, BitRows<const Word, B> rows, Index word,
                                const std::vector<Word>& v);

/// n random words of stream `seed`, word j = random_word(seed, j, 0).
std::vector<Word> random_words(Word seed, Index n);

/// True when the words are zero on all ranks.
bool all_zero(const Control& control, const std::vector<Word>& words);

}  // namespace terrace::gf2
