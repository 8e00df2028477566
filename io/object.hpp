// Datasets and groups of an open file, described. Everything here is local to a rank.
#pragma once
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "io/hdf5.hpp"
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

/// Attributes of an open object, names in `skip` left out. Local.
AnyAttributes read_all_attributes(hid_t object, const std::string& skip = {});

/// Names of a group's links, sorted.
std::vector<std::string> link_names(hid_t group);
/// Opens and describes the object; false when there is none or it is neither dataset nor group.
bool describe_at(hid_t file, const std::string& path, const std::string& where, Object& object,
                 bool with_children);
/// An attribute that is damaged is not one that is missing: what it says of the object is unknown.
/// Throws Error(input) where one that counts cannot be read.
void require_attributes(hid_t file, const Object& o, const std::string& where);
/// All datasets and sparse groups below `path`, outside groups named terrace; hard links only.
void collect(hid_t file, const std::string& path, const Location& location, int depth,
             std::vector<Object>& found);
/// "/group/name".
std::string join(const std::string& folder, const std::string& name);
/// "a.h5:/A".
inline std::string where(const Location& location, const std::string& path) {
  return to_string({location.file, path});
}

}  // namespace terrace::io
