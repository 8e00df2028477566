// Memory that remembers where it is. View does not own; Buffer owns and only moves.
#pragma once
#include <type_traits>
#include <utility>

#include "kernels/base/backend.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {

/// `size` elements of T at `data` in the memory of backend B.
template <class T, class B>
struct View {
  T* data = nullptr;
  Index size = 0;

  [[nodiscard]] View slice(Index from, Index count) const { return {data + from, count}; }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator View<const T, B>() const requires(!std::is_const_v<T>) { return {data, size}; }
};

namespace detail {
/// 64-byte aligned host memory; throws Error(resources).
void* allocate(Cpu, Index bytes);
void release(Cpu, void* data) noexcept;
void* allocate(Cuda, Index bytes);
void release(Cuda, void* data) noexcept;
/// Page-locked host memory where CUDA is in use, plain host memory otherwise.
void* allocate_pinned(Index bytes);
bool pins();  ///< whether allocate_pinned() page-locks
void release_pinned(void* data) noexcept;
void copy_bytes(const Stream<Cpu>&, void* to, const void* from, Index bytes);
void copy_bytes(const Stream<Cuda>&, void* to, const void* from, Index bytes);  // any direction
void fill_zero(const Stream<Cpu>&, void* data, Index bytes);
void fill_zero(const Stream<Cuda>&, void* data, Index bytes);
/// rows x row_bytes with a pitch on either side, any direction.
void copy_rows_bytes(const Stream<Cpu>&, void* to, Index to_pitch, const void* from,
                     Index from_pitch, Index row_bytes, Index rows);
void copy_rows_bytes(const Stream<Cuda>&, void* to, Index to_pitch, const void* from,
                     Index from_pitch, Index row_bytes, Index rows);
}  // namespace detail

/// Uninitialised memory of backend B. T is trivially copyable.
template <class T, class B>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(Index size)
      : data_(size > 0 ? static_cast<T*>(detail::allocate(B{}, size * Index(sizeof(T)))) : nullptr),
        size_(size) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_) detail::release(B{}, data_);
  }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] View<T, B> view() const { return {data_, size_}; }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator View<T, B>() const { return view(); }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator View<const T, B>() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  Index size_ = 0;
};

/// Whether PinnedBuffers are page-locked: a GPU is in use.
inline bool memory_is_pinned() { return detail::pins(); }

/// Host memory that a CUDA stream can copy to and from asynchronously.
template <class T>
class PinnedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(Index size)
      : data_(size > 0 ? static_cast<T*>(detail::allocate_pinned(size * Index(sizeof(T))))
                       : nullptr),
        size_(size) {}
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() {
    if (data_) detail::release_pinned(data_);
  }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] View<T, Cpu> view() const { return {data_, size_}; }
  T& operator[](Index i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  Index size_ = 0;
};

/// to[0..from.size) = from, within one memory space.
template <class T, class B>
void copy(const Stream<B>& stream, View<T, B> to, std::type_identity_t<View<const T, B>> from) {
  detail::copy_bytes(stream, to.data, from.data, from.size * Index(sizeof(T)));
}
/// Host to backend memory. On CUDA asynchronous only for pinned `from`.
template <class T, class B>
void upload(const Stream<B>& stream, View<T, B> to, const T* from) {
  detail::copy_bytes(stream, to.data, from, to.size * Index(sizeof(T)));
}
/// Backend memory to host; complete after stream.synchronize().
template <class T, class B>
void download(const Stream<B>& stream, std::remove_const_t<T>* to, View<T, B> from) {
  detail::copy_bytes(stream, to, from.data, from.size * Index(sizeof(T)));
}
template <class T, class B>
void fill_zero(const Stream<B>& stream, View<T, B> data) {
  detail::fill_zero(stream, data.data, data.size * Index(sizeof(T)));
}
/// `rows` rows of `columns` elements with leading dimensions, in any direction between the host
/// and the memory of B.
template <class T, class B>
void copy_rows(const Stream<B>& stream, T* to, Index to_ld, const T* from, Index from_ld,
               Index columns, Index rows) {
  detail::copy_rows_bytes(stream, to, to_ld * Index(sizeof(T)), from, from_ld * Index(sizeof(T)),
                          columns * Index(sizeof(T)), rows);
}

/// Host memory that this process may still take.
struct HostRoom {
  Index bytes = 0;       ///< free of the host, of its control group and of its resource limits; not
                         ///< divided among ranks
  bool limited = false;  ///< a resource limit of this process, not the host's memory, is what binds
  /// What one of `ranks` on this host may take: a limit binds each alone, and beside the buffers of
  /// OpenBLAS, see memory_shortage().
  [[nodiscard]] Index share(int ranks) const;
};
HostRoom host_room();
inline Index available_host_bytes() { return host_room().bytes; }
inline bool process_memory_is_limited() { return host_room().limited; }

}  // namespace terrace
