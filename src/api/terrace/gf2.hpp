// Dense matrices over GF(2): (reduced) row echelon form, rank, systems, kernel, inverse, product, by
// the Method of the Four Russians, on all ranks. Each result carries a certificate against the input:
// 64 random vectors, so that a wrong one escapes with probability 2^-64.
//
// Bits are packed: column j of a row is bit j % 64 of word j / 64 (on little-endian machines bit
// j % 8 of byte j / 8: NumPy's packbits(bitorder="little")). Bits behind the last column are
// ignored in inputs and zero in results. Local<...>::columns counts bits, ld words; ld 0: as few
// as hold the columns.
#pragma once
#include <terrace/context.hpp>

TERRACE_API_BEGIN

namespace gf2 {

using Word = std::uint64_t;

struct Report {
  std::int64_t rank = 0;
  std::vector<std::int64_t> pivots;  ///< columns, ascending; on every rank
  bool certified = false;
  Seconds seconds;
};

enum class Form { reduced, echelon };

/// a := its (reduced) row echelon form: row q is that of pivot q, the others are zero. `rows` rows in
/// all.
TERRACE_API Report reduce(Context& context, std::int64_t rows, Local<Word> a,
                          Form form = Form::reduced);
/// The same beside T with T A = the form, rows x rows bits, held as A's rows are.
TERRACE_API Report reduce(Context& context, std::int64_t rows, Local<Word> a, Local<Word> transform,
                          Form form = Form::reduced);
/// Rank and pivots; `a` is not changed.
TERRACE_API Report rank(Context& context, std::int64_t rows, Local<const Word> a);
/// x := X with A X = B, free unknowns zero: a.columns rows of b.columns bits. Throws Code::outcome
/// where there is none.
TERRACE_API Report solve(Context& context, std::int64_t rows, Local<const Word> a,
                         Local<const Word> b, Local<Word> x);
/// a := its inverse. Throws Code::outcome with the first column that depends on those before it.
TERRACE_API Report inverse(Context& context, std::int64_t n, Local<Word> a);

/// Rows of a result whose number is known at the end, in host memory: this rank's.
struct Basis {
  Report report;               ///< of A
  std::int64_t dimension = 0;  ///< rows on all ranks: columns - rank
  Rows rows;                   ///< a range
  std::int64_t columns = 0, ld = 0;
  std::vector<Word> words;
  [[nodiscard]] Local<const Word> view() const {
    return {words.data(), rows, columns, ld, Where::host};
  }
};
/// A basis of {x : A x = 0}; `a` is not changed.
TERRACE_API Basis kernel(Context& context, std::int64_t rows, Local<const Word> a);

/// c := A B, A rows x a.columns, B a.columns x b.columns.
TERRACE_API Report multiply(Context& context, std::int64_t rows, Local<const Word> a,
                            Local<const Word> b, Local<Word> c);

}  // namespace gf2

TERRACE_API_END
