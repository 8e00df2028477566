#include <fmt/format.h>

#include <cmath>

#include "io/input_file.hpp"
#include "io/transpose.hpp"

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
  if (object.text("order") == "column-major")
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

namespace {

/// Zeroes below the matrix, and notes what is not finite inside it. data: count columns of height.
void clean_columns(double* data, Index first, Index count, Index height, Index n, Offender& wrong) {
  for (Index c = 0; c < count; ++c) {
    const Index j = first + c, inside = std::min(height, n - j);
    double* column = data + c * height;
    std::fill(column + inside, column + height, 0.0);
    if (const Index at = first_not_finite(column, inside); at >= 0)
      wrong.note(j + at, j, column[at]);
  }
}

/// Columns [first, first + count) of the lower form from SciPy's upper form ab[m - d, j + d], block
/// by block of diagonals: a block of h diagonals of c columns lies in h x (c + h - 1) of the file.
void read_upper(const InputFile& input, Index first, Index count, Index height, Index n,
                double* data) {
  const Handle space(H5Dget_space(input.dataset()), &H5Sclose);
  const Handle how =
      input.shared ? transfer(false) : Handle(H5Pcreate(H5P_DATASET_XFER), &H5Pclose);
  const Index block = std::min(height, std::max<Index>(16, count));
  std::vector<double> part(std::size_t(block * std::min(n, count + block)));
  std::fill(data, data + count * height, 0.0);
  for (Index d0 = 0; d0 < height && first + d0 < n; d0 += block) {
    const Index d1 = std::min(height, d0 + block);
    const Index from = first + d0, columns = std::min(n, first + count + d1 - 1) - from;
    const hsize_t start[2] = {hsize_t(height - d1), hsize_t(from)};
    const hsize_t extent[2] = {hsize_t(d1 - d0), hsize_t(columns)};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, extent, nullptr);
    const Handle memory(H5Screate_simple(2, extent, nullptr), &H5Sclose);
    count_volume((d1 - d0) * columns * Index(sizeof(double)), 0);
    if (H5Dread(input.dataset(), H5T_NATIVE_DOUBLE, memory, space, how, part.data()) < 0)
      throw Error(Exit::input, "cannot read the data; " + input.where() + "; " + hdf5_reason());
    for (Index d = d0; d < d1; ++d)
      for (Index c = 0; c < count && first + c + d < n; ++c)
        data[c * height + d] = part[std::size_t((d1 - 1 - d) * columns + (first + c + d) - from)];
  }
  if (const auto shorter = input.shortened()) throw *shorter;
}

}  // namespace

void BandInput::read(const Control& control, std::span<const Range> ranges,
                     const Sink<double>& sink) const {
  const Index height = half_bandwidth_ + 1;
  const Index most = std::max<Index>(1, piece_bytes() / 8 / height);
  Index wanted = 0;
  for (const Range& r : ranges) wanted += r.count;
  Delivery<double> deliver(ranges, height);
  Offender wrong;
  const auto columns = allocate_together<double>(control, std::min(wanted, most) * height);
  if (upper_) {
    collectively(control, [&] {
      Index position = 0;
      for (const Range& r : ranges)
        for (Index done = 0; done < r.count; done += most) {
          const Index count = std::min(most, r.count - done);
          read_upper(*file_, r.first + done, count, height, n_, columns.get());
          clean_columns(columns.get(), r.first + done, count, height, n_, wrong);
          deliver(position, count, columns.get(), sink);
          position += count;
        }
    });
  } else {
    read_pieces<double>(control, *file_, file_->dataset(), file_->object, ranges, 1,
                        H5T_NATIVE_DOUBLE, [&](const Piece& piece, const double* data) {
                          transpose(columns.get(), data, height, piece.items());
                          for (Index b = 0; b < piece.count; ++b)
                            clean_columns(columns.get() + b * piece.block * height,
                                          piece.first + b * piece.stride, piece.block, height, n_,
                                          wrong);
                          deliver(piece.position, piece.items(), columns.get(), sink);
                        });
  }
  refuse_not_finite(control, wrong, file_->where());
}

}  // namespace terrace::io
