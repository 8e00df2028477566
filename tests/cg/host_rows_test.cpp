// Products and transposes of sparse matrices on the host, single rows and rows of nodes, against dense sums.
#include <set>

#include "kernels/cg/cpu/block_rows.hpp"
#include "tests/support/host_rows.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

TEST_CASE("sparse products and transposes are those of dense matrices") {
  const Entry a = [](Index i, Index j) {
    return (i * 7 + j * 3) % 5 == 0 ? random_uniform(1, i, j) : 0.0;
  };
  const Entry b = [](Index i, Index j) {
    return (i * 2 + j) % 3 == 0 ? random_uniform(2, i, j) : 0.0;
  };
  for (const Index rows : {0, 1, 17, 5000}) {
    const Index inner = 40, columns = 23;
    const HostRows c = product(sparse(rows, inner, a), sparse(inner, columns, b));
    REQUIRE(c.rows() == rows);
    CHECK(largest(minus(dense(c), dense_product(rows, inner, columns, a, b))) <= 1e-14);
    const Entry flipped = [&](Index i, Index j) { return a(j, i); };
    CHECK(dense(transposed(sparse(rows, inner, a))) == dense(sparse(inner, rows, flipped)));
  }
}

TEST_CASE("rows of nodes are multiplied as blocks, with the sums of single rows") {
  for (const Index node : {2, 3, 9})             // rows of A and of B
    for (const Index wide : {1, 3, 4, 6, 11})    // columns of B that go together
      for (const bool rising : {false, true}) {  // or each entry is a block
        const Index rows = 101, inner = 20 * node + 1, columns = 7 * wide + 2;
        CAPTURE(node, wide, rising);
        const Entry a = [&](Index i, Index k) {
          return (i / node * 5 + k / node * 3) % 4 == 0 ? random_uniform(1, i, k) : 0.0;
        };
        const Entry b = [&](Index k, Index j) {
          return (k / node + j / wide * 2) % 3 == 0 ? random_uniform(2, k, j) : 0.0;
        };
        const HostRows left = sparse(rows, inner, a, true);
        const HostRows right = sparse(inner, columns, b, rising);
        const RowGroups groups = row_groups(left, most_group_rows);
        const RowGroups inner_groups = row_groups(right, inner);
        REQUIRE((has_company(groups) && has_company(inner_groups)));
        const HostRows c = product(left, right);
        REQUIRE(c.rows() == rows);
        CHECK(largest(minus(dense(c), dense_product(rows, inner, columns, a, b))) <=
              1e-15 * double(inner));
        for (Index i = 0; i < rows; ++i) {  // no column twice
          const std::set<std::int32_t> named(c.column.begin() + c.start[std::size_t(i)],
                                             c.column.begin() + c.start[std::size_t(i) + 1]);
          CHECK(Index(named.size()) == c.start[std::size_t(i) + 1] - c.start[std::size_t(i)]);
        }

        // T + F A T, with rows of T that are empty.
        const Index last = inner / node / 2 * node;
        const Entry t = [&](Index k, Index j) { return k < last ? b(k, j) : 0.0; };
        const HostRows square = sparse(inner, inner, a, true);
        const HostRows from = sparse(inner, columns, t, rising);
        Vector factor;
        for (Index i = 0; i < inner; ++i) factor.push_back(random_uniform(3, i, 0));
        const HostRows smooth = block_smoothed(square, row_groups(square, most_group_rows, &from),
                                               factor, from, row_groups(from, inner));
        double worst = 0;
        const Vector found = dense(smooth);
        for (Index i = 0; i < inner; ++i)
          for (Index j = 0; j < columns; ++j) {
            double sum = 0;
            for (Index k = 0; k < inner; ++k) sum += a(i, k) * t(k, j);
            const bool empty = from.start[std::size_t(i)] == from.start[std::size_t(i) + 1];
            const double wanted = empty ? 0.0 : t(i, j) + factor[std::size_t(i)] * sum;
            worst = std::max(worst, std::fabs(found[std::size_t(i * columns + j)] - wanted));
          }
        CHECK(worst <= 1e-15 * double(inner));
      }
}
