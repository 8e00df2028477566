// Results over GF(2): identities tested on 64 random vectors at once, one bit of a word for each,
// so that a wrong result passes with probability 2^-64; the rank from below by a witness.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "src/commands/verify.hpp"
#include "src/program/summary.hpp"

namespace terrace {

namespace {

/// A word for each column (or row): 64 vectors.
using Vectors = std::vector<Word>;

constexpr Word bit_probe_seed = 0x76657269667931ull;

Vectors random_vectors(Word seed, Index size) {
  Vectors z(static_cast<std::size_t>(size));
  parallel_ranges(size, 4096, [&](Index from, Index to) {
    for (Index j = from; j < to; ++j) z[std::size_t(j)] = random_word(seed, j, 0);
  });
  return z;
}

/// Sums of the vectors' words over the ones of a row, four columns at a step.
class Table {
 public:
  explicit Table(const Vectors& v) : steps_(ceil_div(Index(v.size()), 4)) {
    sums_.resize(std::size_t(steps_ * 16));
    for (Index s = 0; s < steps_; ++s)
      for (Index pattern = 0; pattern < 16; ++pattern)
        for (Index b = 0; b < 4; ++b)
          if ((pattern >> b & 1) && s * 4 + b < Index(v.size()))
            sums_[std::size_t(s * 16 + pattern)] ^= v[std::size_t(s * 4 + b)];
  }
  [[nodiscard]] Word times(const Word* row) const {
    Word sum = 0;
    for (Index s = 0; s < steps_; ++s)
      sum ^= sums_[std::size_t(s * 16) + (row[s / 16] >> (s % 16 * 4) & 15)];
    return sum;
  }

 private:
  Index steps_;
  std::vector<Word> sums_;
};

/// visit(i, row) for the rows of this rank's slice, by all threads.
template <class F>
void each_row(const ResultFile& result, const io::BitInput& a, const F& visit) {
  const Range slice = result.slice(a.rows());
  const Index words = a.words();
  result.read(a, slice, [&](Index position, Index count, const Word* data) {
    parallel_ranges(count, 16, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) visit(slice.first + position + i, data + i * words);
    });
  });
}

/// A v, whole on every rank. Cost: the matrix once, columns / 4 steps per row.
Vectors times(const ResultFile& result, const io::BitInput& a, const Vectors& v) {
  const Table table(v);
  Vectors product = collectively(result.control, [&] { return Vectors(std::size_t(a.rows())); });
  each_row(result, a,
           [&](Index i, const Word* row) { product[std::size_t(i)] = table.times(row); });
  result.control.reduce(product, Reduce::bit_xor);
  return product;
}

/// Number of rows over all ranks for which wrong(i, row) holds.
template <class F>
Index count_wrong(const ResultFile& result, const io::BitInput& a, const F& wrong) {
  std::atomic<Index> count{0};
  each_row(result, a, [&](Index i, const Word* row) {
    if (wrong(i, row)) ++count;
  });
  return result.control.reduce(count.load(), Reduce::sum);
}

bool bit(const Word* row, Index j) { return row[j / 64] >> (j % 64) & 1; }

/// Column of the first one of a row; columns when there is none.
Index first_one(const Word* row, Index words, Index columns) {
  for (Index w = 0; w < words; ++w)
    if (row[w] != 0) return w * 64 + std::countr_zero(row[w]);
  return columns;
}

/// Rows in which A X = B does not hold, by 64 random combinations of the columns.
Index broken_rows(const ResultFile& result, const io::BitInput& a, const io::BitInput& b,
                  const io::BitInput& x) {
  const Vectors mixture = random_vectors(bit_probe_seed, b.columns());
  const Table left(times(result, x, mixture)), right(mixture);
  Vectors ax(static_cast<std::size_t>(a.rows()));
  each_row(result, a, [&](Index i, const Word* row) { ax[std::size_t(i)] = left.times(row); });
  return count_wrong(
      result, b, [&](Index i, const Word* row) { return right.times(row) != ax[std::size_t(i)]; });
}

struct Certificate {
  std::vector<Index> columns, rows;  ///< pivots as they were found
  Vectors witness;
  Word seed = 0;
};

/// The stored pivots and witness; says what is wrong with them, or nothing.
std::string read_certificate(const ResultFile& result, const io::BitInput& a, Certificate& c) {
  c.columns = result.integers("terrace/pivots");
  c.rows = result.integers("terrace/pivot_rows");
  const auto words = result.integers("terrace/witness");
  c.witness.assign(words.begin(), words.end());
  c.seed = Word(result.whole("witness_seed"));
  if (c.rows.size() != c.columns.size() || c.witness.size() != c.columns.size())
    return "pivots, pivot rows and witness are not equally many";
  const auto distinct = [](std::vector<Index> v, Index extent) {
    std::sort(v.begin(), v.end());
    return std::adjacent_find(v.begin(), v.end()) == v.end() &&
           (v.empty() || (v.front() >= 0 && v.back() < extent));
  };
  if (!distinct(c.columns, a.columns()) || !distinct(c.rows, a.rows()))
    return "pivot rows or columns repeat or lie outside the matrix";
  return {};
}

/// A v with v zero outside the pivot columns.
Vectors spread(const Certificate& c, const Vectors& words, Index columns) {
  Vectors v(static_cast<std::size_t>(columns));
  for (std::size_t q = 0; q < c.columns.size(); ++q) v[std::size_t(c.columns[q])] = words[q];
  return v;
}

/// Rows I and columns P of A are invertible: a system with random right-hand sides has the stored
/// solution. Also tests A y = 0 in the same pass. Empty when both hold.
std::string check_below(const ResultFile& result, const io::BitInput& a, const Certificate& c,
                        const Vectors& y, const std::string& identity) {
  const Table witness(spread(c, c.witness, a.columns())), zero(y);
  std::vector<char> is_pivot(static_cast<std::size_t>(a.rows()));
  for (const Index i : c.rows) is_pivot[std::size_t(i)] = 1;
  std::atomic<Index> wrong_below{0}, wrong_identity{0};
  each_row(result, a, [&](Index i, const Word* row) {
    if (is_pivot[std::size_t(i)] && witness.times(row) != random_word(c.seed, i, 0)) ++wrong_below;
    if (!y.empty() && zero.times(row) != 0) ++wrong_identity;
  });
  const Index below = result.control.reduce(wrong_below.load(), Reduce::sum);
  const Index above = result.control.reduce(wrong_identity.load(), Reduce::sum);
  if (below > 0)
    return fmt::format("the rank is not proved: {} rows differ from the witness", below);
  if (above > 0) return fmt::format("{} is broken in {} rows", identity, above);
  return {};
}

bool same_pivots(const std::vector<Index>& pivots, const Certificate& c) {
  std::vector<Index> sorted = c.columns;
  std::sort(sorted.begin(), sorted.end());
  return sorted == pivots;
}

Verdict failed(const std::string& what) { return {false, what}; }

/// Z z for the rows z of an echelon form E = U Z with U the pivot columns of E, unit upper
/// triangular: x = E z, then from the last row up x_i ^= sum of E[i, P_q] x_q over q > i. Ranks in
/// turn, last first.
void back_substitute(const ResultFile& result, const io::BitInput& e,
                     const std::vector<Index>& pivots, Vectors& x) {
  const Index rank = Index(pivots.size()), words = e.words();
  const Index chunk = std::max<Index>(1, (Index(8) << 20) / std::max<Index>(1, words));
  for (Index end = rank; end > 0;) {
    const Index first = std::max<Index>(0, end - chunk);
    const Range all{first, end - first};  // every rank reads the chunk: the chain is sequential
    std::vector<Word> rows(static_cast<std::size_t>(all.count * words));
    result.read(e, all, [&](Index position, Index count, const Word* data) {
      std::copy_n(data, count * words, rows.begin() + position * words);
    });
    for (Index i = end - 1; i >= first; --i) {
      const Word* row = rows.data() + (i - first) * words;
      for (Index q = i + 1; q < rank; ++q)
        if (bit(row, pivots[std::size_t(q)])) x[std::size_t(i)] ^= x[std::size_t(q)];
    }
    end = first;
  }
}

}  // namespace

namespace {

/// T with T A = R: T (A z) = R z; and T leaves alone what lies on rows without a pivot, so that it
/// is regular where the rows of the pivots are. Empty when both hold.
std::string check_transform(const ResultFile& result, const io::BitInput& a, const io::BitInput& r,
                            const Certificate& c) {
  const io::BitInput t = result.bits("transform");
  const Index n = a.rows(), rank = Index(c.rows.size());
  if (t.rows() != n || t.columns() != n)
    return fmt::format("transform is {} x {}, not {} x {}", t.rows(), t.columns(), n, n);
  const Vectors z = random_vectors(bit_probe_seed + 1, a.columns());
  Vectors v = random_vectors(bit_probe_seed + 2, n), expected(std::size_t(rank), 0);
  for (const Index row : c.rows) v[std::size_t(row)] = 0;
  std::vector<char> is_pivot(static_cast<std::size_t>(n));
  for (const Index row : c.rows) is_pivot[std::size_t(row)] = 1;
  for (Index i = 0; i < n; ++i)
    if (!is_pivot[std::size_t(i)]) expected.push_back(v[std::size_t(i)]);
  const Vectors rz = times(result, r, z);
  const Table az(times(result, a, z)), left(v);
  const Index different = count_wrong(
      result, t, [&](Index i, const Word* row) { return az.times(row) != rz[std::size_t(i)]; });
  if (different > 0) return fmt::format("T A = rref is broken in {} rows", different);
  const Index singular = count_wrong(result, t, [&](Index i, const Word* row) {
    return left.times(row) != expected[std::size_t(i)];
  });
  if (singular > 0) return fmt::format("{} rows of the transform may be dependent", singular);
  return {};
}

}  // namespace

Verdict verify_rref(const ResultFile& result) {
  const io::BitInput a = io::open_bits(result.control, result.input("input"));
  const io::BitInput r = result.bits("rref");
  const auto pivots = result.integers("pivots");
  const Index rank = Index(pivots.size()), columns = a.columns();
  if (r.rows() != a.rows() || r.columns() != columns)
    return failed(fmt::format("rref is {} x {}, the matrix {} x {}", r.rows(), r.columns(),
                              a.rows(), columns));
  Certificate c;
  if (const auto wrong = read_certificate(result, a, c); !wrong.empty()) return failed(wrong);
  if (!std::is_sorted(pivots.begin(), pivots.end()) || !same_pivots(pivots, c))
    return failed("the pivots are not those of the certificate in ascending order");
  Vectors is_pivot(static_cast<std::size_t>(r.words()));
  for (const Index j : pivots) is_pivot[std::size_t(j / 64)] |= Word(1) << (j % 64);
  const Index no_echelon = count_wrong(result, r, [&](Index i, const Word* row) {
    return first_one(row, r.words(), columns) != (i < rank ? pivots[std::size_t(i)] : columns);
  });
  if (no_echelon > 0) return failed(fmt::format("{} rows do not begin at their pivot", no_echelon));
  const Index not_reduced = count_wrong(result, r, [&](Index i, const Word* row) {
    Index ones = 0;
    for (Index w = 0; w < r.words(); ++w) ones += std::popcount(row[w] & is_pivot[std::size_t(w)]);
    return ones != (i < rank ? 1 : 0);
  });
  const bool echelon = result.text("command_line").find("--echelon") != std::string::npos;
  if (not_reduced > 0 && !echelon)
    return failed(fmt::format("{} rows are not reduced in the pivot columns", not_reduced));
  // A z = A[:, P] (R z): A times (z minus R z in the pivot places) is zero.
  Vectors z = random_vectors(bit_probe_seed, columns), rz = times(result, r, z);
  if (not_reduced > 0) back_substitute(result, r, pivots, rz);
  for (Index q = 0; q < rank; ++q) z[std::size_t(pivots[std::size_t(q)])] ^= rz[std::size_t(q)];
  const auto wrong = check_below(result, a, c, z, "A z = A[:, pivots] (R z)");
  if (!wrong.empty()) return failed(wrong);
  const auto names = io::members(result.control, result.base);
  const bool transform = std::find(names.begin(), names.end(), "transform") != names.end() ||
                         result.text("command_line").find("--transform") != std::string::npos;
  if (transform)
    if (const auto broken = check_transform(result, a, r, c); !broken.empty())
      return failed(broken);
  return {true, fmt::format("rank {}, {} form, row space and rank certified on 64 random vectors{}",
                            rank, not_reduced > 0 ? "echelon" : "reduced echelon",
                            transform ? "; T A = rref, T regular" : "")};
}

Verdict verify_rank(const ResultFile& result) {
  const io::BitInput a = io::open_bits(result.control, result.input("input"));
  const auto pivots = result.integers("pivots");
  Certificate c;
  if (const auto wrong = read_certificate(result, a, c); !wrong.empty()) return failed(wrong);
  if (!std::is_sorted(pivots.begin(), pivots.end()) || !same_pivots(pivots, c))
    return failed("the pivots are not those of the certificate in ascending order");
  const auto words = result.integers("terrace/span");
  if (words.size() != pivots.size()) return failed("span and pivots are not equally many");
  Vectors z = random_vectors(c.seed + 1, a.columns());
  for (std::size_t q = 0; q < words.size(); ++q) z[std::size_t(c.columns[q])] ^= Word(words[q]);
  const auto wrong = check_below(result, a, c, z, "A z = A[:, pivots] Y");
  if (!wrong.empty()) return failed(wrong);
  return {true,
          fmt::format("rank {}, certified from both sides on 64 random vectors", pivots.size())};
}

Verdict verify_bit_solution(const ResultFile& result) {
  const io::BitInput a = io::open_bits(result.control, result.input("input"));
  const io::BitInput b =
      io::open_bits(result.control, result.input("rhs"), io::Role::right_hand_side);
  const io::BitInput x = result.bits("x", io::Role::right_hand_side);
  if (a.rows() != b.rows() || x.rows() != a.columns() || x.columns() != b.columns())
    return failed("the shapes of A, B and x do not fit");
  Certificate c;
  if (const auto wrong = read_certificate(result, a, c); !wrong.empty()) return failed(wrong);
  const Index wrong = broken_rows(result, a, b, x);
  if (wrong > 0) return failed(fmt::format("A x = b is broken in {} rows", wrong));
  std::vector<char> is_pivot(static_cast<std::size_t>(a.columns()));
  for (const Index j : c.columns) is_pivot[std::size_t(j)] = 1;
  const Index not_zero = count_wrong(result, x, [&](Index i, const Word* row) {
    return !is_pivot[std::size_t(i)] && std::any_of(row, row + x.words(), [](Word w) { return w; });
  });
  if (not_zero > 0) return failed(fmt::format("{} free unknowns are not zero", not_zero));
  const auto below = check_below(result, a, c, {}, "");
  if (!below.empty()) return failed(below);
  return {true, fmt::format("A x = b in {}, {}, 64 random combinations", counted(a.rows(), "row"),
                            counted(b.columns(), "right-hand side"))};
}

Verdict verify_bit_problem(const ResultFile& result) {
  const io::BitInput a = result.bits("A");
  const io::BitInput b = result.bits("b");
  const io::BitInput x = result.bits("x_true");
  if (a.rows() != b.rows() || x.rows() != a.columns() || x.columns() != b.columns())
    return failed("the shapes of A, b and x_true do not fit");
  const Index wrong = broken_rows(result, a, b, x);
  if (wrong > 0) return failed(fmt::format("A x_true = b is broken in {} rows", wrong));
  return {true, "A x_true = b in " + counted(a.rows(), "row")};
}

Verdict verify_kernel(const ResultFile& result) {
  const io::BitInput a = io::open_bits(result.control, result.input("input"));
  const io::BitInput k = result.bits("kernel");
  const Index columns = a.columns();
  Certificate c;
  if (const auto wrong = read_certificate(result, a, c); !wrong.empty()) return failed(wrong);
  const Index nullity = columns - Index(c.columns.size());
  if (k.columns() != columns || k.rows() != nullity)
    return failed(
        fmt::format("kernel is {} x {}, not {} x {}", k.rows(), k.columns(), nullity, columns));
  // The free columns hold the identity.
  Vectors is_free(static_cast<std::size_t>(k.words()), ~Word(0));
  if (columns % 64 != 0) is_free.back() = ~(~Word(0) << (columns % 64));
  for (const Index j : c.columns) is_free[std::size_t(j / 64)] &= ~(Word(1) << (j % 64));
  std::vector<Index> free_columns;
  for (Index j = 0; j < columns; ++j)
    if (bit(is_free.data(), j)) free_columns.push_back(j);
  const Index no_identity = count_wrong(result, k, [&](Index i, const Word* row) {
    Index ones = 0;
    for (Index w = 0; w < k.words(); ++w) ones += std::popcount(row[w] & is_free[std::size_t(w)]);
    return ones != 1 || !bit(row, free_columns[std::size_t(i)]);
  });
  if (no_identity > 0)
    return failed(
        fmt::format("{} rows do not have a single one at their free column", no_identity));
  // v = 64 random combinations of the rows of the kernel; A v = 0.
  Vectors v(static_cast<std::size_t>(k.words() * 64));
  const Range slice = result.slice(k.rows());
  result.read(k, slice, [&](Index position, Index count, const Word* data) {
    parallel_for(k.words(), [&](Index w) {
      for (Index i = 0; i < count; ++i) {
        const Word s = random_word(bit_probe_seed, slice.first + position + i, 0);
        for (Word ones = data[i * k.words() + w]; ones != 0; ones &= ones - 1)
          v[std::size_t(w * 64 + std::countr_zero(ones))] ^= s;
      }
    });
  });
  result.control.reduce(v, Reduce::bit_xor);
  v.resize(std::size_t(columns));
  const auto wrong = check_below(result, a, c, v, "A v = 0 on the kernel");
  if (!wrong.empty()) return failed(wrong);
  return {true, fmt::format("{}, A v = 0 on 64 random combinations, rank {} certified",
                            counted(nullity, "basis vector"), c.columns.size())};
}

Verdict verify_bit_inverse(const ResultFile& result) {
  const io::BitInput a = io::open_bits(result.control, result.input("input"));
  const io::BitInput inverse = result.bits("inverse");
  const Index n = a.rows();
  if (a.columns() != n || inverse.rows() != n || inverse.columns() != n)
    return failed("the shapes of the matrix and its inverse do not fit");
  const Vectors z = random_vectors(bit_probe_seed, n);
  const Table y(times(result, inverse, z));
  const Index wrong = count_wrong(
      result, a, [&](Index i, const Word* row) { return y.times(row) != z[std::size_t(i)]; });
  if (wrong > 0) return failed(fmt::format("A (inverse z) = z is broken in {} rows", wrong));
  return {true, "A (inverse z) = z on 64 random vectors"};
}

Verdict verify_product(const ResultFile& result) {
  const io::BitInput a = io::open_bits(result.control, result.input("input"));
  const io::BitInput b = io::open_bits(result.control, result.input("rhs"));
  const io::BitInput p = result.bits("product");
  if (a.columns() != b.rows() || p.rows() != a.rows() || p.columns() != b.columns())
    return failed("the shapes of the factors and the product do not fit");
  const Index wrong = broken_rows(result, a, p, b);
  if (wrong > 0) return failed(fmt::format("A (B z) = product z is broken in {} rows", wrong));
  return {true, "A (B z) = product z on 64 random vectors"};
}

}  // namespace terrace
