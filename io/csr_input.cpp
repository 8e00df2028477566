#include <fmt/format.h>

#include <cmath>
#include <mutex>

#include "io/reading.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

CsrInput open_csr(const Control& control, const Location& location) {
  Object object = find_object(control, location, Kind::csr, false);
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where(location, object.path) + "; " + todo);
  };
  if (!object.group)
    refuse("a dataset, not a CSR group", "name the group of data, indices and indptr");
  if (object.children.size() != 3)
    refuse("no CSR matrix", "a CSR group holds data, indices and indptr");
  const std::string encoding = object.text("encoding-type");
  if (!encoding.empty() && encoding != "csr_matrix")
    refuse("wrong kind: encoding-type is '" + encoding + "'", "store a csr_matrix");
  for (const auto& [name, child] : object.children) {
    const bool whole =
        child.number == Number::signed_integer || child.number == Number::unsigned_integer;
    if (child.dims.size() != 1) refuse("wrong shape: " + name + " is not 1-D", "store a vector");
    if (!child.is_number() || (name != "data" && !whole))
      refuse("wrong type of " + name, "indices and indptr are integers, data real numbers");
  }
  const auto found = object.attributes.find("shape");
  const auto* shape =
      found == object.attributes.end() ? nullptr : std::get_if<std::vector<Index>>(&found->second);
  if (shape == nullptr)
    refuse("attribute shape is missing", "a CSR group says shape = (rows, columns)");
  if (shape->size() != 2 || (*shape)[0] < 0 || (*shape)[1] < 0)
    refuse("wrong attribute: shape", "a CSR group says shape = (rows, columns)");
  CsrInput input;
  input.rows_ = (*shape)[0];
  input.columns_ = (*shape)[1];
  input.nonzeros_ = object.children["data"].dims[0];
  if (object.children["indices"].dims[0] != input.nonzeros_)
    refuse(fmt::format("wrong shape: {} indices, {} data", object.children["indices"].dims[0],
                       input.nonzeros_),
           "one column index a value");
  if (object.children["indptr"].dims[0] != input.rows_ + 1)
    refuse(fmt::format("wrong shape: {} row pointers for {} rows",
                       object.children["indptr"].dims[0], input.rows_),
           "indptr has rows + 1 entries");
  input.location_ = {location.file, object.path};
  input.file_ = open_input(control, location, std::move(object));
  return input;
}

namespace {

/// Elements `range` of a 1-D dataset, converted; `words`: unsigned 64-bit ones keep their bits.
template <class T>
void read_span(const Control& control, const InputFile& input, const std::string& name, Range range,
               const Sink<T>& sink, bool words = false) {
  Request request;
  request.dataset = name;
  request.as = words ? As::words : std::is_same_v<T, double> ? As::doubles : As::indices;
  request.item_bytes = sizeof(T);
  request.take = [&](const Portion&, Index, Index items, Element form, const char* raw, char* to) {
    if (words) {
      to_words(form, raw, reinterpret_cast<Word*>(to), items);
    } else if constexpr (std::is_same_v<T, double>) {
      to_doubles(form, raw, reinterpret_cast<double*>(to), items);
    } else {
      to_indices(form, raw, reinterpret_cast<Index*>(to), items);
    }
  };
  read_portions(control, input, request, {&range, 1}, [&](const Portion& p, const char* data) {
    sink(p.position, p.items, reinterpret_cast<const T*>(data));
  });
}

/// Puts them one after the other.
template <class T>
Sink<T> into(T* out) {
  return [out](Index position, Index count, const T* from) {
    parallel_ranges(count, 1 << 16, [&](Index first, Index end) {
      std::copy(from + first, from + end, out + position + first);
    });
  };
}

}  // namespace

std::vector<Index> CsrInput::row_pointers(const Control& control, Range rows) const {
  std::vector<Index> pointers =
      collectively(control, [&] { return std::vector<Index>(std::size_t(rows.count) + 1); });
  read_span(control, *file_, "indptr", {rows.first, rows.count + 1}, into(pointers.data()));
  Offender wrong;
  if (rows.first == 0 && pointers[0] != 0) wrong.note(0, 0, double(pointers[0]));
  if (rows.end() == rows_ && pointers.back() != nonzeros_)
    wrong.note(rows_, 0, double(pointers.back()));
  std::mutex noting;
  parallel_ranges(rows.count + 1, 1 << 16, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      const Index p = pointers[std::size_t(i)];
      if (p >= 0 && p <= nonzeros_ && (i == 0 || p >= pointers[std::size_t(i) - 1])) continue;
      const std::lock_guard lock(noting);
      wrong.note(rows.first + i, 0, double(p));
    }
  });
  if (const auto first = first_offender(control, wrong))
    fail_together(
        Exit::input,
        fmt::format("wrong row pointer {}; {}/indptr entry {}; indptr rises from 0 to the "
                    "{} stored values",
                    first->value, file_->where(), first->row, nonzeros_));
  return pointers;
}

std::vector<Index> read_integers(const Control& control, const Location& location) {
  Object object = describe(control, location);
  const bool whole =
      object.number == Number::signed_integer || object.number == Number::unsigned_integer;
  if (object.group || !whole || object.dims.size() != 1)
    fail_together(Exit::input, "not a vector of integers; " + where(location, object.path) +
                                   "; store 1-D int64");
  const bool words = object.number == Number::unsigned_integer && object.bytes == 8;
  const Index size = object.dims[0];
  std::vector<Index> values =
      collectively(control, [&] { return std::vector<Index>(std::size_t(size)); });
  const auto input = open_input(control, location, std::move(object));
  read_span(control, *input, "", {0, size}, into(values.data()), words);
  return values;
}

void CsrInput::entries(const Control& control, Range range, const Sink<Index>& columns,
                       const Sink<double>& values) const {
  read_span(control, *file_, "indices", range, columns);
  read_span(control, *file_, "data", range, values);
}

void CsrInput::entries(const Control& control, Range rows, LargeVector<Index>& columns,
                       LargeVector<double>& values) const {
  const std::vector<Index> pointers = row_pointers(control, rows);
  const Range range{pointers.front(), pointers.back() - pointers.front()};
  collectively(control, [&] {
    columns.resize(std::size_t(range.count));
    values.resize(std::size_t(range.count));
  });
  entries(control, range, into<Index>(columns.data()), into<double>(values.data()));
  Offender outside, not_finite;
  std::mutex found;
  parallel_ranges(rows.count, 4096, [&](Index first, Index end) {
    Offender out, bad;
    for (Index i = first; i < end; ++i)
      for (Index k = pointers[std::size_t(i)]; k < pointers[std::size_t(i) + 1]; ++k) {
        const Index j = columns[std::size_t(k - range.first)];
        const double value = values[std::size_t(k - range.first)];
        if (j < 0 || j >= columns_) out.note(rows.first + i, k, double(j));
        if (!std::isfinite(value)) bad.note(rows.first + i, j, value);
      }
    if (out.row == Offender::none && bad.row == Offender::none) return;
    const std::lock_guard lock(found);
    if (out.row != Offender::none) outside.note(out.row, out.column, out.value);
    if (bad.row != Offender::none) not_finite.note(bad.row, bad.column, bad.value);
  });
  if (const auto first = first_offender(control, outside))
    fail_together(Exit::input, fmt::format("column index {} outside the matrix; {} row {}; columns "
                                           "are 0 to {}",
                                           first->value, file_->where(), first->row, columns_ - 1));
  refuse_not_finite(control, not_finite, file_->where());
}

}  // namespace terrace::io
