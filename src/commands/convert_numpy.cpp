// NumPy's files: .npy and stored arrays of .npz are read in slices by all ranks.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/npz.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_entries.hpp"

namespace terrace {

namespace {

std::string not_finite(double value, const std::string& from, Index row, Index column) {
  return fmt::format("{} in the input; {} row {}, column {}; only finite numbers are accepted",
                     std::isnan(value) ? "NaN" : "Inf", from, row, column);
}

/// As a text number that is not finite is refused.
void refuse_not_finite(const double* rows, Index count, Index columns, Index first,
                       const std::string& from) {
  const double* const end = rows + count * columns;
  const double* const wrong =
      std::find_if(rows, end, [](double value) { return !std::isfinite(value); });
  if (wrong == end) return;
  const Index at = wrong - rows;
  throw Error(Exit::input, not_finite(*wrong, from, first + at / columns, at % columns));
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

using Array = io::NpzFile::Array;

/// csr, csc or coo of the member `format`, a text of NumPy's; empty where there is none. Local.
std::string sparse_format(const io::NpzFile& file) {
  if (!file.has("format")) return {};
  std::string text;
  const auto raw = file.raw("format");
  const std::size_t tail = raw.size() - std::min<std::size_t>(raw.size(), 12);
  for (std::size_t k = tail; k < raw.size(); ++k)
    if (raw[k] >= 'a' && raw[k] <= 'z') text += raw[k];
  return text;
}

/// A sparse matrix of scipy.sparse.save_npz: each rank takes some of its entries.
class SparseArrays {
 public:
  SparseArrays(Run& run, const io::NpzFile& file, const std::string& path, std::string format)
      : run_(run), control_(run.control), file_(file), path_(path), format_(std::move(format)) {
    if (format_ != "csr" && format_ != "csc" && format_ != "coo")
      refuse("a sparse matrix of format " + in_quotes(format_));
    auto shape = file_.open({"shape"});
    require_whole(shape[0]);
    const auto sides = file_.take(shape[0], {0, std::min<Index>(shape[0].size(), 2)});
    if (shape[0].size() != 2 || !(sides[0] >= 0) || !(sides[1] >= 0))
      refuse("no shape of rows and columns");
    if (std::max(sides[0], sides[1]) > double(io::max_extent))
      refuse(fmt::format("{:.0f} x {:.0f} is more than any machine can hold", sides[0], sides[1]));
    rows_ = Index(sides[0]);
    columns_ = Index(sides[1]);
  }

  Entries read() {
    const bool pairs = format_ == "coo";
    run_.report["n"] = rows_;
    run_.report["columns"] = columns_;
    auto arrays =
        pairs ? file_.open({"data", "row", "col"}) : file_.open({"data", "indices", "indptr"});
    for (const Array& a : arrays)
      if (&a != arrays.data()) require_whole(a);
    if (arrays[0].header.shape.size() != 1) refuse("data of more than one dimension");
    const Index size = arrays[0].size();
    if (arrays[1].size() != size || (pairs && arrays[2].size() != size))
      refuse("indices and data differ in length");
    const Index each = size / control_.size();
    require_memory(control_, Entries::memory(control_, each) + 24 * each, 0);
    const Range mine = pairs ? own_slice(control_, size) : take_pointers(arrays[2], size);
    value_ = file_.take(arrays[0], mine);
    index_ = file_.take(arrays[1], mine);
    if (pairs) major_ = file_.take(arrays[2], mine);
    arrays.clear();
    return collect(mine.count);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail_together(Exit::input, what + "; " + path_ + "; save a csr, csc or coo matrix");
  }
  void require_whole(const Array& a) const {
    if (a.header.shape.size() != 1 || a.header.kind == 'f')
      fail_together(Exit::input,
                    "not a vector of integers; " + file_.where(a.name) + "; save it again");
  }

  /// Reads the pointers of this rank's rows, or columns; where their entries stand.
  Range take_pointers(const Array& indptr, Index size) {
    majors_ = own_slice(control_, format_ == "csr" ? rows_ : columns_);
    const Index all = format_ == "csr" ? rows_ : columns_;
    if (indptr.size() != all + 1) refuse("wrong pointers: indptr");
    pointers_ = file_.take(indptr, {majors_.first, majors_.count + 1});
    const bool last = majors_.end() == all;
    const bool good = (majors_.first > 0 || pointers_.front() == 0) &&
                      (!last || pointers_.back() == double(size)) && pointers_.front() >= 0 &&
                      pointers_.back() <= double(size) &&
                      std::is_sorted(pointers_.begin(), pointers_.end());
    if (control_.reduce(Index(good), Reduce::min) == 0) refuse("wrong pointers: indptr");
    return {Index(pointers_.front()), Index(pointers_.back() - pointers_.front())};
  }

  /// Entries in parts, one per thread's turn.
  Entries collect(Index count) {
    constexpr Index each = Index(1) << 16;
    const Index parts = ceil_div(count, each);
    Entries entries(control_, rows_, columns_, parts);
    std::vector<Wrong> wrong(static_cast<std::size_t>(parts));
    collectively(control_, [&] {
      parallel_for(parts, [&](Index k) {
        std::vector<io::Triplet> part;
        wrong[std::size_t(k)] = fill(k * each, std::min(count, (k + 1) * each), part);
        if (wrong[std::size_t(k)].what == Wrong::nothing) entries.put(k, part);
      });
      for (const Wrong& w : wrong)
        if (w.what != Wrong::nothing) throw_of(w);
    });
    return entries;
  }

  struct Wrong {
    enum What { nothing, outside, not_finite } what = nothing;
    Index row = 0, column = 0;
    double value = 0;
  };

  /// -1: none, of unsigned numbers.
  static Index place(double value) { return std::abs(value) < 0x1p53 ? Index(value) : -1; }

  /// Entries [from, to) of this rank; the first that is wrong.
  Wrong fill(Index from, Index to, std::vector<io::Triplet>& part) const {
    part.reserve(std::size_t(to - from));
    Index major = 0;  // of this rank's
    if (major_.empty())
      major =
          std::upper_bound(pointers_.begin(), pointers_.end(), pointers_.front() + double(from)) -
          pointers_.begin() - 1;
    for (Index k = from; k < to; ++k) {
      const auto at = std::size_t(k);
      while (major_.empty() && pointers_[std::size_t(major + 1)] - pointers_.front() <= double(k))
        ++major;
      io::Triplet t{majors_.first + major, place(index_[at]), value_[at]};
      if (format_ == "coo") t.row = place(major_[at]);
      if (format_ != "csr") std::swap(t.row, t.column);
      if (t.row < 0 || t.row >= rows_ || t.column < 0 || t.column >= columns_)
        return {Wrong::outside, t.row, t.column, t.value};
      if (!std::isfinite(t.value)) return {Wrong::not_finite, t.row, t.column, t.value};
      part.push_back(t);
    }
    return {};
  }
  [[noreturn]] void throw_of(const Wrong& w) const {
    if (w.what == Wrong::outside)
      throw Error(Exit::input,
                  fmt::format("entry ({}, {}) lies outside the matrix; {}; save a csr, csc or coo "
                              "matrix",
                              w.row, w.column, path_));
    throw Error(Exit::input, not_finite(w.value, path_, w.row, w.column));
  }

  Run& run_;
  const Control& control_;
  const io::NpzFile& file_;
  const std::string& path_;
  const std::string format_;
  Index rows_ = 0, columns_ = 0;
  Range majors_;                                          // of csr and csc: this rank's
  std::vector<double> pointers_, value_, index_, major_;  // whole numbers up to 2^53
};

/// Each array a dataset of its name; a single one A, or b.
void arrays_to_hdf5(Run& run, const ConvertFrom& from, io::Output& output,
                    const io::NpzFile& file) {
  const Control& control = run.control;
  const auto names = file.names();
  const bool single = names.size() == 1;
  for (const std::string& name : names) {
    if (name.find('/') != std::string::npos || name.empty())
      fail_together(Exit::input, "the name of an array cannot be a dataset name; " +
                                     file.where(name) + "; rename it");
    const Array a = std::move(file.open({name})[0]);
    const io::NpyHeader& h = a.header;
    const bool vector = h.shape.size() == 1;
    const Index rows = h.shape[0], columns = vector ? 1 : h.shape[1];
    if (single) {
      run.report["n"] = rows;
      run.report["columns"] = columns;
    }
    // A packed array is written by the rank that holds it.
    const Range slice = a.owner < 0       ? own_slice(control, rows)
                        : a.here(control) ? Range{0, rows}
                                          : Range{rows, 0};
    const Elements elements = [&](Index first, Index count, double* out) {
      file.numbers(a, {first, count}, out);
    };
    write_numbers(run, output, single ? (vector ? "b" : "A") : name, from.file, rows, columns,
                  vector, from.bits || holds_bits(h), slice,
                  rows_of(h, slice, from.file, elements));
  }
}

}  // namespace

Writing read_npz(Run& run, const ConvertFrom& from) {
  const auto file = std::make_shared<const io::NpzFile>(run.control, from.file);
  show_bytes(run, Moved::read, double(file->bytes()) / run.control.size(), double(file->bytes()));
  const std::string format = collectively(run.control, [&] { return sparse_format(*file); });
  if (!format.empty()) {
    Entries entries = SparseArrays(run, *file, from.file, format).read();
    entries.deal(run.control);
    return writing_of(run, from, std::move(entries));
  }
  return [=, &run](io::Output& output) { arrays_to_hdf5(run, from, output, *file); };
}

}  // namespace terrace
