#include "tests/support/packed_bits.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

template <class B>
void test_add(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  struct Extent {
    Index rows, words;
  };
  const std::vector<Extent> extents = {{0, 0}, {1, 8}, {3, 16}, {70, 8}, {70, 40}, {5, 264}};
  const PlainBits old = random_plain(72, 64 * 272, 1), left = random_plain(72, 64 * 264, 2),
                  right = random_plain(72, 64 * 264, 3);
  for (const Extent out : extents)
    for (const Extent a : extents)
      for (const Extent b : {Extent{0, 8}, Extent{2, 8}, Extent{70, 264}}) {
        const Packed<B> to(lane, old, 0, 272);
        const Packed<B> x(lane, left, 8, 280);
        const Packed<B> y(lane, right, 0, 264);
        const auto of = [](const Packed<B>& p, Index word, Extent e) {
          return BitRows<Word, B>{p.device.data() + p.stride + word, p.stride, e.rows, nullptr};
        };
        auto expected = to.host;
        auto in_place = x.host;
        const auto word = [](const Packed<B>& p, Index first, Extent e, Index i, Index j) {
          return i < e.rows && j < e.words ? p.host[std::size_t((i + 1) * p.stride + first + j)]
                                           : Word(0);
        };
        for (Index i = 0; i < out.rows; ++i)
          for (Index j = 0; j < out.words; ++j) {
            const Word sum = word(x, 8, a, i, j) ^ word(y, 0, b, i, j);
            expected[std::size_t((i + 1) * 272 + 8 + j)] = sum;
            in_place[std::size_t((i + 1) * 280 + 8 + j)] = sum;
          }
        INFO(out.rows << " x " << out.words << " = " << a.rows << " x " << a.words << " + "
                      << b.rows << " x " << b.words);
        add_bits(lane, of(to, 8, out), out.words, of(x, 8, a), a.words, of(y, 0, b), b.words);
        REQUIRE(to.back() == expected);
        add_bits(lane, of(x, 8, out), out.words, of(x, 8, a), a.words, of(y, 0, b), b.words);
        REQUIRE(x.back() == in_place);
      }
}

}  // namespace

TEST_CASE("sums of rows of different extents count what is missing as zero", "[cpu]") {
  on<Cpu>([](auto& context) { test_add(context); });
}
TEST_CASE("sums of rows of different extents count what is missing as zero, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_add(context); });
}
