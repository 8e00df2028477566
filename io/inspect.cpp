#include "io/inspect.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>

#include "distrib/agree.hpp"
#include "io/archive.hpp"
#include "io/guard.hpp"
#include "io/output.hpp"
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

constexpr std::size_t max_number_bytes = 16;
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
  if (bytes == 0 || bytes > max_number_bytes || precision == 0 || precision > 8 * bytes ||
      offset < 0 || std::size_t(offset) > 8 * bytes - precision)
    return false;
  return kind != H5T_FLOAT || is_sound_float(type, 8 * bytes);
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

/// Opens and describes the object; false when there is none or it is neither dataset nor group.
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

/// An attribute that is damaged is not one that is missing: what it says of the object is unknown.
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

/// All datasets and sparse groups below `path`, outside groups named terrace; hard links only.
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

/// What the user says of a dataset becomes its attributes. Throws Error(input) where the file says
/// otherwise, unless `said` yields. Of a group: sparse_form().
void say(Object& o, const FormOptions& said, const std::string& where) {
  if (o.group) return;
  const auto put = [&](const std::string& name, const AnyAttribute& value, bool same,
                       const std::string& text) {
    if (!o.has(name) || same) o.attributes[name] = value;
    if (o.has(name) && !same && !said.yields)
      throw Error(Exit::input, fmt::format("the file contradicts --{0} {1}; {2}; "
                                           "correct one of the two",
                                           name, text, where));
  };
  const std::pair<const char*, const std::string&> texts[] = {
      {"format", said.format}, {"uplo", said.uplo}, {"order", said.order}};
  for (const auto& [name, value] : texts)
    if (!value.empty()) put(name, value, !o.has(name) || o.text(name) == value, value);
  if (!said.bitorder.empty() && (!said.yields || o.has("columns")))
    put("bitorder", said.bitorder, !o.has("bitorder") || o.text("bitorder") == said.bitorder,
        said.bitorder);
  if (said.columns >= 0)
    put("columns", said.columns, !o.has("columns") || o.whole("columns") == said.columns,
        std::to_string(said.columns));
}

bool is_packed(const Object& o) {
  return (o.number == Number::unsigned_integer && o.bytes == 8 &&
          (o.has("columns") || o.text("format") == "bits")) ||
         (o.number == Number::unsigned_integer && o.bytes == 1 && o.has("bitorder"));
}

/// How well the object fits as `kind`: 0 not at all, else smaller is better.
int fit(const Object& o, Kind kind, const Wanted& wanted, const FormOptions& said) {
  if (o.group) {
    const std::string layout = stated_layout(o);
    const bool other =
        !said.format.empty() && said.format != "bits" && !layout.empty() && said.format != layout;
    return (kind == Kind::sparse || kind == Kind::bits) && is_sparse(o) && !other ? 1 : 0;
  }
  const bool matrix = o.dims.size() == 2, vector = o.dims.size() == 1;
  if (!o.is_number() || (!matrix && !vector)) return 0;
  const std::string format = o.text("format");
  const bool plain = format.empty() || format == "dense";
  switch (kind) {
    case Kind::band:
      return matrix && format == "band" ? 1 : 0;
    case Kind::sparse:
      return 0;
    case Kind::bits: {
      if (!plain && format != "bits") return 0;
      const bool bytes = o.bytes == 1 && o.number != Number::floating;
      const int likely = is_packed(o) || format == "bits" || bytes ? 1
                         : o.number != Number::floating            ? 2
                                                                   : 3;
      return likely + (matrix || !wanted.is_matrix() ? 0 : 3);
    }
    case Kind::dense:
      if (!plain || is_packed(o)) return 0;
      return (o.number == Number::floating ? 1 : 2) + (matrix || !wanted.is_matrix() ? 0 : 2);
  }
  return 0;
}

/// Whether its size is one that is wanted, as far as that is known.
bool has_size(const Object& o, const Wanted& wanted, const FormOptions& said) {
  if (!wanted.besides.empty() && o.path == wanted.besides) return false;
  std::vector<Index> size = o.group ? sparse_shape(o, said) : o.dims;
  if (size.size() != 2 && wanted.square) return false;
  if (wanted.square && !o.group && is_packed(o)) {
    if (o.whole("columns") < 0) return true;
    size[size[0] == o.whole("columns") ? 1 : 0] = o.whole("columns");
  }
  if (wanted.square && o.text("format") != "band" && size[0] != size[1]) return false;
  return wanted.rows < 0 || std::find(size.begin(), size.end(), wanted.rows) != size.end();
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::dense:
      return "dense matrix";
    case Kind::band:
      return "band matrix";
    case Kind::sparse:
      return "sparse matrix";
    case Kind::bits:
      return "bit matrix";
  }
  return "";
}

/// The paths, as far as a line has room.
std::string list_of(const std::vector<const Object*>& objects) {
  std::string list;
  for (const Object* o : objects) {
    if (list.size() > 300) return list + ", ...";
    list += (list.empty() ? "" : ", ") + o->path;
  }
  return list;
}

std::vector<const Object*> pointers_to(const std::vector<Object>& objects) {
  std::vector<const Object*> result;
  result.reserve(objects.size());
  for (const Object& o : objects) result.push_back(&o);
  return result;
}

/// Of several that fit, the only one with the name that others give it too.
const Object* preferred(const std::vector<const Object*>& candidates, Role role) {
  const std::vector<std::string> names = role == Role::matrix ? std::vector<std::string>{"/A"}
                                         : role == Role::start
                                             ? std::vector<std::string>{"/x"}
                                             : std::vector<std::string>{"/b", "/B", "/x"};
  for (const std::string& name : names) {
    const Object* found = nullptr;
    int count = 0;
    for (const Object* o : candidates)
      if (o->path.ends_with(name)) {
        found = o;
        ++count;
      }
    if (count == 1) return found;
  }
  return nullptr;
}

/// The only best-fitting object of the file.
Object only_one(hid_t file, const Location& location, const std::string& name, const Wanted& wanted,
                const std::function<int(const Object&)>& fitness) {
  std::vector<Object> all;
  Object root;
  if (describe_at(file, "/", location.file, root, true) && is_sparse(root)) all.push_back(root);
  collect(file, "/", location, 0, all);
  std::optional<Error> contradiction;
  for (Object& o : all) try {
      say(o, location.form, where(location, o.path));
    } catch (const Error& e) {  // another one may fit
      if (!contradiction) contradiction = e;
      o.number = Number::other;
    }
  const auto best_of = [&](bool sized) {
    int best = 0;
    std::vector<const Object*> found;
    for (const Object& o : all) {
      const int f = sized && !has_size(o, wanted, location.form) ? 0 : fitness(o);
      if (f == 0 || (best > 0 && f > best)) continue;
      if (f < best || best == 0) found.clear();
      best = f;
      found.push_back(&o);
    }
    return found;
  };
  auto candidates = best_of(true);
  if (candidates.empty()) candidates = best_of(false);
  if (candidates.empty() && contradiction) throw *contradiction;
  if (candidates.empty()) {
    const std::string list = list_of(pointers_to(all));
    throw Error(Exit::input, fmt::format("no {} in the file; {}; {}", name, location.file,
                                         list.empty() ? "it holds no dataset of numbers"
                                                      : "it holds " + list +
                                                            ": name one as FILE:/path, or say "
                                                            "with --format what it is"));
  }
  if (const Object* one =
          candidates.size() == 1 ? candidates[0] : preferred(candidates, wanted.role)) {
    require_attributes(file, *one, where(location, one->path));
    return *one;
  }
  throw Error(Exit::input, fmt::format("{} candidates for a {}: {}; {}; name one, as {}:{}",
                                       candidates.size(), name, list_of(candidates), location.file,
                                       location.file, candidates[0]->path));
}

void check_file(const std::string& name) {
  struct stat status {};
  if (stat(name.c_str(), &status) != 0) {
    const std::string reason = std::strerror(errno);
    const auto colon = name.rfind(':');
    const bool path = colon != std::string::npos && colon > 0 &&
                      stat(name.substr(0, colon).c_str(), &status) == 0;
    throw Error(Exit::input,
                fmt::format("cannot open the file: {}; {}; {}", reason, name,
                            path ? fmt::format("did you mean {}:/{}", name.substr(0, colon),
                                               name.substr(colon + 1))
                                 : "check its name"));
  }
  if (!S_ISREG(status.st_mode))
    throw Error(Exit::input, "not a regular file; " + name + "; name an HDF5 file");
  if (access(name.c_str(), R_OK) != 0)
    throw Error(Exit::input, fmt::format("cannot read the file: {}; {}; check its permissions",
                                         std::strerror(errno), name));
}

/// Opens the file serially on this rank.
Handle open_serial(const std::string& name) {
  hdf5_ready();
  check_file(name);
  if (H5Fis_hdf5(name.c_str()) <= 0)
    throw Error(Exit::input, "not an HDF5 file, or a damaged one; " + name +
                                 "; convert it with 'terrace convert' or write it again");
  Handle file = open_alone(name);
  hdf5_check(file, "the file is damaged or truncated", name);
  return file;
}

/// Rank 0 looks with `look(file)`; every rank gets the object or throws its error.
Object seen_by_all(const Control& control, const Location& location,
                   const std::function<Object(hid_t)>& look) {
  std::string told;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    told = look_safely(location.file, [&] {
      const Handle file = open_serial(location.file);
      Writer writer;
      write_object(writer, look(file));
      return writer.bytes;
    });
  });
  told = control.broadcast(told, 0);
  Reader reader{told};
  return read_object(reader);
}

Object object_at(hid_t file, const Location& location) {
  Object object;
  const std::string path = location.path.empty() ? "/" : location.path;
  if (!describe_at(file, path, where(location, path), object, true))
    throw Error(Exit::input,
                fmt::format("no such dataset; {}; {}", where(location, path), [&]() -> std::string {
                  std::vector<Object> all;
                  collect(file, "/", location, 0, all);
                  std::string list;
                  for (const Object& o : all)
                    if (list.size() < 300) list += (list.empty() ? "" : ", ") + o.path;
                  return list.empty() ? "the file holds no dataset" : "the file holds " + list;
                }()));
  require_attributes(file, object, where(location, path));
  return object;
}

}  // namespace

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

namespace {
/// The object that the location names, with what the user says of it.
Object said_object(hid_t file, const Location& location) {
  Object object = object_at(file, location);
  say(object, location.form, where(location, object.path));
  return object;
}
}  // namespace

Object find_object(const Control& control, const Location& location, Kind kind,
                   const Wanted& wanted) {
  return seen_by_all(control, location, [&](hid_t file) {
    if (!location.path.empty()) return said_object(file, location);
    return only_one(file, location, wanted.is_matrix() ? name_of(kind) : "vector or matrix", wanted,
                    [&](const Object& o) { return fit(o, kind, wanted, location.form); });
  });
}

Object find_any(const Control& control, const Location& location, Kind& kind, bool real,
                const Wanted& wanted) {
  // A matrix of any kind; vectors only where nothing else stands.
  const Kind kinds[] = {Kind::sparse, Kind::band, Kind::bits, Kind::dense};
  const auto best = [&](const Object& o, Kind& k) {
    int best_fit = 0;
    const bool stated = is_packed(o) || o.text("format") == "bits";
    const bool bytes = o.bytes == 1 && o.number != Number::floating;
    for (const Kind candidate : kinds) {
      if (candidate == Kind::bits && !stated && (real || !bytes)) continue;
      if (const int f = fit(o, candidate, wanted, location.form);
          f > 0 && (best_fit == 0 || f < best_fit)) {
        best_fit = f;
        k = candidate;
      }
    }
    return best_fit;
  };
  Object object = seen_by_all(control, location, [&](hid_t file) {
    Kind ignored{};
    if (!location.path.empty()) return said_object(file, location);
    return only_one(file, location, "matrix", wanted,
                    [&](const Object& o) { return best(o, ignored); });
  });
  if (best(object, kind) == 0)
    fail_together(Exit::input, "neither a dense, band, sparse nor bit matrix; " +
                                   where(location, object.path) +
                                   "; see the file forms in io/README.md");
  return object;
}

Object describe(const Control& control, const Location& location) {
  return seen_by_all(control, location, [&](hid_t file) { return object_at(file, location); });
}

bool exists(const Control& control, const Location& location) {
  return seen_by_all(
             control, location,
             [&](hid_t file) {
               Object object;
               object.group =
                   Handle(H5Oopen(file, location.path.c_str(), H5P_DEFAULT), &H5Oclose).valid();
               return object;
             })
      .group;
}

Kind kind_of(const Control& control, const Location& location, bool real, const Wanted& wanted) {
  Kind kind{};
  find_any(control, location, kind, real, wanted);
  return kind;
}

namespace {
Attributes scalars(const AnyAttributes& all) {
  Attributes result;
  for (const auto& [name, value] : all)
    std::visit(
        [&, n = name](const auto& v) {
          if constexpr (std::is_constructible_v<Attribute, decltype(v)>) result[n] = v;
        },
        value);
  return result;
}
}  // namespace

Attributes read_attributes(const Control& control, const Location& location) {
  return scalars(describe(control, location).attributes);
}

bool is_group(const Control& control, const Location& location) {
  return describe(control, location).group;
}

Attributes read_run_attributes(const Control& control, const Location& location) {
  return read_attributes(
      control, {location.file, join(location.path.empty() ? "/" : location.path, "terrace")});
}

std::vector<std::string> members(const Control& control, const Location& location) {
  const Object list = seen_by_all(control, location, [&](hid_t file) {
    Object result;
    const std::string path = location.path.empty() ? "/" : location.path;
    const Handle group(hdf5_check(H5Gopen2(file, path.c_str(), H5P_DEFAULT), "no such group",
                                  where(location, path)),
                       &H5Gclose);
    for (const std::string& name : link_names(group)) result.children[name];
    return result;
  });
  std::vector<std::string> names;
  for (const auto& [name, child] : list.children) names.push_back(name);
  return names;
}

}  // namespace terrace::io
