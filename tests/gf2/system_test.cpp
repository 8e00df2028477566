// The calls of a user of the library: plan, load, reduce or multiply, certify; beside textbooks.
#include "src/gf2/system.hpp"
#include "src/gf2/multiply.hpp"
#include "tests/support/bit_source.hpp"
#include "tests/support/guard.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

/// One problem from plain matrices to a result, and what the certificate says: of the input, and
/// of one with another bit.
template <class B>
struct Solved {
  BitPlan plan;
  BitResult<B> found;
  std::string broken, broken_of_other;
  PlainBits other{0, 0};

  Solved(Context<B>& context, const BitRequest& request, const PlainBits& a,
         const PlainBits& b = {0, 0}) {
    plan = plan_bits(context, a.rows, a.columns, b.columns, request);
    const auto from_a = plain_source(context, a, plan.layout);
    const auto from_b = b.columns > 0 ? plain_source(context, b, plan.layout) : BitSource<B>{};
    BitMatrix<B> matrix(context, plan.layout, plan.all_words());
    load_bits(context, plan, from_a, from_b, matrix);
    Progress silent(false, false);
    found = reduce_bits(context, plan, std::move(matrix), silent);
    if (!found.consistent || found.pivots.first_zero_pivot >= 0) return;
    broken = certify_bits(context, plan, from_a, from_b, found);
    if (a.rows == 0 || a.columns == 0) return;
    other = b.columns > 0 ? b : a;
    other(other.rows / 2, other.columns / 2) ^= 1;
    const auto wrong = plain_source(context, other, plan.layout);
    broken_of_other = b.columns > 0 ? certify_bits(context, plan, from_a, wrong, found)
                                    : certify_bits(context, plan, wrong, from_b, found);
  }
};

PlainBits of_rank(Index rows, Index columns, Index rank) {
  return random_plain(rows, rank, 3) * random_plain(rank, columns, 4);
}

bool regular(const PlainBits& a, Index* first_without = nullptr) {
  PlainBits copy = a;
  const auto pivots = reduce_plain(copy, a.columns);
  Index j = 0;
  while (j < Index(pivots.size()) && pivots[std::size_t(j)] == j) ++j;
  if (first_without) *first_without = j;
  return j == a.columns;
}

template <class B>
void check_forms(Context<B>& context, const PlainBits& a, const BitRequest& wish) {
  PlainBits form = a;
  const std::vector<Index> pivots = reduce_plain(form, a.columns);
  for (const BitTask task : {BitTask::rref, BitTask::echelon, BitTask::rank}) {
    BitRequest request = wish;
    request.task = task;
    const Solved<B> s(context, request, a);
    CHECK_ALL(s.broken.empty());
    CHECK_ALL(s.found.pivots.columns == pivots);
    PlainBits other = s.other;  // may have the same form
    (void)reduce_plain(other, other.columns);
    CHECK_ALL(other.rows == 0 || other == form || !s.broken_of_other.empty());
    PlainBits mine = gather(context, s.found.matrix, a.rows, a.columns, destination_of(s.found));
    if (task != BitTask::rref) (void)reduce_plain(mine, a.columns);  // the row space is promised
    CHECK_ALL(mine == form);
  }
}

template <class B>
void check_kernel_task(Context<B>& context, const PlainBits& a, BitRequest request) {
  request.task = BitTask::kernel;
  const Solved<B> s(context, request, a);
  PlainBits form = a;
  const Index dimension = a.columns - Index(reduce_plain(form, a.columns).size());
  CHECK_ALL(s.broken.empty());
  CHECK_ALL(s.found.basis.layout.extent == dimension);
  const PlainBits k = gather(context, s.found.basis, dimension, a.columns,
                             globals(s.found.basis.layout, context.rank()));
  PlainBits turned(a.columns, dimension), copy = k;
  for (Index i = 0; i < dimension; ++i)
    for (Index j = 0; j < a.columns; ++j) turned(j, i) = k(i, j);
  CHECK_ALL(a * turned == PlainBits(a.rows, dimension));
  CHECK_ALL(Index(reduce_plain(copy, a.columns).size()) == dimension);
}

template <class B>
void check_solve_task(Context<B>& context, const PlainBits& a, BitRequest request) {
  request.task = BitTask::solve;
  for (const bool solvable : {true, false}) {
    const PlainBits b = solvable ? a * random_plain(a.columns, 65, 7) : random_plain(a.rows, 65, 8);
    PlainBits both(a.rows, a.columns + 65);
    for (Index i = 0; i < a.rows; ++i)
      for (Index j = 0; j < both.columns; ++j)
        both(i, j) = j < a.columns ? a(i, j) : b(i, j - a.columns);
    PlainBits alone = a;
    const bool expected =
        reduce_plain(both, both.columns).size() == reduce_plain(alone, a.columns).size();
    const Solved<B> s(context, request, a, b);
    CHECK_ALL(s.found.consistent == expected);
    if (!expected) continue;
    const PlainBits x = gather(context, s.found.x.rows, a.columns, 65, s.found.x.destination);
    CHECK_ALL(a * x == b);
    CHECK_ALL(s.broken.empty());
    CHECK_ALL(a.rows == 0 || a.columns == 0 || !s.broken_of_other.empty());
  }
}

template <class B>
void check_inverse_task(Context<B>& context, BitRequest request) {
  request.task = BitTask::inverse;
  for (const Index n : {1, 65, 130}) {
    PlainBits a = random_plain(n, n, unsigned(n));
    for (unsigned seed = 1; !regular(a); ++seed) a = random_plain(n, n, seed);
    const Solved<B> s(context, request, a);
    PlainBits identity(n, n);
    for (Index i = 0; i < n; ++i) identity(i, i) = 1;
    CHECK_ALL(a * gather(context, s.found.matrix, n, n, destination_of(s.found)) == identity);
    CHECK_ALL(s.broken.empty());
    CHECK_ALL(!s.broken_of_other.empty());
    for (Index i = 0; i < n; ++i) a(i, n / 2) = n > 1 ? a(i, 0) : 0;  // depends on the first
    Index first = 0;
    CHECK_ALL(!regular(a, &first));
    CHECK_ALL(Solved<B>(context, request, a).found.pivots.first_zero_pivot == first);
  }
}

template <class B>
void check_tasks(Context<B>& context) {
  std::vector<BitRequest> wishes(3);
  wishes[1].guard = true;
  wishes[1].block = 1;  // 64
  wishes[2].method = context.size() == 1 ? "columns" : "tables";
  wishes[2].seed = 5;
  for (const BitRequest& wish : wishes) {
    for (const auto& [rows, columns] : std::vector<std::pair<Index, Index>>{
             {0, 5}, {5, 0}, {1, 1}, {64, 65}, {130, 129}, {20, 300}, {300, 70}})
      for (const Index rank : {Index(0), std::min(rows, columns) / 2, Index(1000)}) {
        INFO(rows << " x " << columns << " rank " << rank << " method " << wish.method);
        const PlainBits a =
            rank < 1000 ? of_rank(rows, columns, rank) : random_plain(rows, columns, 9);
        check_forms(context, a, wish);
        check_kernel_task(context, a, wish);
        check_solve_task(context, a, wish);
      }
    check_inverse_task(context, wish);
  }
}

/// What the plan says of memory and words before anything is read.
template <class B>
void check_plan(Context<B>& context) {
  BitRequest request;
  request.block = 100;
  const BitPlan plan = plan_bits(context, 500, 1000, 70, request);
  CHECK(plan.panels.columns == 128);
  CHECK(plan.words() == 16);
  CHECK(plan.all_words() == 16 + 2 + 1);
  BitPlan guarded = plan, kernel = plan;
  guarded.panels.guard = true;
  kernel.task = BitTask::kernel;
  CHECK(guarded.all_words() == 16 + 2 + 2);
  const auto bytes = [&](const BitPlan& p, int ranks) { return bits_memory<B>(p, ranks).bytes; };
  CHECK(bytes(plan, 1) >= BitMatrix<B>::bytes(bit_row_layout(500, 1), plan.all_words()));
  CHECK(bytes(guarded, 1) > bytes(plan, 1));
  CHECK(bytes(kernel, 1) > bytes(plan, 1));
  CHECK(bytes(plan, 4) < bytes(plan, 1));
}

template <class B>
void check_products(Context<B>& context) {
  const PlainBits a = random_plain(150, 1100, 1), b = random_plain(1100, 90, 2);
  Progress silent(false, false);
  PanelWish wish;
  wish.guard = true;
  const ProductPlan plan = plan_product(context, a.rows, a.columns, b.columns, wish, -1, silent);
  PlainBits other = a;
  other(149, 1099) ^= 1;
  const auto left = plain_source(context, a, plan.layout),
             wrong = plain_source(context, other, plan.layout),
             right = plain_source(context, b, plan.b_layout);
  // No flip; one of the factor, one of the product: what is done once more says whose fault it was.
  for (const Index step : {0, 1, 2}) {
    int begun = 0, ended = 0;
    const AgainHooks again{[&] { ++begun; }, [&] { ++ended; }};
    Factors<B> f = read_factors(context, plan, left, right);
    if (step > 0) next_test_flip() = {0, step, 0, 0};
    multiply_bits(context, f.a, f.b, f.c, plan.inner, f.memory, silent);
    const auto certify = [&](const BitSource<B>& of) {
      return certify_product(context, plan, of, right, f, 77, silent, again);
    };
    std::string broken;
    CHECK_ALL(alarmed([&] { broken = certify(left); }) == (step > 0));
    next_test_flip() = {};
    CHECK_ALL(broken.empty());
    CHECK_ALL(begun == int(step > 0));
    CHECK_ALL(ended == begun);
    const PlainBits c =
        gather(context, f.c, a.rows, b.columns, globals(plan.layout, context.rank()));
    CHECK_ALL(c == a * b);  // after the second try, too
    if (step > 0) continue;
    // Another input than the one that was multiplied: the second try finds its product.
    CHECK_ALL(alarmed([&] { (void)certify(wrong); }));
    CHECK_ALL(begun == 1);
  }
}

}  // namespace

TEST_CASE("every task has the textbook's answer and a certificate", "[cpu]") {
  on<Cpu>([](auto& context) { check_tasks(context); });
}
TEST_CASE("every task has the textbook's answer and a certificate, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_tasks(context); });
}
TEST_CASE("plans say words and memory", "[cpu]") {
  on<Cpu>([](auto& context) { check_plan(context); });
}
TEST_CASE("guarded products are done once more", "[cpu]") {
  on<Cpu>([](auto& context) { check_products(context); });
}
TEST_CASE("guarded products are done once more, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_products(context); });
}
