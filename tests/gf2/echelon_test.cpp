#include "src/gf2/echelon.hpp"

#include <numeric>

#include "kernels/base/random.hpp"
#include "src/gf2/certificate.hpp"
#include "tests/support/bit_source.hpp"
#include "tests/support/stopped.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

/// Global row i of a distributed matrix, on all ranks, as bits.
template <class B>
std::vector<Word> all_rows(const Context<B>& context, const BitMatrix<B>& matrix, Index words) {
  std::vector<Word> mine(std::size_t(matrix.slots() * words)),
      all(std::size_t(matrix.layout.extent * words), 0);
  copy_rows(context.bulk, mine.data(), words, matrix.data.data(), matrix.stride, words,
            matrix.slots());
  context.bulk.synchronize();
  for (Index slot = 0; slot < matrix.slots(); ++slot)
    std::copy_n(mine.begin() + slot * words, words,
                all.begin() + matrix.layout.global(slot, context.rank()) * words);
  context.control.reduce(all, Reduce::bit_xor);
  return all;
}

bool bit(const std::vector<Word>& words, Index at, Index j) {
  return (words[std::size_t(at + j / 64)] >> (j % 64)) & 1;
}

/// Everything that must hold for one matrix in one form.
template <class B>
bool holds(Context<B>& context, const PlainBits& a, EchelonForm form, const PanelPlan& plan) {
  const BlockCyclic layout = bit_row_layout(a.rows, context.size());
  const auto source = plain_source(context, a, layout);
  const Index words = source.words();
  BitMatrix<B> matrix(context, layout, words + 1);
  load(context, source, matrix);
  const Word seed = witness_seed(1);
  put_witness(context, matrix, words, seed);
  Progress progress(false, false);
  const Pivots pivots = reduce_to_echelon(context, matrix, a.columns, form, plan, progress);

  PlainBits oracle = a;
  const auto expected = reduce_plain(oracle, a.columns);
  bool right = pivots.columns == expected;
  const auto rows = all_rows(context, matrix, words);
  PlainBits mine(a.rows, a.columns);
  std::vector<char> is_pivot(std::size_t(a.rows), 0);
  for (Index q = 0; q < pivots.rank(); ++q) {
    is_pivot[std::size_t(pivots.rows[std::size_t(q)])] = 1;
    for (Index j = 0; j < a.columns; ++j)
      mine(q, j) = bit(rows, pivots.rows[std::size_t(q)] * words, j);
  }
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < a.columns; ++j)
      if (!is_pivot[std::size_t(i)]) right &= !bit(rows, i * words, j);
  if (form == EchelonForm::echelon) {  // zeros left of the pivots; the same row space
    for (Index q = 0; q < pivots.rank(); ++q) {
      for (Index j = 0; j < expected[std::size_t(q)]; ++j) right &= !mine(q, j);
      right &= mine(q, expected[std::size_t(q)]) == 1;
    }
    reduce_plain(mine, a.columns);
  }
  right &= mine == oracle;
  const Witness witness = form == EchelonForm::reduced
                              ? witness_of_reduced(context, matrix, a.columns, words, pivots, seed)
                              : witness_of_echelon(context, matrix, a.columns, words, pivots, seed);
  right &= check_rank(context, source, layout, pivots, witness).empty();

  // Broken claims do not pass.
  if (pivots.rank() > 0) {
    Witness wrong = witness;
    wrong.x[0] ^= 1;
    right &= !check_rank(context, source, layout, pivots, wrong).empty();
    wrong = witness;
    wrong.y.back() ^= Word(1) << 63;
    right &= !check_rank(context, source, layout, pivots, wrong).empty();
    Pivots fewer = pivots;
    wrong = witness;
    fewer.columns.pop_back(), fewer.rows.pop_back(), wrong.x.pop_back(), wrong.y.pop_back();
    right &= !check_rank(context, source, layout, fewer, wrong).empty();
  }
  return right;
}

/// Rows with two ones each: the first candidates of a panel lack pivots, and other rows extend their
/// factor; of 1,024 columns they have more than 512.
template <class B>
void test_sparse_rows(Context<B>& context, Index rows, Index columns, PanelPlan plan) {
  PlainBits a(rows, columns);
  for (Index i = 0; i < rows; ++i)
    for (Word k = 0; k < 2; ++k)
      a(i, Index(random_word(Word(rows), i, Index(k)) % Word(columns))) = 1;
  INFO(rows << " x " << columns << ", block " << plan.columns);
  REQUIRE_ALL(holds(context, a, EchelonForm::reduced, plan));
  if (!fewer_cases) REQUIRE_ALL(holds(context, a, EchelonForm::echelon, plan));
}

/// More rows outside the span of a panel's first candidates than one factorization takes, and some of
/// these outside the span of the others.
template <class B>
void test_many_outside(Context<B>& context) {
  const Index rows = 3000, candidates = 192;  // of a panel of 128 columns
  PlainBits a(rows, 128);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < 40; ++j) a(i, j) = std::uint8_t(random_word(5, i, j) & 1);
  for (Index k = 0; k < candidates; ++k)
    for (Index j = 10; j < 40; ++j) a(k * rows / candidates, j) = 0;
  for (Index k = 0; k < 40; ++k) a(75 * k + 1, 50 + k) = 1;
  REQUIRE_ALL(holds(context, a, EchelonForm::reduced, {128}));
}

enum class Structure {
  random,
  sparse,
  low_rank,
  equal_columns,
  identity,
  companion,
  toeplitz,
  zero,
  late,
  blocks
};

PlainBits make(Structure structure, Index rows, Index columns) {
  const auto seed = unsigned(rows * 1000 + columns);
  PlainBits a(rows, columns);
  switch (structure) {
    case Structure::random:
      return random_plain(rows, columns, seed);
    case Structure::sparse:
      return random_plain(rows, columns, seed, 0.01);
    case Structure::low_rank:
      return random_plain(rows, 20, seed) * random_plain(20, columns, seed + 1);
    case Structure::equal_columns:
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j) a(i, j) = std::uint8_t(i % 3 == 1);
      return a;
    case Structure::identity:
      for (Index i = 0; i < std::min(rows, columns); ++i) a(rows - 1 - i, i) = 1;
      return a;
    case Structure::companion:
      for (Index i = 0; i < rows; ++i) {
        if (i > 0 && i - 1 < columns) a(i, i - 1) = 1;
        if (columns > 0) a(i, columns - 1) = std::uint8_t(random_word(3, i, 0) & 1);
      }
      return a;
    case Structure::toeplitz:
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j)
          a(i, j) = std::uint8_t(random_word(seed, i - j + columns, 0) & 1);
      return a;
    case Structure::zero:
      return a;
    case Structure::late:  // ones in the last columns and last rows only
      for (Index i = rows / 2; i < rows; ++i)
        for (Index j = columns - std::min<Index>(columns, 3); j < columns; ++j)
          a(i, j) = std::uint8_t(random_word(seed, i, j) & 1);
      return a;
    case Structure::blocks:  // many copies of few rows, zero column ranges between
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j)
          a(i, j) = std::uint8_t(j / 70 % 2 ? 0 : random_word(seed, i / 40, j) & 1);
      return a;
  }
  return a;
}

const Structure structures[] = {Structure::random,        Structure::sparse,   Structure::low_rank,
                                Structure::equal_columns, Structure::identity, Structure::companion,
                                Structure::toeplitz,      Structure::zero,     Structure::late,
                                Structure::blocks};

template <class B>
void test_forms(Context<B>& context, const std::vector<std::pair<Index, Index>>& shapes,
                const PanelPlan& plan) {
  for (const auto& [rows, columns] : shapes)
    for (const Structure structure : structures) {
      if (fewer_cases && structure != Structure::random && structure != Structure::blocks) continue;
      if (rows * columns > 40000 && structure != Structure::random &&
          structure != Structure::sparse && structure != Structure::low_rank &&
          structure != Structure::blocks)
        continue;
      const PlainBits a = make(structure, rows, columns);
      INFO(rows << " x " << columns << ", structure " << int(structure) << ", block "
                << plan.columns << ", k " << plan.product.shape.k);
      REQUIRE_ALL(holds(context, a, EchelonForm::reduced, plan));
      REQUIRE_ALL(holds(context, a, EchelonForm::echelon, plan));
    }
}

/// Columns [from, to) of zeros within a wide panel, or at its end, or behind its first columns.
template <class B>
void test_zero_columns(Context<B>& context) {
  for (const auto& [from, to] : std::vector<std::pair<Index, Index>>{
           {60, 1290}, {0, 1290}, {60, 1792}, {1100, 1792}, {513, 1023}}) {
    PlainBits a = random_plain(150, 1800, unsigned(from + to));
    for (Index i = 0; i < a.rows; ++i)
      for (Index j = from; j < to; ++j) a(i, j) = 0;
    for (Index i = 60; i < a.rows; ++i)  // few rows in the first columns
      for (Index j = 0; j < std::min<Index>(from, 512); ++j) a(i, j) = a(i % 60, j);
    INFO("zeros from " << from << " to " << to);
    REQUIRE_ALL(holds(context, a, EchelonForm::reduced, {1792}));
    if (!fewer_cases) REQUIRE_ALL(holds(context, a, EchelonForm::echelon, {1792}));
  }
}

const std::vector<std::pair<Index, Index>> small = {
    {0, 5},   {5, 0},   {1, 1},     {2, 3},     {3, 2},     {63, 64},
    {64, 63}, {64, 64}, {65, 65},   {127, 129}, {128, 128}, {129, 127},
    {1, 300}, {300, 1}, {191, 193}, {7, 640},   {640, 7}};

template <class B>
void test_inverse(Context<B>& context, const std::vector<Index>& sizes, const PanelPlan& plan) {
  for (const Index n : sizes) {
    PlainBits a = random_plain(n, n, unsigned(n));
    for (Index i = 0; i < n; ++i)  // regular: lower times upper triangle
      for (Index j = 0; j < n; ++j) a(i, j) = i == j ? 1 : j < i ? a(i, j) : 0;
    PlainBits upper = random_plain(n, n, unsigned(n + 1));
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) upper(i, j) = i == j ? 1 : j > i ? upper(i, j) : 0;
    a = a * upper;
    for (Index i = 0; i < n; ++i)  // pivots off the diagonal
      for (Index j = 0; 2 * i < n && j < n; ++j) std::swap(a(i, j), a(n - 1 - i, j));
    for (const bool singular : {false, true}) {
      const Index dead = n / 3;
      if (singular)
        for (Index i = 0; i < n; ++i) a(i, dead) = dead > 0 ? a(i, dead - 1) : 0;
      const BlockCyclic layout = bit_row_layout(n, context.size());
      const auto source = plain_source(context, a, layout);
      BitMatrix<B> matrix(context, layout, source.words());
      load(context, source, matrix);
      Progress progress(false, false);
      const Pivots pivots =
          reduce_to_echelon(context, matrix, n, EchelonForm::inverse, plan, progress);
      INFO(n << (singular ? " singular" : " regular"));
      REQUIRE_ALL(pivots.first_zero_pivot == (singular ? dead : -1));
      if (singular) continue;
      const auto rows = all_rows(context, matrix, source.words());
      PlainBits inverse(n, n), identity(n, n);
      for (Index q = 0; q < n; ++q) {
        identity(q, q) = 1;
        for (Index r = 0; r < n; ++r)
          inverse(pivots.columns[std::size_t(q)], pivots.rows[std::size_t(r)]) = bit(
              rows, pivots.rows[std::size_t(q)] * source.words(), pivots.columns[std::size_t(r)]);
      }
      REQUIRE_ALL(a * inverse == identity);
    }
  }
}

template <class B>
void test_invented_pivot(Context<B>& context) {
  const PlainBits zero(70, 70);
  const BlockCyclic layout = bit_row_layout(70, context.size());
  const auto source = plain_source(context, zero, layout);
  const Word seed = witness_seed(1);
  const Witness invented{seed, {random_word(seed, 4, 0)}, {0}};
  REQUIRE_ALL(!check_rank(context, source, layout, Pivots{{3}, {4}, {}, -1}, invented).empty());
  const Witness nothing{seed, {}, {}};
  REQUIRE_ALL(check_rank(context, source, layout, Pivots{}, nothing).empty());
  const Witness twice{seed, {0, 0}, {0, 0}};
  REQUIRE_ALL(!check_rank(context, source, layout, Pivots{{3, 3}, {4, 5}, {}, -1}, twice).empty());
}

}  // namespace

TEST_CASE("reduced and echelon forms of small matrices equal the textbook's", "[cpu]") {
  on<Cpu>([](auto& context) { test_forms(context, small, {64}); });
}
TEST_CASE("reduced and echelon forms of small matrices equal the textbook's, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_forms(context, small, {64}); });
}
TEST_CASE("panels wider than a word cross their boundaries", "[cpu]") {
  on<Cpu>([](auto& context) {
    test_forms(context, {{255, 256}, {256, 257}, {257, 255}, {40, 1500}, {900, 70}}, {128});
  });
  on<Cpu>([](auto& context) { test_forms(context, {{257, 513}}, {256}); });
  on<Cpu>([](auto& context) { test_forms(context, {{520, 530}}, {512}); });
}
TEST_CASE("panels wider than a word cross their boundaries, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    test_forms(context, {{255, 256}, {256, 257}, {257, 255}, {40, 1500}, {900, 70}}, {128});
  });
  on<Cuda>([](auto& context) { test_forms(context, {{257, 513}, {1300, 600}}, {256}); });
  on<Cuda>([](auto& context) { test_forms(context, {{520, 530}, {1300, 1100}}, {512}); });
}
TEST_CASE("panels wider than one factorization takes", "[cpu]") {
  if (fewer_cases) {
    on<Cpu>([](auto& context) { test_forms(context, {{600, 700}, {64, 900}}, {576}); });
    return;
  }
  on<Cpu>([](auto& context) { test_forms(context, {{700, 1300}}, {640}); });
  on<Cpu>([](auto& context) { test_forms(context, {{700, 700}, {64, 900}, {0, 800}}, {576}); });
}
TEST_CASE("wide panels with columns of zeros", "[cpu]") {
  on<Cpu>([](auto& context) { test_zero_columns(context); });
}
TEST_CASE("wide panels with columns of zeros, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_zero_columns(context); });
}
TEST_CASE("panels of sparse rows", "[cpu]") {
  on<Cpu>([](auto& context) {
    test_sparse_rows(context, 1500, 1090, {1024});
    test_sparse_rows(context, 900, 500, {128});
    test_many_outside(context);
  });
}
TEST_CASE("panels of sparse rows, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    test_sparse_rows(context, 1500, 1090, {1024});
    test_sparse_rows(context, 2600, 2200, {1024});
    test_sparse_rows(context, 2000, 1500, {512});
    test_sparse_rows(context, 5000, 2300, {2048});
    test_many_outside(context);
  });
}
TEST_CASE("wide panels whose first 512 columns have full rank", "[cpu]") {
  on<Cpu>([](auto& context) {
    if (!fewer_cases && context.size() == 1) test_forms(context, {{1150, 1300}}, {1024});
    test_forms(context, {{600 * context.size(), 600}}, {576});
  });
}
TEST_CASE("wide panels whose first 512 columns have full rank, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    test_forms(context, {{600 * context.size(), 600}}, {576});
    test_forms(context, {{1150 * context.size(), 1300}}, {1024});
  });
}
TEST_CASE("panels wider than one factorization takes, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_forms(context, {{700, 1300}, {1300, 1100}}, {1024}); });
  on<Cuda>([](auto& context) { test_forms(context, {{700, 700}, {64, 900}, {0, 800}}, {576}); });
  on<Cuda>([](auto& context) { test_forms(context, {{2100, 2500}}, {2048}); });
  on<Cuda>([](auto& context) { test_forms(context, {{2500, 4200}}, {4096}); });
}
// One row at a time, other k, tables that one rank builds for all, pivots chosen on the host.
template <class B>
void test_ways(Context<B>& context) {
  std::vector<std::pair<Index, Index>> shapes = {{0, 5}, {1, 1}, {65, 63}, {150, 260}};
  if (!fewer_cases) shapes.insert(shapes.end(), {{200, 330}, {330, 200}});
  for (const ProductMethod& method :
       {ProductMethod{true, false, {1}}, ProductMethod{true, false, {5}},
        ProductMethod{true, false, {14}}, ProductMethod{true, true, {8}},
        ProductMethod{true, true, {3}}, ProductMethod{false, true, {}}})
    test_forms(context, shapes, {128, method});
  test_forms(context, shapes, {64, {}, true});
  if (!fewer_cases) test_forms(context, {{520, 530}}, {512, {true, true, {6}}, true});
  test_inverse(context, {65, 130}, {64, {true, true, {7}}, true});
}
TEST_CASE("every way to eliminate gives the same form", "[cpu]") {
  on<Cpu>([](auto& context) { test_ways(context); });
}
TEST_CASE("every way to eliminate gives the same form, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_ways(context); });
}
// Column by column, on one rank; and searches of panels that try few or many rows first.
template <class B>
void test_columns(Context<B>& context) {
  if (context.size() > 1) return;
  PanelPlan plan{64};
  plan.by_columns = true;
  test_forms(context, small, plan);
  test_forms(context, {{255, 256}, {257, 255}, {40, 1500}, {900, 70}}, plan);
  test_inverse(context, {1, 2, 63, 64, 65, 130, 320}, plan);
  plan.column_shape = {1, 48, 16, 5};
  test_forms(context, {{150, 260}}, plan);
}
template <class B>
void test_candidates(Context<B>& context) {
  for (const Index candidates : {1, 3, 16}) {
    PanelPlan plan{64, {true, false, {}}};
    plan.candidates = candidates;
    test_forms(context, {{65, 63}, {200, 130}}, plan);
    test_inverse(context, {130}, plan);
  }
}
TEST_CASE("elimination column by column", "[cpu]") {
  on<Cpu>([](auto& context) { test_columns(context); });
  on<Cpu>([](auto& context) { test_candidates(context); });
}
TEST_CASE("elimination column by column, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_columns(context); });
  on<Cuda>([](auto& context) { test_candidates(context); });
}
TEST_CASE("the inverse is built in place, or its first zero pivot named", "[cpu]") {
  on<Cpu>([](auto& context) {
    test_inverse(context, {1, 2, 63, 64, 65, 130, 320}, {64});
    test_inverse(context, {600}, {576});
  });
}
TEST_CASE("the inverse is built in place, or its first zero pivot named, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    test_inverse(context, {1, 2, 63, 64, 65, 130, 320}, {64});
    test_inverse(context, {1100}, {1024});
  });
}
TEST_CASE("a pivot invented for a zero matrix fails the certificate", "[cpu]") {
  on<Cpu>([](auto& context) { test_invented_pivot(context); });
}
TEST_CASE("a pivot invented for a zero matrix fails the certificate, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_invented_pivot(context); });
}

namespace {

template <class B>
void test_stops(Context<B>& context) {
  const PlainBits a = random_plain(300, 320, 5);
  const BlockCyclic layout = bit_row_layout(a.rows, context.size());
  const auto source = plain_source(context, a, layout);
  for (const PanelPlan& plan : {PanelPlan{64}, PanelPlan{64, {}, true}}) {
    const Index ticks = stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
      BitMatrix<B> matrix(context, layout, source.words());
      load(context, source, matrix);
      attempt([&] {
        (void)reduce_to_echelon(context, matrix, a.columns, EchelonForm::reduced, plan, progress);
      });
    });
    REQUIRE(ticks >= 5);
  }
}

}  // namespace

TEST_CASE("an elimination may be stopped at each panel while lanes work", "[cpu]") {
  on<Cpu>([](auto& context) { test_stops(context); });
}
TEST_CASE("an elimination may be stopped at each panel while lanes work, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_stops(context); });
}
