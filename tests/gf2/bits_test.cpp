#include "kernels/gf2/product.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/random.hpp"
#include "tests/support/packed_bits.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

template <class B>
Buffer<Index, B> on_backend(const Stream<B>& lane, const std::vector<Index>& values) {
  Buffer<Index, B> result(Index(values.size()));
  upload(lane, result.view(), values.data());
  lane.synchronize();
  return result;
}

bool bit(const std::vector<Word>& words, Index at, Index j) {
  return (words[std::size_t(at + j / 64)] >> (j % 64)) & 1;
}

template <class B>
void test_combine(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  for (const Index rows : {1, 5, 12, 13, 63, 200, 2100})
    for (const Index bits : {1, 7, 8, 63, 64, 65, 130, 512})
      for (const Index words : {8, 16, 24, 40}) {
        if (rows == 2100 && (words > 24 || bits > 130)) continue;
        if (fewer_cases && words % 16 == 8 && rows != 13) continue;
        const PlainBits m = random_plain(rows, bits, unsigned(rows + bits));
        const PlainBits s = random_plain(bits, 64 * words, unsigned(words));
        const PlainBits c = random_plain(rows, 64 * words, unsigned(words + 1));
        const Packed<B> mult(lane, m, 0, ceil_div(bits, 64)), source(lane, s, 8, words + 8);
        const Packed<B> out(lane, c, 16, words + 24);
        std::vector<Index> order;
        for (Index q = 0; q < bits; ++q) order.push_back(bits - 1 - q);
        std::vector<Index> every_other;
        for (Index i = 0; i < rows; i += 2) every_other.push_back(i);
        const auto list = on_backend(lane, order), out_list = on_backend(lane, every_other);
        combine(lane,
                BitRows<Word, B>{out.device.data(), out.stride, Index(every_other.size()),
                                 out_list.data()},
                BitRows<const Word, B>{mult.device.data(), mult.stride, 0, nullptr},
                BitRows<const Word, B>{source.device.data(), source.stride, bits, list.data()}, 16,
                8, words);
        auto expected = out.host;
        for (std::size_t x = 0; x < every_other.size(); ++x)
          for (Index q = 0; q < bits; ++q)
            if (m(Index(x), q))
              for (Index w = 0; w < words; ++w)
                expected[std::size_t(every_other[x] * out.stride + 16 + w)] ^=
                    source.host[std::size_t((bits - 1 - q) * source.stride + 8 + w)];
        INFO(rows << " rows, " << bits << " bits, " << words << " words");
        REQUIRE(out.back() == expected);
      }
}

// Every shape of tables, built beside the rows or stored before, on a range inside the source.
template <class B>
void test_shapes(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const Index rows = std::is_same_v<B, Cuda> ? 1100 : 150, words = 40;
  for (const Index bits : {1, 60, 64, 131, 512}) {
    const PlainBits m = random_plain(rows, bits, unsigned(bits));
    const PlainBits s = random_plain(bits, 64 * words, 5);
    const PlainBits c = random_plain(rows, 64 * words, 6);
    const Packed<B> mult(lane, m, 0, ceil_div(bits, 64)), source(lane, s, 0, words);
    for (const Index from : {0, 8, 16}) {
      const Index width = words - from - (from == 16 ? 16 : 0);
      auto expected = Packed<B>(lane, c, 8, words + 8).host;
      for (Index i = 0; i < rows; ++i)
        for (Index q = 0; q < bits; ++q)
          if (m(i, q))
            for (Index w = 0; w < width; ++w)
              expected[std::size_t(i * (words + 8) + 8 + w)] ^=
                  source.host[std::size_t(q * source.stride + from + w)];
      for (const TableShape& shape : table_shapes<B>()) {
        const Packed<B> out(lane, c, 8, words + 8), again(lane, c, 8, words + 8);
        INFO(bits << " bits, k " << shape.k << ", " << shape.tables << " tables, from " << from);
        combine(lane, out.rows(rows), mult.rows(rows), source.rows(bits), 8, from, width, shape);
        REQUIRE(out.back() == expected);
        const Buffer<Word, B> tables(stored_table_words<B>(bits, words, shape));
        build_tables(lane, source.rows(bits), words, shape, tables.data());
        combine_stored(lane, again.rows(rows), mult.rows(rows), bits, tables.data(), words, 8, from,
                       width, shape);
        REQUIRE(again.back() == expected);
      }
    }
  }
}

template <class B>
void test_product(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const Index most_inner = 4100, most_words = 40;
  const PlainBits left = random_plain(400, most_inner, 11);
  const PlainBits right = random_plain(most_inner, 64 * most_words, 12);
  const PlainBits old = random_plain(800, 64 * most_words, 13);
  const Packed<B> l(lane, left, 0, ceil_div(most_inner, 64) + 3);
  const Packed<B> r(lane, right, 8, most_words + 16);
  BitProduct<B> product(400, most_inner, most_words), other(400, most_inner, most_words);
  const Buffer<Word, B> strips(most_inner * most_words), others(most_inner * most_words);
  const auto test = [&](Index rows, Index inner, Index words, Index from) {
    const Packed<B> out(lane, old, 16, most_words + 24);
    std::vector<Index> order, every_other;
    for (Index q = 0; q < inner; ++q) order.push_back(inner - 1 - q);
    for (Index i = 0; i < rows; ++i) every_other.push_back(2 * i);
    const auto list = on_backend(lane, order), out_list = on_backend(lane, every_other);
    product.set_right(lane, {r.device.data() + 8, r.stride, inner, list.data()}, from + words);
    product.set_left(lane, {l.device.data(), l.stride, rows, nullptr});
    product.add(lane, {out.device.data(), out.stride, rows, out_list.data()}, 16, from, words);
    auto expected = out.host;
    for (Index i = 0; i < rows; ++i)
      for (Index q = 0; q < inner; ++q)
        if (left(i, q))
          for (Index w = 0; w < words; ++w)
            expected[std::size_t(2 * i * out.stride + 16 + w)] ^=
                r.host[std::size_t((inner - 1 - q) * r.stride + 8 + from + w)];
    INFO(rows << " x " << inner << " x " << words << " words from " << from);
    REQUIRE(out.back() == expected);

    // The same of strips, one by one, which a second product gets from the first.
    const Index all = from + words, half = all / 16 * 8;
    const std::vector<Index> cuts = {0, half, half, all};
    product.set_strips(strips.data(), inner, cuts);
    other.set_strips(others.data(), inner, cuts);
    for (int p = 0; p < 3; ++p) {
      const Index first = cuts[std::size_t(p)], width = cuts[std::size_t(p) + 1] - first;
      copy_bits(lane, BitRows<Word, B>{strips.data() + inner * first, width, inner, nullptr},
                BitRows<const Word, B>{r.device.data() + 8, r.stride, inner, list.data()}, first,
                width);
      product.set_strip(lane, p);
      copy<Word, B>(lane, other.strip_memory(p), product.strip_memory(p));
    }
    for (BitProduct<B>* const one : {&product, &other}) {
      const Packed<B> again(lane, old, 16, most_words + 24);
      one->set_left(lane, {l.device.data(), l.stride, rows, nullptr});
      one->add(lane, {again.device.data(), again.stride, rows, out_list.data()}, 16, from, words);
      REQUIRE(again.back() == expected);
    }
  };
  for (const Index inner : {1, 64, 767, 768, 1000, 1024, 1025, 2048, 3000, 4096, 4100})
    if (!fewer_cases || inner <= 2048) test(130, inner, 24, 8);
  for (const Index rows : {1, 63, 64, 65, 128, 129, 257, 400}) test(rows, 1500, 8, 0);
  for (const Index words : {8, 16, 32, 40}) test(70, 2048, words, 0);
}

template <class B>
void test_factor(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  for (const Index words : {1, 2, 3, 4, 5, 8})
    for (const Index rows : {1, 2, 63, 64, 65, 128, 320, 700, 1024})
      for (const double density : {0.0, 0.002, 0.02, 0.5}) {
        if (fewer_cases && rows > 320) continue;
        PlainBits a = random_plain(rows, 64 * words, unsigned(rows * words), density);
        if (density == 0.5 && rows > 3)  // some dependent columns and rows
          for (Index i = 0; i < rows; ++i) a(i, 17) = a(i, 3), a(i, 0) = 0;
        const Packed<B> packed(lane, a, 2, words + 3);
        std::vector<Index> order;
        for (Index i = 0; i < rows; ++i) order.push_back((i + 5) % rows);
        const auto list = on_backend(lane, order);
        const Index info_size = PanelFactor<B>::info_size(words);
        const Buffer<Index, B> info(info_size);
        const Buffer<Word, B> transform(64 * words * max_panel_words),
            reduced(64 * words * max_panel_words);
        factor_panel(lane, {packed.device.data() + 2, packed.stride, rows, list.data()}, words,
                     {info.data(), transform.data(), reduced.data()});
        std::vector<Index> got(static_cast<std::size_t>(info_size));
        std::vector<Word> t(static_cast<std::size_t>(transform.size())), r(t);
        download(lane, got.data(), info.view());
        download(lane, t.data(), transform.view());
        download(lane, r.data(), reduced.view());
        lane.synchronize();
        PlainBits oracle = a;
        const auto pivots = reduce_plain(oracle, 64 * words);
        INFO(rows << " rows, " << words << " words, density " << density);
        REQUIRE(got[0] == Index(pivots.size()));
        bool right = true;
        for (Index q = 0; q < got[0]; ++q) {
          right &= got[std::size_t(1 + q)] == pivots[std::size_t(q)];
          std::vector<Word> row(static_cast<std::size_t>(words));
          for (Index p = 0; p < got[0]; ++p)  // transform * pivot rows
            if (bit(t, q * max_panel_words, p)) {
              const Index from = order[std::size_t(got[std::size_t(1 + 64 * words + p)])];
              for (Index w = 0; w < words; ++w)
                row[std::size_t(w)] ^= packed.host[std::size_t(from * packed.stride + 2 + w)];
            }
          for (Index j = 0; j < 64 * words; ++j) {
            right &= bit(r, q * max_panel_words, j) == bool(oracle(q, j));
            right &= bit(row, 0, j) == bool(oracle(q, j));
          }
        }
        for (Index q = 0; q < 64 * words; ++q)
          for (Index w = 0; w < max_panel_words; ++w)
            if (q >= got[0] || w >= words)
              right &= t[std::size_t(q * max_panel_words + w)] == 0 &&
                       r[std::size_t(q * max_panel_words + w)] == 0;
        REQUIRE(right);
      }
}

template <class B>
void test_extract(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  for (const Index words : {1, 2, 4, 8, 21, 64})
    for (const Index rows : {0, 1, 65, 1500})
      for (const double density : {0.0, 0.3, 1.0}) {
        const PlainBits a = random_plain(rows, 64 * words, unsigned(rows));
        const PlainBits chosen = random_plain(1, 64 * words, 7, density);
        const Packed<B> in(lane, a, 1, words + 2);
        const Packed<B> out(lane, PlainBits(rows, 64 * words), 0, words + 1);
        std::vector<Index> info(1, 0);
        for (Index j = 0; j < 64 * words; ++j)
          if (chosen(0, j)) info.push_back(j), ++info[0];
        const auto columns = on_backend(lane, info);
        extract_bits(lane, out.rows(rows), in.rows(rows), 1, words, columns.data());
        const auto got = out.back();
        bool right = true;
        for (Index i = 0; i < rows; ++i)
          for (Index q = 0; q < 64 * words; ++q)
            right &= bit(got, i * out.stride, q) == (q < info[0] && a(i, info[std::size_t(1 + q)]));
        REQUIRE(right);
      }
}

template <class B>
void test_small_kernels(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const Index rows = 300, words = 5;
  PlainBits a = random_plain(rows, 64 * words, 1, 0.001);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < 150; ++j) a(i, j) = 0;
  const Packed<B> packed(lane, a, 1, 7);
  const Buffer<Index, B> list(1 + nonzero_room(rows));
  nonzero_rows(lane, packed.rows(rows), 1, words, list.data() + 1, list.data());
  std::vector<Index> got(std::size_t(rows + 1)), expected(1, 0);
  download(lane, got.data(), list.view().slice(0, rows + 1));
  lane.synchronize();
  Index first = words + 1;
  for (Index i = 0; i < rows; ++i)
    for (Index j = 64 * words - 1; j >= 0; --j) {
      if (!a(i, j)) continue;
      first = std::min(first, 1 + j / 64);
      if (expected.back() != i || expected.size() == 1) expected.push_back(i);
    }
  expected[0] = Index(expected.size()) - 1;
  got.resize(std::size_t(got[0] + 1));
  REQUIRE(got == expected);

  first_nonzero_word(lane, packed.rows(rows), 1, words + 1, list.data());
  download(lane, got.data(), list.view().slice(0, 1));
  lane.synchronize();
  REQUIRE(got[0] == first);
  first_nonzero_word(lane, packed.rows(rows), 1, 3, list.data());
  download(lane, got.data(), list.view().slice(0, 1));
  lane.synchronize();
  REQUIRE(got[0] == std::min<Index>(first, 3));
  first_nonzero_word(lane, packed.rows(0), 1, 3, list.data());
  download(lane, got.data(), list.view().slice(0, 1));
  lane.synchronize();
  REQUIRE(got[0] == 3);

  const auto at = on_backend<B>(lane, {4, 9, 2}), columns = on_backend<B>(lane, {0, 63, 130});
  const Packed<B> flipped(lane, a, 0, 8);
  flip_bits(lane, flipped.device.data(), 8, at.data(), columns.data(), 3);
  clear_bits(lane, BitRows<Word, B>{flipped.device.data(), 8, 2, at.data()}, 1, 2);
  auto want = flipped.host;
  want[4 * 8] ^= 1, want[9 * 8] ^= Word(1) << 63, want[2 * 8 + 2] ^= 4;
  want[4 * 8 + 1] = want[4 * 8 + 2] = want[9 * 8 + 1] = want[9 * 8 + 2] = 0;
  REQUIRE(flipped.back() == want);

  const Packed<B> to(lane, PlainBits(rows, 64), 0, 3);
  copy_bits(lane, BitRows<Word, B>{to.device.data(), 3, 2, nullptr},
            BitRows<const Word, B>{packed.device.data(), 7, 3, at.data()}, 2, 2);
  want = to.host;
  for (Index w = 0; w < 2; ++w) {
    want[std::size_t(w)] = packed.host[std::size_t(4 * 7 + 2 + w)];
    want[std::size_t(3 + w)] = packed.host[std::size_t(9 * 7 + 2 + w)];
  }
  REQUIRE(to.back() == want);
}

template <class B>
void test_products_with_64_vectors(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  for (const Index rows : {1, 9, 33, 130})
    for (const Index columns : {1, 64, 65, 500, 1024, 1100, 2049, 5000}) {
      if (fewer_cases && rows == 130 && columns > 1100) continue;
      const PlainBits a = random_plain(rows, columns, unsigned(columns));
      const PlainBits z = random_plain(columns, 64, 5);
      const Index words = ceil_div(columns, 64);
      const Packed<B> packed(lane, a, 2, words + 2), vectors(lane, z, 0, 1);
      const Buffer<Word, B> sliced(64 * words), out(rows);
      fill_zero(lane, out.view());
      slice_words(lane, vectors.device.view(), sliced.view());
      multiply_words(lane, out.data(), packed.rows(rows), 2, words, sliced.data());
      std::vector<Word> got(static_cast<std::size_t>(rows));
      download(lane, got.data(), out.view());
      lane.synchronize();
      const PlainBits product = a * z;
      for (Index i = 0; i < rows; ++i) REQUIRE(got[std::size_t(i)] == pack_row(product, i, 1)[0]);
    }
}

template <class B>
void test_permutation_and_kernel(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const Index rows = 70, columns = 203, words = 4;
  const PlainBits a = random_plain(rows, columns, 3);
  const Packed<B> in(lane, a, 0, 8), out(lane, a, 0, 9);
  std::vector<Index> from;
  for (Index c = 0; c < columns; ++c) from.push_back((c * 59 + 7) % columns);
  const auto source = on_backend(lane, from);
  permute_bits(lane, out.rows(rows), in.rows(rows), source.data(), columns);
  auto got = out.back();
  bool right = true;
  for (Index i = 0; i < rows; ++i)
    for (Index c = 0; c < 64 * words; ++c)
      right &= bit(got, i * 9, c) == (c < columns && a(i, from[std::size_t(c)]));
  REQUIRE(right);

  std::vector<Index> slots(std::size_t(columns), -1), free_columns;
  for (Index c = 0; c < columns; ++c) {
    if (c % 3 == 0)
      slots[std::size_t(c)] = c / 3;
    else
      free_columns.push_back(c);
  }
  const auto slot_list = on_backend(lane, slots), free_list = on_backend(lane, free_columns);
  for (const bool unit : {false, true}) {
    const Packed<B> basis(lane, PlainBits(50, columns), 0, words);
    kernel_rows(lane, basis.rows(50), in.rows(rows), slot_list.data(), columns, free_list.data(),
                unit);
    got = basis.back();
    right = true;
    for (Index f = 0; f < 50; ++f)
      for (Index c = 0; c < 64 * words; ++c) {
        const Index slot = c < columns ? slots[std::size_t(c)] : -1;
        const Index column = free_columns[std::size_t(f)];
        const bool want = slot >= 0 ? a(slot, column) : unit && c == column;
        right &= bit(got, f * words, c) == want;
      }
    REQUIRE(right);
  }
}

template <class B>
void test_random(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const auto numbers = on_backend<B>(lane, {0, 5, 17, 2});
  for (const RandomBits& what :
       {RandomBits{42, 100}, RandomBits{42, 100, true, 20}, RandomBits{42, 100, false, 20, 0.01},
        RandomBits{42, 100, false, 20, 0.5, 3}}) {
    const Packed<B> out(lane, PlainBits(4, 128), 0, 3);
    random_bits(lane, out.rows(4), numbers.data(), what);
    auto want = out.host;
    for (Index i = 0; i < 4; ++i)
      for (Index w = 0; w < 2; ++w)
        want[std::size_t(3 * i + w)] =
            gf2::detail::random_bits_word(what, std::vector<Index>{0, 5, 17, 2}[std::size_t(i)], w);
    REQUIRE(out.back() == want);
    REQUIRE((want[1] >> 36) == 0);
  }
}

}  // namespace

TEST_CASE("random bits are ones with the density that is asked for", "[cpu]") {
  for (const double density : {0.0, 0.01, 0.3, 0.5, 1.0}) {
    const RandomBits what{7, 6400, false, 200, density};
    Index ones = 0;
    for (Index i = 0; i < 200; ++i)
      for (Index j = 0; j < 100; ++j)
        ones += std::popcount(gf2::detail::random_bits_word(what, i, j));
    const double bits = 200 * 6400, deviation = std::sqrt(bits * density * (1 - density));
    REQUIRE(std::abs(double(ones) - bits * density) <= 5 * deviation);
  }
}
TEST_CASE("random bits of a rank have that rank", "[cpu]") {
  for (const Index rank : {0, 1, 5, 64, 65, 130}) {
    const RandomBits what{9, 100, false, 120, 0.5, rank};
    PlainBits plain(120, 100);
    for (Index i = 0; i < 120; ++i)
      for (Index j = 0; j < 100; ++j)
        plain(i, j) = std::uint8_t(gf2::detail::random_bits_word(what, i, j / 64) >> (j % 64) & 1);
    REQUIRE(Index(reduce_plain(plain, 100).size()) == std::min<Index>(rank, 100));
  }
}
TEST_CASE("combinations by tables equal sums of rows", "[cpu]") {
  on<Cpu>([](auto& context) { test_combine(context); });
}
TEST_CASE("combinations by tables equal sums of rows, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_combine(context); });
}
TEST_CASE("tables of every shape give the same sums", "[cpu]") {
  on<Cpu>([](auto& context) { test_shapes(context); });
}
TEST_CASE("tables of every shape give the same sums, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_shapes(context); });
}
TEST_CASE("products with many inner columns equal sums of rows", "[cpu]") {
  on<Cpu>([](auto& context) { test_product(context); });
}
TEST_CASE("products with many inner columns equal sums of rows, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_product(context); });
}
TEST_CASE("a factored panel has the textbook's pivots and reduced rows", "[cpu]") {
  on<Cpu>([](auto& context) { test_factor(context); });
}
TEST_CASE("a factored panel has the textbook's pivots and reduced rows, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_factor(context); });
}
TEST_CASE("bits of chosen columns are packed", "[cpu]") {
  on<Cpu>([](auto& context) { test_extract(context); });
}
TEST_CASE("bits of chosen columns are packed, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_extract(context); });
}
TEST_CASE("scans, flips and copies touch what they name", "[cpu]") {
  on<Cpu>([](auto& context) { test_small_kernels(context); });
}
TEST_CASE("scans, flips and copies touch what they name, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_small_kernels(context); });
}
TEST_CASE("64 vectors at once equal the plain product", "[cpu]") {
  on<Cpu>([](auto& context) { test_products_with_64_vectors(context); });
}
TEST_CASE("64 vectors at once equal the plain product, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_products_with_64_vectors(context); });
}
TEST_CASE("bits are permuted and kernel rows assembled", "[cpu]") {
  on<Cpu>([](auto& context) { test_permutation_and_kernel(context); });
}
TEST_CASE("bits are permuted and kernel rows assembled, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_permutation_and_kernel(context); });
}
TEST_CASE("random bits follow their formula", "[cpu]") {
  on<Cpu>([](auto& context) { test_random(context); });
}
TEST_CASE("random bits follow their formula, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_random(context); });
}
