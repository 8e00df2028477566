#include <fmt/format.h>

#include "io/order.hpp"
#include "io/reading.hpp"
#include "io/sparse_form.hpp"
#include "io/transpose.hpp"

namespace terrace::io {

namespace {

/// Refuses what cannot be a dense matrix, telling why.
void check_dense(const Object& o, const std::string& at) {
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + at + "; " + todo);
  };
  if (o.group) refuse(what_group(o), "name a dataset that holds a dense matrix");
  if (!o.is_number())
    refuse("wrong type: not real numbers (complex ones are not supported)",
           "store float64, float32 or integers");
  if (o.dims.size() != 1 && o.dims.size() != 2)
    refuse(fmt::format("wrong shape: {} dimensions", o.dims.size()),
           "a matrix has 2 dimensions, a vector 1");
  const std::string format = o.text("format");
  if (!format.empty() && format != "dense")
    refuse("wrong kind: attribute format is '" + format + "', a dense matrix is needed",
           "name a dense dataset");
  if (o.number == Number::unsigned_integer && o.has("columns"))
    refuse("wrong kind: packed bits, a dense matrix is needed", "name a dense dataset");
}

}  // namespace

DenseInput open_dense(const Control& control, const Location& location, const Wanted& wanted) {
  Object object = find_object(control, location, Kind::dense, wanted);
  const std::string at = where(location, object.path);
  location.form.require_obeyed("a dense matrix", "--order --shape", "dense");
  check_dense(object, at);
  const Order order = order_of(object, at);
  const auto& dims = object.dims;
  const bool marked = !wanted.is_matrix() && order.is_vector(dims);
  DenseInput input;
  input.is_vector_ = dims.size() == 1 || marked;
  input.column_major_ = dims.size() == 2 && (marked ? dims[0] == 1 : order.column_major);
  input.rows_ = dims[input.column_major_ ? 1 : 0];
  input.columns_ = input.is_vector_ ? 1 : dims[input.column_major_ ? 0 : 1];
  if (const auto& said = location.form.shape;
      said.size() == 2 && said != std::vector<Index>{input.rows_, input.columns_})
    fail_together(Exit::input, fmt::format("the file says {} x {}, but --shape says {}x{}; {}; "
                                           "correct one of the two",
                                           input.rows_, input.columns_, said[0], said[1], at));
  input.location_ = {location.file, object.path, location.form};
  input.file_ = open_input(control, location, std::move(object));
  return input;
}

void DenseInput::read(const Control& control, std::span<const Range> ranges,
                      const Sink<double>& sink) const {
  Delivery<double> deliver(ranges, columns_);
  SharedOffender wrong;
  Request request;
  request.axis = column_major_ ? 1 : 0;
  request.item_bytes = columns_ * Index(sizeof(double));
  request.take = [&](const Portion& p, Index item, Index items, Element form, const char* raw,
                     char* out) {
    auto* const data = reinterpret_cast<double*>(out);
    to_doubles(form, raw, data, items * columns_);
    if (const Index at = not_finite(data, items * columns_); at >= 0)
      wrong.note(p.global(item + at / columns_), at % columns_, data[at]);
  };
  request.wrong = [&](Index i, Index j, double value) { wrong.note(i, j, value); };
  read_portions(control, *file_, request, ranges, [&](const Portion& p, const char* data) {
    deliver(p.position, p.items, reinterpret_cast<const double*>(data), sink);
  });
  refuse_not_finite(control, wrong.first(), file_->where());
}

std::unique_ptr<Rereading> DenseInput::reread(std::span<const Range> ranges) const {
  return Rereading::of(file_, {.axis = column_major_ ? 1 : 0}, ranges);
}

}  // namespace terrace::io
