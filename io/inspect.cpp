#include "io/inspect.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <functional>

#include "distrib/agree.hpp"
#include "io/archive.hpp"
#include "io/choose.hpp"
#include "io/files.hpp"
#include "io/guard.hpp"
#include "io/output.hpp"
#include "io/sparse_form.hpp"

namespace terrace::io {

namespace {

/// What a name that is no file may have meant: "f.h5:/A" for f.h5:A, f.h5::A and f.h5/A, ":/b" for :b; or empty.
std::string meant_by(const std::string& name) {
  if (name[0] == ':') return name.size() > 1 ? ":/" + name.substr(1) : "";
  for (std::size_t at = name.size(); at-- > 1;) {
    if (name[at] != ':' && name[at] != '/') continue;
    const std::string file = name.substr(0, name.find_last_not_of(":/", at) + 1);
    struct stat status {};
    if (stat(file.c_str(), &status) == 0)
      return S_ISREG(status.st_mode) ? file + ":/" + name.substr(at + 1) : "";
  }
  return {};
}

void check_file(const std::string& name) {
  if (access(name.c_str(), F_OK) != 0) {
    const std::string reason = std::strerror(errno), meant = meant_by(name);
    const bool plain = name.find_first_of("./:") == std::string::npos;
    if (!meant.empty() || plain)
      throw Error(
          Exit::input,
          fmt::format(
              "cannot open the file: {}; {}; {}", reason, name,
              plain ? fmt::format("check its name (a dataset of the same file is named :/{})", name)
                    : "did you mean " + meant));
  }
  require_regular_file(name, "name an HDF5 file");
  if (access(name.c_str(), R_OK) != 0)
    throw Error(Exit::input, fmt::format("cannot read the file: {}; {}; check its permissions",
                                         std::strerror(errno), name));
}

/// What to do with a file that is no HDF5.
std::string cure_of(const std::string& name) {
  const auto dot = name.rfind('.');
  const std::string end = dot == std::string::npos ? "" : name.substr(dot);
  for (const char* known : {".txt", ".dat", ".csv", ".mtx", ".sms", ".alist", ".npy", ".npz"})
    if (end == known)
      return fmt::format("convert it first: terrace convert {} {}.h5", name, name.substr(0, dot));
  return end == ".mat" ? "save it with -v7.3, which is HDF5"
                       : "write it again, or convert it: see terrace convert --help";
}

/// Opens the file serially on this rank.
Handle open_serial(const std::string& name) {
  hdf5_ready();
  check_file(name);
  if (H5Fis_hdf5(name.c_str()) <= 0)
    throw Error(Exit::input, "not an HDF5 file, or a damaged one; " + name + "; " + cure_of(name));
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

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

[[noreturn]] void refuse_absent(hid_t file, const Location& location, const std::string& path) {
  H5L_info_t link;
  if (path != "/" && H5Lget_info(file, path.c_str(), &link, H5P_DEFAULT) >= 0 &&
      link.type != H5L_TYPE_HARD)
    throw Error(Exit::input, "a link to something that is not there; " + where(location, path) +
                                 "; see h5ls -v, and make what it leads to");
  std::vector<Object> all;
  collect(file, "/", location, 0, all);
  std::string list, near;
  const auto last = [](std::string_view name) { return name.substr(name.rfind('/') + 1); };
  for (const Object& o : all) {
    if (last(o.path) == last(path) || (near.empty() && same_letters(last(o.path), last(path))))
      near = o.path;
    if (list.size() < 150)
      list += (list.empty() ? "" : ", ") + o.path;
    else if (list.back() != '.')
      list += ", ...";
  }
  throw Error(Exit::input,
              fmt::format("no such dataset; {}; {}{}", where(location, path),
                          near.empty() ? "" : "did you mean " + near + "? ",
                          list.empty() ? "the file holds no dataset" : "the file holds " + list));
}

Object object_at(hid_t file, const Location& location) {
  Object object;
  const std::string path = location.path.empty() ? "/" : location.path;
  if (!describe_at(file, path, where(location, path), object, true))
    refuse_absent(file, location, path);
  require_attributes(file, object, where(location, path));
  return object;
}

}  // namespace

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
  if (!object.group && !object.is_number())
    fail_together(Exit::input, "wrong type: not real numbers (complex ones are not supported); " +
                                   where(location, object.path) +
                                   "; store float64, float32 or integers");
  if (best(object, kind) == 0)
    fail_together(Exit::input, "neither a dense, band, sparse nor bit matrix; " +
                                   where(location, object.path) +
                                   "; see the file forms in io/README.md");
  return object;
}

Object describe(const Control& control, const Location& location) {
  return seen_by_all(control, location, [&](hid_t file) { return object_at(file, location); });
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
  const auto look = [&](hid_t file) {
    Object object;
    object.group = Handle(H5Gopen2(file, location.path.c_str(), H5P_DEFAULT), &H5Gclose).valid();
    return object;
  };
  return seen_by_all(control, location, look).group;
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
