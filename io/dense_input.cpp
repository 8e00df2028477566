#include <fmt/format.h>

#include "io/input_file.hpp"
#include "io/transpose.hpp"

namespace terrace::io {

namespace {

/// Refuses what cannot be a dense matrix, telling why.
void check_dense(const Object& o, const std::string& at) {
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + at + "; " + todo);
  };
  if (o.group) refuse("a group, not a dataset", "name one dataset");
  if (!o.is_number())
    refuse("wrong type: not a dataset of real numbers", "store float64, float32 or integers");
  if (o.dims.size() != 1 && o.dims.size() != 2)
    refuse(fmt::format("wrong shape: {} dimensions", o.dims.size()),
           "a matrix has 2 dimensions, a vector 1");
  const std::string format = o.text("format");
  if (!format.empty() && format != "dense")
    refuse("wrong kind: attribute format is '" + format + "', a dense matrix is needed",
           "name a dense dataset");
  if (o.number == Number::unsigned_integer && o.has("columns"))
    refuse("wrong kind: packed bits, a dense matrix is needed", "name a dense dataset");
  const std::string order = o.text("order");
  if (!order.empty() && order != "column-major" && order != "row-major")
    refuse("wrong attribute: order is '" + order + "'", "use row-major or column-major");
}

}  // namespace

DenseInput open_dense(const Control& control, const Location& location, Role role) {
  Object object = find_object(control, location, Kind::dense, role == Role::right_hand_side);
  check_dense(object, where(location, object.path));
  DenseInput input;
  input.is_vector_ = object.dims.size() == 1;
  input.column_major_ = !input.is_vector_ && object.text("order") == "column-major";
  input.rows_ = object.dims[input.column_major_ ? 1 : 0];
  input.columns_ = input.is_vector_ ? 1 : object.dims[input.column_major_ ? 0 : 1];
  input.location_ = {location.file, object.path};
  input.file_ = open_input(control, location, std::move(object));
  return input;
}

void DenseInput::read(const Control& control, std::span<const Range> ranges,
                      const Sink<double>& sink) const {
  Delivery<double> deliver(ranges, columns_);
  Offender wrong;
  std::unique_ptr<double[]> turned;
  if (column_major_) {
    Index most = 0;
    for (const Range& r : ranges) most += r.count;
    most = std::min(most, std::max<Index>(1, piece_bytes() / 8 / std::max<Index>(1, columns_)));
    turned = allocate_together<double>(control, most * columns_);
  }
  read_pieces<double>(
      control, *file_, file_->dataset(), file_->object, ranges, column_major_ ? 1 : 0,
      H5T_NATIVE_DOUBLE, [&](const Piece& piece, const double* data) {
        if (column_major_) {
          transpose(turned.get(), data, columns_, piece.items());
          data = turned.get();
        }
        const Index at = first_not_finite(data, piece.items() * columns_);
        if (at >= 0) {
          const Index item = at / columns_;
          wrong.note(piece.first + item / piece.block * piece.stride + item % piece.block,
                     at % columns_, data[at]);
        }
        deliver(piece.position, piece.items(), data, sink);
      });
  refuse_not_finite(control, wrong, file_->where());
}

}  // namespace terrace::io
