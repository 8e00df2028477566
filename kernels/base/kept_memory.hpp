// Blocks of memory that a program which calls again and again gets back: a call of the library takes
// what the last one gave back, and neither asks the system nor meets pages that nobody has touched.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace {

/// While one exists, Buffers and PinnedBuffers that end are kept for others of just their size: at
/// most 256 MiB of host memory and as much of page-locked memory, and 1 GiB of devices, in this
/// process. The last one frees them.
class KeepsMemory {
 public:
  KeepsMemory();
  ~KeepsMemory();
  KeepsMemory(const KeepsMemory&) = delete;
  KeepsMemory& operator=(const KeepsMemory&) = delete;
};

/// Bytes that are kept now, of all kinds.
Index kept_memory();

namespace detail {
enum class Kind { host, pinned, device };
/// A kept block of so many bytes, or null. `device`: its ordinal.
void* take_kept(Kind kind, int device, Index bytes);
/// A new block, which may be kept later.
void note_taken(Kind kind, int device, void* data, Index bytes);
bool keeps();  ///< whether a KeepsMemory exists
/// Whether it stays; else the caller frees it. Nothing works on it any more.
bool keep(Kind kind, void* data) noexcept;
/// Frees all that is kept, since memory has run out; false where there was nothing.
bool free_all_kept() noexcept;
void free_block(Kind kind, void* data) noexcept;
}  // namespace detail

}  // namespace terrace
