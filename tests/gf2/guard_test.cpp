// --guard of the eliminations over GF(2): no false alarm, the same bits, and a bit that flips is
// reported or harmless. TERRACE_GUARD_CASES: how many (nightly: 100,000).
#include <fmt/core.h>

#include "src/gf2/results.hpp"
#include "tests/support/bit_source.hpp"
#include "tests/support/guard.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

constexpr Word seed = 0x5eed;
constexpr Index kinds = 10;
const char* const names[kinds] = {"even",          "sparse",    "full of ones", "low rank",
                                  "equal rows",    "regular",   "singular",     "zero columns",
                                  "a permutation", "of one bit"};

PlainBits drawn(Index kind, Index rows, Index columns, Draw& draw) {
  PlainBits a(rows, columns);
  const auto each = [&](auto&& entry) {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j) a(i, j) = std::uint8_t(entry(i, j));
  };
  const auto random = [&](int of_16) {
    const Word key = Word(draw.below(1 << 30));
    each([&](Index i, Index j) {
      return int(random_word(key, i, j / 16) >> (j % 16 * 4) & 15) < of_16;
    });
  };
  const auto turned = [&] {  // regular, or with one diagonal entry gone
    const Index p = draw.between(0, rows - 1), q = draw.between(0, columns - 1);
    const Index gone = kind == 6 ? draw.below(std::min(rows, columns)) : -1;
    random(8);
    const PlainBits b = a;
    each([&](Index i, Index j) {
      const Index r = (i + p) % rows, c = (j + q) % columns;
      return r == c ? r != gone : c > r && b(i, j);
    });
    for (Index i = 1; i < rows; ++i)  // times a lower triangle of one diagonal
      if (draw.one_in(2))
        for (Index j = 0; j < columns; ++j) a(i, j) ^= a(i - 1, j);
  };
  if (kind == 0) random(8);
  if (kind == 1) random(1);
  if (kind == 2) random(15);
  if (kind == 3 || kind == 4) {
    const Index rank =
        draw.between(1, std::max<Index>(1, std::min(rows, columns) / (kind == 3 ? 2 : 8)));
    random(8);
    for (Index i = rank; i < rows; ++i) {
      const Index r = draw.below(rank), s = draw.below(rank);
      for (Index j = 0; j < columns; ++j) a(i, j) = a(r, j) ^ (kind == 3 ? a(s, j) : 0);
    }
  }
  if (kind == 5 || kind == 6) turned();
  if (kind == 7) {
    random(8);
    const Index from = draw.below(columns), to = draw.between(from, columns);
    for (Index i = 0; i < rows; ++i)
      for (Index j = from; j < to; ++j) a(i, j) = 0;
  }
  if (kind == 8) {
    const Index shift = draw.below(columns);
    for (Index i = 0; i < rows; ++i) a(rows - 1 - i, (i + shift) % columns) = 1;
  }
  if (kind == 9) a(draw.below(rows), draw.below(columns)) = 1;
  return a;
}

struct Case {
  EchelonForm form = EchelonForm::reduced;
  PanelPlan plan;
  PlainBits a{0, 0}, b{0, 0};  ///< right-hand sides, if any
  std::string text;
};
Case drawn_case(Index at, int ranks) {
  Draw draw{Word(11'000'000 + at)};
  Case c;
  const Index kind = at % kinds;
  c.form = draw.of({EchelonForm::reduced, EchelonForm::echelon, EchelonForm::inverse});
  const auto size = [&] {
    return draw.one_in(16)  ? draw.between(200, 400)
           : draw.one_in(4) ? draw.between(65, 200)
                            : draw.between(1, 80);
  };
  const Index rows = size(), columns = c.form == EchelonForm::inverse ? rows : size();
  c.a = drawn(kind, rows, columns, draw);
  if (c.form == EchelonForm::reduced && draw.one_in(2))
    c.b = drawn(0, rows, draw.between(1, 70), draw);
  if (c.b.columns > 0 && draw.one_in(2)) {  // solvable
    const PlainBits x = drawn(0, columns, c.b.columns, draw);
    c.b = c.a * x;
  }
  c.plan.columns = draw.of({64, 64, 64, 128, 128, 192, 256, 512});
  c.plan.by_columns = ranks == 1 && draw.one_in(4);
  c.plan.product.tables = draw.one_in(2);
  c.plan.product.stored = draw.one_in(4);
  c.plan.product.shape.k = draw.one_in(2) ? draw.between(1, 9) : 0;
  c.plan.candidates = draw.one_in(4) ? draw.between(1, 2) : 0;
  c.plan.guard_interval = draw.one_in(2) ? draw.between(1, 3) : 0;
  c.plan.witness = seed;
  if (c.plan.by_columns) c.plan.columns = 64;
  c.text = fmt::format("case {}: {}, {} x {}, right {}, form {}, {}, block {}, k {}, interval {}",
                       at, names[kind], rows, columns, c.b.columns, int(c.form),
                       c.plan.by_columns ? "columns" : "panels", c.plan.columns,
                       c.plan.product.shape.k, c.plan.guard_interval);
  return c;
}

struct Ended {
  bool alarm = false;
  Pivots pivots;
  bool solvable = true;
  std::vector<Word> rows;  ///< of this rank: what would be written
  std::string broken;      ///< what the certificate says
  bool operator==(const Ended& other) const {
    return pivots.columns == other.pivots.columns && pivots.rows == other.pivots.rows &&
           pivots.first_zero_pivot == other.pivots.first_zero_pivot && solvable == other.solvable &&
           rows == other.rows;
  }
};

template <class B>
Ended ended(Context<B>& context, const Case& c, bool guard) {
  const BlockCyclic layout = bit_row_layout(c.a.rows, context.size());
  const auto a = plain_source(context, c.a, layout), b = plain_source(context, c.b, layout);
  const Index words = a.words() + b.words();
  BitMatrix<B> matrix(context, layout, words + (guard ? 2 : 1));
  load(context, a, matrix);
  if (b.columns > 0) load(context, b, matrix, a.words());
  put_witness(context, matrix, words, seed);
  PanelPlan plan = c.plan;
  plan.guard = guard;
  Progress silent(false, false);
  Ended found;
  found.alarm = alarmed([&] {
    found.pivots = reduce_to_echelon(context, matrix, c.a.columns, c.form, plan, silent);
  });
  if (found.alarm) return found;
  const auto keep = [&](const BitMatrix<B>& from, Index count) {
    found.rows.assign(std::size_t(from.slots() * count), 0);
    copy_rows(context.bulk, found.rows.data(), count, from.data.data(), from.stride, count,
              from.slots());
    context.bulk.synchronize();
  };
  if (c.form == EchelonForm::inverse) {
    if (found.pivots.first_zero_pivot >= 0) return found;
    order_inverse(context, matrix, found.pivots);
    found.broken = check_inverse(context, a, layout,
                                 witness_of_inverse(context, matrix, found.pivots, seed), seed);
    keep(matrix, words);
  } else if (b.columns > 0) {
    found.solvable = consistent(context, matrix, found.pivots, a.words(), b.words());
    if (!found.solvable) return found;
    const BitSolution<B> x =
        solution_of_reduced(context, matrix, found.pivots, c.a.columns, a.words(), b.words());
    found.broken = check_solution(context, a, b, layout, x, seed + 2);
    keep(x.rows, b.words());
  } else {
    const Witness witness =
        c.form == EchelonForm::reduced
            ? witness_of_reduced(context, matrix, c.a.columns, words, found.pivots, seed)
            : witness_of_echelon(context, matrix, c.a.columns, words, found.pivots, seed);
    found.broken = check_rank(context, a, layout, found.pivots, witness);
    keep(matrix, words);
  }
  return found;
}

template <class B>
void check_alarms(Context<B>& context) {
  const Index count = guard_cases(2000);
  for (Index at = 0; at < count; ++at) {
    const Case c = drawn_case(at, context.size());
    INFO(c.text);
    const Ended guarded = ended(context, c, true);
    REQUIRE_ALL(!guarded.alarm);
    CHECK_ALL(guarded.broken.empty());
    if (at / kinds % 4 == 0) CHECK_ALL(guarded == ended(context, c, false));
  }
  if (context.rank() == 0)
    fmt::print("{} bit matrices on {} ranks: no false alarm\n", count, context.size());
}

template <class B>
void check_flips(Context<B>& context) {
  if (context.size() > 1) return;  // one rank alone would hear of it
  Index caught = 0, done = 0, left = 0;
  const Index count = guard_cases(2000);
  for (Index at = 0; at < count; ++at) {
    const Case c = drawn_case(at, 1);
    Draw draw{Word(12'000'000 + at)};
    const Ended plain = ended(context, c, false);
    TestFlip& flip = next_test_flip();
    flip.rank = 0;
    flip.step = draw.between(1, ceil_div(c.a.columns, c.plan.columns));
    flip.byte = draw.below(Index(1) << 30);
    flip.bit = int(draw.below(8));
    INFO(c.text << ", flip " << flip.step << ":" << flip.byte << ":" << flip.bit);
    const Ended flipped = ended(context, c, true);
    const bool waits = flip_waits();
    flip = {};
    if (waits) continue;  // the rank was exhausted before
    ++done;
    caught += flipped.alarm;
    if (flipped.alarm || flipped == plain) continue;
    ++left;
    INFO("the certificate says: " << flipped.broken);
    CHECK(!flipped.broken.empty());
  }
  fmt::print("{} of {} flips reported, {} harmless, {} left to the certificate\n", caught, done,
             done - caught - left, left);
  CHECK(caught > done / 5);  // a third of a row and more is padding
  CHECK(left == 0);
}

}  // namespace

TEST_CASE("GF(2) without errors of memory is without alarms", "[cpu]") {
  on<Cpu>([](auto& context) { check_alarms(context); });
}
TEST_CASE("GF(2) without errors of memory is without alarms, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_alarms(context); });
}
TEST_CASE("A bit that flips in a bit matrix is reported or harmless", "[cpu]") {
  on<Cpu>([](auto& context) { check_flips(context); });
}
TEST_CASE("A bit that flips in a bit matrix is reported or harmless, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_flips(context); });
}
