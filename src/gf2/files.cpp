#include "distrib/agree.hpp"
#include "src/gf2/matrix.hpp"

namespace terrace {

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

#define TERRACE_INSTANTIATE(B) \
  template BitSource<B> file_source(const Context<B>&, const io::BitInput&, BlockCyclic);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
