// A number of bytes in words.
#pragma once
#include <fmt/format.h>

#include <string>

#include "kernels/base/backend.hpp"

namespace terrace {

inline std::string size_text(Index bytes) {
  if (bytes < Index(1) << 10) return fmt::format("{} bytes", bytes);
  if (bytes < Index(1) << 20) return fmt::format("{:.1f} KiB", double(bytes) / 1024.0);
  return bytes < Index(1) << 30 ? fmt::format("{:.1f} MiB", double(bytes) / 1048576.0)
                                : fmt::format("{:.2f} GiB", double(bytes) / 1073741824.0);
}

}  // namespace terrace
