#include "io/scratch.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "io/unfinished.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/size_text.hpp"

namespace terrace::io {
namespace {

constexpr Index kPiece = Index(1) << 30;  // bytes of one call: the system takes 2 GiB at most

}  // namespace

ScratchFile::ScratchFile(const std::string& folder, Index bytes) : folder_(folder) {
  file_ = open_nameless(folder);
  if (file_ < 0) failed("made", bytes, errno);
  bool promised = false;
  const std::string shortage =
      reserve_space("/proc/self/fd/" + std::to_string(file_), 0, bytes, promised);
  if (shortage.empty()) return;
  close(std::exchange(file_, -1));
  throw Error(Exit::resources, fmt::format("no room for a scratch file of {}: {}; {}; name a "
                                           "folder with more space with --scratch-dir",
                                           size_text(bytes), shortage, folder));
}
ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : folder_(std::move(other.folder_)), file_(std::exchange(other.file_, -1)) {}
ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(file_, other.file_);
  return *this;
}
ScratchFile::~ScratchFile() {
  if (file_ >= 0) close(file_);
}

void ScratchFile::failed(const char* what, Index bytes, int error) const {
  throw Error(Exit::resources,
              fmt::format("a scratch file cannot be {} ({}): {}; {}; name another folder "
                          "with --scratch-dir",
                          what, size_text(bytes), std::strerror(error), folder_));
}

void ScratchFile::write(Index at, const void* data, Index bytes) const {
  const char* from = static_cast<const char*>(data);
  for (Index done = 0; done < bytes;) {
    const ssize_t now =
        pwrite(file_, from + done, std::size_t(std::min(kPiece, bytes - done)), at + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) failed("written", bytes, now < 0 ? errno : EIO);
    done += now;
  }
}

void ScratchFile::read(Index at, void* data, Index bytes) const {
  char* to = static_cast<char*>(data);
  for (Index done = 0; done < bytes;) {
    const ssize_t now =
        pread(file_, to + done, std::size_t(std::min(kPiece, bytes - done)), at + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) failed("read", bytes, now < 0 ? errno : EIO);
    done += now;
  }
}

}  // namespace terrace::io
