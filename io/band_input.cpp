#include <fmt/format.h>

#include "io/order.hpp"
#include "io/reading.hpp"
#include "io/recognised.hpp"

namespace terrace::io {

namespace {

constexpr Index most_outside = Index(1) << 27;  // numbers

/// Whether a band that does not say which form it is must be the upper one: its first column begins
/// with zeros down to the diagonal's row, and the lower form would have a zero on the diagonal.
bool looks_upper(const Control& control, const InputFile& input) {
  const Index height = input.object.dims[0];
  if (height < 2 || input.object.dims[1] < 2) return false;
  const bool upper = collectively(control, [&] {
    if (control.rank() != 0) return false;
    const hid_t dataset = input.source().dataset;
    const auto element = [&](Index row) {
      const Handle space(H5Dget_space(dataset), &H5Sclose),
          memory(H5Screate(H5S_SCALAR), &H5Sclose);
      const hsize_t start[2] = {hsize_t(row), 0}, count[2] = {1, 1};
      double value = 1;
      if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr) < 0 ||
          H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, &value) < 0)
        return 1.0;  // reading will say what is wrong
      return value;
    };
    for (Index row = 0; row + 1 < height; ++row)
      if (element(row) != 0) return false;
    return element(height - 1) > 0;
  });
  return control.reduce(Index(upper), Reduce::max) > 0;
}

}  // namespace

BandInput open_band(const Control& control, const Location& location, const Wanted& wanted) {
  Object object = find_object(control, location, Kind::band, wanted);
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where(location, object.path) + "; " + todo);
  };
  if (object.group) refuse("a group, not a dataset", "name one dataset");
  if (!object.is_number())
    refuse("wrong type: not real numbers (complex ones are not supported)",
           "store float64, float32 or integers");
  if (object.dims.size() != 2)
    refuse(fmt::format("wrong shape: {} dimensions", object.dims.size()),
           "a band matrix is (half-bandwidth + 1) x n");
  const FormOptions& said = location.form;
  said.require_obeyed("a band matrix", "--uplo --order --shape", "band");
  const std::string format = object.text("format"), uplo = object.text("uplo");
  if (format.empty())
    refuse("attribute format is missing", "store format = \"band\", or add --format band");
  if (!format.empty() && format != "band")
    refuse("wrong kind: attribute format is '" + format + "'",
           "a band matrix has format = \"band\"");
  if (!uplo.empty() && uplo != "lower" && uplo != "upper")
    refuse("wrong attribute: uplo is '" + uplo + "'", "use lower or upper");
  if (order_of(object, where(location, object.path)).column_major)
    refuse("a band matrix in column-major order", "store (half-bandwidth + 1) x n row-major");
  if (object.dims[0] < 1) refuse("wrong shape: no diagonal", "row 0 is the diagonal");
  // A few diagonals outside the matrix are read, and forgotten; a damaged shape has no end of them.
  if (const Index n = object.dims[1]; n > 0 && object.dims[0] - n > most_outside / n)
    refuse(fmt::format("wrong shape: {} diagonals, and order {}", object.dims[0], n),
           "a matrix of order n has no more than n of them");
  BandInput input;
  input.n_ = object.dims[1];
  if (said.shape.size() == 2 && said.shape != std::vector<Index>{input.n_, input.n_})
    refuse(fmt::format("the band has {0} columns, but --shape says {1}x{2}", input.n_,
                       said.shape[0], said.shape[1]),
           fmt::format("the matrix is {0} x {0}: correct one of the two", input.n_));
  input.half_bandwidth_ = object.dims[0] - 1;
  input.upper_ = uplo == "upper";
  input.location_ = {location.file, object.path, said};
  input.file_ = open_input(control, location, std::move(object));
  if (uplo.empty() && looks_upper(control, *input.file_)) {
    input.upper_ = true;
    recognise("SciPy's upper form recognised: the first column begins with zeros; " +
              input.file_->where() +
              "; set the attribute uplo = \"upper\" (or \"lower\"), or add --uplo");
  }
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
