// The library over GF(2).
#include "library.hpp"

using namespace library;

TEST_CASE("bits: forms, rank, kernel, solution, inverse and product") {
  Context context = group();
  for (const auto& [rows, columns] :
       {std::pair<Index, Index>{1, 1}, {70, 130}, {200, 64}, {129, 129}})
    for (const int kind : {0, 2}) {
      const Index words = (columns + 63) / 64, ld = words + 2;
      std::vector<Word> a = random_bits(rows, columns, unsigned(rows));
      for (Index w = 0; w < words && rows > 3; ++w)  // a row that depends on others
        a[std::size_t(3 * words + w)] = a[std::size_t(w)] ^ a[std::size_t(words + w)];
      const Rows mine = share(rows, kind);
      const std::vector<Index> list = held(rows, mine);
      std::vector<Word> form = a;
      const std::vector<Index> pivots = eliminate(form, rows, columns);
      std::vector<Word> own = part(a, words, list, ld, ~Word(0));
      if (columns % 64 != 0)  // bits behind the last column are nobody's
        for (std::size_t i = 0; i < list.size(); ++i)
          own[i * std::size_t(ld) + std::size_t(words) - 1] |= Word(1) << 63;
      const std::vector<Word> before = own;
      auto report = terrace::gf2::rank(context, rows, {own.data(), mine, columns, ld});
      CHECK(report.rank == Index(pivots.size()));
      CHECK(report.pivots == pivots);
      CHECK(report.certified);
      const terrace::gf2::Basis basis =
          terrace::gf2::kernel(context, rows, {own.data(), mine, columns, ld});
      CHECK(everywhere(own == before));
      CHECK(basis.dimension == columns - report.rank);
      std::vector<Word> k =
          whole(basis.dimension, words, held(basis.dimension, basis.rows), basis.words, basis.ld);
      for (Index i = 0; i < rows; ++i)
        for (Index f = 0; f < basis.dimension; ++f) {
          Word sum = 0;
          for (Index w = 0; w < words; ++w)
            sum ^= a[std::size_t(i * words + w)] & k[std::size_t(f * words + w)];
          if (__builtin_parityll(sum)) FAIL("not in the kernel");
        }
      CHECK(Index(eliminate(k, basis.dimension, columns).size()) == basis.dimension);
      const Index tw = (rows + 63) / 64;
      std::vector<Word> t(list.size() * std::size_t(tw));
      report = terrace::gf2::reduce(context, rows, {own.data(), mine, columns, ld},
                                    {t.data(), mine, rows, tw});
      CHECK(whole(rows, words, list, own, ld) == form);
      CHECK(product(whole(rows, tw, list, t, tw), rows, rows, a, columns) == form);
      // A X = B for a B that has a solution, and for one that has none.
      const Index right = 70, rw = 2;
      const std::vector<Word> b = product(a, rows, columns, random_bits(columns, right, 9), right);
      const Rows of_x = share(columns, 1);
      const std::vector<Index> x_list = held(columns, of_x);
      std::vector<Word> x(x_list.size() * std::size_t(rw)), own_b = part(b, rw, list, rw, Word(0));
      own = before;
      report = terrace::gf2::solve(context, rows, {own.data(), mine, columns, ld},
                                   {own_b.data(), mine, right}, {x.data(), of_x, right});
      CHECK(product(a, rows, columns, whole(columns, rw, x_list, x, rw), right) == b);
      if (rows > 3) {
        for (std::size_t i = 0; i < list.size(); ++i)
          if (list[i] == 3) own_b[i * std::size_t(rw)] ^= 1;
        const Error e = error_of([&] {
          terrace::gf2::solve(context, rows, {own.data(), mine, columns, ld},
                              {own_b.data(), mine, right}, {x.data(), of_x, right});
        });
        CHECK(e.code() == Code::outcome);
      }
      // The product itself.
      const std::vector<Word> c = random_bits(columns, right, 10);
      const std::vector<Word> own_c = part(c, rw, x_list, rw, Word(0));
      std::vector<Word> d(list.size() * std::size_t(rw));
      terrace::gf2::multiply(context, rows, {own.data(), mine, columns, ld},
                             {own_c.data(), of_x, right}, {d.data(), mine, right});
      CHECK(whole(rows, rw, list, d, rw) == product(a, rows, columns, c, right));
    }
  const Index n = 65;
  std::vector<Word> a(std::size_t(n * 2), 0), one(std::size_t(n * 2), 0);
  for (Index i = 0; i < n; ++i) {
    one[std::size_t(i * 2 + i / 64)] = Word(1) << (i % 64);
    for (Index j = i; j < n; ++j)
      if ((i * j) % 3 == 0 || i == j) a[std::size_t(i * 2 + j / 64)] |= Word(1) << (j % 64);
  }
  const Rows mine = share(n, 0);
  const std::vector<Index> list = held(n, mine);
  std::vector<Word> own = part(a, 2, list, 2, Word(0));
  terrace::gf2::inverse(context, n, {own.data(), mine, n});
  CHECK(product(whole(n, 2, list, own, 2), n, n, a, n) == one);
  for (Index w = 0; w < 2; ++w) a[std::size_t(20 * 2 + w)] = a[std::size_t(21 * 2 + w)];
  own = part(a, 2, list, 2, Word(0));
  CHECK(error_of([&] {
          terrace::gf2::inverse(context, n, {own.data(), mine, n});
        }).code() == Code::outcome);
}
