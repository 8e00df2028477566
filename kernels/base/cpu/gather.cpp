#include "kernels/base/gather.hpp"

#include "kernels/base/parallel.hpp"

namespace terrace {

void gather(const Stream<Cpu>& stream, View<const Index, Cpu> index, View<const double, Cpu> from,
            View<double, Cpu> to) {
  stream.run([=] {
    parallel_ranges(index.size, 4096, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) to.data[i] = from.data[index.data[i]];
    });
  });
}

}  // namespace terrace
