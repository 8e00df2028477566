#include "io/room.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/parallel.hpp"
#include "kernels/base/timeline.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; refused before
#endif

namespace terrace::io {

bool in_memory(int descriptor) {
  constexpr unsigned long tmpfs = 0x01021994;
  struct statfs system {};
  return fstatfs(descriptor, &system) == 0 && static_cast<unsigned long>(system.f_type) == tmpfs;
}

namespace {

/// Whether all pages of the mapping could be had.
bool populate(char* mapped, Index from, Index end) {
  constexpr Index piece = Index(16) << 20;
  const Index pieces = ceil_div(end - from, piece);
  std::atomic<Index> next{0};
  std::atomic<bool> good{true};
  const auto work = [&] {
    for (Index k = next++; k < pieces && good; k = next++) {
      const Index at = from + k * piece, size = std::min(piece, end - at);
      if (madvise(mapped + at, std::size_t(size), MADV_POPULATE_WRITE) != 0) good = false;
    }
  };
  std::vector<std::thread> others;
  for (Index k = 1; k < std::min<Index>({8, pieces, thread_count()}); ++k)
    others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return good;
}

}  // namespace

Index Room::take(const std::string& path, Index from, Index end) {
  const Noted noted("file", "reserve");
  const Index page = sysconf(_SC_PAGESIZE);
  struct stat status {};
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  const bool long_enough = in_memory(file) && fstat(file, &status) == 0 &&
                           (status.st_size >= end || ftruncate(file, end) == 0);
  void* const at =
      long_enough ? mmap(nullptr, std::size_t(end), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                  : MAP_FAILED;
  close(file);
  if (at == MAP_FAILED) return 0;
  mapped_ = static_cast<char*>(at);
  length_ = end;
  (void)madvise(at, std::size_t(end), MADV_HUGEPAGE);
  return populate(mapped_, from / page * page, end) ? end : 0;
}

void Room::begin(const std::string& path, Index from, Index end) {
  drop();
  if (end > from)
    taking_ = std::async(std::launch::async, [=, this] { return take(path, from, end); });
}

Index Room::end() {
  if (taking_.valid()) end_ = taking_.get();
  return end_;
}

void Room::drop() {
  (void)end();
  if (mapped_) munmap(std::exchange(mapped_, nullptr), std::size_t(length_));
  end_ = 0;
}

}  // namespace terrace::io
