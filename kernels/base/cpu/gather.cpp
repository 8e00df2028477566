#include "kernels/base/gather.hpp"

#include "kernels/base/parallel.hpp"

namespace terrace {
namespace {

template <class T>
void gather_numbers(const Stream<Cpu>& stream, View<const Index, Cpu> index,
                    View<const T, Cpu> from, View<T, Cpu> to) {
  stream.run([=] {
    parallel_ranges(index.size, 4096, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) to.data[i] = from.data[index.data[i]];
    });
  });
}

}  // namespace

void gather(const Stream<Cpu>& stream, View<const Index, Cpu> index, View<const double, Cpu> from,
            View<double, Cpu> to) {
  gather_numbers(stream, index, from, to);
}
void gather(const Stream<Cpu>& stream, View<const Index, Cpu> index, View<const Index, Cpu> from,
            View<Index, Cpu> to) {
  gather_numbers(stream, index, from, to);
}
void gather(const Stream<Cpu>& stream, View<const Index, Cpu> index,
            View<const std::int32_t, Cpu> from, View<std::int32_t, Cpu> to) {
  gather_numbers(stream, index, from, to);
}

}  // namespace terrace
