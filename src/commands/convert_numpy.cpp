// NumPy's files: .npy read in slices by all ranks, .npz unpacked by the first.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/zip.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

namespace {

/// As a text number that is not finite is refused.
void refuse_not_finite(const double* rows, Index count, Index columns, Index first,
                       const std::string& from) {
  const double* const end = rows + count * columns;
  const double* const wrong =
      std::find_if(rows, end, [](double value) { return !std::isfinite(value); });
  if (wrong == end) return;
  const Index at = wrong - rows;
  throw Error(
      Exit::input,
      fmt::format("{} in the input; {} row {}, column {}; only finite numbers are accepted",
                  std::isnan(*wrong) ? "NaN" : "Inf", from, first + at / columns, at % columns));
}

/// Elements [from, from + count) of an array in the file's order.
using Elements = std::function<void(Index from, Index count, double* out)>;

/// Rows of an array of this rank's slice; column-major ones are read column by column.
std::function<void(Index, Index, double*)> rows_of(const io::NpyHeader& h, const Range& slice,
                                                   const std::string& from,
                                                   const Elements& elements) {
  const bool vector = h.shape.size() == 1;
  const Index rows = h.shape[0], columns = vector ? 1 : h.shape[1];
  return [=](Index position, Index count, double* out) {
    const Index first = slice.first + position;
    if (!h.fortran || vector) {
      elements(first * columns, count * columns, out);
    } else {
      std::vector<double> column(static_cast<std::size_t>(count));
      for (Index j = 0; j < columns; ++j) {
        elements(j * rows + first, count, column.data());
        for (Index i = 0; i < count; ++i) out[i * columns + j] = column[std::size_t(i)];
      }
    }
    refuse_not_finite(out, count, columns, first, from);
  };
}

bool holds_bits(const io::NpyHeader& h) { return h.bytes == 1 && h.kind != 'i' && h.kind != 'f'; }

}  // namespace

Writing read_numpy(Run& run, const ConvertFrom& from) {
  const Control& control = run.control;
  const io::NpyHeader h = collectively(control, [&] { return io::read_npy_header(from.file); });
  const bool vector = h.shape.size() == 1;
  const Index rows = h.shape[0], columns = vector ? 1 : h.shape[1];
  run.report["n"] = rows;
  run.report["columns"] = columns;
  const Range slice = own_slice(control, rows);
  const Elements elements = [=](Index first, Index count, double* out) {
    io::read_npy(from.file, h, first, count, out);
  };
  return [=, &run](io::Output& output) {
    write_numbers(run, output, vector ? "b" : "A", from.file, rows, columns, vector,
                  from.bits || holds_bits(h), slice, rows_of(h, slice, from.file, elements));
  };
}

namespace {

/// An archive of arrays by name, unpacked when they are asked for.
class Arrays {
 public:
  explicit Arrays(std::string path) : path_(std::move(path)) {
    for (const io::ZipMember& m : io::zip_members(path_))
      if (m.name.ends_with(".npy")) members_[m.name.substr(0, m.name.size() - 4)] = m;
    if (members_.empty())
      throw Error(Exit::input, "no arrays in the archive; " + path_ + "; save it with numpy.savez");
  }
  [[nodiscard]] bool has(const std::string& name) const { return members_.count(name) > 0; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, member] : members_) result.push_back(name);
    return result;
  }
  [[nodiscard]] std::string where(const std::string& name) const {
    return path_ + " member " + name;
  }
  [[nodiscard]] std::vector<char> raw(const std::string& name) const {
    const auto found = members_.find(name);
    if (found == members_.end())
      throw Error(Exit::input, "an array is missing: " + name + "; " + path_ +
                                   "; save it with scipy.sparse.save_npz");
    return io::zip_read(path_, found->second);
  }
  struct Array {
    io::NpyHeader header;
    std::vector<char> data;  ///< of the whole member
    [[nodiscard]] Index size() const {
      Index size = 1;
      for (const Index d : header.shape) size *= d;
      return size;
    }
    void numbers(Index first, Index count, double* out) const {
      io::npy_numbers(header, data.data() + header.offset + first * header.bytes, count, out);
    }
  };
  [[nodiscard]] Array array(const std::string& name) const {
    Array result;
    result.data = raw(name);
    result.header = io::npy_header_of({result.data.data(), result.data.size()},
                                      Index(result.data.size()), where(name));
    return result;
  }
  /// Whole numbers up to 2^53 of a vector.
  [[nodiscard]] std::vector<Index> whole(const std::string& name) const {
    const Array a = array(name);
    if (a.header.shape.size() != 1 || a.header.kind == 'f')
      throw Error(Exit::input, "not a vector of integers; " + where(name) + "; save it again");
    std::vector<double> values(static_cast<std::size_t>(a.size()));
    a.numbers(0, a.size(), values.data());
    return {values.begin(), values.end()};
  }

 private:
  std::string path_;
  std::map<std::string, io::ZipMember> members_;
};

/// csr, csc or coo of the member `format`, a text of NumPy's; empty where there is none.
std::string sparse_format(const Arrays& arrays) {
  if (!arrays.has("format")) return {};
  std::string text;
  const std::vector<char> raw = arrays.raw("format");
  const std::size_t tail = raw.size() - std::min<std::size_t>(raw.size(), 12);
  for (std::size_t k = tail; k < raw.size(); ++k)
    if (raw[k] >= 'a' && raw[k] <= 'z') text += raw[k];
  return text;
}

struct Sparse {
  Index rows = 0, columns = 0;
  std::vector<io::Triplet> all;
};

Sparse sparse_entries(const Arrays& arrays, const std::string& file, const std::string& format) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Exit::input, what + "; " + file + "; save a csr, csc or coo matrix");
  };
  if (format != "csr" && format != "csc" && format != "coo")
    refuse("a sparse matrix of format " + in_quotes(format));
  const std::vector<Index> shape = arrays.whole("shape");
  if (shape.size() != 2 || shape[0] < 0 || shape[1] < 0) refuse("no shape of rows and columns");
  if (std::max(shape[0], shape[1]) > io::max_extent)
    refuse(fmt::format("{} x {} is more than any machine can hold", shape[0], shape[1]));
  Sparse e{shape[0], shape[1], {}};
  const Arrays::Array data = arrays.array("data");
  if (data.header.shape.size() != 1) refuse("data of more than one dimension");
  std::vector<double> values(static_cast<std::size_t>(data.size()));
  data.numbers(0, data.size(), values.data());
  std::vector<Index> row, column;
  if (format == "coo") {
    row = arrays.whole("row");
    column = arrays.whole("col");
  } else {
    column = arrays.whole("indices");
    const std::vector<Index> pointers = arrays.whole("indptr");
    const Index majors = format == "csr" ? e.rows : e.columns;
    if (Index(pointers.size()) != majors + 1 || pointers.front() != 0 ||
        pointers.back() != Index(values.size()) ||
        !std::is_sorted(pointers.begin(), pointers.end()))
      refuse("wrong pointers: indptr");
    row.resize(values.size());
    for (Index i = 0; i < majors; ++i)
      std::fill(row.begin() + pointers[std::size_t(i)], row.begin() + pointers[std::size_t(i) + 1],
                i);
    if (format == "csc") std::swap(row, column);
  }
  if (row.size() != values.size() || column.size() != values.size())
    refuse("indices and data differ in length");
  e.all.resize(values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    e.all[k] = {row[k], column[k], values[k]};
    if (row[k] < 0 || row[k] >= e.rows || column[k] < 0 || column[k] >= e.columns)
      refuse(fmt::format("entry ({}, {}) lies outside the matrix", row[k], column[k]));
    if (!std::isfinite(values[k]))
      throw Error(
          Exit::input,
          fmt::format("{} in the input; {} row {}, column {}; only finite numbers are accepted",
                      std::isnan(values[k]) ? "NaN" : "Inf", file, row[k], column[k]));
  }
  return e;
}

/// Each array a dataset of its name; a single one A, or b.
void arrays_to_hdf5(Run& run, const ConvertFrom& from, io::Output& output, const Arrays* arrays) {
  const Control& control = run.control;
  std::string list;
  if (control.rank() == 0)
    for (const std::string& name : arrays->names()) list += name + "\n";
  list = control.broadcast(list, 0);
  const bool single = std::count(list.begin(), list.end(), '\n') == 1;
  for (std::size_t at = 0; at < list.size();) {
    const std::string name = list.substr(at, list.find('\n', at) - at);
    at += name.size() + 1;
    Arrays::Array a;
    Index facts[4] = {};  // dimensions, rows, columns, bits
    collectively(control, [&] {
      if (control.rank() != 0) return;
      a = arrays->array(name);
      const io::NpyHeader& h = a.header;
      if (name.find('/') != std::string::npos || name.empty())
        throw Error(Exit::input, "the name of an array cannot be a dataset name; " +
                                     arrays->where(name) + "; rename it");
      facts[0] = Index(h.shape.size());
      facts[1] = h.shape[0];
      facts[2] = h.shape.size() > 1 ? h.shape[1] : 1;
      facts[3] = Index(holds_bits(h));
    });
    control.broadcast(facts, sizeof facts, 0);
    const bool vector = facts[0] == 1;
    const auto rows = streamed(control, facts[1]);
    const Range slice = rows.empty() ? Range{facts[1], 0} : rows[0];
    if (single) {
      run.report["n"] = facts[1];
      run.report["columns"] = facts[2];
    }
    if (control.rank() != 0) a.header.shape = {0};
    const Elements elements = [&](Index first, Index count, double* out) {
      a.numbers(first, count, out);
    };
    write_numbers(run, output, single ? (vector ? "b" : "A") : name, from.file, facts[1], facts[2],
                  vector, from.bits || facts[3] != 0, slice,
                  rows_of(a.header, slice, from.file, elements));
  }
}

}  // namespace

Writing read_npz(Run& run, const ConvertFrom& from) {
  const Control& control = run.control;
  std::shared_ptr<Arrays> arrays;
  Sparse e;
  Index sparse = 0;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    arrays = std::make_shared<Arrays>(from.file);
    const std::string format = sparse_format(*arrays);
    sparse = Index(!format.empty());
    if (sparse != 0) e = sparse_entries(*arrays, from.file, format);
  });
  if (share(control, sparse) != 0) return writing_of_first(run, from, e.rows, e.columns, e.all);
  return [=, &run](io::Output& output) { arrays_to_hdf5(run, from, output, arrays.get()); };
}

}  // namespace terrace
