// Memory of a device that is taken in one piece and handed out in parts. cudaMalloc and cudaFree of a block
// of some MiB take 0.1 to 1 ms each on an H200, and a solver takes hundreds.
#pragma once
#include <map>

#include "kernels/base/backend.hpp"

namespace terrace {

/// While one exists, Buffers of the current device are parts of it where it has room; others are blocks of
/// their own as before. Its memory goes back when it has ended, and with the last of its parts.
class Reserve {
 public:
  /// Nothing where `bytes` is more than half of what the device has free.
  explicit Reserve(Index bytes);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;
};

namespace detail {

/// A range of addresses, in parts.
class Parts {
 public:
  static constexpr Index grain = 512;  ///< as cudaMalloc aligns
  Parts(char* data, Index bytes);
  /// Of the gap that has the least room, of those up to which nothing works on them any more where there is
  /// one; null where no gap is as large. `unsettled`: something may work on it.
  char* take(Index bytes, Index settled, bool& unsettled);
  /// Whether it is a part, which is a gap now; `number` counts what was given back.
  bool give(char* data, Index number);
  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] bool idle() const { return taken_.empty(); }
  [[nodiscard]] Index free() const;  ///< bytes of all gaps

 private:
  struct Gap {
    Index bytes, number;
  };
  char* data_;
  std::map<char*, Gap> gaps_;  // no two side by side
  std::map<char*, Index> taken_;
};

/// A part of the device's reserve, or null. Waits for the device where that may still work on it.
void* take_part(int device, Index bytes);
/// Whether it was one. What was enqueued may still work on it.
bool give_part(void* data) noexcept;
/// Bytes that take_part() has, at most.
Index free_parts(int device);
/// A block and its device, or null.
struct NewBlock {
  void* data = nullptr;
  int device = 0;
};
NewBlock allocate_reserve(Index bytes) noexcept;

}  // namespace detail
}  // namespace terrace
