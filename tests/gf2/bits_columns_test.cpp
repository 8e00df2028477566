#include "kernels/gf2/columns.hpp"

#include <memory>
#include <numeric>

#include "kernels/gf2/codes.hpp"
#include "tests/support/packed_bits.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

/// What a search and a pass of subtraction leave, one entry a byte.
struct PlainGauss {
  PlainBits a;
  std::vector<Index> order, columns;
  Index rank = 0, pivot = -1;

  explicit PlainGauss(const PlainBits& matrix) : a(matrix), order(std::size_t(matrix.rows)) {
    std::iota(order.begin(), order.end(), 0);
  }
  [[nodiscard]] Index row(Index position, bool swap) const {
    return swap ? position : order[std::size_t(position)];
  }
  void search(Index column, bool swap) {
    if (pivot >= 0) ++rank;
    pivot = -1;
    for (Index p = rank; p < a.rows && pivot < 0; ++p)
      if (a(row(p, swap), column)) pivot = p;
    if (pivot < 0) return;
    columns.push_back(column);
    std::swap(order[std::size_t(rank)], order[std::size_t(pivot)]);
  }
  void clear(Index column, Index above, bool swap, bool in_place) {
    if (pivot < 0) return;
    if (swap)
      for (Index j = 0; j < a.columns; ++j) std::swap(a(rank, j), a(pivot, j));
    for (Index p = above; p < a.rows; ++p) {
      if (p == rank || !a(row(p, swap), column)) continue;
      for (Index j = 0; j < a.columns; ++j)
        if (!in_place || j != column) a(row(p, swap), j) ^= a(row(rank, swap), j);
    }
  }
};

template <class B>
struct Device {
  Packed<B> packed;
  Buffer<Index, B> order, state, columns;
  Buffer<Word, B> staged;
  ColumnGauss<B> gauss;

  Device(const Stream<B>& lane, const PlainBits& a, bool swap, bool in_place, ColumnShape shape,
         PivotPath path)
      : packed(lane, a, 0, round_up(ceil_div(a.columns, 64) + 1, bit_row_alignment)),
        order(a.rows),
        state(2),
        columns(std::max<Index>(1, std::min(a.rows, a.columns))),
        staged(packed.stride) {
    std::vector<Index> numbers(std::size_t(a.rows));
    std::iota(numbers.begin(), numbers.end(), 0);
    upload(lane, order.view(), numbers.data());
    const Index start[2] = {0, -1};
    upload(lane, state.view(), start);
    lane.synchronize();
    gauss = {packed.device.data(), packed.stride, a.rows,        ceil_div(a.columns, 64),
             order.data(),         state.data(),  columns.data()};
    gauss.swap = swap, gauss.in_place = in_place, gauss.shape = shape, gauss.path = path;
    gauss.staged = staged.data();
  }
};

template <class T, class B>
std::vector<T> values(const Stream<B>& lane, const Buffer<T, B>& buffer) {
  std::vector<T> result(static_cast<std::size_t>(buffer.size()));
  download(lane, result.data(), buffer.view());
  lane.synchronize();
  return result;
}

/// Column by column, everything compared after each search and each pass.
template <class B>
bool same(const Stream<B>& lane, const PlainBits& a, bool swap, bool in_place, bool reduced,
          ColumnShape shape, PivotPath path) {
  Device<B> mine(lane, a, swap, in_place, shape, path);
  std::unique_ptr<RowTexture> texture;
  if constexpr (std::is_same_v<B, Cuda>)
    if (path == PivotPath::texture) {
      texture = std::make_unique<RowTexture>(mine.staged.data(), mine.staged.size());
      mine.gauss.texture = texture->handle();
    }
  PlainGauss oracle(a);
  bool right = true;
  for (Index c = 0; c < a.columns; ++c) {
    search_column(lane, mine.gauss, c, true);
    oracle.search(c, swap);
    const auto state = values(lane, mine.state);
    right &= state[0] == oracle.rank && state[1] == oracle.pivot;
    right &= values(lane, mine.order) == oracle.order;
    const Index above = reduced || in_place ? 0 : oracle.rank / 3;
    clear_column(lane, mine.gauss, c, above);
    oracle.clear(c, above, swap, in_place);
  }
  auto columns = values(lane, mine.columns);
  columns.resize(oracle.columns.size());
  right &= columns == oracle.columns;
  const auto got = mine.packed.back();
  for (Index i = 0; i < a.rows; ++i) {
    const auto row = pack_row(oracle.a, i, ceil_div(a.columns, 64));
    right &= std::equal(row.begin(), row.end(), got.begin() + i * mine.packed.stride);
    // Beyond the words that take part, at most one is moved along: the junk of two rows.
  }
  return right;
}

template <class B>
void test_columns(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const std::pair<Index, Index> shapes[] = {{1, 1},   {5, 64},   {64, 5},   {65, 130},
                                            {40, 70}, {200, 90}, {90, 200}, {130, 1}};
  for (const auto& [rows, columns] : shapes)
    for (const double density : {0.0, 0.01, 0.5}) {
      if (fewer_cases && rows + columns > 200) continue;
      PlainBits a = random_plain(rows, columns, unsigned(rows + columns), density);
      if (density == 0.5)  // dependent columns, and late first ones
        for (Index i = 0; i < rows; ++i) {
          if (columns > 4) a(i, 4) = a(i, 1);
          if (2 * i < rows) a(i, 0) = 0;
        }
      for (const bool swap : {false, true})
        for (const bool reduced : {false, true}) {
          INFO(rows << " x " << columns << ", density " << density << (swap ? ", swapped" : ""));
          REQUIRE(same(lane, a, swap, false, reduced, {}, PivotPath::plain));
        }
      REQUIRE(same(lane, a, false, true, true, {}, PivotPath::plain));
    }
}

/// Launch shapes and paths; on the CPU they change nothing.
template <class B>
void test_launches(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const PlainBits a = random_plain(70, 300, 3, 0.1);
  for (const PivotPath path :
       {PivotPath::plain, PivotPath::shared, PivotPath::constant, PivotPath::texture})
    for (const ColumnShape shape : {ColumnShape{1, 16, 16, 1},
                                    {32, 48, 16, 3},
                                    {33, 96, 32, 2},
                                    {300, 256, 4, 2112},
                                    {1024, 1024, 128, 2},
                                    {256, 64, 64, 2112},
                                    {17, 1024, 1024, 7}})
      for (const bool swap : {false, true}) {
        INFO("path " << int(path) << ", " << shape.threads << " threads, " << shape.lanes
                     << " a row, " << shape.blocks << " blocks" << (swap ? ", swapped" : ""));
        REQUIRE(same(lane, a, swap, false, true, shape, path));
        if (path == PivotPath::plain) REQUIRE(same(lane, a, swap, true, true, shape, path));
      }
}

/// Every order of codes gives the bits of the default.
template <class B>
void test_codes(Context<B>& context) {
  const Stream<B>& lane = context.bulk;
  const Index rows = 1100, words = 24;
  for (const Index bits : {1, 60, 131, 512}) {
    const PlainBits m = random_plain(rows, bits, unsigned(bits));
    const Packed<B> mult(lane, m, 0, ceil_div(bits, 64));
    const Packed<B> source(lane, random_plain(bits, 64 * words, 5), 0, words);
    const PlainBits c = random_plain(rows, 64 * words, 6);
    auto expected = Packed<B>(lane, c, 8, words + 8).host;
    for (Index i = 0; i < rows; ++i)
      for (Index q = 0; q < bits; ++q)
        if (m(i, q))
          for (Index w = 0; w < words - 8; ++w)
            expected[std::size_t(i * (words + 8) + 8 + w)] ^=
                source.host[std::size_t(q * words + 8 + w)];
    for (const Index k : code_order_k)
      for (const CodeOrder order : {CodeOrder::standard, CodeOrder::computed, CodeOrder::table,
                                    CodeOrder::half, CodeOrder::two_passes}) {
        const Packed<B> out(lane, c, 8, words + 8);
        combine_with_codes(lane, out.rows(rows), mult.rows(rows), source.rows(bits), 8, 8,
                           words - 8, k, order);
        INFO(bits << " bits, k " << k << ", order " << int(order));
        REQUIRE(out.back() == expected);
      }
  }
}

}  // namespace

TEST_CASE("a search and a pass of subtraction do what the textbook's do", "[cpu]") {
  on<Cpu>([](auto& context) { test_columns(context); });
  on<Cpu>([](auto& context) { test_launches(context); });
}
TEST_CASE("a search and a pass of subtraction do what the textbook's do, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_columns(context); });
}
TEST_CASE("every launch shape and path of the pivot row gives the same bits, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_launches(context); });
}
TEST_CASE("tables built in every order of codes give the same bits, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_codes(context); });
}
