// Numbers collected from anywhere, for messages.
#pragma once
#include <cstdint>

#include "kernels/base/buffer.hpp"

namespace terrace {

/// to[i] = from[index[i]].
void gather(const Stream<Cpu>&, View<const Index, Cpu> index, View<const double, Cpu> from,
            View<double, Cpu> to);
void gather(const Stream<Cpu>&, View<const Index, Cpu> index, View<const std::int32_t, Cpu> from,
            View<std::int32_t, Cpu> to);
void gather(const Stream<Cpu>&, View<const Index, Cpu> index, View<const Index, Cpu> from,
            View<Index, Cpu> to);
void gather(const Stream<Cuda>&, View<const Index, Cuda> index, View<const Index, Cuda> from,
            View<Index, Cuda> to);
void gather(const Stream<Cuda>&, View<const Index, Cuda> index, View<const double, Cuda> from,
            View<double, Cuda> to);
void gather(const Stream<Cuda>&, View<const Index, Cuda> index, View<const std::int32_t, Cuda> from,
            View<std::int32_t, Cuda> to);

}  // namespace terrace
