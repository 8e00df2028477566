// Plain memory of the host to a backend and back by several threads, through page-locked buffers. The
// driver alone brings 8 GB/s up to an H200 and 12 down.
#pragma once
#include <algorithm>
#include <type_traits>

#include "io/portions.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

/// How: in portions of so many bytes, by so many threads; 0: by the driver.
struct Copies {
  Index portion = Index(4) << 20;
  int threads = 0;
  /// Of `bytes` of this rank's.
  template <class B>
  static Copies of(Index bytes) {
    constexpr int most = 6;
    Copies how;
    if (!std::is_same_v<B, Cpu> && bytes >= 8 * how.portion)
      how.threads = std::min(most, thread_count() - 1);
    return how;
  }
};

namespace detail {
/// f(first, count, items in the buffer) of portion k.
template <class T, class F>
Stage of_portions(Index size, Index items, const F& f) {
  return [size, items, f](Index k, char* buffer) {
    f(k * items, std::min(items, size - k * items), reinterpret_cast<T*>(buffer));
  };
}
}  // namespace detail

/// to = from. Waits.
template <class T, class B>
void upload_plain(const Stream<B>& stream, View<T, B> to, const T* from, const Copies& how) {
  if (how.threads < 1) {
    upload(stream, to, from);
    return stream.synchronize();
  }
  const Index items = std::max<Index>(1, how.portion / Index(sizeof(T)));
  overlap(ceil_div(to.size, items), items * Index(sizeof(T)), how.threads,
          detail::of_portions<T>(to.size, items,
                                 [from](Index first, Index count, T* buffer) {
                                   std::copy_n(from + first, count, buffer);
                                 }),
          detail::of_portions<T>(to.size, items,
                                 [&](Index first, Index count, const T* buffer) {
                                   upload(stream, to.slice(first, count), buffer);
                                   stream.synchronize();
                                 }),
          "memory");
}
/// to = from. Waits.
template <class T, class B>
void download_plain(const Stream<B>& stream, T* to, View<const T, B> from, const Copies& how) {
  if (how.threads < 1) {
    download(stream, to, from);
    return stream.synchronize();
  }
  const Index items = std::max<Index>(1, how.portion / Index(sizeof(T)));
  overlap_behind(ceil_div(from.size, items), items * Index(sizeof(T)), how.threads,
                 detail::of_portions<T>(from.size, items,
                                        [&](Index first, Index count, T* buffer) {
                                          download(stream, buffer, from.slice(first, count));
                                          stream.synchronize();
                                        }),
                 detail::of_portions<T>(from.size, items,
                                        [to](Index first, Index count, const T* buffer) {
                                          std::copy_n(buffer, count, to + first);
                                        }),
                 "memory");
}

}  // namespace terrace::io
