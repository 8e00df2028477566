// Blocks of memory that a program which calls again and again gets back: a call of the library takes
// what the last one gave back, and neither asks the system nor meets pages that nobody has touched.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace {

/// While one exists, Buffers and PinnedBuffers that end are kept for others of just their size, those of
/// devices also for ones of up to a fifth less: at most 256 MiB of host memory and as much of page-locked
/// memory, and 1 GiB of devices or an eighth of the device's memory, whichever is more, in this process.
/// The last one frees them.
class KeepsMemory {
 public:
  KeepsMemory();
  ~KeepsMemory();
  KeepsMemory(const KeepsMemory&) = delete;
  KeepsMemory& operator=(const KeepsMemory&) = delete;
};

/// Bytes that are kept now, of all kinds.
Index kept_memory();
/// Frees all that is kept now.
void release_kept_memory() noexcept;

namespace detail {
enum class Kind { host, pinned, device };
/// Bytes of this kind that are kept now.
Index kept_memory(Kind kind);
/// So many bytes of a device may be kept from now on.
void keep_of_device(Index bytes);
/// A kept block of so many bytes, of a device perhaps more, or null. `device`: its ordinal. Waits for
/// the device where that may still work on the block.
void* take_kept(Kind kind, int device, Index bytes);
/// A new block, which may be kept later.
void note_taken(Kind kind, int device, void* data, Index bytes);
/// Waits until the device has done all that may work on kept blocks.
void settle_kept() noexcept;
/// Whether it stays; else the caller frees it. What was enqueued may still work on it.
bool keep(Kind kind, void* data) noexcept;
/// Frees all that is kept, since memory has run out; false where there was nothing.
bool free_all_kept() noexcept;
void free_block(Kind kind, void* data) noexcept;
}  // namespace detail

}  // namespace terrace
