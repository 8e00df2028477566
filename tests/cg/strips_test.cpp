// Strips of CSR rows, on CUDA.
#include <algorithm>

#include "kernels/base/random.hpp"
#include "kernels/cg/strips.hpp"
#include "tests/cg/products.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

#if TERRACE_WITH_CUDA
namespace {

/// Rows of a mesh, points numbered along its lines, `reach` neighbours on each side along each axis; no
/// entry where `hole` says so.
template <class Hole>
Csr mesh(Index x, Index y, Index z, Index reach, const Hole& hole) {
  Csr a;
  const auto around = [&](Index i, Index size, const auto& f) {
    for (Index k = std::max<Index>(0, i - reach); k < std::min(size, i + reach + 1); ++k) f(k);
  };
  for (Index i = 0; i < x * y * z; ++i) {
    around(i / (x * y), z, [&](Index c) {
      around(i / x % y, y, [&](Index b) {
        around(i % x, x, [&](Index d) {
          const Index j = (c * y + b) * x + d;
          if (hole(i, j)) return;
          a.column.push_back(std::int32_t(j));
          a.value.push_back(random_uniform(5, Index(a.value.size()), 2));
        });
      });
    });
    a.start.push_back(Index(a.column.size()));
  }
  return a;
}

template <class T>
std::vector<T> down(const Stream<Cuda>& lane, const Buffer<T, Cuda>& from) {
  std::vector<T> to(std::size_t(from.size()));
  download(lane, to.data(), from.view());
  lane.synchronize();
  return to;
}

/// Columns of `a` as its strips say them, each row's the row's before plus one.
std::vector<std::int32_t> columns_of(const std::vector<CsrStrip>& strips,
                                     const std::vector<std::int32_t>& runs, const Csr& a) {
  std::vector<std::int32_t> column(a.column.size(), -1);
  for (std::size_t k = 0; k + 1 < strips.size(); ++k) {
    const CsrStrip own = strips[k], next = strips[k + 1];
    const Index rows = next.row - own.row, length = rows > 0 ? (next.entry - own.entry) / rows : 0;
    REQUIRE((rows >= 1 && rows <= 4 && own.entry == a.start[std::size_t(own.row)]));
    std::size_t run = own.run;
    for (Index e = 0; e < length; ++run) {
      const std::int32_t first = own.row + (runs[run] >> 2), count = runs[run] & 3;
      REQUIRE((count > 0 && e + count <= length));
      for (std::int32_t c = 0; c < count; ++c, ++e)
        for (Index r = 0; r < rows; ++r)
          column[std::size_t(own.entry + r * length + e)] = std::int32_t(first + c + r);
    }
    REQUIRE(run == next.run);
  }
  return column;
}

/// What the rows of `a` make: a strip ends at multiples of 32 rows, after 4, and where columns change.
Index count_strips(const Csr& a) {
  Index count = 0, held = 0;
  const auto at = [&](Index i, Index k) {
    return a.column[std::size_t(a.start[std::size_t(i)] + k)];
  };
  for (Index i = 0; i < a.rows(); ++i) {
    const auto length = [&](Index r) {
      return a.start[std::size_t(r) + 1] - a.start[std::size_t(r)];
    };
    bool follows = i % 32 != 0 && held < 4 && length(i) == length(i - 1);
    for (Index k = 0; follows && k < length(i); ++k) follows = at(i, k) == at(i - 1, k) + 1;
    held = follows ? held + 1 : 1;
    if (!follows) ++count;
  }
  return count;
}

void check_strips(const Csr& a, bool made) {
  const Stream<Cuda> lane;
  const SumSpace<Cuda> space(lane, 16);
  const CsrOn<Cuda> there(lane, a, true);
  const Strips<Cuda> strips = csr_strips(lane, there.view(), 0);
  REQUIRE((strips.strip.size() > 0) == made);
  CHECK(csr_strips(lane, there.view(), Index(1) << 50).strip.size() == 0);
  if (!made) return;
  CHECK(strips.strip.size() == count_strips(a) + 1);
  CHECK(columns_of(down(lane, strips.strip), down(lane, strips.run), a) == a.column);
  const Index rows = a.rows();
  const Buffer<double, Cuda> no = put(lane, Vector{0}), yes = put(lane, Vector{1});
  for (const Index wide : {8, 16}) {
    INFO("columns " << wide);
    const Vector many = random_numbers(rows * wide, 6), old = random_numbers(rows * wide, 7);
    const Buffer<double, Cuda> p = put(lane, many);
    Sums product(rows * wide);
    for (Index i = 0; i < rows; ++i)
      for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e)
        for (Index c = 0; c < wide; ++c)
          product.add(i * wide + c, static_cast<long double>(a.value[std::size_t(e)]) *
                                        many[std::size_t(a.column[std::size_t(e)] * wide + c)]);
    Vector first, first_sums;
    for (int time = 0; time < 3; ++time) {  // without strips, and twice with them
      CsrRows<Cuda> m = there.view();
      if (time > 0) m.strip = strips.strip, m.run = strips.run;
      if (time > 0) m.strip_entries = strips.entries, m.strip_runs = strips.runs;
      const Buffer<double, Cuda> q = put(lane, old), sums = put(lane, Vector(2 * wide, 5.0));
      const SumTarget<Cuda> target = sums_to(space, sums.view());
      multiply_columns(lane, m, p.data(), q.view(), target, wide, yes.data());
      CHECK((same_bits(get(lane, q), old) && get(lane, sums) == Vector(2 * wide, 5.0)));
      multiply_columns(lane, m, p.data(), q.view(), target, wide, no.data());
      const Vector result = get(lane, q), of_result = get(lane, sums);
      CHECK(close(result, product));
      CHECK(close_columns(of_result, many, product, wide, true));
      if (time > 0) CHECK(same_bits(result, first));
      if (time > 1) CHECK(same_bits(of_result, first_sums));
      first = result, first_sums = of_result;
    }
  }
}

}  // namespace

TEST_CASE("CSR rows in strips times 8 and 16 vectors", "[cuda][gpu]") {
  if (!context<Cuda>()) return;
  const auto whole = [](Index, Index) { return false; };
  const auto cross = [](Index x, Index y) {
    return [=](Index i, Index j) {
      return (i % x != j % x) + (i / x % y != j / x % y) + (i / (x * y) != j / (x * y)) > 1;
    };
  };
  check_strips(mesh(40, 9, 11, 1, whole), true);
  check_strips(mesh(37, 13, 8, 1, cross(37, 13)), true);
  check_strips(mesh(64, 64, 1, 2, whole), true);
  check_strips(mesh(3000, 1, 1, 20, whole), true);  // a band
  check_strips(mesh(1000, 1, 1, 2, [](Index i, Index) { return i % 300 < 40; }),
               true);  // empty rows
  check_strips(mesh(33, 33, 33, 1, [](Index i, Index j) { return (i * j) % 997 == 1; }), true);
  check_strips(mesh(4, 30, 30, 1, whole), false);    // lines of 4: two rows a strip
  check_strips(mesh(3000, 1, 1, 90, whole), false);  // values of 240 rows take 350 KB
  check_strips(mesh(60, 40, 1, 1, [](Index i, Index) { return i == 7; }), true);
  for (const Index rows : {1, 3, 4, 5, 31, 32, 33, 239, 240, 241, 242, 481})
    for (const Index reach : {0, 1, 4}) {
      INFO("rows " << rows << " reach " << reach);
      const Csr a = mesh(rows, 1, 1, reach, whole);
      check_strips(a, 2 * rows >= 5 * count_strips(a));
    }
  Csr few = mesh(300, 1, 1, 1, whole);
  for (Index i = 0; i < 300; ++i) few.row.push_back(i);
  check_strips(few, false);  // listed
  few.row.clear();
  for (Index k = 0; k < 1000; ++k) {
    few.column.push_back(std::int32_t(k % 300));
    few.value.push_back(1);
  }
  few.start.push_back(Index(few.column.size()));
  check_strips(few, false);  // a row in pieces
}
#endif
