// What stands in a file: rank 0 looks, serially, and tells the others. All functions are collective
// and throw agreed Errors; nothing here reads a matrix.
#pragma once
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "io/hdf5.hpp"
#include "io/input.hpp"
#include "io/location.hpp"

namespace terrace::io {

/// Any attribute that we understand; arrays of one element are scalars.
using AnyAttribute =
    std::variant<Index, double, std::string, std::vector<Index>, std::vector<double>>;
using AnyAttributes = std::map<std::string, AnyAttribute>;

enum class Number : int { floating, signed_integer, unsigned_integer, boolean, other };

/// A dataset or a group, described.
struct Object {
  bool group = false;
  std::string path;  ///< absolute, "/" for the root
  std::vector<Index> dims;
  Number number = Number::other;
  Index bytes = 0;          ///< of one element
  bool contiguous = false;  ///< no chunks: collective transfers gain
  bool native = false;      ///< stored as this machine computes
  AnyAttributes attributes;
  std::map<std::string, Object> children;  ///< of a sparse matrix, by our names (sparse_form.hpp)
  std::vector<Index> values;  ///< of a shape's dataset: all; of row pointers: first and last

  [[nodiscard]] bool has(const std::string& name) const { return attributes.count(name) > 0; }
  /// Text attribute, empty when absent.
  [[nodiscard]] std::string text(const std::string& name) const;
  /// Whole number; -1 when absent or of another kind.
  [[nodiscard]] Index whole(const std::string& name) const;
  [[nodiscard]] bool is_number() const { return number != Number::other; }
};

/// The object at `location` that fits as `wanted`, or the only one in the file that fits when no
/// path is given. Throws Exit::input: no such file, not HDF5, damaged, no such dataset, several
/// candidates. With a path the kind is not judged here. The object has the attributes that
/// `location.form` says; Exit::input where the file says otherwise.
Object find_object(const Control& control, const Location& location, Kind kind,
                   const Wanted& wanted);
/// As find_object for any kind; sets `kind`. `real`: see kind_of().
Object find_any(const Control& control, const Location& location, Kind& kind, bool real,
                const Wanted& wanted);
/// The object at exactly `location` ("" the root group).
Object describe(const Control& control, const Location& location);

/// Whether `location` names an object of a readable HDF5 file.
bool exists(const Control& control, const Location& location);

/// Attributes of an open object, names in `skip` left out. Local.
AnyAttributes read_all_attributes(hid_t object, const std::string& skip = {});

/// "a.h5:/A".
inline std::string where(const Location& location, const std::string& path) {
  return to_string({location.file, path});
}

}  // namespace terrace::io
