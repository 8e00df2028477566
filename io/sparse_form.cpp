#include "io/sparse_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/recognised.hpp"

namespace terrace::io {

namespace {

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The Binsparse descriptor, JSON in the attribute `binsparse`:
/// https://graphblas.org/binsparse-specification/
struct Binsparse {
  bool there = false;
  std::string format, structure, values;
  std::vector<Index> shape;
};

Binsparse binsparse_of(const AnyAttributes& attributes) {
  Binsparse result;
  const auto found = attributes.find("binsparse");
  const auto* text = found == attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (text == nullptr) return result;
  result.there = true;
  nlohmann::json all = nlohmann::json::parse(*text, nullptr, false);
  if (all.is_object() && all.contains("binsparse")) all = nlohmann::json(all["binsparse"]);
  if (!all.is_object()) return result;
  const auto word = [](const nlohmann::json& from, const char* key) {
    return from.is_object() && from.contains(key) && from[key].is_string()
               ? from[key].get<std::string>()
               : std::string();
  };
  result.format = word(all, "format");
  result.structure = word(all, "structure");
  if (all.contains("data_types")) result.values = word(all["data_types"], "values");
  if (all.contains("fill") && all["fill"] == true) result.format = "with a fill value";
  if (all.contains("shape") && all["shape"].is_array())
    for (const auto& extent : all["shape"])
      result.shape.push_back(extent.is_number_integer() ? extent.get<Index>() : -1);
  return result;
}

const std::vector<Index>* numbers(const Object& object, const std::string& name) {
  const auto found = object.attributes.find(name);
  return found == object.attributes.end() ? nullptr
                                          : std::get_if<std::vector<Index>>(&found->second);
}

bool is_matlab(const Object& object) {
  return object.has("MATLAB_sparse") || (object.children.count("indptr") > 0 &&
                                         object.children.at("indptr").path.ends_with("/jc"));
}

/// "csr" of csr_matrix, CSR and csr_array.
std::string layout_word(const std::string& text) {
  std::string word = lower_case(text);
  for (const char* layout : {"csr", "csc", "coo"})
    if (word == layout || word == std::string(layout) + "_matrix" ||
        word == std::string(layout) + "_array")
      return layout;
  return word;
}

using Refuse = std::function<void(const std::string& what, const std::string& todo)>;

Layout layout_of(const Object& object, const FormOptions& said, const Refuse& refuse) {
  const bool entries = object.children.count("row") > 0 && object.children.count("indptr") == 0;
  std::string layout = stated_layout(object);
  const bool stated = !layout.empty();
  if (stated && layout != "csr" && layout != "csc" && layout != "coo")
    refuse("wrong kind: the sparse format is " + in_quotes(layout),
           "store a CSR, CSC or COO matrix");
  if (!said.format.empty() && said.format != "bits") {
    if (stated && said.format != layout)
      refuse(fmt::format("the file says {}, but --format says {}", layout, said.format),
             "correct one of the two");
    layout = said.format;
  }
  if (layout.empty()) {
    layout = entries ? "coo" : "csr";
    const auto shape = sparse_shape(object, said);
    if (!entries && shape.size() == 2 && shape[0] != shape[1] &&
        object.children.at("indptr").dims == std::vector<Index>{shape[1] + 1}) {
      layout = "csc";
      recognise("compressed columns (CSC) recognised: indptr has columns + 1 entries; " +
                object.path + "; set encoding-type = \"csc_matrix\", or add --format csc");
    }
  }
  if ((layout == "coo") != entries)
    refuse(fmt::format("wrong kind: {} has other datasets", layout),
           "CSR and CSC have data, indices, indptr; COO has data, row, col");
  return layout == "coo" ? Layout::coo : layout == "csc" ? Layout::csc : Layout::csr;
}

Triangle triangle_of(const Object& object, const FormOptions& said, const Refuse& refuse) {
  std::string text = object.text("symmetry");
  if (text.empty()) text = object.text("uplo");
  if (const Binsparse b = binsparse_of(object.attributes); !b.structure.empty()) {
    if (b.structure.rfind("symmetric_", 0) != 0)
      refuse("wrong kind: the structure is " + in_quotes(b.structure),
             "store all entries, or one triangle of a symmetric matrix");
    text = b.structure.substr(10);
  }
  if (text == "general" || text == "full" || text == "symmetric") text = "none";
  if (!text.empty() && text != "none" && text != "lower" && text != "upper")
    refuse("wrong attribute: symmetry is " + in_quotes(text), "use lower or upper");
  if (!said.uplo.empty() && !text.empty() && said.uplo != text)
    refuse(fmt::format("the file says {} for its triangle, but --uplo says {}",
                       text == "none" ? "general" : text, said.uplo),
           "correct one of the two");
  const std::string& uplo = text.empty() ? said.uplo : text;
  return uplo == "lower" ? Triangle::lower : uplo == "upper" ? Triangle::upper : Triangle::none;
}

/// Shapes and types of the datasets.
void check_children(const Object& object, const SparseForm& form, const Refuse& refuse) {
  for (const auto& [name, child] : object.children) {
    if (name == "shape") continue;
    const std::string called = child.path.substr(child.path.rfind('/') + 1);
    const bool whole =
        child.number == Number::signed_integer || child.number == Number::unsigned_integer;
    if (child.dims.size() != 1) refuse("wrong shape: " + called + " is not 1-D", "store a vector");
    if (!child.is_number() || (name != "data" && !whole))
      refuse("wrong type of " + called, "indices and pointers are integers, data real numbers");
  }
  const auto size = [&](const char* name) { return object.children.at(name).dims[0]; };
  const bool coo = form.layout == Layout::coo;
  for (const char* name : {"indices", "row", "col"})
    if (object.children.count(name) > 0 && (std::string(name) == "indices") != coo &&
        size(name) != form.stored)
      refuse(fmt::format("wrong shape: {} {}, {} data", size(name), coo ? name : "indices",
                         form.stored),
             "one index per value");
  if (!coo && size("indptr") != form.majors() + 1)
    refuse(fmt::format("wrong shape: {} {} pointers for {} {}", size("indptr"),
                       form.layout == Layout::csc ? "column" : "row", form.majors(),
                       form.layout == Layout::csc ? "columns" : "rows"),
           form.layout == Layout::csc ? "indptr has columns + 1 entries"
                                      : "indptr has rows + 1 entries");
}

}  // namespace

std::map<std::string, std::string> sparse_names(const AnyAttributes& attributes,
                                                const std::function<bool(const char*)>& has) {
  const Binsparse b = binsparse_of(attributes);
  std::map<std::string, std::string> names;
  const auto take = [&](const char* ours, const char* theirs) {
    if (has(theirs)) names[ours] = theirs;
  };
  if (b.there) {
    const bool entries = b.format.rfind("COO", 0) == 0, by_columns = b.format == "COOC";
    take("data", "values");
    take(entries ? (by_columns ? "row" : "col") : "indices", "indices_1");
    if (entries)
      take(by_columns ? "col" : "row", "indices_0");
    else
      take("indptr", "pointers_to_1");
    return names;
  }
  for (const char* name : {"data", "indices", "indptr", "row", "col", "shape"}) take(name, name);
  if (names.count("indices") == 0 && has("ir") && has("jc")) {
    names["indices"] = "ir";
    names["indptr"] = "jc";
  }
  if (names.count("indptr") > 0) {
    names.erase("row");
    names.erase("col");
  }
  return names;
}

bool is_sparse(const Object& object) {
  const auto has = [&](const char* name) { return object.children.count(name) > 0; };
  return object.group && has("data") &&
         ((has("indices") && has("indptr")) || (has("row") && has("col")));
}

std::string stated_layout(const Object& object) {
  if (const Binsparse b = binsparse_of(object.attributes); b.there) {
    if (b.format.empty()) return "a Binsparse descriptor without a known format";
    return b.format.rfind("COO", 0) == 0 ? "coo" : lower_case(b.format);
  }
  for (const char* name : {"encoding-type", "h5sparse_format", "format"})
    if (const std::string text = object.text(name); !text.empty() && text != "bits")
      return layout_word(text);
  return is_matlab(object) ? "csc" : "";
}

std::vector<Index> sparse_shape(const Object& object, const FormOptions& said) {
  for (const char* name : {"shape", "h5sparse_shape"})
    if (const auto* shape = numbers(object, name)) return *shape;
  if (const auto child = object.children.find("shape");
      child != object.children.end() && !child->second.values.empty())
    return child->second.values;
  if (const Binsparse b = binsparse_of(object.attributes); b.there) return b.shape;
  const Index rows = object.whole("MATLAB_sparse");
  const auto pointers = object.children.find("indptr");
  if (rows >= 0 && pointers != object.children.end() && pointers->second.dims.size() == 1)
    return {rows, pointers->second.dims[0] - 1};
  return said.shape;
}

SparseForm sparse_form(const Object& object, const FormOptions& said, const std::string& where) {
  const Refuse refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where + "; " + todo);
  };
  if (!object.group)
    refuse("a dataset, not a group of a sparse matrix",
           "name the group of data, indices and indptr");
  SparseForm form;
  if (!is_sparse(object))
    refuse("no CSR matrix, and no CSC or COO matrix",
           "CSR and CSC groups hold data, indices and indptr, a COO group data, row and col");
  form.layout = layout_of(object, said, refuse);
  form.triangle = triangle_of(object, said, refuse);
  const auto shape = sparse_shape(object, said);
  if (shape.empty() && !object.has("shape"))
    refuse("attribute shape is missing",
           "store shape = (rows, columns), or add --shape ROWSxCOLUMNS");
  if (shape.size() != 2 || shape[0] < 0 || shape[1] < 0)
    refuse("wrong attribute: shape", "store shape = (rows, columns)");
  if (!said.shape.empty() && said.shape != shape)
    refuse(fmt::format("the file says {} x {}, but --shape says {}x{}", shape[0], shape[1],
                       said.shape[0], said.shape[1]),
           "correct one of the two");
  form.rows = shape[0];
  form.columns = shape[1];
  if (form.triangle != Triangle::none && form.rows != form.columns)
    refuse(fmt::format("one triangle of a matrix of {} x {}", form.rows, form.columns),
           "only a square matrix is symmetric");
  const Binsparse b = binsparse_of(object.attributes);
  if (b.values.rfind("complex", 0) == 0) refuse("complex values", "store real numbers");
  form.same = b.values.rfind("iso", 0) == 0;
  const auto size = [&](const char* name) {
    const auto& dims = object.children.at(name).dims;
    return dims.empty() ? Index(0) : dims[0];
  };
  form.stored = form.same ? size(form.layout == Layout::coo ? "row" : "indices") : size("data");
  if (form.same && size("data") < 1 && form.stored > 0)
    refuse("wrong shape: no value", "values holds one number");
  check_children(object, form, refuse);
  if (form.layout == Layout::coo) return form;
  const std::vector<Index>& ends = object.children.at("indptr").values;
  if (ends.size() == 2 && ends[0] == 1 && ends[1] == form.stored + 1) {
    form.base = 1;
    recognise("pointers and indices that count from one recognised; " + where +
              "; subtract one from all of them, so that the file says what others expect");
  }
  return form;
}

}  // namespace terrace::io
