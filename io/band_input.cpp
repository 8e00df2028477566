#include <fmt/format.h>

#include <algorithm>

#include "io/order.hpp"
#include "io/reading.hpp"
#include "io/recognised.hpp"
#include "io/sparse_form.hpp"
#include "io/transpose.hpp"

namespace terrace::io {

namespace {

constexpr Index most_outside = Index(1) << 27;  // numbers

/// Whether a band that does not say which form it is must be the upper one: its first column begins
/// with zeros down to the diagonal's row, and the lower form would have a zero on the diagonal.
bool looks_upper(const Control& control, const InputFile& input, bool column_major) {
  const Index height = input.object.dims[column_major ? 1 : 0];
  if (height < 2 || input.object.dims[column_major ? 0 : 1] < 2) return false;
  const bool upper = collectively(control, [&] {
    if (control.rank() != 0) return false;
    const hid_t dataset = input.source().dataset;
    const auto element = [&](Index row) {
      const Handle space(H5Dget_space(dataset), &H5Sclose),
          memory(H5Screate(H5S_SCALAR), &H5Sclose);
      const hsize_t start[2] = {column_major ? 0 : hsize_t(row), column_major ? hsize_t(row) : 0};
      const hsize_t count[2] = {1, 1};
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
  if (object.group) refuse(what_group(object), "name a dataset that holds a band matrix");
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
  BandInput input;
  input.column_major_ = order_of(object, where(location, object.path)).column_major;
  const Index height = object.dims[input.column_major_ ? 1 : 0];
  input.n_ = object.dims[input.column_major_ ? 0 : 1];
  if (height < 1) refuse("wrong shape: no diagonal", "row 0 is the diagonal");
  // A few diagonals outside the matrix are read, and forgotten; a damaged shape has no end of them.
  if (input.n_ > 0 && height - input.n_ > most_outside / input.n_)
    refuse(fmt::format("wrong shape: {} diagonals, and order {}", height, input.n_),
           "a matrix of order n has no more than n of them");
  if (said.shape.size() == 2 && said.shape != std::vector<Index>{input.n_, input.n_})
    refuse(fmt::format("the band has {0} columns, but --shape says {1}x{2}", input.n_,
                       said.shape[0], said.shape[1]),
           fmt::format("the matrix is {0} x {0}: correct one of the two", input.n_));
  input.half_bandwidth_ = height - 1;
  input.upper_ = uplo == "upper";
  input.location_ = {location.file, object.path, said};
  input.file_ = open_input(control, location, std::move(object));
  if (uplo.empty() && looks_upper(control, *input.file_, input.column_major_)) {
    input.upper_ = true;
    recognise("SciPy's upper form recognised: the first column begins with zeros; " +
              input.file_->where() +
              "; set the attribute uplo = \"upper\" (or \"lower\"), or add --uplo");
  }
  if (input.upper_ && input.column_major_)
    fail_together(Exit::input, "the upper form of a band in column-major order; " +
                                   input.file_->where() +
                                   "; store the lower form, or rows and columns the other way");
  return input;
}

void BandInput::read(const Control& control, std::span<const Range> ranges,
                     const Sink<double>& sink) const {
  read_as(control, ranges, true, sink);
}

void BandInput::read_diagonals(const Control& control, Range columns,
                               const Sink<double>& sink) const {
  read_as(control, {&columns, 1}, false, sink);
}

void BandInput::read_as(const Control& control, std::span<const Range> ranges, bool turned,
                        const Sink<double>& sink) const {
  const Index height = half_bandwidth_ + 1;
  Delivery<double> deliver(ranges, height);
  SharedOffender wrong;
  Request request;
  request.axis = column_major_ ? 0 : 1;
  request.band = !column_major_;
  request.upper = upper_;
  request.turned = turned;
  request.item_bytes = height * Index(sizeof(double));
  request.take = [&](const Portion& p, Index item, Index items, Element form, const char* raw,
                     char* out) {
    auto* const data = reinterpret_cast<double*>(out);
    to_doubles(form, raw, data, items * height);
    for (Index k = 0; k < items; ++k) {
      double* const column = data + k * height;
      const Index j = p.global(item + k), inside = std::clamp<Index>(n_ - j, 0, height);
      std::fill(column + inside, column + height, 0.0);
      if (const Index d = not_finite(column, inside); d >= 0) wrong.note(j + d, j, column[d]);
    }
  };
  request.wrong = [&](Index j, Index d, double value) { wrong.note(j + d, j, value); };
  read_portions(control, *file_, request, ranges, [&](const Portion& p, const char* data) {
    if (!turned) return sink(p.position, p.items, reinterpret_cast<const double*>(data));
    deliver(p.position, p.items, reinterpret_cast<const double*>(data), sink);
  });
  refuse_not_finite(control, wrong.first(), file_->where());
}

std::unique_ptr<Rereading> BandInput::reread(std::span<const Range> ranges) const {
  if (upper_) return nullptr;
  return Rereading::of(file_, {.axis = column_major_ ? 0 : 1, .band = true}, ranges);
}

}  // namespace terrace::io
