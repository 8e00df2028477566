// Result files: written in parallel under a temporary name, renamed when complete.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "distrib/control.hpp"
#include "distrib/layout.hpp"
#include "io/location.hpp"

namespace terrace::io {

using Attribute = std::variant<Index, double, std::string>;
using Attributes = std::map<std::string, Attribute>;

/// Fills `out` with `count` rows starting at `position` of this rank's concatenated ranges.
template <class T>
using Source = std::function<void(Index position, Index count, T* out)>;

/// One output file, "FILE" or "FILE:/group". All members are collective; errors are agreed.
/// The file appears under its name only in commit(); without commit() nothing is left behind.
/// A group is added to an existing file by writing a new copy of that file and renaming it.
/// Each dataset's content hash (the sum over its elements of a mix of position and bits, so
/// independent of who writes what) is stored with it, and checked by `terrace verify`.
class Output {
 public:
  /// Checks before any work: folder writable, output absent or `force`. Throws Error(usage) or
  /// Error(resources). Creates nothing yet.
  Output(const Control& control, const std::string& target, bool force);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// A result of about so many bytes comes: beside the caller's work, a thread has the file system
  /// keep the room for it. The unfinished file is made now. For large results alone, and where there
  /// is no result yet (`early`) for new files that lie in memory, which give room slowly.
  void expect(Index bytes, bool early = false);
  /// Dataset of `rows` x `columns` (columns < 0: 1-D of `rows`). Every rank writes the rows of its
  /// `ranges`; the ranks' ranges are disjoint and cover all rows. T: double, Index, Word.
  template <class T>
  void write(const std::string& name, Index rows, Index columns, std::span<const Range> ranges,
             const Source<T>& source, const Attributes& attributes = {});
  /// As write(), of rows that stand one after the other from `data` on: they are not copied.
  template <class T>
  void write_held(const std::string& name, Index rows, Index columns, std::span<const Range> ranges,
                  const T* data, const Attributes& attributes = {});
  /// As write(), each local row going to its own global row `destination[position]`.
  template <class T>
  void write_scattered(const std::string& name, Index rows, Index columns,
                       std::span<const Index> destination, const Source<T>& source,
                       const Attributes& attributes = {});
  /// The transpose of the file order: this rank's columns of an (m+1) x n band factor, delivered as
  /// `count` columns of `height` values; lands as dataset[d, j].
  void write_columns(const std::string& name, Index height, Index columns,
                     std::span<const Range> ranges, const Source<double>& source,
                     const Attributes& attributes = {});
  /// An attribute of the group itself, such as `shape` of a CSR matrix (1-D of Index).
  void attribute(const std::string& name, const Attribute& value);
  void attribute(const std::string& name, const std::vector<Index>& values);
  /// Make later writes go to sub-group `name` of the target group ("" returns to it).
  void group(const std::string& name);
  /// Writes the `terrace` group with these attributes, closes, flushes and renames.
  void commit(const Attributes& terrace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What `verify` and `--factor` need back: the attributes of the `terrace` group.
Attributes read_run_attributes(const Control& control, const Location& location);
/// Attributes of one object.
Attributes read_attributes(const Control& control, const Location& location);
/// Names of the datasets and groups directly in the group at `location`.
std::vector<std::string> members(const Control& control, const Location& location);
/// Whether a group is at exactly `location`, which is not empty; false where nothing is.
bool is_group(const Control& control, const Location& location);
/// True when the dataset's stored content hash is its actual one (read in slices); false when it
/// differs or is absent. Covers its attributes too; of a group, its attributes alone.
bool content_hash_holds(const Control& control, const Location& location);

std::string hdf5_version();
/// Empty, or that the program was compiled for another version than it runs with.
std::string hdf5_mismatch();

}  // namespace terrace::io
