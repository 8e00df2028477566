// An open input: its file on all ranks, its datasets; offenders, and what cuts pieces for a sink.
#pragma once
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "io/inspect.hpp"
#include "io/offender.hpp"
#include "io/slices.hpp"
#include "io/volume.hpp"

namespace terrace::io {

struct InputFile {
  /// A dataset and the file that holds it: a link may lead out of the named one.
  struct Source {
    Handle dataset, file;
  };
  /// A file that is read, and its length when it was opened.
  struct Watched {
    std::string path;
    int descriptor;  ///< or -1: known by its name
    Index bytes;
  };

  Location location;  ///< with the path found
  Object object;
  Handle file;
  std::map<std::string, Source> sources;  ///< "" the object itself, or a sparse group's children
  std::vector<Watched> watched;  ///< the sources' files, those of external storage and virtual ones

  [[nodiscard]] const Source& source(const std::string& name = {}) const {
    return sources.at(name);
  }
  [[nodiscard]] std::string where() const { return to_string(location); }
  /// Nothing, or that a file is shorter now than it was: HDF5 reads zeros behind a file's end.
  [[nodiscard]] std::optional<Error> shortened() const;

 private:
  friend std::shared_ptr<InputFile> open_input(const Control&, const Location&, Object);
  void open(const std::string& name, const std::string& path);
  void watch(const std::string& path, int descriptor);
  void watch_files_of(const Source& source);
  void watch_parts(const Source& source, hid_t how, const std::string& own);
  /// Of a part of a virtual dataset, which must be there.
  [[nodiscard]] std::vector<hsize_t> extents_of_part(const Source& source, const std::string& name,
                                                     const std::string& beside,
                                                     const std::string& dataset) const;
};

/// Opens the found object on all ranks. Collective.
std::shared_ptr<InputFile> open_input(const Control& control, const Location& location,
                                      Object object);

/// Hands pieces on, cut at the borders of the ranges that the caller named.
template <class T>
class Delivery {
 public:
  Delivery(std::span<const Range> ranges, Index width) : ranges_(ranges), width_(width) {}
  template <class S>
  void operator()(Index position, Index items, const T* data, const S& sink) {
    while (items > 0) {
      const Index take = std::min(items, ranges_[range_].count - done_);
      if (take > 0) sink(position, take, data);
      position += take;
      items -= take;
      data += take * width_;
      done_ += take;
      if (done_ == ranges_[range_].count && items >= 0) {
        done_ = 0;
        ++range_;
        while (range_ < ranges_.size() && ranges_[range_].count <= 0) ++range_;
        if (range_ == ranges_.size()) return;
      }
    }
  }

 private:
  std::span<const Range> ranges_;
  Index width_, done_ = 0;
  std::size_t range_ = 0;
};

/// Memory that all ranks get or none.
template <class T>
std::unique_ptr<T[]> allocate_together(const Control& control, Index size) {
  return collectively(
      control, [&] { return std::unique_ptr<T[]>(new T[std::size_t(std::max<Index>(1, size))]); });
}

}  // namespace terrace::io
