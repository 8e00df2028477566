#include "io/inspect.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "distrib/agree.hpp"
#include "io/archive.hpp"
#include "io/guard.hpp"
#include "io/output.hpp"

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

/// Whether a number's bits lie within its bytes. HDF5 converts damaged types as well, out of
/// bounds.
bool is_sound(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  if (kind != H5T_FLOAT && kind != H5T_INTEGER && kind != H5T_ENUM) return true;
  const std::size_t bits = 8 * H5Tget_size(type), precision = H5Tget_precision(type);
  const int offset = H5Tget_offset(type);
  if (precision == 0 || precision > bits || offset < 0 || std::size_t(offset) > bits - precision)
    return false;
  if (kind != H5T_FLOAT) return true;
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
         sign < bits && exponent_bits > 0 && exponent_bits < bits &&
         exponent <= bits - exponent_bits && mantissa_bits > 0 && mantissa_bits < bits &&
         mantissa <= bits - mantissa_bits;
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
  if (H5Tis_variable_str(type) > 0) {
    Handle memory(H5Tcopy(H5T_C_S1), &H5Tclose);
    H5Tset_size(memory, H5T_VARIABLE);
    H5Tset_cset(memory, H5Tget_cset(type));
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
    for (const char* name : {"data", "indices", "indptr"})
      if (H5Lexists(id, name, H5P_DEFAULT) > 0) {
        Object child;
        if (describe_at(file, join(path, name), where, child, false) && !child.group)
          object.children[name] = std::move(child);
      }
  }
  return true;
}

bool is_csr(const Object& object) { return object.group && object.children.size() == 3; }

/// All datasets and CSR groups below `path`, outside groups named terrace; hard links only.
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
    if (!object.group || is_csr(object))
      found.push_back(std::move(object));
    else if (name != "terrace")
      collect(file, at, location, depth + 1, found);
  }
}

bool is_packed(const Object& o) {
  return (o.number == Number::unsigned_integer && o.bytes == 8 &&
          (o.has("columns") || o.text("format") == "bits")) ||
         (o.number == Number::unsigned_integer && o.bytes == 1 && o.has("bitorder"));
}

/// How well the object fits as `wanted`: 0 not at all, else smaller is better.
int fit(const Object& o, Kind wanted, bool vectors) {
  if (o.group) return wanted == Kind::csr && is_csr(o) ? 1 : 0;
  const bool matrix = o.dims.size() == 2, vector = o.dims.size() == 1;
  if (!o.is_number() || (!matrix && !vector)) return 0;
  const std::string format = o.text("format");
  switch (wanted) {
    case Kind::band:
      return matrix && format == "band" ? 1 : 0;
    case Kind::csr:
      return 0;
    case Kind::bits:
      if (format == "bits" || is_packed(o)) return matrix || vectors ? 1 : 2;
      if (o.bytes != 1 || o.number == Number::floating) return 0;
      return matrix || vectors ? 1 : 2;
    case Kind::dense:
      if ((!format.empty() && format != "dense") || is_packed(o)) return 0;
      return (o.number == Number::floating ? 1 : 2) + (matrix || vectors ? 0 : 2);
  }
  return 0;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::dense:
      return "dense matrix";
    case Kind::band:
      return "band matrix";
    case Kind::csr:
      return "CSR matrix";
    case Kind::bits:
      return "bit matrix";
  }
  return "";
}

/// The only best-fitting object of the file.
Object only_one(hid_t file, const Location& location, const std::string& wanted,
                const std::function<int(const Object&)>& fitness) {
  std::vector<Object> all;
  collect(file, "/", location, 0, all);
  int best = 0;
  for (const Object& o : all)
    if (const int f = fitness(o); f > 0 && (best == 0 || f < best)) best = f;
  std::vector<const Object*> candidates;
  for (const Object& o : all)
    if (best > 0 && fitness(o) == best) candidates.push_back(&o);
  if (candidates.empty())
    throw Error(Exit::input, fmt::format("no {} in the file; {}; name the dataset as FILE:/path",
                                         wanted, location.file));
  if (candidates.size() > 1) {
    std::string list;
    for (const Object* o : candidates) {
      if (list.size() > 300) {
        list += ", ...";
        break;
      }
      list += (list.empty() ? "" : ", ") + o->path;
    }
    throw Error(Exit::input,
                fmt::format("{} candidates for a {}: {}; {}; name one, as {}:{}", candidates.size(),
                            wanted, list, location.file, location.file, candidates[0]->path));
  }
  return *candidates[0];
}

void check_file(const std::string& name) {
  struct stat status {};
  if (stat(name.c_str(), &status) != 0)
    throw Error(Exit::input, fmt::format("cannot open the file: {}; {}; check its name",
                                         std::strerror(errno), name));
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
  return object;
}

}  // namespace

AnyAttributes read_all_attributes(hid_t object, const std::string& skip) {
  AnyAttributes result;
  const int count = H5Aget_num_attrs(object);
  for (int k = 0; k < count && k < 10000; ++k) {
    Handle attribute(H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, hsize_t(k),
                                    H5P_DEFAULT, H5P_DEFAULT),
                     &H5Aclose);
    if (!attribute.valid()) continue;
    const ssize_t length = H5Aget_name(attribute, 0, nullptr);
    if (length <= 0) continue;
    std::string name(std::size_t(length), '\0');
    H5Aget_name(attribute, std::size_t(length) + 1, name.data());
    AnyAttribute value;
    if (name != skip && read_attribute(attribute, value)) result[name] = std::move(value);
  }
  return result;
}

Object find_object(const Control& control, const Location& location, Kind wanted, bool vectors) {
  return seen_by_all(control, location, [&](hid_t file) {
    if (!location.path.empty()) return object_at(file, location);
    return only_one(file, location, vectors ? "vector or matrix" : name_of(wanted),
                    [&](const Object& o) { return fit(o, wanted, vectors); });
  });
}

Object find_any(const Control& control, const Location& location, Kind& kind, bool real) {
  // A matrix of any kind; vectors only where nothing else stands.
  const Kind kinds[] = {Kind::csr, Kind::band, Kind::bits, Kind::dense};
  const auto best = [&](const Object& o, Kind& k) {
    int best_fit = 0;
    for (const Kind candidate : kinds) {
      if (real && candidate == Kind::bits && !is_packed(o) && o.text("format") != "bits") continue;
      if (const int f = fit(o, candidate, false); f > 0 && (best_fit == 0 || f < best_fit)) {
        best_fit = f;
        k = candidate;
      }
    }
    return best_fit;
  };
  Object object = seen_by_all(control, location, [&](hid_t file) {
    Kind ignored{};
    if (!location.path.empty()) return object_at(file, location);
    return only_one(file, location, "matrix", [&](const Object& o) { return best(o, ignored); });
  });
  if (best(object, kind) == 0)
    fail_together(Exit::input, "neither a dense, band, CSR nor bit matrix; " +
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

Kind kind_of(const Control& control, const Location& location, bool real) {
  Kind kind{};
  find_any(control, location, kind, real);
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
