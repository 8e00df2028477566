// A numbered list of bit matrices on which programs are compared: each is known by its number
// alone, so that programs that share nothing else reduce the same bits. No code of the solvers.
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/random.hpp"

namespace terrace::rivals {

/// One row: bit j % 64 of word j / 64 is column j; bits beyond `columns` stay zero.
struct BitRow {
  Word* words;
  Index columns;

  [[nodiscard]] Index count() const { return (columns + 63) / 64; }
  void flip(Index j) const { words[j / 64] ^= Word(1) << (j % 64); }
  void set(Index j) const {
    if (j >= 0 && j < columns) words[j / 64] |= Word(1) << (j % 64);
  }
  void clear(Index first, Index last) const {
    for (Index j = first; j < std::min(last, columns); ++j) words[j / 64] &= ~(Word(1) << (j % 64));
  }
  void ones() const {
    for (Index w = 0; w < count(); ++w) words[w] = ~Word(0);
    trim();
  }
  void random(Word seed, Index i) const {
    for (Index w = 0; w < count(); ++w) words[w] = random_word(seed, i, w);
    trim();
  }
  void add(const Word* other) const {
    for (Index w = 0; w < count(); ++w) words[w] ^= other[w];
  }
  void trim() const {
    if (columns % 64 > 0) words[count() - 1] &= (Word(1) << (columns % 64)) - 1;
  }
};

/// Fills row i, given zero.
using Filler = std::function<void(Index i, BitRow row)>;
/// What the rows have in common, made once for a matrix.
using Maker = std::function<Filler(Word seed, Index rows, Index columns)>;

struct Family {
  Index number = 0;
  std::string name;
  Index rows = 0, columns = 0;
  Maker make;
  /// The fill of this matrix; the same on every call.
  [[nodiscard]] Filler prepare() const { return make(mix(Word(number) + 1), rows, columns); }
};

namespace detail {

/// A matrix whose bit is bit(seed, i, j).
template <class Bit>
Maker by_bit(Bit bit) {
  return [bit](Word seed, Index, Index columns) -> Filler {
    return [=](Index i, BitRow row) {
      for (Index j = 0; j < columns; ++j)
        if (bit(seed, i, j)) row.set(j);
    };
  };
}

inline bool coin(Word seed, Index i, Index j) { return random_word(seed, i, j) & 1; }

inline Maker dense() {
  return [](Word seed, Index, Index) -> Filler {
    return [seed](Index i, BitRow row) { row.random(seed, i); };
  };
}

/// About density * columns ones a row, at places drawn with repetition.
inline Maker sparse(double density) {
  return [density](Word seed, Index, Index columns) -> Filler {
    return [=](Index i, BitRow row) {
      const double mean = density * double(columns);
      const double extra = random_uniform(seed ^ 1, i, 0) * 0.5 + 0.5;
      const auto ones = Index(2 * mean * (random_uniform(seed, i, 0) * 0.5 + 0.5) + extra);
      for (Index t = 1; t <= ones; ++t) row.set(Index(random_word(seed, i, t) % Word(columns)));
    };
  };
}

/// Every row a random combination of the rows of a basis; `picks` of them, or half when 0.
inline Filler combine(Word seed, std::vector<Word> basis, Index rank, Index words, Index picks) {
  return [=](Index i, BitRow row) {
    if (picks > 0) {
      for (Index t = 0; t < std::min(picks, rank); ++t)
        row.add(basis.data() + Index(random_word(seed, i, t) % Word(rank)) * words);
    } else {
      for (Index t = 0; t < rank; ++t)
        if ((random_word(seed, i, t / 64) >> (t % 64)) & 1) row.add(basis.data() + t * words);
    }
  };
}

/// The product of random factors of `rank` columns and rows.
inline Maker low_rank(Index rank, Index picks = 0) {
  return [=](Word seed, Index, Index columns) {
    const Index words = (columns + 63) / 64;
    std::vector<Word> basis(std::size_t(rank * words), 0);
    for (Index t = 0; t < rank; ++t)
      BitRow{basis.data() + t * words, columns}.random(seed ^ 0x5eedull, t);
    return combine(seed, std::move(basis), rank, words, picks);
  };
}

/// Pivots in the columns first, first + step, ... and nowhere else (given rows enough).
inline Maker stairs(Index step, Index first = 0) {
  return [=](Word seed, Index, Index columns) {
    const Index words = (columns + 63) / 64;
    const Index start = first >= 0 ? first : std::max<Index>(0, columns + first);
    const Index rank = start < columns ? (columns - start + step - 1) / step : 0;
    std::vector<Word> basis(std::size_t(rank * words), 0);
    for (Index t = 0; t < rank; ++t) {
      const BitRow row{basis.data() + t * words, columns};
      const Index pivot = start + t * step;
      row.random(seed ^ 0x57a1ull, t);
      row.clear(0, pivot);
      row.set(pivot);
    }
    return combine(seed, std::move(basis), rank, words, 0);
  };
}

inline Maker permutation() {
  return [](Word seed, Index rows, Index) -> Filler {
    std::vector<Index> place(static_cast<std::size_t>(rows));
    for (Index i = 0; i < rows; ++i) {
      place[std::size_t(i)] = i;
      std::swap(place[std::size_t(i)], place[random_word(seed, i, 0) % Word(i + 1)]);
    }
    return [place](Index i, BitRow row) { row.set(place[std::size_t(i)]); };
  };
}

/// Constant along j - i (slope -1), modulo the columns when `around`, or along j + i.
inline Maker diagonals(Index slope, bool around) {
  return [=](Word seed, Index rows, Index columns) -> Filler {
    std::vector<char> bits(std::size_t(rows + columns));
    for (std::size_t d = 0; d < bits.size(); ++d) bits[d] = coin(seed, Index(d), 0);
    return [=](Index i, BitRow row) {
      for (Index j = 0; j < columns; ++j) {
        Index d = slope < 0 ? j - i + rows : j + i;
        if (around) d = ((j - i) % columns + columns) % columns;
        if (bits[std::size_t(d)]) row.set(j);
      }
    };
  };
}

/// Random rows changed by change(seed, i, row, rows).
template <class Change>
Maker changed(Change change) {
  return [change](Word seed, Index rows, Index) -> Filler {
    return [=](Index i, BitRow row) {
      row.random(seed, i);
      change(seed, i, row, rows);
    };
  };
}

/// Structures that have a meaning in every shape.
inline std::vector<std::pair<std::string, Maker>> structures() {
  std::vector<std::pair<std::string, Maker>> list;
  const auto add = [&](const char* name, Maker make) { list.emplace_back(name, std::move(make)); };
  const auto bits = [&](const char* name, auto bit) { add(name, by_bit(bit)); };
  const auto random = [&](const char* name, auto change) { add(name, changed(change)); };

  add("all columns equal", [](Word seed, Index, Index) -> Filler {
    return [seed](Index i, BitRow row) {
      if (coin(seed, i, 0)) row.ones();
    };
  });
  add("all rows equal", [](Word seed, Index, Index) -> Filler {
    return [seed](Index, BitRow row) { row.random(seed, 0); };
  });
  add("all ones",
      [](Word, Index, Index) -> Filler { return [](Index, BitRow row) { row.ones(); }; });
  bits("identity", [](Word, Index i, Index j) { return i == j; });
  add("anti-identity", [](Word, Index rows, Index) -> Filler {
    return [rows](Index i, BitRow row) { row.set(rows - 1 - i); };
  });
  add("permuted identity", permutation());
  bits("shift", [](Word, Index i, Index j) { return j == i + 1; });
  add("companion", [](Word seed, Index, Index columns) -> Filler {
    return [=](Index i, BitRow row) {
      if (i > 0 && i < columns) row.set(i - 1);
      if (coin(seed, i, 0)) row.set(columns - 1);
    };
  });
  add("Toeplitz", diagonals(-1, false));
  add("Hankel", diagonals(1, false));
  add("circulant", diagonals(-1, true));
  random("unit lower triangular", [](Word, Index i, BitRow row, Index) {
    row.clear(i + 1, row.columns);
    row.set(i);
  });
  random("lower triangular",
         [](Word, Index i, BitRow row, Index) { row.clear(i + 1, row.columns); });
  random("upper triangular", [](Word, Index i, BitRow row, Index) { row.clear(0, i); });
  random("strictly upper triangular",
         [](Word, Index i, BitRow row, Index) { row.clear(0, i + 1); });
  random("zero columns in the middle", [](Word, Index, BitRow row, Index) {
    row.clear(row.columns / 5, row.columns - row.columns / 5);
  });
  random("zero first columns",
         [](Word, Index, BitRow row, Index) { row.clear(0, row.columns - row.columns / 7); });
  random("zero rows", [](Word, Index i, BitRow row, Index rows) {
    if (i % 3 == 1 || (i > rows / 4 && i < rows / 2)) row.clear(0, row.columns);
  });
  random("all but the last rows zero", [](Word, Index i, BitRow row, Index rows) {
    if (i < rows - 1 - rows / 9) row.clear(0, row.columns);
  });
  random("ones in the last corner only", [](Word, Index i, BitRow row, Index rows) {
    row.clear(0, i < rows / 2 ? row.columns : row.columns - 3);
  });
  add("pivots in the last 70 columns", stairs(1, -70));
  add("pivots in the last column only", stairs(1, -1));
  add("a pivot every 64 columns", stairs(64));
  add("a pivot every 65 columns", stairs(65));
  add("a pivot every 512 columns", stairs(512));
  add("a pivot in the last of 64 columns", stairs(64, 63));
  add("a pivot in the last of 512 columns", stairs(512, 511));
  add("a pivot every other column", stairs(2, 1));
  bits("blocks of 70",
       [](Word seed, Index i, Index j) { return i / 70 == j / 70 && coin(seed, i, j); });
  bits("every other block of 70 columns",
       [](Word seed, Index i, Index j) { return j / 70 % 2 == 1 && coin(seed, i, j); });
  bits("checkerboard", [](Word, Index i, Index j) { return (i + j) % 2 == 1; });
  bits("Pascal, triangular", [](Word, Index i, Index j) { return (j & ~i) == 0; });
  bits("Pascal, symmetric", [](Word, Index i, Index j) { return (i & j) == 0; });
  bits("three diagonals",
       [](Word, Index i, Index j) { return j + 1 >= i && j <= i + 1 && i % 5 != 3; });
  bits("band of 11",
       [](Word seed, Index i, Index j) { return j + 5 >= i && j <= i + 5 && coin(seed, i, j); });
  bits("symmetric, zero diagonal", [](Word seed, Index i, Index j) {
    return i != j && coin(seed, std::min(i, j), std::max(i, j));
  });
  bits("rows in groups of 40", [](Word seed, Index i, Index j) { return coin(seed, i / 40, j); });
  bits("columns in groups of 70",
       [](Word seed, Index i, Index j) { return coin(seed, i, j / 70); });
  bits("arrow", [](Word seed, Index i, Index j) {
    return i == j || ((i == 0 || j == 0) && coin(seed, i, j));
  });
  bits("ones without the diagonal", [](Word, Index i, Index j) { return i != j; });
  return list;
}

}  // namespace detail

/// The list; a matrix's number is its place in it, from 0. New ones go to the end.
inline std::vector<Family> families() {
  using namespace detail;
  std::vector<Family> list;
  const auto add = [&](const std::string& kind, Index rows, Index columns, Maker make) {
    list.push_back({Index(list.size()),
                    kind + " " + std::to_string(rows) + "x" + std::to_string(columns), rows,
                    columns, std::move(make)});
  };
  using Shape = std::pair<Index, Index>;

  for (const Index n :
       {0,   1,   2,   63,   64,   65,   127,  128,  129,  255,  257,  511,  512,  513,  575,
        576, 577, 640, 1000, 1023, 1024, 1025, 1536, 2047, 2048, 2049, 3000, 4095, 4096, 4097})
    add("random", n, n, dense());
  for (const auto& [rows, columns] :
       {Shape{0, 5},  {5, 0},      {1, 2},       {2, 1},       {1, 64},      {64, 1},
        {1, 65},      {65, 1},     {1, 1000},    {1000, 1},    {2, 3},       {3, 2},
        {63, 65},     {65, 63},    {64, 512},    {512, 64},    {511, 513},   {513, 511},
        {100, 1000},  {1000, 100}, {575, 4096},  {4096, 575},  {1000, 2049}, {2049, 1000},
        {3, 8192},    {8192, 3},   {65, 8192},   {8192, 65},   {513, 4097},  {4097, 513},
        {300, 60000}, {60000, 63}, {20000, 300}, {2047, 2113}, {2113, 2047}})
    add("random", rows, columns, dense());

  for (const auto& [rows, columns] : {Shape{513, 513}, {1000, 2049}, {2049, 1000}, {2048, 2048}}) {
    add("sparse 1e-4", rows, columns, sparse(1e-4));
    add("sparse 5e-4", rows, columns, sparse(5e-4));
    add("sparse 1e-3", rows, columns, sparse(1e-3));
    add("sparse 5e-3", rows, columns, sparse(5e-3));
    add("sparse 0.01", rows, columns, sparse(0.01));
    add("sparse 0.05", rows, columns, sparse(0.05));
    add("sparse 0.1", rows, columns, sparse(0.1));
  }
  add("sparse 1e-4", 4097, 4097, sparse(1e-4));
  add("sparse 9e-4", 4097, 4097, sparse(9e-4));
  add("sparse 0.01", 3000, 4097, sparse(0.01));

  for (const Index rank : {0, 1, 2, 63, 64, 65, 127, 250, 500, 511, 512, 513})
    for (const auto& [rows, columns] : {Shape{1000, 1000}, {1500, 2049}})
      add("rank " + std::to_string(rank), rows, columns, low_rank(rank));
  for (const Index rank : {1, 65, 300})
    add("rank " + std::to_string(rank), 4096, 700, low_rank(rank));
  add("rank 150", 300, 60000, low_rank(150));
  add("rank 150", 20000, 300, low_rank(150));
  add("rank 1023", 2047, 2047, low_rank(1023));
  add("factors of 2048", 4096, 4096, low_rank(2048, 8));

  for (const auto& [name, make] : structures())
    for (const auto& [rows, columns] : {Shape{65, 65}, {513, 577}, {1000, 2049}, {2049, 1000}})
      add(name, rows, columns, make);

  add("random", 8191, 8191, dense());
  add("random", 8192, 8192, dense());
  add("sparse 1e-4", 8192, 8192, sparse(1e-4));
  add("sparse 5e-4", 8192, 8192, sparse(5e-4));
  add("rank 65", 8192, 8192, low_rank(65));
  add("factors of 4096", 8192, 8192, low_rank(4096, 8));
  for (const auto& [name, make] : structures())
    if (name == "all columns equal" || name == "permuted identity" || name == "companion" ||
        name == "Toeplitz" || name == "zero columns in the middle" ||
        name == "a pivot every 64 columns" || name == "a pivot in the last of 512 columns")
      add(name, 8192, 8192, make);
  return list;
}

/// The numbers of a comma-separated list of numbers and ranges ("3,10-20"); all of them when empty.
inline std::vector<char> chosen(const std::string& ranges, std::size_t count) {
  std::vector<char> take(count, ranges.empty());
  for (const char* at = ranges.c_str(); *at;) {
    int first = 0, last = 0, read = 0;
    if (std::sscanf(at, "%d%n", &first, &read) != 1) return {};
    at += read;
    last = first;
    if (*at == '-') {
      if (std::sscanf(at + 1, "%d%n", &last, &read) != 1) return {};
      at += 1 + read;
    }
    for (int k = std::max(0, first); k <= last && k < int(count); ++k) take[std::size_t(k)] = 1;
    if (*at == ',') ++at;
  }
  return take;
}

/// Mixes of places and values, summed by exclusive or: the checksum of terrace bench gf2.
inline Word mixed_bit_word(Index pivot, Index word, Word bits) {
  return mix(mix(Word(pivot) * 0x9e3779b97f4a7c15ull + Word(word)) ^ bits);
}
inline Word mixed_pivot(Index pivot, Index column) { return mix(mix(Word(pivot)) ^ Word(column)); }

/// The line that the programs print, byte for byte the same.
inline std::string line_of(const Family& family, Index rank, Word pivots, Word bits) {
  char text[200];
  std::snprintf(text, sizeof text, "%ld\t%s\trank %ld\tpivots %016llx\tbits %016llx",
                long(family.number), family.name.c_str(), long(rank),
                static_cast<unsigned long long>(pivots), static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace terrace::rivals
