// The HDF5 C API made safe: handles that close themselves, errors as exceptions. Only io includes
// it.
#pragma once
#include <hdf5.h>

#include <exception>
#include <string>
#include <utility>

#include "distrib/control.hpp"
#include "kernels/base/error.hpp"

namespace terrace::io {

/// First use of HDF5: its error printing off, its locks off, no work in atexit().
void hdf5_ready();
/// What HDF5 says about its last failure: the innermost entry of its error stack, one line.
std::string hdf5_reason();
/// Throws Error(input) "what; where; HDF5's reason" when `id` is negative, else returns it.
hid_t hdf5_check(hid_t id, const std::string& what, const std::string& where);

/// Owns one HDF5 identifier.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, -1)), close_(other.close_), depth_(other.depth_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  /// A file opened by all ranks closes together. While an exception unwinds one rank alone that
  /// would wait for the others for ever, so then the identifier is left to the end of the process.
  ~Handle() {
    if (id_ >= 0 && (close_ != &H5Fclose || std::uncaught_exceptions() <= depth_)) close_(id_);
  }
  [[nodiscard]] hid_t get() const { return id_; }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator hid_t() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }
  herr_t close() { return id_ >= 0 ? close_(std::exchange(id_, -1)) : 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
  int depth_ = std::uncaught_exceptions();
};

/// Opens `name` to read, on this rank alone.
Handle open_alone(const std::string& name);
/// Opens `name` on all ranks through MPI-IO, to read, or to write too. Collective.
Handle open_parallel(const Control& control, const std::string& name, bool write);
/// Creates `name` on all ranks through MPI-IO; it must not exist. Collective.
Handle create_parallel(const Control& control, const std::string& name);
/// Transfer property: collective or independent MPI-IO.
Handle transfer(bool collective);

}  // namespace terrace::io
