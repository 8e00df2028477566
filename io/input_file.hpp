// An open input: its file on all ranks, its datasets; offenders, and what cuts pieces for a sink.
#pragma once
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "io/inspect.hpp"
#include "io/slices.hpp"
#include "io/volume.hpp"

namespace terrace::io {

struct InputFile {
  Location location;  ///< with the path found
  Object object;
<<<<<<< HEAD
  Index bytes = 0;      ///< of the file when it was opened
  bool shared = false;  ///< opened by all ranks together: collective transfers are possible
=======
>>>>>>> load
  Handle file;
  std::map<std::string, Handle> datasets;  ///< "" the object itself, or a CSR group's children

  [[nodiscard]] hid_t dataset(const std::string& name = {}) const { return datasets.at(name); }
  [[nodiscard]] std::string where() const { return to_string(location); }
  /// Nothing, or that the file is shorter now than it was: MPI-IO reads zeros behind a file's end.
  [[nodiscard]] std::optional<Error> shortened() const;
};

/// Opens the found object on all ranks. Collective.
std::shared_ptr<InputFile> open_input(const Control& control, const Location& location,
                                      Object object);

/// The first of the wrong elements that any rank met, in row-major order of the matrix.
struct Offender {
  static constexpr Index none = std::numeric_limits<Index>::max();
  Index row = none, column = none;
  double value = 0;
  void note(Index i, Index j, double v) {
    if (i < row || (i == row && j < column)) *this = {i, j, v};
  }
};
/// The lowest over the ranks, on every rank; nothing when there is none. Collective.
std::optional<Offender> first_offender(const Control& control, const Offender& mine);
/// Throws "NaN or Inf in the matrix; where row i, column j; ..." when there is one. Collective.
void refuse_not_finite(const Control& control, const Offender& mine, const std::string& where);

/// Hands pieces on, cut at the borders of the ranges that the caller named.
template <class T>
class Delivery {
 public:
  Delivery(std::span<const Range> ranges, Index width) : ranges_(ranges), width_(width) {}
  template <class S>
  void operator()(Index position, Index items, const T* data, const S& sink) {
    while (items > 0) {
      const Index take = std::min(items, ranges_[range_].count - done_);
      if (take > 0) sink(position, take, data);
      position += take;
      items -= take;
      data += take * width_;
      done_ += take;
      if (done_ == ranges_[range_].count && items >= 0) {
        done_ = 0;
        ++range_;
        while (range_ < ranges_.size() && ranges_[range_].count <= 0) ++range_;
        if (range_ == ranges_.size()) return;
      }
    }
  }

 private:
  std::span<const Range> ranges_;
  Index width_, done_ = 0;
  std::size_t range_ = 0;
};

/// Memory that all ranks get or none.
template <class T>
std::unique_ptr<T[]> allocate_together(const Control& control, Index size) {
  return collectively(
      control, [&] { return std::unique_ptr<T[]>(new T[std::size_t(std::max<Index>(1, size))]); });
}

<<<<<<< HEAD
/// Reads the items (rows for axis 0, columns for axis 1) of `ranges` of a dataset and calls
/// use(piece, data), data row-major as in the file. Bytes: those read; memory: one piece.
/// Collective.
template <class T, class F>
void read_pieces(const Control& control, const InputFile& input, hid_t dataset,
                 const Object& object, std::span<const Range> ranges, int axis, hid_t memory_type,
                 F&& use) {
  const Index other = object.dims.size() == 2 ? object.dims[std::size_t(1 - axis)] : 1;
  const auto pieces =
      plan_pieces(ranges, piece_bytes() / std::max<Index>(1, other * Index(sizeof(T))));
  const Rounds rounds =
      agree_rounds(control, pieces, axis == 0 ? other * object.bytes : object.bytes,
                   input.shared && object.contiguous && object.native);
  Index largest = 0;
  for (const Piece& p : pieces) largest = std::max(largest, p.items());
  const auto buffer = allocate_together<T>(control, largest * other);
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  const Handle how =
      input.shared ? transfer(rounds.collective) : Handle(H5Pcreate(H5P_DATASET_XFER), &H5Pclose);
  std::optional<Error> mine;
  for (Index k = 0; k < rounds.count; ++k) {
    const Piece* piece = k < Index(pieces.size()) ? &pieces[std::size_t(k)] : nullptr;
    if (!rounds.collective && (piece == nullptr || mine)) break;
    const Handle memory = select(space, piece, axis);
    count_volume(Index(H5Sget_select_npoints(memory)) * Index(sizeof(T)), 0);
    if (other > 0 && H5Dread(dataset, memory_type, memory, space, how, buffer.get()) < 0 && !mine)
      mine = Error(Exit::input, "cannot read the data; " + input.where() + "; " + hdf5_reason());
    if (piece == nullptr || mine) continue;
    try {
      use(*piece, static_cast<const T*>(buffer.get()));
    } catch (const Error& e) {
      mine = e;
    }
  }
  if (auto shorter = input.shortened()) mine = std::move(shorter);
  collectively(control, [&] {
    if (mine) throw *mine;
  });
}

=======
>>>>>>> load
}  // namespace terrace::io
