// What the buffers of a backend hold, counted where they are taken and released.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace {

/// Bytes of all Buffers (pinned ones not among them).
struct MemoryUse {
  Index now = 0, most = 0;  ///< `most`: since the last watch_memory()
};
MemoryUse memory_use(Cpu);
MemoryUse memory_use(Cuda);
/// `most` becomes `now`.
void watch_memory(Cpu);
void watch_memory(Cuda);

namespace detail {
void note_allocation(Cpu, const void* data, Index bytes);
void note_allocation(Cuda, const void* data, Index bytes);
void note_release(Cpu, const void* data) noexcept;
void note_release(Cuda, const void* data) noexcept;
}  // namespace detail

}  // namespace terrace
