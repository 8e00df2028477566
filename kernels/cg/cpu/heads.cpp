#include "kernels/cg/heads.hpp"

#include <bit>

#include "kernels/base/parallel.hpp"

namespace terrace::cg {

void take_heads(const Stream<Cpu>& stream, View<const double, Cpu> from,
                View<std::uint32_t, Cpu> to) {
  stream.run([=] {
    parallel_ranges(from.size, 1 << 15, [&](Index begin, Index end) {
      for (Index k = begin; k < end; ++k) to.data[k] = head_of(std::bit_cast<Word>(from.data[k]));
    });
  });
}

}  // namespace terrace::cg
