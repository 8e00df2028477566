// The one way in which matrices come from a file: portions of a rank's items (rows for axis 0 of
// the dataset, columns for axis 1), each item without gaps, read ahead by a thread of its own.
//
//   without gaps in the file   pread() of long runs, 256 KiB at a time; conversion and checks
//                              follow while the data are in the cache
//   chunks                     each read, and inflated, once over all ranks, by all threads, and
//                              its items sent to the ranks that asked for them
//   else                       HDF5 reads
//
// All HDF5 calls of a read are made by the reading thread: a sink opens no file and writes none.
#pragma once
#include <functional>
#include <mutex>
#include <string>

#include "io/input_file.hpp"
#include "io/portions.hpp"
#include "io/stored.hpp"

namespace terrace::io {

/// What elements become.
enum class As {
  doubles,
  indices,  ///< Index; unsigned ones beyond 2^63 - 1 become that
  words,    ///< 64-bit unsigned ones
  bytes,    ///< one-byte whole numbers, signed or not (axis 0)
  stored    ///< the file's own bits, whatever they mean (axis 0)
};

struct Request {
  std::string dataset;  ///< "" the object, or a sparse group's child
  int axis = 0;         ///< 1: items are columns of the dataset, delivered turned, 8-byte elements
  As as = As::doubles;  ///< the memory type where HDF5 converts; what axis 1 delivers
  bool band = false;    ///< axis 1: element d of item j is zero, and unread, where j + d >= n
  bool upper = false;   ///< the band's upper form
  bool turned =
      true;  ///< axis 1: false: item by item no more, rows of p.items elements as they lie
  bool packs = false;    ///< `take` cannot work in place
  Index item_bytes = 0;  ///< of a delivered item
  /// Axis 0, from several threads: `items` items of portion `p` from `item` on, standing in `raw`
  /// one after the other in the file's form, to `out`. raw == out where the forms are the same.
  std::function<void(const Portion& p, Index item, Index items, Element form, const char* raw,
                     char* out)>
      take;
  /// Axis 1, doubles, from several threads: element d of global item j is NaN or Inf.
  std::function<void(Index j, Index d, double value)> wrong;
};

/// Reads `ranges` and calls use(portion, data), in order, in the calling thread. Collective; throws
/// agreed Errors.
void read_portions(const Control& control, const InputFile& input, const Request& request,
                   std::span<const Range> ranges,
                   const std::function<void(const Portion&, const char* data)>& use);

/// An Offender noted by several threads.
class SharedOffender {
 public:
  void note(Index i, Index j, double v) {
    const std::lock_guard lock(mutex_);
    first_.note(i, j, v);
  }
  [[nodiscard]] const Offender& first() const { return first_; }

 private:
  std::mutex mutex_;
  Offender first_;
};

}  // namespace terrace::io
