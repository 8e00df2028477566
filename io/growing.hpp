// A file that gets a group: copied, and replaced by the copy. What other programs write to it between
// the two would be lost.
#pragma once
#include <sys/stat.h>

#include <string>

namespace terrace::io {

class Growing {
 public:
  Growing() = default;
  ~Growing();
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  /// Locks the file as HDF5's readers do, as long as this lives: a program that opens it to write is
  /// refused by HDF5. Exit::usage where one has it open. Nothing where the file system has no locks.
  void hold(const std::string& path);
  /// Before the file is copied.
  void note(const std::string& path);
  /// Whether it is another file by now, or has been written to. False without note().
  [[nodiscard]] bool changed() const;

 private:
  int lock_ = -1;
  std::string path_;
  struct stat noted_ {};
};

}  // namespace terrace::io
