#include "io/choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "io/object.hpp"
#include "io/sparse_form.hpp"

namespace terrace::io {

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

namespace {

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
  const std::vector<std::string> names = role == Role::matrix  ? std::vector<std::string>{"/A"}
                                         : role == Role::start ? std::vector<std::string>{"/x"}
                                         : role == Role::near_null_space
                                             ? std::vector<std::string>{"/V"}
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

}  // namespace

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

}  // namespace terrace::io
