#include "io/growing.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "kernels/base/error.hpp"

namespace terrace::io {

Growing::~Growing() {
  if (lock_ >= 0) close(lock_);
}

void Growing::hold(const std::string& path) {
  lock_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (lock_ >= 0 && flock(lock_, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(Exit::usage, "another program has the file open to write; " + path +
                                 "; close it there, or choose another file");
}

void Growing::note(const std::string& path) {
  path_ = path;
  if (stat(path.c_str(), &noted_) != 0) path_.clear();
}

bool Growing::changed() const {
  struct stat now {};
  if (path_.empty()) return false;
  return stat(path_.c_str(), &now) != 0 || now.st_dev != noted_.st_dev ||
         now.st_ino != noted_.st_ino || now.st_size != noted_.st_size ||
         now.st_mtim.tv_sec != noted_.st_mtim.tv_sec ||
         now.st_mtim.tv_nsec != noted_.st_mtim.tv_nsec;
}

}  // namespace terrace::io
