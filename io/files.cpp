#include "io/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "io/unfinished.hpp"
#include "kernels/base/error.hpp"

namespace terrace::io {

namespace {

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Of a folder, links and dots resolved; as it is where there is none.
std::string canonical(const std::string& folder) {
  const std::unique_ptr<char, void (*)(void*)> found(realpath(folder.c_str(), nullptr), &std::free);
  return found ? std::string(found.get()) : folder;
}

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};

}  // namespace

std::string followed(const std::string& path) {
  std::string at = path;
  for (int k = 0; k < 40; ++k) {
    struct stat status {};
    if (lstat(at.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return at;
    char target[4096];
    const ssize_t length = readlink(at.c_str(), target, sizeof target - 1);
    if (length <= 0) return at;
    const std::string to(target, std::size_t(length));
    at = to.front() == '/' ? to : folder_of(at).append("/").append(to);
  }
  return path;  // a ring of links: whoever opens it says so
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat of_a {
  }, of_b{};
  const bool a_exists = stat(a.c_str(), &of_a) == 0, b_exists = stat(b.c_str(), &of_b) == 0;
  if (a_exists && b_exists) return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
  if (a_exists != b_exists) return false;
  const std::string at = followed(a), bt = followed(b);
  return name_in(at) == name_in(bt) && canonical(folder_of(at)) == canonical(folder_of(bt));
}

void require_regular_file(const std::string& path, const std::string& cure) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw Error(Exit::input, std::string("cannot open the file: ") + std::strerror(errno) + "; " +
                                 path + "; check its name");
  if (!S_ISREG(status.st_mode))
    throw Error(Exit::input, "not a regular file; " + path + "; " + cure);
}

bool has_hdf5_signature(const std::string& path) {
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  char head[8];
  for (long long at = 0; file; at = at == 0 ? 512 : 2 * at) {
    if (fseeko(file.get(), off_t(at), SEEK_SET) != 0 || std::fread(head, 1, 8, file.get()) != 8)
      return false;
    if (std::memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0) return true;
  }
  return false;
}

std::string bytes_of(const std::string& path, long long most) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > most)
    return {};
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  std::string bytes(std::size_t(status.st_size), '\0');
  if (!file || std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return {};
  return bytes;
}

Stamp stamp_of(const Control& control, const std::string& path) {
  Stamp stamp;
  struct stat s {};
  if (control.rank() == 0 && stat(path.c_str(), &s) == 0) {
    const auto nanoseconds = [](const timespec& t) {
      return Index(t.tv_sec) * 1000000000 + Index(t.tv_nsec);
    };
    stamp = {Index(s.st_dev), Index(s.st_ino), Index(s.st_size), nanoseconds(s.st_mtim),
             nanoseconds(s.st_ctim)};
  }
  control.broadcast(&stamp, sizeof stamp, 0);
  return stamp;
}

}  // namespace terrace::io
