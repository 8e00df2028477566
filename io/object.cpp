#include "io/object.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/sparse_form.hpp"

namespace terrace::io {

std::string Object::text(const std::string& name) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return {};
  const auto* text = std::get_if<std::string>(&found->second);
  return text ? *text : std::string();
}

Index Object::whole(const std::string& name) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return -1;
  if (const auto* value = std::get_if<Index>(&found->second)) return *value;
  if (const auto* value = std::get_if<double>(&found->second))
    if (*value == double(Index(*value))) return Index(*value);
  return -1;
}

namespace {

constexpr std::size_t max_float_bytes = 16, max_integer_bytes = 8;
constexpr int max_attributes = 10000;

/// Whether the exponent is one of IEEE, in any width, and no field lies in another one.
bool is_sound_float(hid_t type, std::size_t bits) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
    return false;
  const bool inside = sign < bits && exponent_bits > 0 && exponent_bits < 32 &&
                      exponent <= bits - exponent_bits && mantissa_bits > 0 &&
                      mantissa_bits < bits && mantissa <= bits - mantissa_bits;
  return inside && mantissa + mantissa_bits <= exponent && exponent + exponent_bits <= sign &&
         H5Tget_ebias(type) == (std::size_t(1) << (exponent_bits - 1)) - 1;
}

/// Whether a number's bits lie within its bytes. HDF5 converts damaged types as well, out of
/// bounds, and by any exponent.
bool is_sound(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_ENUM) {
    const Handle whole(H5Tget_super(type), &H5Tclose);
    return whole.valid() && H5Tget_class(whole) == H5T_INTEGER &&
           H5Tget_size(whole) == H5Tget_size(type) && is_sound(whole);
  }
  if (kind != H5T_FLOAT && kind != H5T_INTEGER) return true;
  const std::size_t bytes = H5Tget_size(type), precision = H5Tget_precision(type);
  const int offset = H5Tget_offset(type);
  const std::size_t most = kind == H5T_FLOAT ? max_float_bytes : max_integer_bytes;
  if (bytes == 0 || bytes > most || precision == 0 || precision > 8 * bytes || offset < 0 ||
      std::size_t(offset) > 8 * bytes - precision)
    return false;
  // Of sizes that no program has: a flipped bit makes them, and HDF5 reads behind chunks of the right one.
  const bool usual = std::has_single_bit(bytes);
  if (kind == H5T_INTEGER) return usual || precision == 8 * bytes;
  return (bytes <= 8 ? usual : precision > 64) && is_sound_float(type, 8 * bytes);
}

Number number_of(hid_t type) {
  if (!is_sound(type)) return Number::other;
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      return Number::floating;
    case H5T_INTEGER:
      return H5Tget_sign(type) == H5T_SGN_2 ? Number::signed_integer : Number::unsigned_integer;
    case H5T_ENUM:
      return H5Tget_size(type) == 1 ? Number::boolean : Number::other;
    default:
      return Number::other;
  }
}

bool read_text(hid_t attribute, hid_t type, std::string& text) {
  const H5T_cset_t characters = H5Tget_cset(type);
  if (characters != H5T_CSET_ASCII && characters != H5T_CSET_UTF8) return false;
  if (H5Tis_variable_str(type) > 0) {
    Handle memory(H5Tcopy(H5T_C_S1), &H5Tclose);
    H5Tset_size(memory, H5T_VARIABLE);
    H5Tset_cset(memory, characters);
    char* data = nullptr;
    if (H5Aread(attribute, memory, &data) < 0) return false;
    if (data) text = data;
    H5free_memory(data);
    return true;
  }
  std::string data(H5Tget_size(type), '\0');
  Handle memory(H5Tcopy(type), &H5Tclose);
  if (H5Aread(attribute, memory, data.data()) < 0) return false;
  text = data.c_str();
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return true;
}

template <class T>
bool read_numbers(hid_t attribute, hid_t memory, hssize_t count, AnyAttribute& value) {
  std::vector<T> data(static_cast<std::size_t>(count));
  if (H5Aread(attribute, memory, data.data()) < 0) return false;
  if (count == 1)
    value = data[0];
  else
    value = std::move(data);
  return true;
}

std::string name_of(hid_t attribute) {
  const ssize_t length = H5Aget_name(attribute, 0, nullptr);
  std::string name(std::size_t(std::max<ssize_t>(0, length)), '\0');
  if (length > 0) H5Aget_name(attribute, std::size_t(length) + 1, name.data());
  return name;
}

bool read_attribute(hid_t attribute, AnyAttribute& value) {
  Handle type(H5Aget_type(attribute), &H5Tclose);
  Handle space(H5Aget_space(attribute), &H5Sclose);
  if (!type.valid() || !space.valid()) return false;
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 1 || count > (1 << 20) || !is_sound(type)) return false;
  switch (H5Tget_class(type)) {
    case H5T_STRING: {
      std::string text;
      if (count != 1 || !read_text(attribute, type, text)) return false;
      value = text;
      return true;
    }
    case H5T_FLOAT:
      return read_numbers<double>(attribute, H5T_NATIVE_DOUBLE, count, value);
    case H5T_INTEGER:
    case H5T_ENUM:
      if (H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 8 &&
          H5Tget_sign(type) == H5T_SGN_NONE) {  // bits kept: a hash uses all 64
        return read_numbers<Index>(attribute, H5T_NATIVE_UINT64, count, value);
      }
      return read_numbers<Index>(attribute, H5T_NATIVE_INT64, count, value);
    default:
      return false;
  }
}

void describe_dataset(hid_t dataset, Object& object, const std::string& where) {
  Handle type(hdf5_check(H5Dget_type(dataset), "damaged dataset", where), &H5Tclose);
  Handle space(hdf5_check(H5Dget_space(dataset), "damaged dataset", where), &H5Sclose);
  Handle properties(hdf5_check(H5Dget_create_plist(dataset), "damaged dataset", where), &H5Pclose);
  object.number = number_of(type);
  object.bytes = Index(H5Tget_size(type));
  if (object.number != Number::other && object.number != Number::boolean) {
    Handle native(H5Tget_native_type(type, H5T_DIR_DEFAULT), &H5Tclose);
    object.native = native.valid() && H5Tequal(type, native) > 0;
  }
  object.contiguous = H5Pget_layout(properties) == H5D_CONTIGUOUS;
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(std::size_t(std::max(rank, 0)));
  if (rank > 0) H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  double bytes = double(std::max<Index>(object.bytes, 8));  // of all elements as doubles
  for (const hsize_t d : dims) {
    bytes *= double(std::max<hsize_t>(d, 1));
    if (bytes > 0x1p62)
      throw Error(Exit::input, "impossible dimensions; " + where + "; the file is damaged");
    object.dims.push_back(Index(d));
  }
}

/// Whole numbers [first, first + count) of a 1-D dataset; empty where they cannot be read.
std::vector<Index> read_some(hid_t file, const std::string& path, Index first, Index count) {
  const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), &H5Dclose);
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  const hsize_t from = hsize_t(first), size = hsize_t(count);
  const Handle memory(H5Screate_simple(1, &size, nullptr), &H5Sclose);
  std::vector<Index> values(static_cast<std::size_t>(count));
  if (!dataset.valid() || !space.valid() || !memory.valid() ||
      H5Sselect_hyperslab(space, H5S_SELECT_SET, &from, nullptr, &size, nullptr) < 0 ||
      H5Dread(dataset, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, values.data()) < 0)
    values.clear();
  return values;
}

/// Of a group's dataset that may be a sparse matrix's: the few numbers that say what it is.
void look_inside(hid_t file, const std::string& name, Object& child) {
  const bool whole =
      child.number == Number::signed_integer || child.number == Number::unsigned_integer;
  if (!whole || child.dims.size() != 1) return;
  const Index size = child.dims[0];
  if (name == "shape" && size == 2) child.values = read_some(file, child.path, 0, 2);
  if (name != "indptr" || size < 1) return;
  child.values = read_some(file, child.path, 0, 1);
  const auto last = read_some(file, child.path, size - 1, 1);
  child.values.insert(child.values.end(), last.begin(), last.end());
}

}  // namespace

std::vector<std::string> link_names(hid_t group) {
  H5G_info_t info{};
  std::vector<std::string> names;
  if (H5Gget_info(group, &info) < 0) return names;
  for (hsize_t k = 0; k < info.nlinks && k < 100000; ++k) {
    const ssize_t length =
        H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, k, nullptr, 0, H5P_DEFAULT);
    if (length < 0) continue;
    std::string name(std::size_t(length), '\0');
    H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, k, name.data(),
                       std::size_t(length) + 1, H5P_DEFAULT);
    names.push_back(std::move(name));
  }
  return names;
}

std::string join(const std::string& folder, const std::string& name) {
  return folder == "/" ? "/" + name : folder + "/" + name;
}

AnyAttributes read_all_attributes(hid_t object, const std::string& skip) {
  AnyAttributes result;
  const int count = H5Aget_num_attrs(object);
  for (int k = 0; k < count && k < max_attributes; ++k) {
    Handle attribute(H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, hsize_t(k),
                                    H5P_DEFAULT, H5P_DEFAULT),
                     &H5Aclose);
    if (!attribute.valid()) continue;
    const std::string name = name_of(attribute);
    AnyAttribute value;
    if (!name.empty() && name != skip && read_attribute(attribute, value))
      result[name] = std::move(value);
  }
  return result;
}

bool describe_at(hid_t file, const std::string& path, const std::string& where, Object& object,
                 bool with_children) {
  Handle id(H5Oopen(file, path.c_str(), H5P_DEFAULT), &H5Oclose);
  if (!id.valid()) return false;
  object.path = path;
  const H5I_type_t type = H5Iget_type(id);
  if (type != H5I_DATASET && type != H5I_GROUP) return false;
  object.attributes = read_all_attributes(id);
  object.group = type == H5I_GROUP;
  if (!object.group) {
    describe_dataset(id, object, where);
  } else if (with_children) {
    const auto has = [&](const char* name) { return H5Lexists(id, name, H5P_DEFAULT) > 0; };
    for (const auto& [ours, theirs] : sparse_names(object.attributes, has)) {
      Object child;
      if (!describe_at(file, join(path, theirs), where, child, false) || child.group) continue;
      look_inside(file, ours, child);
      object.children[ours] = std::move(child);
    }
  }
  return true;
}

namespace {

/// What must be there for an attribute to count: text, a value, or nothing of it.
enum class Needed { text, value, nothing };

Needed needed(const Object& o, const std::string& name) {
  for (const char* text : {"format", "order", "uplo", "symmetry", "bitorder", "encoding-type",
                           "h5sparse_format", "binsparse", "MATLAB_class"})
    if (name == text) return Needed::text;
  const bool counts =
      o.group
          ? name == "shape" || name == "h5sparse_shape" || name == "MATLAB_sparse"
          : name == "MATLAB_empty" || (name == "columns" && o.number == Number::unsigned_integer);
  return counts ? Needed::value : Needed::nothing;
}

}  // namespace

void require_attributes(hid_t file, const Object& o, const std::string& where) {
  const Handle id(H5Oopen(file, o.path.c_str(), H5P_DEFAULT), &H5Oclose);
  const int count = H5Aget_num_attrs(id);
  hdf5_check(count, "the attributes cannot be read", where);
  for (int k = 0; k < count && k < max_attributes; ++k) {
    const Handle attribute(
        H5Aopen_by_idx(id, ".", H5_INDEX_NAME, H5_ITER_INC, hsize_t(k), H5P_DEFAULT, H5P_DEFAULT),
        &H5Aclose);
    hdf5_check(attribute, "the attributes cannot be read", where);
    const std::string name = name_of(attribute);
    const Needed need = needed(o, name);
    AnyAttribute value;
    if (need == Needed::nothing) continue;
    const bool read = read_attribute(attribute, value);
    const auto* text = std::get_if<std::string>(&value);
    if (!read || (need == Needed::text && (!text || text->empty())))
      throw Error(Exit::input,
                  fmt::format("attribute {} cannot be read; {}; store {} there", name, where,
                              need == Needed::text ? "one text" : "whole numbers"));
  }
  for (const auto& [name, child] : o.children) require_attributes(file, child, where);
}

void collect(hid_t file, const std::string& path, const Location& location, int depth,
             std::vector<Object>& found) {
  Handle group(H5Gopen2(file, path.c_str(), H5P_DEFAULT), &H5Gclose);
  if (!group.valid() || depth > 16 || found.size() > 10000) return;
  for (const std::string& name : link_names(group)) {
    H5L_info_t link{};
    if (H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD)
      continue;
    const std::string at = join(path, name);
    Object object;
    if (!describe_at(file, at, where(location, at), object, true))
      throw Error(Exit::input, "damaged object; " + where(location, at) + "; " + hdf5_reason());
    if (!object.group || is_sparse(object))
      found.push_back(std::move(object));
    else if (name != "terrace")
      collect(file, at, location, depth + 1, found);
  }
}

}  // namespace terrace::io
