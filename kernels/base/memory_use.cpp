#include "kernels/base/memory_use.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace terrace {
namespace {

class Count {
 public:
  void take(const void* data, Index bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[data] = bytes;
    use_.now += bytes;
    use_.most = std::max(use_.most, use_.now);
  }
  void release(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    if (found == sizes_.end()) return;
    use_.now -= found->second;
    sizes_.erase(found);
  }
  void watch() {
    const std::lock_guard lock(mutex_);
    use_.most = use_.now;
  }
  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Index> sizes_;
  MemoryUse use_;
};

template <class B>
Count& count() {
  static auto* const instance = new Count;  // buffers of static objects outlive everything else
  return *instance;
}

}  // namespace

MemoryUse memory_use(Cpu) { return count<Cpu>().use(); }
MemoryUse memory_use(Cuda) { return count<Cuda>().use(); }
void watch_memory(Cpu) { count<Cpu>().watch(); }
void watch_memory(Cuda) { count<Cuda>().watch(); }

namespace detail {
void note_allocation(Cpu, const void* data, Index bytes) { count<Cpu>().take(data, bytes); }
void note_allocation(Cuda, const void* data, Index bytes) { count<Cuda>().take(data, bytes); }
void note_release(Cpu, const void* data) noexcept { count<Cpu>().release(data); }
void note_release(Cuda, const void* data) noexcept { count<Cuda>().release(data); }
}  // namespace detail

}  // namespace terrace
