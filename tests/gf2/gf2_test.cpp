#include "src/gf2/backend.hpp"
#include "src/gf2/multiply.hpp"
#include "src/gf2/results.hpp"

#include "kernels/base/random.hpp"
#include "tests/support/bit_source.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

PlainBits low_rank(Index rows, Index columns, Index rank, unsigned seed) {
  return random_plain(rows, rank, seed) * random_plain(rank, columns, seed + 1);
}

const std::vector<std::pair<Index, Index>> shapes = {
    {1, 1},   {0, 4},     {4, 0},    {3, 2},    {2, 3},   {64, 64},
    {65, 63}, {129, 130}, {20, 400}, {300, 70}, {3, 2700}};  // a basis of several blocks

template <class B>
void test_kernel(Context<B>& context) {
  for (const auto& [rows, columns] : shapes)
    for (const Index rank : {Index(0), Index(1), std::min(rows, columns) / 2, Index(1000)}) {
      const PlainBits a = rank < 1000 ? low_rank(rows, columns, rank, 3)
                                      : random_plain(rows, columns, unsigned(columns));
      const BlockCyclic layout = bit_row_layout(rows, context.size());
      const auto source = plain_source(context, a, layout);
      BitMatrix<B> matrix(context, layout, source.words() + 1);
      load(context, source, matrix);
      Progress progress(false, false);
      const Pivots pivots =
          reduce_to_echelon(context, matrix, columns, EchelonForm::reduced, {64}, progress);
      const BitMatrix<B> basis = kernel_basis(context, matrix, pivots, columns);
      const Index dimension = columns - pivots.rank();
      const PlainBits k =
          gather(context, basis, dimension, columns, globals(basis.layout, context.rank()));
      const auto free_list = free_columns(pivots, columns);
      bool right = Index(free_list.size()) == dimension;
      for (Index f = 0; f < dimension; ++f) {
        for (Index g = 0; g < dimension; ++g) right &= k(f, free_list[std::size_t(g)]) == (f == g);
        for (Index i = 0; i < rows; ++i) {
          int sum = 0;
          for (Index j = 0; j < columns; ++j) sum ^= a(i, j) & k(f, j);
          right &= sum == 0;
        }
      }
      INFO(rows << " x " << columns << " rank " << pivots.rank());
      REQUIRE_ALL(right);
      REQUIRE_ALL(check_kernel(context, source, layout, basis, pivots, 77).empty());
      if (dimension > 0) {  // one bit flipped on one rank
        if (basis.layout.owner(dimension - 1) == context.rank()) {
          const Index at = basis.layout.slot(dimension - 1) * basis.stride;
          Word word = 0;
          download(context.bulk, &word, basis.data.view().slice(at, 1));
          context.bulk.synchronize();
          word ^= 1;
          upload(context.bulk, basis.data.view().slice(at, 1), &word);
          context.bulk.synchronize();
        }
        bool first_column_matters = !pivots.columns.empty() && pivots.columns[0] > 0;
        first_column_matters |= pivots.columns.empty();
        for (Index i = 0; i < rows; ++i) first_column_matters |= a(i, 0) != 0;
        if (first_column_matters)
          REQUIRE_ALL(!check_kernel(context, source, layout, basis, pivots, 77).empty());
      }
    }
}

template <class B>
void test_solve(Context<B>& context) {
  for (const auto& [rows, columns] : shapes)
    for (const Index rhs : {1, 64, 65})
      for (const bool solvable : {true, false}) {
        const PlainBits a = rows > 64 ? low_rank(rows, columns, 40, 5)
                                      : random_plain(rows, columns, unsigned(rows + columns));
        PlainBits b = solvable ? a * random_plain(columns, rhs, 9) : random_plain(rows, rhs, 9);
        PlainBits both(rows, columns + rhs);  // the oracle's verdict
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < columns + rhs; ++j)
            both(i, j) = j < columns ? a(i, j) : b(i, j - columns);
        PlainBits oracle = both;
        const Index rank = Index(reduce_plain(oracle, columns).size());
        oracle = both;
        const bool expected = Index(reduce_plain(oracle, columns + rhs).size()) == rank;

        const BlockCyclic layout = bit_row_layout(rows, context.size());
        const auto source = plain_source(context, a, layout),
                   right = plain_source(context, b, layout);
        BitMatrix<B> matrix(context, layout, source.words() + right.words() + 1);
        load(context, source, matrix);
        load(context, right, matrix, source.words());
        Progress progress(false, false);
        const Pivots pivots =
            reduce_to_echelon(context, matrix, columns, EchelonForm::reduced, {64}, progress);
        INFO(rows << " x " << columns << ", " << rhs << " right-hand sides");
        REQUIRE_ALL(consistent(context, matrix, pivots, source.words(), right.words()) == expected);
        if (!expected) continue;
        const auto solution =
            solution_of_reduced(context, matrix, pivots, columns, source.words(), right.words());
        const PlainBits x = gather(context, solution.rows, columns, rhs, solution.destination);
        REQUIRE_ALL(a * x == b);
        bool zero = true;
        for (const Index j : free_columns(pivots, columns))
          for (Index c = 0; c < rhs; ++c) zero &= x(j, c) == 0;
        REQUIRE_ALL(zero);
        REQUIRE_ALL(check_solution(context, source, right, layout, solution, 5).empty());
        if (rows > 0) {
          PlainBits other = b;
          other(rows - 1, rhs - 1) ^= 1;
          const auto wrong = plain_source(context, other, layout);
          REQUIRE_ALL(!check_solution(context, source, wrong, layout, solution, 5).empty());
        }
      }
}

template <class B>
void test_inverse(Context<B>& context) {
  for (const Index n : {1, 64, 65, 200}) {
    PlainBits a(n, n);  // lower times upper triangle, rows turned round
    const PlainBits draw = random_plain(n, n, unsigned(n));
    PlainBits lower(n, n), upper(n, n);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) {
        lower(n - 1 - i, j) = i == j || (j < i && draw(i, j));
        upper(i, j) = i == j || (j > i && draw(i, j));
      }
    a = lower * upper;
    const BlockCyclic layout = bit_row_layout(n, context.size());
    const auto source = plain_source(context, a, layout);
    BitMatrix<B> matrix(context, layout, source.words() + 1);
    load(context, source, matrix);
    Progress progress(false, false);
    const Pivots pivots =
        reduce_to_echelon(context, matrix, n, EchelonForm::inverse, {64}, progress);
    REQUIRE_ALL(pivots.first_zero_pivot == -1);
    order_inverse(context, matrix, pivots);
    std::vector<Index> destination(std::size_t(matrix.slots()));
    for (Index q = 0; q < n; ++q)
      if (layout.owner(pivots.rows[std::size_t(q)]) == context.rank())
        destination[std::size_t(layout.slot(pivots.rows[std::size_t(q)]))] = q;
    const PlainBits inverse = gather(context, matrix, n, n, destination);
    PlainBits identity(n, n);
    for (Index i = 0; i < n; ++i) identity(i, i) = 1;
    REQUIRE_ALL(a * inverse == identity);
    auto witness = witness_of_inverse(context, matrix, pivots, 3);
    REQUIRE_ALL(check_inverse(context, source, layout, witness, 3).empty());
    witness[0] ^= 4;
    REQUIRE_ALL(!check_inverse(context, source, layout, witness, 3).empty());
  }
}

/// Product by a plan against the textbook's.
template <class B>
void test_product(Context<B>& context, const PlainBits& a, const PlainBits& b,
                  const MultiplyPlan& plan) {
  const BlockCyclic layout = bit_row_layout(a.rows, context.size());
  const BlockCyclic b_layout = factor_layout(b.rows, context.size());
  const auto left = plain_source(context, a, layout), right = plain_source(context, b, b_layout);
  BitMatrix<B> am(context, layout, left.words()), bm(context, b_layout, right.words()),
      cm(context, layout, right.words());
  load(context, left, am);
  load(context, right, bm);
  Progress progress(false, false);
  MultiplyMemory<B> memory(context, am.slots(), a.columns, bm.stride, plan);
  const Index received = 8 * (memory.received[0].size() + memory.received[1].size());
  const Index leaves = BitStrassen<B>::bytes(am.slots(), plan.gathered, bm.stride, plan.levels,
                                             plan.panel, plan.method);
  REQUIRE_ALL(multiply_bytes<B>(context.size(), am.slots(), a.columns, bm.stride, plan) ==
              received + leaves);
  multiply_bits(context, am, bm, cm, a.columns, memory, progress);
  const PlainBits c = gather(context, cm, a.rows, b.columns, globals(layout, context.rank()));
  INFO(a.rows << " x " << a.columns << " x " << b.columns << ", " << plan.levels << " levels");
  REQUIRE_ALL(c == a * b);
  REQUIRE_ALL(check_product(context, left, layout, right, b_layout, cm, b.columns, 11).empty());
  if (a.rows > 0 && a.columns > 0 && a.columns <= 3000 && b.columns > 0 && b.columns <= 200) {
    PlainBits other = a;
    other(a.rows - 1, a.columns - 1) ^= 1;
    other(a.rows - 1, 0) ^= a.columns > 1;
    const bool same = other * b == c;
    const auto wrong = plain_source(context, other, layout);
    REQUIRE_ALL(check_product(context, wrong, layout, right, b_layout, cm, b.columns, 11).empty() ==
                same);
  }
}

const auto always = [](Index) { return true; };

template <class B>
MultiplyPlan forced(const Context<B>& context, const PlainBits& a, const PlainBits& b, Index levels,
                    Index panel = 0) {
  return plan_multiply<B>(context.size(), bit_row_layout(a.rows, context.size()).slots(0),
                          a.columns,
                          round_up(std::max<Index>(1, ceil_div(b.columns, 64)), bit_row_alignment),
                          {levels, panel, false, 1}, always);
}

template <class B>
void test_multiply(Context<B>& context) {
  for (const Index rows : {0, 1, 65, 130})
    for (const Index inner : {0, 1, 64, 1100, 3000})
      for (const Index columns : {0, 1, 200}) {
        const PlainBits a = random_plain(rows, inner, 1), b = random_plain(inner, columns, 2);
        test_product(context, a, b, forced(context, a, b, columns == 200 ? 3 : -1));
      }
}

template <class B>
void test_levels(Context<B>& context) {
  struct Case {
    Index rows, inner, columns, levels, admitted;  // admitted: on one rank
  };
  // Sides on both sides of what a level needs, halves of different length, more ranks than rows.
  const std::vector<Case> cases = {
      {0, 1024, 1024, 1, 0},  {1, 1024, 1024, 1, 0},   {2, 1023, 1024, 1, 0},
      {2, 1024, 512, 1, 0},   {2, 1024, 513, 1, 1},    {3, 1024, 1024, 1, 1},
      {13, 1535, 1100, 1, 1}, {67, 2047, 1537, 1, 1},  {4, 2048, 2048, 2, 2},
      {21, 2500, 2060, 2, 2}, {130, 3583, 1921, 2, 2}, {9, 4095, 4096, 3, 2},
      {45, 5119, 3900, 3, 3},
  };
  for (const auto& [rows, inner, columns, levels, admitted] : cases) {
    if (fewer_cases && rows * inner * columns > 100'000'000) continue;
    const PlainBits a = random_plain(rows, inner, unsigned(inner)),
                    b = random_plain(inner, columns, 2);
    MultiplyPlan plan = forced(context, a, b, levels);
    if (context.size() == 1) REQUIRE_ALL(plan.levels == admitted);
    REQUIRE_ALL(plan.levels <= levels);
    test_product(context, a, b, plan);
    if (rows != 21) continue;
    for (const Index panel : {64, 1024}) {  // leaves in several steps
      plan = forced(context, a, b, levels, panel);
      REQUIRE_ALL(plan.panel == panel);
      test_product(context, a, b, plan);
    }
    for (const Index gathered : {512, 1024, 1536, 2048}) {
      if (fewer_cases && gathered % 1024 == 0) continue;  // the last panel admits fewer levels
      plan.gathered = context.size() == 1 ? inner : gathered;
      test_product(context, a, b, plan);
    }
  }
}

/// Blocks of B on several owners, gathered in several panels or at once.
template <class B>
void test_gathering(Context<B>& context) {
  const PlainBits a = random_plain(2 * context.size() + 1, 9000, 1), b = random_plain(9000, 600, 2);
  for (const Index levels : {0, 1}) {
    MultiplyPlan plan = forced(context, a, b, levels);
    if (context.size() > 1 && levels == 0)
      REQUIRE_ALL(plan.gathered == std::min<Index>(9000, plan.panel));
    test_product(context, a, b, plan);
    if (context.size() == 1) continue;
    for (const Index gathered : {1024, 4608, 8192}) {
      plan.gathered = gathered;
      test_product(context, a, b, plan);
    }
  }
}

template <class B>
void test_plans() {
  const Index leaf = strassen_leaf<B>;
  CHECK(strassen_levels(0, 0, 0, leaf) == 0);
  CHECK(strassen_levels(2 * leaf - 1, 8 * leaf, 8 * leaf, leaf) == 0);
  CHECK(strassen_levels(8 * leaf, 2 * leaf, 8 * leaf, leaf) == 1);
  CHECK(strassen_levels(8 * leaf, 8 * leaf, 4 * leaf, leaf) == 2);
  const Index words = 8 * leaf / 64;
  for (const int ranks : {1, 4}) {
    const Index rows = 8 * leaf / ranks;
    const int best = ranks == 1 ? 3 : 1;
    const auto plan = [&](Index levels, Index bytes) {
      return plan_multiply<B>(ranks, rows, 8 * leaf, words, {levels, 0, false, 1},
                              [&](Index wanted) { return wanted <= bytes; });
    };
    const Index all = Index(1) << 60;
    CHECK(plan(-1, all).levels == best);
    CHECK(plan(-1, 0).levels == 0);
    CHECK(plan(0, all).levels == 0);
    CHECK(plan(2, 0).levels == 2);  // a wish is not weighed
    const Index enough = multiply_bytes<B>(ranks, rows, 8 * leaf, words, plan(best, all));
    CHECK(plan(-1, enough).levels == best);
    CHECK(plan(-1, enough - 1).levels < best);
    CHECK(plan(-1, enough - 1).reason.find("memory") != std::string::npos);
    // Halves of gathered rows are leaves.
    if (ranks > 1) CHECK(plan(-1, all).gathered == 2 * leaf);
  }
}

}  // namespace

TEST_CASE("kernel bases are canonical and sent to zero", "[cpu]") {
  on<Cpu>([](auto& context) { test_kernel(context); });
}
TEST_CASE("kernel bases are canonical and sent to zero, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_kernel(context); });
}
TEST_CASE("systems are solved or found inconsistent", "[cpu]") {
  on<Cpu>([](auto& context) { test_solve(context); });
}
TEST_CASE("systems are solved or found inconsistent, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_solve(context); });
}
TEST_CASE("inverses come out in order", "[cpu]") {
  on<Cpu>([](auto& context) { test_inverse(context); });
}
TEST_CASE("inverses come out in order, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_inverse(context); });
}
TEST_CASE("products equal the textbook's", "[cpu]") {
  on<Cpu>([](auto& context) { test_multiply(context); });
}
TEST_CASE("products equal the textbook's, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_multiply(context); });
}
TEST_CASE("levels of Strassen's algorithm change no bit", "[cpu]") {
  on<Cpu>([](auto& context) { test_levels(context); });
}
TEST_CASE("levels of Strassen's algorithm change no bit, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_levels(context); });
}
TEST_CASE("factors in blocks are gathered", "[cpu]") {
  on<Cpu>([](auto& context) { test_gathering(context); });
}
TEST_CASE("factors in blocks are gathered, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_gathering(context); });
}
TEST_CASE("levels are planned by the smallest side and the memory", "[cpu]") { test_plans<Cpu>(); }
TEST_CASE("levels are planned by the smallest side and the memory, CUDA", "[gpu]") {
  on<Cuda>([](auto&) { test_plans<Cuda>(); });
}
