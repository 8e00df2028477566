#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <string>

#include "kernels/base/assumed.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/kept_memory.hpp"
#include "kernels/base/memory_use.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace {
namespace detail {

void* allocate(Cpu, Index bytes) {
  void* data = take_kept(Kind::host, 0, bytes);
  if (data) {
    note_allocation(Cpu{}, data, bytes);
    return data;
  }
  const auto room = std::size_t(round_up(bytes, 64));
  data = std::aligned_alloc(64, room);
  if (!data && free_all_kept()) data = std::aligned_alloc(64, room);
  if (!data) {
    throw Error(Exit::resources, "out of host memory asking for " + std::to_string(bytes >> 20) +
                                     " MiB; use more ranks or a smaller problem");
  }
  note_taken(Kind::host, 0, data, bytes);
  note_allocation(Cpu{}, data, bytes);
  return data;
}
void release(Cpu, void* data) noexcept {
  if (std::uncaught_exceptions() > 0) settle_cpu_lanes();
  note_release(Cpu{}, data);
  if (!keep(Kind::host, data)) std::free(data);
}

void copy_bytes(const Stream<Cpu>& stream, void* to, const void* from, Index bytes) {
  if (bytes > 0) stream.run([=] { std::memcpy(to, from, std::size_t(bytes)); });
}
void fill_zero(const Stream<Cpu>& stream, void* data, Index bytes) {
  if (bytes > 0) stream.run([=] { std::memset(data, 0, std::size_t(bytes)); });
}
void copy_rows_bytes(const Stream<Cpu>& stream, void* to, Index to_pitch, const void* from,
                     Index from_pitch, Index row_bytes, Index rows) {
  if (row_bytes <= 0) return;
  stream.run([=] {
    const auto some = [=](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        std::memcpy(static_cast<char*>(to) + i * to_pitch,
                    static_cast<const char*>(from) + i * from_pitch, std::size_t(row_bytes));
    };
    constexpr Index piece = Index(1) << 20;  // bytes; less is not worth waking a thread
    if (rows * row_bytes <= 2 * piece) return some(0, rows);
    parallel_ranges(rows, std::max<Index>(1, piece / row_bytes), some);
  });
}

}  // namespace detail

namespace {

Index read_number(const std::string& path, Index otherwise) {
  std::ifstream in(path);
  Index value = 0;
  return in >> value ? value : otherwise;
}

Index field(const char* path, const std::string& key) {  // in KiB, as /proc writes it
  std::ifstream in(path);
  std::string word;
  while (in >> word) {
    Index value = 0;
    if (word == key && in >> value) return value << 10;
  }
  return -1;
}

}  // namespace

namespace {

constexpr Index unlimited = std::numeric_limits<Index>::max();

Index host_free() {
  Index free = unlimited;
  if (const Index host = field("/proc/meminfo", "MemAvailable:"); host >= 0) free = host;
  const Index group_limit = read_number("/sys/fs/cgroup/memory.max", unlimited);
  if (group_limit != unlimited) {
    const Index used = read_number("/sys/fs/cgroup/memory.current", 0);
    free = std::min(free, std::max<Index>(0, group_limit - used));
  }
  return free;
}

Index process_free() {
  Index free = unlimited;
  const auto limited = [&](int resource, const char* used_key) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const Index used = std::max<Index>(0, field("/proc/self/status", used_key));
    free = std::min(free, std::max<Index>(0, Index(limit.rlim_cur) - used));
  };
  limited(RLIMIT_AS, "VmSize:");
  limited(RLIMIT_DATA, "VmData:");
  return free;
}

}  // namespace

HostRoom host_room() {
  if (const AssumedDevice* const assumed = assumed_device()) return {assumed->host_bytes, false};
  const Index host = host_free(), process = process_free();
  return {std::min(host, process), process < host};
}
Index HostRoom::share(int ranks) const {
  return limited ? bytes - thread_count() * (Index(129) << 20) : bytes / ranks;
}

}  // namespace terrace
