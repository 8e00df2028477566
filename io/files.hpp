// Names of files and what they stand for: links followed, two names of one file, signs of a change.
#pragma once
#include <string>

#include "distrib/control.hpp"

namespace terrace::io {

/// Where a file of that name is or would be made: symbolic links are followed, dangling ones too. A
/// name that is no link comes back as it is. Local.
std::string followed(const std::string& path);
/// Whether two names mean one file: by device and inode; where one does not exist yet, by its
/// folder and its name there. Local.
bool same_file(const std::string& a, const std::string& b);
/// Whether HDF5's signature stands where a file may have it. Local.
bool has_hdf5_signature(const std::string& path);
/// Throws Error(input) where there is no file of that name, or a folder, a pipe, ...; then `cure`: "name an HDF5 file". Local.
void require_regular_file(const std::string& path, const std::string& cure);
/// Every byte of a regular file of at most `most` bytes; nothing of a larger one. Local.
std::string bytes_of(const std::string& path, long long most);

/// A file that was not touched has the same; times in nanoseconds.
struct Stamp {
  Index device = -1, inode = -1, size = -1, modified = -1, changed = -1;
  friend bool operator==(const Stamp&, const Stamp&) = default;
  /// As `cp -p` leaves it.
  [[nodiscard]] bool alike(const Stamp& other) const {
    return size == other.size && modified == other.modified;
  }
};
/// As rank 0 sees it. Collective.
Stamp stamp_of(const Control& control, const std::string& path);

}  // namespace terrace::io
