// What the tests of the library share: rows dealt to the ranks, made matrices, oracles in plain loops.
#pragma once
#include <terrace/terrace.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../support/catch.hpp"

namespace library {

using terrace::Code;
using terrace::Context;
using terrace::Error;
using terrace::Local;
using terrace::Rows;
using Index = std::int64_t;
using Word = std::uint64_t;

inline int me = 0, ranks = 1;
inline bool device_missing = false;

/// TERRACE_API_BACKEND=cuda: all that is tested here on a GPU.
inline terrace::Options wanted() {
  terrace::Options options;
  const char* const backend = std::getenv("TERRACE_API_BACKEND");
  if (backend && std::string(backend) == "cuda") options.backend = terrace::Backend::cuda;
  return options;
}
inline Context group() { return Context(MPI_COMM_WORLD, wanted()); }

/// This rank's share of n rows: uneven, in ascending order of the ranks, or cyclic.
inline Rows share(Index n, int kind) {
  if (kind == 2) return Rows::cyclic(3);
  if (kind == 1 && me < ranks - 1) return Rows::range(std::min<Index>(n, me), n > me ? 1 : 0);
  if (kind == 1) return Rows::range(std::min<Index>(n, me), std::max<Index>(0, n - me));
  const Index each = (n + ranks - 1) / ranks, first = std::min<Index>(n, each * me);
  return Rows::range(first, std::min<Index>(each, n - first));
}
/// The global numbers of this rank's rows.
inline std::vector<Index> held(Index n, const Rows& rows) {
  std::vector<Index> list;
  if (rows.block > 0) {
    for (Index i = 0; i < n; ++i)
      if (i / rows.block % ranks == me) list.push_back(i);
  } else {
    for (Index i = 0; i < rows.count; ++i) list.push_back(rows.first + i);
  }
  return list;
}
/// Rows `list` of a whole row-major matrix, each of `ld` numbers, the last ones a sentinel.
template <class T>
std::vector<T> part(const std::vector<T>& whole, Index columns, const std::vector<Index>& list,
                    Index ld, T sentinel) {
  std::vector<T> own(std::size_t(Index(list.size()) * ld), sentinel);
  for (std::size_t i = 0; i < list.size(); ++i)
    std::copy_n(whole.begin() + list[i] * columns, columns, own.begin() + Index(i) * ld);
  return own;
}
/// All rows, on every rank, from what the ranks hold.
template <class T>
std::vector<T> whole(Index n, Index columns, const std::vector<Index>& list,
                     const std::vector<T>& own, Index ld) {
  std::vector<T> all(std::size_t(n * columns), T(0));
  for (std::size_t i = 0; i < list.size(); ++i)
    std::copy_n(own.begin() + Index(i) * ld, columns, all.begin() + list[i] * columns);
  static_assert(sizeof(T) == 8);
  MPI_Allreduce(MPI_IN_PLACE, all.data(), int(all.size()), MPI_UINT64_T, MPI_BOR, MPI_COMM_WORLD);
  return all;
}
inline bool everywhere(bool mine) {
  int all = mine;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}
/// The Error that every rank must get, with the same text.
template <class F>
Error error_of(F&& call) {
  Error found(Code::internal, "nothing was thrown");
  try {
    call();
  } catch (const Error& e) {
    found = e;
  }
  std::string text = found.what();
  text.resize(300);
  std::string first = text;
  MPI_Bcast(first.data(), 300, MPI_CHAR, 0, MPI_COMM_WORLD);
  CHECK(everywhere(first == text));
  return found;
}

inline std::vector<double> random_matrix(Index rows, Index columns, unsigned seed) {
  std::mt19937_64 draw(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> a(std::size_t(rows * columns));
  for (double& x : a) x = uniform(draw);
  return a;
}
inline double residual(Index n, Index columns, const std::vector<double>& a,
                       const std::vector<double>& x, const std::vector<double>& b) {
  double worst = 0;
  for (Index i = 0; i < n; ++i)
    for (Index c = 0; c < columns; ++c) {
      double sum = -b[std::size_t(i * columns + c)];
      for (Index j = 0; j < n; ++j)
        sum += a[std::size_t(i * n + j)] * x[std::size_t(j * columns + c)];
      worst = std::max(worst, std::fabs(sum));
    }
  return worst;
}

// --- over GF(2), by columns -----------------------------------------------------------------------
inline bool bit(const std::vector<Word>& a, Index words, Index i, Index j) {
  return (a[std::size_t(i * words + j / 64)] >> (j % 64)) & 1;
}
inline std::vector<Word> random_bits(Index rows, Index columns, unsigned seed) {
  std::mt19937_64 draw(seed);
  const Index words = (columns + 63) / 64;
  std::vector<Word> a(std::size_t(rows * words));
  for (Index i = 0; i < rows; ++i)
    for (Index w = 0; w < words; ++w) {
      a[std::size_t(i * words + w)] = draw();
      if (w == words - 1 && columns % 64 != 0)
        a[std::size_t(i * words + w)] &= (Word(1) << (columns % 64)) - 1;
    }
  return a;
}
inline std::vector<Index> eliminate(std::vector<Word>& a, Index rows, Index columns) {
  const Index words = (columns + 63) / 64;
  std::vector<Index> pivots;
  for (Index j = 0; j < columns && Index(pivots.size()) < rows; ++j) {
    const Index at = Index(pivots.size());
    Index found = at;
    while (found < rows && !bit(a, words, found, j)) ++found;
    if (found == rows) continue;
    std::swap_ranges(a.begin() + at * words, a.begin() + (at + 1) * words,
                     a.begin() + found * words);
    for (Index i = 0; i < rows; ++i)
      if (i != at && bit(a, words, i, j))
        for (Index w = 0; w < words; ++w)
          a[std::size_t(i * words + w)] ^= a[std::size_t(at * words + w)];
    pivots.push_back(j);
  }
  return pivots;
}
inline std::vector<Word> product(const std::vector<Word>& a, Index rows, Index inner,
                                 const std::vector<Word>& b, Index columns) {
  const Index wa = (inner + 63) / 64, wb = (columns + 63) / 64;
  std::vector<Word> c(std::size_t(rows * wb), 0);
  for (Index i = 0; i < rows; ++i)
    for (Index k = 0; k < inner; ++k)
      if (bit(a, wa, i, k))
        for (Index w = 0; w < wb; ++w) c[std::size_t(i * wb + w)] ^= b[std::size_t(k * wb + w)];
  return c;
}

/// A band matrix, positive definite: dense, and in SciPy's lower form.
struct Band {
  std::vector<double> dense, lower;
};
inline Band random_band(Index n, Index m, unsigned seed) {
  const std::vector<double> draws = random_matrix(m + 1, n, seed);
  Band a{std::vector<double>(std::size_t(n * n), 0.0),
         std::vector<double>(std::size_t((m + 1) * n), 7e77)};
  for (Index d = 0; d <= m; ++d)
    for (Index j = 0; j + d < n; ++j) {
      const double x = d == 0 ? 2.0 * double(m) + 2 : draws[std::size_t(d * n + j)];
      a.lower[std::size_t(d * n + j)] = x;
      a.dense[std::size_t((j + d) * n + j)] = a.dense[std::size_t(j * n + j + d)] = x;
    }
  return a;
}

}  // namespace library
