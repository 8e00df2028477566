// Wide panels that the device reduces alone: on both backends, and the bodies of the GPU's kernels
// on an emulated cluster, where there is no GPU.
#include "kernels/gf2/full_panel.hpp"

#include <cstdlib>
#include <functional>
#include <numeric>

#include "tests/support/emulated_gpu.hpp"
#include "tests/support/packed_bits.hpp"
#include "tests/support/test.hpp"

#include "kernels/gf2/cuda/full_panel.cuh"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

/// A panel's memory and rows before the first step.
template <class B>
struct Work {
  Stream<B> lane;
  Index count, words, pitch;
  std::vector<Word> rows;  ///< count x pitch, at first
  Buffer<Word, B> given, memory;
  Buffer<Index, B> numbers, info;
  Buffer<Word, B> transform;
  FullPanel<B> panel;

  Work(const Stream<B>& stream, const PlainBits& a)
      : lane(stream),
        count(a.rows),
        words(a.columns / 64),
        pitch(round_up(words, bit_row_alignment)),
        rows(std::size_t(count * pitch), 0),
        given(count * pitch),
        memory(2 * count * pitch + scratch_words(count, pitch)),
        numbers(full_signs + 64 * pitch + count + full_candidates),
        info(PanelFactor<B>::info_size(words)),
        transform(64 * words * pitch) {
    for (Index i = 0; i < count; ++i) {
      const auto row = pack_row(a, i, words);
      std::copy(row.begin(), row.end(), rows.begin() + i * pitch);
    }
    panel.pitch = pitch;
    panel.count = count;
    panel.rows[0] = memory.data();
    panel.rows[1] = panel.rows[0] + count * pitch;
    panel.scratch = panel.rows[1] + count * pitch;
    panel.done = numbers.data();
    panel.pivots = panel.done + full_signs;
    panel.numbers = panel.pivots + 64 * pitch;
    panel.candidates = panel.numbers + count;
    upload(lane, given.view(), rows.data());
    fill_zero(lane, numbers.view().slice(0, full_signs));
    lane.synchronize();
  }
  [[nodiscard]] BitRows<const Word, B> before() const {
    return {given.data(), pitch, count, nullptr};
  }
  [[nodiscard]] PanelFactor<B> out() const {
    return {info.data(), transform.data(), nullptr, pitch};
  }
  /// Enough for the bodies of the GPU's kernel, too.
  static Index scratch_words(Index count, Index pitch) {
    return std::max(FullPanel<B>::scratch_words(count, pitch), full::scratch_words);
  }
  template <class T>
  std::vector<T> get(const T* from, Index size) const {
    std::vector<T> to(static_cast<std::size_t>(size));
    download(lane, to.data(), View<const T, B>{from, size});
    lane.synchronize();
    return to;
  }
};

/// Every row is what the pivots that were named make of it, and `out` has them.
template <class B>
bool holds(const Work<B>& work, Index steps) {
  const Index done = work.get(work.panel.done, 1)[0], rank = full_columns * done;
  const Index count = work.count, pitch = work.pitch, words = work.words;
  if (done < 0 || done > steps) return false;
  const auto pivots = work.get(work.panel.pivots, rank),
             numbers = work.get(work.panel.numbers, count);
  const auto rows = work.get(work.panel.before(done), count * pitch);
  bool right = true;
  std::vector<Index> expected(std::size_t(count), -1);
  for (Index q = 0; q < rank; ++q) {
    const Index row = pivots[std::size_t(q)];
    if (row < 0 || row >= count || expected[std::size_t(row)] >= 0) return false;
    expected[std::size_t(row)] = q;
  }
  right &= numbers == expected;
  for (Index i = 0; i < count; ++i) {
    const Word* row = &rows[std::size_t(i * pitch)];
    const Index q = expected[std::size_t(i)];
    std::vector<Word> sum(std::size_t(pitch), 0);  // pivots' rows by T's part, and the row itself
    if (q < 0) std::copy_n(&work.rows[std::size_t(i * pitch)], pitch, sum.begin());
    for (Index p = 0; p < rank; ++p)
      if ((row[p / 64] >> (p % 64)) & 1)
        for (Index w = 0; w < pitch; ++w)
          sum[std::size_t(w)] ^= work.rows[std::size_t(pivots[std::size_t(p)] * pitch + w)];
    for (Index w = 0; w < pitch; ++w) {
      const Word unit = q >= 0 && q / 64 == w ? Word(1) << (q % 64) : 0;
      right &= sum[std::size_t(w)] == (64 * w < rank ? unit : row[w]);
    }
  }
  const auto info = work.get(work.info.data(), PanelFactor<B>::info_size(words));
  right &= info[0] == rank;
  const auto transform = work.get(work.transform.data(), rank * pitch);
  for (Index q = 0; q < rank; ++q) {
    const Index row = pivots[std::size_t(q)];
    right &= info[std::size_t(1 + q)] == q && info[std::size_t(1 + 64 * words + q)] == row;
    for (Index w = 0; w < pitch && rank == 64 * words; ++w)
      right &= transform[std::size_t(q * pitch + w)] == rows[std::size_t(row * pitch + w)];
  }
  return right;
}

/// The bodies of the GPU's kernel, by `updaters` blocks beside the cluster.
void reduce_emulated(const Work<Cpu>& work, unsigned updaters, unsigned seed) {
  const FullPanel<Cpu>& w = work.panel;
  const FullPanel<Cuda> p{{w.rows[0], w.rows[1]}, w.pitch,  w.count, w.done, w.pivots, w.numbers,
                          w.candidates,           w.scratch};
  gpu().launch<full::PanelMemory>(
      full::blocks + updaters, full::blocks, full::threads, seed, [&](auto& memory) {
        full::reduce(memory, p, {work.given.data(), work.pitch, work.count, nullptr},
                     int(work.words),
                     {work.info.data(), work.transform.data(), nullptr, work.pitch});
      });
}

/// A panel by reduce(work), as a rule twice: signs are as before then; how many steps were done, or
/// -1.
template <class B, class Reduce>
Index reduce_by(const Stream<B>& lane, const PlainBits& a, const Reduce& reduce, int turns = 2) {
  const Work<B> work(lane, a);
  for (int turn = 0; turn < turns; ++turn) {
    reduce(work);
    lane.synchronize();
    if (!holds(work, work.words / max_panel_words)) return -1;
  }
  return work.get(work.panel.done, 1)[0];
}

/// Steps that the first candidates of each have full rank for, by the textbook.
Index steps_of(const PlainBits& a) {
  PlainBits left = a;
  std::vector<Index> candidates;
  for (Index i = 0; i < std::min(a.rows, full_candidates); ++i) candidates.push_back(i);
  Index done = 0;
  for (; 64 * max_panel_words * (done + 1) <= a.columns; ++done) {
    const Index first = full_columns * done;
    for (Index j = first; j < first + full_columns; ++j) {
      const auto at = std::find_if(candidates.begin(), candidates.end(),
                                   [&](Index i) { return left(i, j) != 0; });
      if (at == candidates.end()) return done;
      const Index pivot = *at;
      candidates.erase(at);
      for (Index i = 0; i < a.rows; ++i)
        if (i != pivot && left(i, j))
          for (Index c = j; c < a.columns; ++c) left(i, c) ^= left(pivot, c);
    }
    for (Index i = 0; i < full_columns; ++i)
      if (full_candidates + first + i < a.rows) candidates.push_back(full_candidates + first + i);
  }
  return done;
}

PlainBits permuted_identity(Index rows, Index columns) {
  PlainBits a(rows, columns);
  for (Index i = 0; i < std::min(rows, columns); ++i) a(i * 7 % std::min(rows, columns), i) = 1;
  return a;
}

/// Column `column` zero, or equal to the one before it.
PlainBits with_column(PlainBits a, Index column, bool copy) {
  for (Index i = 0; i < a.rows; ++i)
    a(i, column) = copy && column > 0 ? a(i, column - 1) : std::uint8_t(0);
  return a;
}

constexpr Index unknown = -2;

bool all_cases() { return std::getenv("TERRACE_TEST_ALL") != nullptr; }

/// Full rank, deficient, few rows, sizes at each boundary; up to `most_rows` x 64 `most_words`; of
/// those of one step one in `one`, of several steps one in `several`.
template <class Reduce>
void test_panels(Index most_rows, Index most_words, int one, int several, Reduce&& reduce) {
  int seen[2] = {0, 0};
  // Where the choice of pivots decides which rows are left, `expected` is not known.
  const auto test = [&](const char* what, const PlainBits& a, Index expected) {
    if (a.rows > most_rows || a.columns > 64 * most_words) return;
    const bool more = a.columns > full_columns;
    if (seen[more]++ % (more ? several : one) != 0) return;
    const Index found = reduce(a);
    INFO(what << ", " << a.rows << " rows, " << a.columns << " columns");
    REQUIRE(found >= 0);
    if (expected != unknown) REQUIRE(found == expected);
  };
  const auto test_known = [&](const char* what, const PlainBits& a) { test(what, a, steps_of(a)); };
  for (const Index rows : {1, 511, 512, 513, 575, 576, 577})
    test_known("random", random_plain(rows, 512, unsigned(rows)));
  for (const Index rows : {1024, 1087, 1088, 1089})
    test("random", random_plain(rows, 1024, unsigned(rows)), rows >= 1087 ? 2 : unknown);
  for (const Index words : {9, 15, 17})
    test("random", random_plain(700, 64 * words, unsigned(words)), words < 16 ? 1 : unknown);
  for (const Index rows : {4096, 4159, 4160, 4161})
    test("random", random_plain(rows, 4096, unsigned(rows)), rows >= 4160 ? 8 : unknown);
  test("random", random_plain(2550, 2560, 8), 4);  // the last step has too few rows
  for (const Index column : {0, 63, 64, 511, 512, 1023}) {
    const PlainBits zero = random_plain(column < 512 ? 600 : 1100, column < 512 ? 512 : 1024, 3);
    test("a zero column", with_column(zero, column, false), column / 512);
    test("a dependent column", with_column(zero, column, true), column / 512);
  }
  test("zero", PlainBits(600, 512), 0);
  test("identity", permuted_identity(576, 512), unknown);  // not all are tried at a time
  test_known("sparse", random_plain(600, 512, 4, 0.02));
  test("low rank", random_plain(600, 500, 5) * random_plain(500, 512, 6), 0);
  PlainBits twice = random_plain(1152, 512, 7);  // half of the first candidates equal the others
  for (Index i = 0; i < 288; ++i)
    for (Index j = 0; j < 512; ++j) twice(i + 288, j) = twice(i, j);
  test("equal rows", twice, 0);
}

template <class B>
void test_backend(Context<B>& context) {
  if (!has_full_panels<B>()) return;
  test_panels(fewer_cases ? 1100 : 5000, fewer_cases ? 17 : 64, 1, 1, [&](const PlainBits& a) {
    return reduce_by(context.ahead, a, [](const Work<B>& work) {
      reduce_full_panel(work.lane, work.panel, work.before(), work.words, work.out());
    });
  });
}

}  // namespace

TEST_CASE("wide panels of full rank are reduced in place", "[cpu]") {
  on<Cpu>([](auto& context) { test_backend(context); });
}
TEST_CASE("wide panels of full rank are reduced in place, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { test_backend(context); });
}
TEST_CASE("an emulated cluster reduces wide panels", "[cpu]") {
  if (fewer_cases) return;  // threads that are no threads
  unsigned seed = 0;
  test_panels(1100, 17, all_cases() ? 1 : 3, all_cases() ? 1 : 5, [&](const PlainBits& a) {
    const unsigned updaters = ++seed % 2 == 0 ? 8 : 16;
    return reduce_by(
        Stream<Cpu>(), a, [&](const Work<Cpu>& work) { reduce_emulated(work, updaters, seed); },
        seed % 4 == 0 ? 2 : 1);
  });
}
TEST_CASE("blocks of an emulated kernel wait for each other", "[cpu]") {
  if (fewer_cases) return;
  unsigned seed = 0;  // which blocks are ahead goes by it
  const auto reduce = [&](const PlainBits& a, int turns) {
    return reduce_by(
        Stream<Cpu>(), a, [&](const Work<Cpu>& work) { reduce_emulated(work, 8, ++seed); }, turns);
  };
  const PlainBits three = random_plain(1610, 1536, 9);  // steps
  CHECK(reduce(three, all_cases() ? 2 : 1) == 3);
  CHECK(reduce(with_column(three, 1100, false), 1) == 2);
}
