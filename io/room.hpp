// Pages of a file in memory (tmpfs), taken and mapped by several threads before they are written:
// stores into them then run at the rate of memory, 18 GB/s against 5 where each page is a fault.
#pragma once
#include <future>
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace::io {

/// Whether the open file lies in a file system in memory.
bool in_memory(int descriptor);

class Room {
 public:
  Room() = default;
  ~Room() { drop(); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  /// Begins to take the pages of bytes [from, end) of the file at `path`, beside the caller, and drops
  /// those of before. The file gets that long. Elsewhere than in memory, and where the pages cannot
  /// be had, nothing is kept.
  void begin(const std::string& path, Index from, Index end);
  [[nodiscard]] Index end();  ///< of what is kept; 0: nothing. Waits
  /// Byte 0 of the file, mapped up to end().
  [[nodiscard]] char* bytes() const { return mapped_; }
  void drop();

 private:
  Index take(const std::string& path, Index from, Index end);
  std::future<Index> taking_;
  Index end_ = 0, length_ = 0;
  char* mapped_ = nullptr;
};

}  // namespace terrace::io
