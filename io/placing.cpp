#include "io/placing.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "io/hash.hpp"
#include "io/unfinished.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

std::vector<Run> runs_of(const Piece& piece, int axis, const std::vector<Index>& dims) {
  const Index rows = axis == 0 ? 1 : dims[0], pitch = dims.size() == 2 ? dims[1] : 1;
  const Index width = axis == 0 ? pitch : 1;
  std::vector<Run> runs;
  for (Index r = 0; r < rows; ++r)
    for (Index b = 0; b < piece.count; ++b)
      runs.push_back({(r * piece.items() + b * piece.block) * width,
                      (axis == 0 ? 0 : r * pitch) + (piece.first + b * piece.stride) * width,
                      piece.block * width});
  return runs;
}

std::vector<Run> runs_of(std::span<const Index> destination, Index width) {
  std::vector<Run> runs;
  for (Index i = 0; i < Index(destination.size()); ++i) {
    const Index to = destination[std::size_t(i)] * width;
    if (!runs.empty() && runs.back().to + runs.back().count == to)
      runs.back().count += width;
    else
      runs.push_back({i * width, to, width});
  }
  return runs;
}

namespace {

constexpr Index step = Index(1) << 15;  // elements that a thread takes at once, 256 KiB

/// Calls work(run) from all threads, with runs of at most `step` elements.
template <class F>
void over_steps(std::span<const Run> runs, const F& work) {
  std::vector<Run> steps;
  Index all = 0;
  for (const Run& r : runs) {
    all += r.count;
    for (Index done = 0; done < r.count; done += step)
      steps.push_back({r.from + done, r.to + done, std::min(step, r.count - done)});
  }
  const Index count = Index(steps.size()), groups = std::min(count, ceil_div(all, step));
  parallel_for(groups, [&](Index g) {
    for (Index k = g * count / groups; k < (g + 1) * count / groups; ++k)
      work(steps[std::size_t(k)]);
  });
}

Word hash_of(const Word* buffer, const Run& run) {
  Word sum = 0;
  for (Index i = 0; i < run.count; ++i) sum += hash_element(buffer[run.from + i], run.to + i);
  return sum;
}

unsigned long file_system(int descriptor) {
  struct statfs system {};
  return fstatfs(descriptor, &system) == 0 ? static_cast<unsigned long>(system.f_type) : 0;
}

/// Whether what one host writes there may be lost to another that writes beside it.
bool incoherent(int descriptor) {
  switch (file_system(descriptor)) {
    case 0:           // unknown
    case 0x6969:      // NFS
    case 0x517b:      // SMB
    case 0xfe534d42:  // SMB2
    case 0xff534d42:  // CIFS
    case 0x65735546:  // FUSE
    case 0x01021997:  // 9P
    case 0x5346414f:  // AFS
      return true;
    default:
      return false;
  }
}

/// Bytes from the beginning of the file, or -1 where the dataset's bytes are not its elements.
Index place_of(hid_t file, hid_t dataset) {
  const Handle made(H5Fget_create_plist(file), &H5Pclose),
      how(H5Dget_create_plist(dataset), &H5Pclose);
  const Handle type(H5Dget_type(dataset), &H5Tclose);
  hsize_t user_block = 1;
  if (!made.valid() || !how.valid() || H5Pget_userblock(made, &user_block) < 0 || user_block != 0 ||
      H5Pget_layout(how) != H5D_CONTIGUOUS || H5Pget_external_count(how) != 0 ||
      H5Pget_nfilters(how) != 0 || H5Tget_size(type) != 8)
    return -1;
  for (const hid_t native : {H5T_NATIVE_DOUBLE, H5T_NATIVE_INT64, H5T_NATIVE_UINT64})
    if (H5Tequal(type, native) > 0) {
      const haddr_t at = H5Dget_offset(dataset);
      return at == HADDR_UNDEF ? -1 : Index(at);
    }
  return -1;
}

}  // namespace

Index placed_bytes() {
  return placing_threads() == 1 ? piece_bytes() : std::min(piece_bytes(), Index(1) << 20);
}

int placing_threads() { return std::clamp(thread_count() - 2, 1, 14); }

Word hash_runs(const Word* buffer, std::span<const Run> runs) {
  std::atomic<Word> total{0};
  over_steps(runs, [&](const Run& r) { total += hash_of(buffer, r); });
  return total;
}

Placing::Placing(const Control& control, hid_t file, hid_t dataset, const std::string& name,
                 bool reserved) {
  offset_ = place_of(file, dataset);
  if (offset_ >= 0) descriptor_ = open(name.c_str(), O_RDWR | O_CLOEXEC);
  const bool hosts = control.local_size() < control.size();
  const bool mine = descriptor_ >= 0 && !(hosts && incoherent(descriptor_));
  if (control.reduce(Index(mine), Reduce::min) == 0) {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
    return;
  }
  if (reserved && lies_in_memory(name)) map(Index(H5Dget_storage_size(dataset)));
}

Placing::~Placing() {
  if (mapped_) munmap(mapped_, std::size_t(mapped_bytes_));
  if (descriptor_ >= 0) close(descriptor_);
}

/// The file is made as long as HDF5 will make it: stores behind its end are a SIGBUS.
void Placing::map(Index bytes) {
  struct stat status {};
  const Index end = offset_ + bytes;
  if (bytes == 0 || fstat(descriptor_, &status) != 0) return;
  if (status.st_size < end && ftruncate(descriptor_, end) != 0) return;
  mapped_from_ = offset_ / sysconf(_SC_PAGESIZE) * sysconf(_SC_PAGESIZE);
  mapped_bytes_ = end - mapped_from_;
  void* const at = mmap(nullptr, std::size_t(mapped_bytes_), PROT_READ | PROT_WRITE, MAP_SHARED,
                        descriptor_, mapped_from_);
  mapped_ = at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

/// 0, or errno.
int Placing::place(const Run& run, const Word* buffer) const {
  const char* from = reinterpret_cast<const char*>(buffer + run.from);
  Index to = offset_ + run.to * 8, left = run.count * 8;
  if (mapped_) {
    std::memcpy(mapped_ + (to - mapped_from_), from, std::size_t(left));
    return 0;
  }
  while (left > 0) {
    const ssize_t done = pwrite(descriptor_, from, std::size_t(left), to);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : ENOSPC;
    from += done;
    to += done;
    left -= done;
  }
  return 0;
}

Word Placing::put(const Word* buffer, std::span<const Run> runs, const std::string& told) const {
  std::atomic<Word> total{0};
  std::atomic<int> failure{0};
  over_steps(runs, [&](const Run& r) {
    if (failure != 0) return;
    total += hash_of(buffer, r);
    if (const int reason = place(r, buffer); reason != 0) failure = reason;
  });
  if (failure != 0)
    throw Error(Exit::resources,
                fmt::format("cannot write the output; {}; free space on the disk? {}", told,
                            std::strerror(failure)));
  return total;
}

}  // namespace terrace::io
