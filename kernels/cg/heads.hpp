// The heads of doubles: their upper 32 bits, rounded. 20 bits after the point and all of the exponent,
// in half the bytes: what iterations in mixed precision read of a matrix.
#pragma once
#include <cstdint>

#include "kernels/base/buffer.hpp"

namespace terrace::cg {

/// The nearest head of the double whose bits these are.
constexpr std::uint32_t head_of(Word bits) { return std::uint32_t((bits + 0x80000000u) >> 32); }

/// to[k] = head of from[k].
void take_heads(const Stream<Cpu>&, View<const double, Cpu> from, View<std::uint32_t, Cpu> to);
void take_heads(const Stream<Cuda>&, View<const double, Cuda> from, View<std::uint32_t, Cuda> to);

}  // namespace terrace::cg
