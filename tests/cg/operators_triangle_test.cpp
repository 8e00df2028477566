#include "src/cg/operators_triangle.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "tests/support/systems.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

/// Reads a whole matrix, as a program would from a file.
template <class B>
TriangleOperator<B> make(const Context<B>& c, Index n, const Entry& a, bool planes = false) {
  TriangleOperator<B> op(c, n, planes);
  Vector rows;
  for (Index round = 0; round < op.rounds(); ++round) {
    const Range range = op.slab(round);
    rows.assign(std::size_t(range.count * n), 0.0);
    for (Index i = 0; i < range.count; ++i)
      for (Index j = 0; j < n; ++j) rows[std::size_t(i * n + j)] = a(range.first + i, j);
    op.put_slab(c, round, [&](const io::Sink<double>& sink) { sink(0, range.count, rows.data()); });
  }
  return op;
}

struct Product {
  Vector q;
  double sums[2];
  friend bool operator==(const Product& a, const Product& b) {
    return a.q.size() == b.q.size() &&
           std::memcmp(a.q.data(), b.q.data(), a.q.size() * sizeof(double)) == 0 &&
           std::memcmp(a.sums, b.sums, sizeof(a.sums)) == 0;
  }
};
enum class Kind { plain, absolute, head };

template <class B>
Product apply(const Context<B>& c, const TriangleOperator<B>& op, const Vector& p,
              Kind kind = Kind::plain, double skip = 0) {
  const SumSpace<B> space(c.ahead);
  const Index n = op.n();
  const Operand<B> operand = op.operand(c);
  Buffer<double, B> q(n), sums(2), flag(1);
  upload(c.ahead, operand.own(), p.data());
  upload(c.ahead, flag.view(), &skip);
  fill_zero(c.ahead, q.view());
  fill_zero(c.ahead, sums.view());
  if (kind == Kind::head)
    op.apply_head(c, operand, q.view(), sums.view(), space, flag.data());
  else
    op.apply(c, operand, q.view(), sums.view(), space, flag.data(), kind == Kind::absolute);
  Product result{Vector(std::size_t(n), -1.0), {-1, -1}};
  download(c.ahead, result.q.data(), q.view());
  download(c.ahead, result.sums, sums.view());
  c.ahead.synchronize();
  return result;
}

/// The double loop, in long double; bound = sum |a_ij p_j|.
struct Oracle {
  std::vector<long double> q, bound;
  Oracle(const Entry& a, const Vector& p) : q(p.size()), bound(p.size()) {
    for (std::size_t i = 0; i < p.size(); ++i)
      for (std::size_t j = 0; j < p.size(); ++j) {
        const long double term = (long double)(a(Index(i), Index(j))) * p[j];
        q[i] += term;
        bound[i] += std::fabs(term);
      }
  }
  [[nodiscard]] bool matches(const Product& r, const Vector& p) const {
    long double pq = 0, pp = 0, pq_bound = 0;
    bool close = r.q.size() == p.size();
    for (std::size_t i = 0; close && i < p.size(); ++i) {
      close = std::fabs(r.q[i] - q[i]) <= 4e-15L * bound[i];
      pq += p[i] * q[i];
      pp += (long double)(p[i]) * p[i];
      pq_bound += std::fabs(p[i]) * bound[i];
    }
    return close && std::fabs(r.sums[0] - pq) <= 4e-15L * pq_bound &&
           std::fabs(r.sums[1] - pp) <= 4e-15L * pp;
  }
};

double random_entry(Index i, Index j) {
  if (i < j) std::swap(i, j);
  return random_uniform(11, i, j);
}
/// Every kind of double: either sign, zeros, denormals, huge, rounding of the head either way.
double odd_entry(Index i, Index j) {
  if (i < j) std::swap(i, j);
  const Word w = random_word(5, i, j);
  switch (w % 7) {
    case 0:
      return w & 8 ? 0.0 : -0.0;
    case 1:
      return std::bit_cast<double>((w >> 12 & 0xfffffffffffeull) | (w & 1) << 63);  // denormal
    case 2:
      return random_uniform(6, i, j) * 1e300;
    case 3:
      return random_uniform(6, i, j) * 1e-300;
    case 4:
      return std::bit_cast<double>(0x3ff0000080000000ull + (w >> 8 & 1) - (w >> 9 & 1));
    case 5:
      return -std::bit_cast<double>(0x3fffffffffffffffull - (w >> 20 & 3));
    default:
      return random_uniform(6, i, j);
  }
}
/// The nearest double of 20 bits after the point, ties away from zero.
double head_of(double v) {
  int exponent = 0;
  const double fraction = std::frexp(v, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 21)), exponent - 21);
}

const std::vector<Index> sizes{1, 2, 63, 64, 65, 255, 256, 257, 511, 513, 700};

}  // namespace

TEMPLATE_TEST_CASE("a product with the triangle is the product with the whole matrix", "[triangle]",
                   TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : sizes) {
    CAPTURE(n);
    const auto op = make<B>(*c, n, random_entry);
    const Vector p = random_vector(n, 3);
    const Product first = apply(*c, op, p);
    CHECK_ALL(Oracle(random_entry, p).matches(first, p));
    CHECK_ALL(apply(*c, op, p) == first);  // the same bits again
    const Entry size = [](Index i, Index j) { return std::fabs(random_entry(i, j)); };
    CHECK_ALL(Oracle(size, p).matches(apply(*c, op, p, Kind::absolute), p));
    Product rank0 = first;  // the same bits on every rank
    c->control.broadcast(rank0.q.data(), n * Index(sizeof(double)), 0);
    c->control.broadcast(rank0.sums, sizeof(rank0.sums), 0);
    CHECK_ALL(rank0 == first);
    const Product none = apply(*c, op, p, Kind::plain, 1.0);
    CHECK_ALL((none == Product{Vector(std::size_t(n), 0.0), {0, 0}}));
    Vector diagonal;
    for (Index i = 0; i < n; ++i) diagonal.push_back(random_entry(i, i));
    CHECK_ALL(host_diagonal(*c, op) == diagonal);
  }
}

TEMPLATE_TEST_CASE("nothing to multiply", "[triangle]", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  auto op = make<TestType>(*c, 0, random_entry);
  const Product r = apply(*c, op, {});
  CHECK_ALL((r.q.empty() && r.sums[0] == 0 && r.sums[1] == 0));
  CHECK_ALL((op.rounds() == 0 && host_diagonal(*c, op).empty() && !op.asymmetry(*c)));
}

TEMPLATE_TEST_CASE("many tile rows, and units over several of them", "[triangle]",
                   TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  // Units of two and of four tiles.
  std::vector<Index> orders{2000};
  if (!fewer_cases && c->size() <= 2) orders = {2000, 6000, 11700};
  for (const Index n : orders) {
    CAPTURE(n);
    // Every rank checks every 61st row.
    TriangleOperator<B> op(*c, n);
    op.fill_random(*c, 9);
    const Vector p = random_vector(n, 4);
    const Product r = apply(*c, op, p);
    CHECK_ALL(apply(*c, op, p) == r);
    const double scale = 1 / std::sqrt(double(n));
    bool close = true;
    for (Index i = c->rank(); i < n; i += 61) {
      long double q = 0, bound = 0;
      for (Index j = 0; j < n; ++j) {
        const Index low = std::min(i, j), high = std::max(i, j);
        const long double term =
            (i == j ? 2.0L : (long double)(scale * random_uniform(9, high, low))) *
            p[std::size_t(j)];
        q += term;
        bound += std::fabs(term);
      }
      close = close && std::fabs(r.q[std::size_t(i)] - q) <= 4e-15L * bound;
    }
    CHECK_ALL(close);
    CHECK_ALL(std::fabs(r.sums[0] - dot(p, r.q)) <= 1e-13 * dot(p, p));
    CHECK_ALL(std::fabs(r.sums[1] - dot(p, p)) <= 1e-13 * dot(p, p));
    TriangleOperator<B> planes(*c, n, true);
    planes.fill_random(*c, 9);
    CHECK_ALL(apply(*c, planes, p) == r);
  }
}

TEMPLATE_TEST_CASE("two planes keep every bit, and the heads are the nearest ones", "[triangle]",
                   TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : sizes) {
    CAPTURE(n);
    const Vector p = random_vector(n, 8);
    const auto whole = make<B>(*c, n, random_entry);
    auto planes = make<B>(*c, n, random_entry, true);
    CHECK_ALL(!planes.asymmetry(*c));
    CHECK_ALL((planes.tiles().read == triangle::Read::both));
    CHECK_ALL(apply(*c, planes, p) == apply(*c, whole, p));
    CHECK_ALL(apply(*c, planes, p, Kind::absolute) == apply(*c, whole, p, Kind::absolute));
    CHECK_ALL(host_diagonal(*c, planes) == host_diagonal(*c, whole));
    const Entry head = [](Index i, Index j) { return head_of(random_entry(i, j)); };
    const Product product = apply(*c, planes, p, Kind::head);
    CHECK_ALL(Oracle(head, p).matches(product, p));
    CHECK_ALL((n < 64 || !Oracle(random_entry, p).matches(product, p)));
  }
  // All bits of all tiles, taken apart here again.
  const Index n = 300;
  auto whole = make<B>(*c, n, odd_entry);
  normalise(*c, whole);  // as planes are before they are split
  auto planes = make<B>(*c, n, odd_entry, true);
  (void)planes.asymmetry(*c);
  const Index count = whole.tiles().a.size;
  std::vector<Word> bits(std::size_t(count), 0);
  std::vector<std::uint32_t> words(std::size_t(2 * count), 1);
  const auto as_doubles = [](auto& v) { return reinterpret_cast<double*>(v.data()); };
  download(c->ahead, as_doubles(bits), whole.tiles().a);
  download(c->ahead, as_doubles(words), planes.tiles().a);
  c->ahead.synchronize();
  bool lossless = true, nearest = true;
  for (Index k = 0; k < count; ++k) {
    const Index at = k / triangle::tile * triangle::tile * 2 + k % triangle::tile;
    const std::uint32_t head = words[std::size_t(at)],
                        tail = words[std::size_t(at + triangle::tile)];
    const Word expected = bits[std::size_t(k)];
    lossless = lossless && tail == std::uint32_t(expected) &&
               (Word(head) << 32) + tail - (tail >= 0x80000000u ? Word(1) << 32 : 0) == expected;
    const Word down = expected >> 32;
    nearest = nearest && head == std::uint32_t(tail >= 0x80000000u ? down + 1 : down);
  }
  CHECK_ALL(lossless);
  CHECK_ALL(nearest);
}

TEMPLATE_TEST_CASE("one unequal pair of the triangle is found and named wherever it stands",
                   "[triangle]", TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : {2, 7, 65, 257, 700, 2400}) {  // the last: several slabs of several tile rows
    if (n > 1000 && fewer_cases && c->size() > 1) continue;
    CAPTURE(n);
    for (const auto& [row, column] : std::vector<std::pair<Index, Index>>{{0, n - 1},
                                                                          {n - 1, 0},
                                                                          {n / 2, n / 2 - 1},
                                                                          {n - 2, n - 1},
                                                                          {n / 3, n - 1},
                                                                          {n * 2 / 3, n / 5}}) {
      const Index r = row, k = column;
      if (r == k) continue;
      CAPTURE(r, k);
      const Entry a = [=](Index i, Index j) {
        return random_entry(i, j) + (i == j ? 4.0 : 0.0) + (i == r && j == k ? 1e-9 : 0.0);
      };
      for (bool planes : {false, true}) {
        const auto found = make<B>(*c, n, a, planes).asymmetry(*c);
        REQUIRE_ALL(found.has_value());
        CHECK_ALL(found->row == std::min(r, k));
        CHECK_ALL(found->column == std::max(r, k));
        CHECK_ALL(found->value == a(found->row, found->column));
        CHECK_ALL(found->transposed == a(found->column, found->row));
      }
    }
    // Of several, the one with the lowest row, then column.
    const Entry many = [=](Index i, Index j) {
      return i == j ? 1.0 : double(i > j && j >= n / 2 - 1 && i >= n / 2 + (j == n / 2 - 1));
    };
    const auto first = make<B>(*c, n, many).asymmetry(*c);
    if (n > 2) {
      REQUIRE_ALL(first.has_value());
      CHECK_ALL((first->row == n / 2 - 1 && first->column == n / 2 + 1 && first->value == 0 &&
                 first->transposed == 1));
    }
    // Rounding is no asymmetry, measured against the diagonal too; NaN is never equal.
    const Entry rounded = [](Index i, Index j) {
      return i == j ? 1e6 : 1e-8 + (i > j ? 1e-7 : 0.0);
    };
    CHECK_ALL(!make<B>(*c, n, rounded).asymmetry(*c));
    const Entry broken = [=](Index i, Index j) {
      return i == n - 1 && j == n - 1 ? std::numeric_limits<double>::quiet_NaN() : double(i == j);
    };
    const auto nan = make<B>(*c, n, broken).asymmetry(*c);
    // A NaN on the diagonal makes the scale of its whole row NaN.
    REQUIRE_ALL(nan.has_value());
    const Entry infinite = [=](Index i, Index j) {
      return i + j == n - 1 ? std::numeric_limits<double>::infinity() : 1.0;
    };
    CHECK_ALL(make<B>(*c, n, infinite).asymmetry(*c).has_value());
  }
}

TEMPLATE_TEST_CASE("the ranks hold every tile row once, and about equal shares", "[triangle]",
                   TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : {1, 256, 700, 5000}) {
    const TriangleOperator<B> op(*c, n);
    const Index tile_rows = ceil_div(n, triangle::height);
    std::vector<Index> times(std::size_t(tile_rows), 0);
    Index tiles = 0;
    for (const Index row : op.my_tile_rows()) {
      times[std::size_t(row)] += 1;
      tiles += triangle::tiles_of(row);
    }
    c->control.reduce(times, Reduce::sum);
    CHECK_ALL(std::all_of(times.begin(), times.end(), [](Index t) { return t == 1; }));
    CHECK_ALL(std::is_sorted(op.my_tile_rows().begin(), op.my_tile_rows().end()));
    const Index most = c->control.reduce(tiles, Reduce::max);
    const Index least = c->control.reduce(tiles, Reduce::min);
    CHECK_ALL(most - least <= triangle::tiles_of(c->size()));
    const OperatorMemory memory = TriangleOperator<B>::memory(n, c->size(), 1);
    CHECK_ALL(memory.backend >= 8 * most * triangle::tile);
  }
}

TEST_CASE("the bits do not depend on the threads") {
  Context<Cpu>* c = context<Cpu>();
  const Index n = 1500;
  TriangleOperator<Cpu> op(*c, n);
  op.fill_random(*c, 2);
  const Vector p = random_vector(n, 1);
  const Product one = apply(*c, op, p);
  // Inside a parallel_for the kernels run in the calling thread alone.
  Product alone{{}, {0, 0}};
  const SumSpace<Cpu> space(c->ahead);
  const TriangleTiles<Cpu> tiles = op.tiles();
  Buffer<double, Cpu> scratch(triangle_scratch(Cpu{}, tiles.tiles(), tiles.row.size));
  Buffer<double, Cpu> q(triangle::padded(n)), sums(2), padded(triangle::padded(n));
  Buffer<double, Cpu> q_all(triangle::padded(n)), sums_all(2);
  std::fill_n(padded.data(), padded.size(), 0.0);
  std::copy(p.begin(), p.end(), padded.data());
  const Stream<Cpu> stream;
  multiply(stream, tiles, padded.view(), q_all.view(), scratch.view(),
           sums_to(space, sums_all.view()));
  stream.synchronize();
  parallel_for(2, [&](Index k) {
    if (k > 0) return;
    multiply(stream, tiles, padded.view(), q.view(), scratch.view(), sums_to(space, sums.view()));
    stream.synchronize();
  });
  CHECK_ALL(std::memcmp(q.data(), q_all.data(), std::size_t(q.size()) * sizeof(double)) == 0);
  CHECK_ALL(std::memcmp(sums.data(), sums_all.data(), 2 * sizeof(double)) == 0);
  CHECK_ALL((c->size() > 1 || std::equal(one.q.begin(), one.q.end(), q.data())));
}
