#include "kernels/cg/triangle_block.hpp"

#include <cmath>

#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;

namespace {

double entry(Index i, Index j) { return random_uniform(11, std::max(i, j), std::min(i, j)); }

/// The tile rows first, first + step, ... of an n x n matrix on the host.
struct Tiles {
  std::vector<double> a;
  std::vector<Index> row, start{0};

  Tiles(Index n, Index first, Index step) {
    for (Index big = first; 256 * big < n; big += step) {
      row.push_back(big);
      a.resize(a.size() + std::size_t(256 * 256 * (big + 1)), 0.0);
      for (Index i = 256 * big; i < std::min(n, 256 * (big + 1)); ++i)
        for (Index j = 0; j <= i; ++j)
          a[std::size_t((start.back() + j / 64) * 256 * 64 + i % 256 * 64 + j % 64)] =
              i == j ? entry(i, i) / 2 : entry(i, j);
      start.push_back(start.back() + 4 * (big + 1));
    }
  }
};

/// What the tile rows first, first + step, ... contribute to A P.
std::vector<double> share(Index n, Index first, Index step, const std::vector<double>& p, Index k) {
  std::vector<double> q(p.size(), 0.0);
  for (Index i = 0; i < n; ++i) {
    if (i / 256 % step != first) continue;
    for (Index j = 0; j <= i; ++j)
      for (Index c = 0; c < k; ++c) {
        q[std::size_t(i * k + c)] += entry(i, j) * p[std::size_t(j * k + c)];
        if (i != j) q[std::size_t(j * k + c)] += entry(i, j) * p[std::size_t(i * k + c)];
      }
  }
  return q;
}

template <class B>
struct Product {
  Context<B>& context;
  Index n, k, padded = (n + 255) / 256 * 256;
  Buffer<double, B> a, p{padded * k}, q{padded * k}, scratch, skip{1};
  Buffer<Index, B> row, start;

  Product(Context<B>& c, const Tiles& tiles, Index order, Index columns)
      : context(c),
        n(order),
        k(columns),
        a(Index(tiles.a.size())),
        scratch(triangle_block_scratch(B{}, order, Index(tiles.row.size()), columns)),
        row(Index(tiles.row.size())),
        start(Index(tiles.start.size())) {
    upload(c.ahead, a.view(), tiles.a.data());
    upload(c.ahead, row.view(), tiles.row.data());
    upload(c.ahead, start.view(), tiles.start.data());
    c.ahead.synchronize();
  }
  std::vector<double> operator()(const std::vector<double>& of, double skipped = 0) {
    const std::vector<double> before(of.size(), 17.0);  // must be gone, or untouched
    upload(context.ahead, p.view(), of.data());
    upload(context.ahead, q.view(), before.data());
    upload(context.ahead, skip.view(), &skipped);
    multiply_block(context.ahead, TriangleTiles<B>{a, n, row, start}, p, q, k, scratch,
                   skip.data());
    std::vector<double> result(of.size());
    download(context.ahead, result.data(), q.view());
    context.ahead.synchronize();
    return result;
  }
};

std::vector<double> vectors(Index n, Index k) {
  std::vector<double> p(std::size_t((n + 255) / 256 * 256 * k), 0.0);
  for (Index i = 0; i < n; ++i)
    for (Index c = 0; c < k; ++c) p[std::size_t(i * k + c)] = random_uniform(5, i, c);
  return p;
}

template <class B>
void check_block(Index n, const std::vector<Index>& counts) {
  Context<B>* context = test::context<B>();
  if (!context) return;
  for (const Index step : {1, 2})
    for (Index first = 0; first < step; ++first) {
      const Tiles tiles(n, first, step);
      for (const Index k : counts) {
        CAPTURE(n, k, step, first);
        const std::vector<double> p = vectors(n, k), expected = share(n, first, step, p, k);
        Product<B> product(*context, tiles, n, k);
        const std::vector<double> q = product(p);
        double worst = 0;
        for (std::size_t e = 0; e < q.size(); ++e) {
          const double error = std::fabs(q[e] - expected[e]);
          worst = error <= worst ? worst : error;  // a NaN stays
        }
        CHECK(worst <= 1e-15 * double(n + 10));
        CHECK(product(p) == q);
        CHECK(product(p, 1.0) == std::vector<double>(q.size(), 17.0));
      }
    }
}

const std::vector<Index> all_counts{1, 2, 3, 5, 8, 15, 16};
const std::vector<Index> orders{1, 63, 64, 65, 255, 256, 257, 600, 1100};

}  // namespace

TEST_CASE("packed tiles times several vectors equal plain sums, by shares of ranks") {
  for (const Index n : orders) check_block<Cpu>(n, all_counts);
  check_block<Cpu>(4200, {3, 16});  // units of several tile rows
}

#if TERRACE_WITH_CUDA
TEST_CASE("packed tiles times several vectors equal plain sums, CUDA", "[gpu]") {
  for (const Index n : orders) check_block<Cuda>(n, all_counts);
  check_block<Cuda>(6000, {3, 16});
}
#endif

TEST_CASE("a product with several vectors gives the same bits on any number of threads") {
  Context<Cpu>* context = test::context<Cpu>();
  const Index n = 1100, k = 5;
  const Tiles tiles(n, 0, 1);
  const std::vector<double> p = vectors(n, k);
  Product<Cpu> product(*context, tiles, n, k);
  const std::vector<double> one = product(p), again = product(p);
  CHECK(one == again);
  const TriangleTiles<Cpu> held{{tiles.a.data(), Index(tiles.a.size())},
                                n,
                                {tiles.row.data(), Index(tiles.row.size())},
                                {tiles.start.data(), Index(tiles.start.size())}};
  Buffer<double, Cpu> q(Index(p.size())),
      scratch(triangle_block_scratch(Cpu{}, n, Index(tiles.row.size()), k));
  parallel_for(1, [&](Index) {  // inside of a piece, a product runs in one thread
    multiply_block(Stream<Cpu>(), held, {p.data(), Index(p.size())}, q, k, scratch);
  });
  CHECK(std::equal(one.begin(), one.end(), q.data()));
}
