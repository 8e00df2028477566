#include "src/gf2/matrix.hpp"

#include <memory>
#include <numeric>
#include <vector>

#include "distrib/agree.hpp"

namespace terrace::gf2 {

template <class B>
BitSource<B> file_source(const Context<B>& context, const io::BitInput& input, BlockCyclic layout) {
  BitSource<B> source{input.rows(), input.columns(), {}};
  const Index words = input.words();
  source.read = [&context, &input, layout, words](const BitSink<B>& sink) {
    const auto ranges = layout.ranges(context.rank());
    if constexpr (std::is_same_v<B, Cpu>) {
      input.read(context.control, ranges, [&](Index position, Index count, const Word* data) {
        sink(position, {data, words, count, nullptr});
        context.bulk.synchronize();
      });
    } else {
      const Index chunk = std::min(staging_rows(words), layout.slots(context.rank()));
      const auto staging =
          collectively(context.control, [&] { return Buffer<Word, B>(chunk * words); });
      input.read(context.control, ranges, [&](Index position, Index count, const Word* data) {
        for (Index i = 0; i < count; i += chunk) {
          const Index rows = std::min(chunk, count - i);
          upload(context.bulk, staging.view().slice(0, rows * words), data + i * words);
          sink(position + i, {staging.data(), words, rows, nullptr});
          context.bulk.synchronize();
        }
      });
    }
  };
  return source;
}

template <class B>
BitSource<B> random_source(const Context<B>& context, RandomBits what, BlockCyclic layout) {
  BitSource<B> source{layout.extent, what.columns, {}};
  what.rows = layout.extent;
  source.read = [&context, what, layout](const BitSink<B>& sink) {
    const Index words = ceil_div(what.columns, 64), rows = layout.slots(context.rank());
    const Index chunk = std::min(staging_rows(words), rows);
    const auto [staging, numbers] = collectively(context.control, [&] {
      return std::make_pair(Buffer<Word, B>(chunk * words), Buffer<Index, B>(rows));
    });
    std::vector<Index> global(static_cast<std::size_t>(rows));
    for (Index slot = 0; slot < rows; ++slot)
      global[std::size_t(slot)] = layout.global(slot, context.rank());
    upload(context.bulk, numbers.view(), global.data());
    for (Index i = 0; i < rows; i += chunk) {
      const BitRows<Word, B> slice{staging.data(), words, std::min(chunk, rows - i), nullptr};
      random_bits(context.bulk, slice, numbers.data() + i, what);
      sink(i, slice);
    }
    context.bulk.synchronize();
  };
  return source;
}

template <class B>
BitSource<B> identity_source(const Context<B>& context, BlockCyclic layout) {
  BitSource<B> source{layout.extent, layout.extent, {}};
  const Index words = source.words();
  source.read = [&context, layout, words](const BitSink<B>& sink) {
    const Index slots = layout.slots(context.rank()), chunk = std::min(staging_rows(words), slots);
    const Buffer<Word, B> staging =
        collectively(context.control, [&] { return Buffer<Word, B>(chunk * words); });
    std::vector<Word> rows(std::size_t(chunk * words));
    for (Index first = 0; first < slots; first += chunk) {
      const Index count = std::min(chunk, slots - first);
      std::fill(rows.begin(), rows.end(), 0);
      for (Index i = 0; i < count; ++i) {
        const Index row = layout.global(first + i, context.rank());
        rows[std::size_t(i * words + row / 64)] = Word(1) << (row % 64);
      }
      upload(context.bulk, staging.view().slice(0, count * words), rows.data());
      sink(first, {staging.data(), words, count, nullptr});
      context.bulk.synchronize();
    }
  };
  return source;
}

template <class B>
void load(const Context<B>& context, const BitSource<B>& source, const BitMatrix<B>& matrix,
          Index word) {
  source.read([&](Index position, BitRows<const Word, B> rows) {
    copy_bits(context.bulk,
              BitRows<Word, B>{matrix.data.data() + position * matrix.stride + word, matrix.stride,
                               rows.count, nullptr},
              rows, 0, source.words());
  });
  context.bulk.synchronize();
}

template <class B>
io::Source<Word> row_source(const Context<B>& context, BitRows<const Word, B> rows, Index word,
                            Index words) {
  return [&context, rows, word, words](Index position, Index count, Word* out) {
    copy_rows(context.bulk, out, words, rows.data + position * rows.stride + word, rows.stride,
              words, count);
    context.bulk.synchronize();
  };
}

#define TERRACE_INSTANTIATE(B)                                                            \
  template BitSource<B> file_source(const Context<B>&, const io::BitInput&, BlockCyclic); \
  template BitSource<B> random_source(const Context<B>&, RandomBits, BlockCyclic);        \
  template BitSource<B> identity_source(const Context<B>&, BlockCyclic);                  \
  template void load(const Context<B>&, const BitSource<B>&, const BitMatrix<B>&, Index); \
  template io::Source<Word> row_source(const Context<B>&, BitRows<const Word, B>, Index, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
