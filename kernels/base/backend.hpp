// Backend tags and the number types of the whole project. The only #if on CUDA.
#pragma once
#include <cstdint>

namespace terrace {

struct Cpu {};   ///< host memory, threads of this process
struct Cuda {};  ///< memory and streams of the selected CUDA device

using Index = std::int64_t;  ///< every size, count, row and column
using Word =
    std::uint64_t;  ///< 64 matrix entries over GF(2); column j is bit j % 64 of word j / 64

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
constexpr Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

#if TERRACE_WITH_CUDA
inline constexpr bool with_cuda = true;
#define TERRACE_FOR_EACH_BACKEND(X) X(Cpu) X(Cuda)
#define TERRACE_BACKENDS Cpu, Cuda  // for lists of types
#else
inline constexpr bool with_cuda = false;
#define TERRACE_FOR_EACH_BACKEND(X) X(Cpu)
#define TERRACE_BACKENDS Cpu
#endif

}  // namespace terrace
