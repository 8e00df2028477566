#include <fmt/format.h>

#include "io/order.hpp"
#include "io/reading.hpp"

namespace terrace::io {

BandInput open_band(const Control& control, const Location& location, bool assume) {
  Object object = find_object(control, location,
                              location.path.empty() && assume ? Kind::dense : Kind::band, false);
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where(location, object.path) + "; " + todo);
  };
  if (object.group) refuse("a group, not a dataset", "name one dataset");
  if (!object.is_number())
    refuse("wrong type: not a dataset of real numbers", "store float64, float32 or integers");
  if (object.dims.size() != 2)
    refuse(fmt::format("wrong shape: {} dimensions", object.dims.size()),
           "a band matrix is (half-bandwidth + 1) x n");
  const std::string format = object.text("format"), uplo = object.text("uplo");
  if (format.empty() && !assume)
    refuse("attribute format is missing", "a band matrix says format = \"band\"");
  if (!format.empty() && format != "band")
    refuse("wrong kind: attribute format is '" + format + "'",
           "a band matrix says format = \"band\"");
  if (!uplo.empty() && uplo != "lower" && uplo != "upper")
    refuse("wrong attribute: uplo is '" + uplo + "'", "use lower or upper");
  if (order_of(object, where(location, object.path)).column_major)
    refuse("a band matrix in column-major order", "store (half-bandwidth + 1) x n row-major");
  if (object.dims[0] < 1) refuse("wrong shape: no diagonal", "row 0 is the diagonal");
  BandInput input;
  input.n_ = object.dims[1];
  input.half_bandwidth_ = object.dims[0] - 1;
  input.upper_ = uplo == "upper";
  input.location_ = {location.file, object.path};
  input.file_ = open_input(control, location, std::move(object));
  return input;
}

void BandInput::read(const Control& control, std::span<const Range> ranges,
                     const Sink<double>& sink) const {
  const Index height = half_bandwidth_ + 1;
  Delivery<double> deliver(ranges, height);
  SharedOffender wrong;
  Request request;
  request.axis = 1;
  request.band = true;
  request.upper = upper_;
  request.item_bytes = height * Index(sizeof(double));
  request.wrong = [&](Index j, Index d, double value) { wrong.note(j + d, j, value); };
  read_portions(control, *file_, request, ranges, [&](const Portion& p, const char* data) {
    deliver(p.position, p.items, reinterpret_cast<const double*>(data), sink);
  });
  refuse_not_finite(control, wrong.first(), file_->where());
}

}  // namespace terrace::io
