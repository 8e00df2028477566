// A file without a name, for numbers that do not fit in memory.
#pragma once
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace::io {

/// `bytes` bytes in `folder`, kept free by the disk where it can promise that; gone with this
/// object. Failures are Errors of this rank, Exit::resources, with the folder and the sizes.
class ScratchFile {
 public:
  ScratchFile() = default;
  ScratchFile(const std::string& folder, Index bytes);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  void write(Index at, const void* data, Index bytes) const;
  void read(Index at, void* data, Index bytes) const;

 private:
  [[noreturn]] void failed(const char* what, Index bytes, int error) const;

  std::string folder_;
  int file_ = -1;
};

}  // namespace terrace::io
