// Vectors of many numbers: resize() leaves new elements as they are, so that the threads that fill
// them touch their pages first, and large ones stand on huge pages where the system has them.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace terrace {

template <class T>
struct UntouchedAllocator {
  using value_type = T;
  UntouchedAllocator() = default;
  template <class U>
  UntouchedAllocator(const UntouchedAllocator<U>&) {}  // NOLINT: as the standard's own

  T* allocate(std::size_t count) {
    constexpr std::size_t page = std::size_t(2) << 20;
    const std::size_t bytes = count * sizeof(T);
    if (bytes < 2 * page) return std::allocator<T>().allocate(count);
    const std::size_t whole = (bytes + page - 1) / page * page;
    void* data = std::aligned_alloc(page, whole);
    if (data == nullptr) throw std::bad_alloc();
    (void)madvise(data, whole, MADV_HUGEPAGE);
    return static_cast<T*>(data);
  }
  void deallocate(T* data, std::size_t count) {
    if (count * sizeof(T) < std::size_t(4) << 20)
      std::allocator<T>().deallocate(data, count);
    else
      std::free(data);
  }
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Values>
  void construct(U* at, Values&&... values) {
    ::new (static_cast<void*>(at)) U(std::forward<Values>(values)...);
  }
  friend bool operator==(const UntouchedAllocator&, const UntouchedAllocator&) { return true; }
};

template <class T>
using LargeVector = std::vector<T, UntouchedAllocator<T>>;

}  // namespace terrace
