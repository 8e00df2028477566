// Rows or columns of a rank, written piece by piece.
#include <atomic>
#include <optional>

#include "distrib/faults.hpp"
#include "io/input_file.hpp"
#include "io/output_state.hpp"
#include "io/transpose.hpp"
#include "kernels/base/timeline.hpp"

namespace terrace::io {

void Output::State::count_written(std::span<const Run> runs) const {
  for (const Run& r : runs) count_volume(0, r.count * 8);
  if (injected_full_disk()) written(-1, "cannot write the output", target.file);
}

/// `count` buffers, filled while `threads` bring those before to their runs; the sum of the hashes.
Word Output::State::place(const Placing& placing, Index count, Index buffer_bytes, int threads,
                          const Stage& fill, const std::function<std::vector<Run>(Index)>& runs) {
  std::atomic<Word> sum = 0;
  collectively(control, [&] {
    overlap_behind(count, buffer_bytes, threads, fill, [&](Index k, char* buffer) {
      const std::vector<Run> where = runs(k);
      count_written(where);
      sum += placing.put(reinterpret_cast<const Word*>(buffer), where, target.file);
    });
  });
  return sum;
}

/// Calls fill(piece, buffer) for each piece of this rank and writes it, or writes it from where it
/// is `held`; the sum of the hashes.
template <class T, class F>
Word Output::State::write_pieces(hid_t dataset, const std::vector<Index>& dims,
                                 std::span<const Range> ranges, int axis, const F& fill,
                                 const T* held) {
  const Index other = dims.size() == 2 ? dims[std::size_t(1 - axis)] : 1;
  const auto cut = [&](Index bytes) {
    return plan_pieces(ranges, bytes / std::max<Index>(1, other * 8));
  };
  auto pieces = cut(piece_bytes());
  const Rounds rounds = agree_rounds(control, pieces, axis == 0 ? other * 8 : 8, true);
  const Placing placing(control, file, dataset, temporary, reserved);
  if (!rounds.collective && placing.possible() && held != nullptr)
    return collectively(control, [&] {
      const Noted noted("file", "write");
      Word sum = 0;
      for (const Piece& p : pieces) {
        const std::vector<Run> where = runs_of(p, axis, dims);
        count_written(where);
        sum += placing.put(reinterpret_cast<const Word*>(held + p.position * other), where,
                           target.file);
      }
      return sum;
    });
  const bool places = !rounds.collective && placing.possible();
  if (places && axis == 0) pieces = cut(placed_bytes());  // columns would be in short runs
  Index largest = 0;
  for (const Piece& p : pieces) largest = std::max(largest, p.items());
  if (places)
    return place(
        placing, Index(pieces.size()), largest * other * 8, axis == 0 ? placing_threads() : 1,
        [&](Index k, char* out) { fill(pieces[std::size_t(k)], reinterpret_cast<T*>(out)); },
        [&](Index k) { return runs_of(pieces[std::size_t(k)], axis, dims); });
  const auto buffer = allocate_together<T>(control, largest * other);
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  const Handle how = transfer(rounds.collective);
  std::optional<Error> mine;
  Word sum = 0;
  for (Index k = 0; k < rounds.count; ++k) {
    const Piece* piece = k < Index(pieces.size()) ? &pieces[std::size_t(k)] : nullptr;
    if (!rounds.collective && (piece == nullptr || mine)) break;
    if (piece != nullptr && !mine) {
      mine = failure_of([&] { fill(*piece, buffer.get()); });  // told at the end, by all
      sum += hash_runs(reinterpret_cast<const Word*>(buffer.get()), runs_of(*piece, axis, dims));
    }
    const Handle memory = select(space, piece, axis);
    count_volume(0, Index(H5Sget_select_npoints(memory)) * Index(sizeof(T)));
    const bool bad =
        other > 0 && H5Dwrite(dataset, type_of<T>(), memory, space, how, buffer.get()) < 0;
    if ((bad || injected_full_disk()) && !mine)
      mine = Error(Exit::resources, "cannot write the output; " + target.file +
                                        "; free space on the disk? " + hdf5_reason());
  }
  collectively(control, [&] {
    if (mine) throw *mine;
  });
  return sum;
}

template <class T, class F>
void Output::State::write_rows(const std::string& name, Index rows, Index columns,
                               std::span<const Range> ranges, const F& fill, const T* held,
                               const Attributes& attributes) {
  step([&] {
    const auto dims = shape(rows, columns);
    const Handle dataset = create_dataset(name, dims, type_of<T>());
    const Word sum = write_pieces<T>(dataset, dims, ranges, 0, fill, held);
    finish_dataset(dataset, dims, sum, attributes);
  });
}

template <class T>
void Output::write(const std::string& name, Index rows, Index columns,
                   std::span<const Range> ranges, const Source<T>& source,
                   const Attributes& attributes) {
  const auto fill = [&](const Piece& p, T* out) { source(p.position, p.items(), out); };
  state_->write_rows<T>(name, rows, columns, ranges, fill, nullptr, attributes);
}

template <class T>
void Output::write_held(const std::string& name, Index rows, Index columns,
                        std::span<const Range> ranges, const T* data,
                        const Attributes& attributes) {
  const Index width = columns < 0 ? 1 : columns;
  const auto fill = [&](const Piece& p, T* out) {
    std::copy_n(data + p.position * width, p.items() * width, out);
  };
  state_->write_rows<T>(name, rows, columns, ranges, fill, data, attributes);
}

void Output::write_columns(const std::string& name, Index height, Index columns,
                           std::span<const Range> ranges, const Source<double>& source,
                           const Attributes& attributes) {
  State& s = *state_;
  s.step([&] {
    const auto dims = shape(height, columns);
    const Handle dataset = s.create_dataset(name, dims, H5T_NATIVE_DOUBLE);
    Index wanted = 0;
    for (const Range& r : ranges) wanted += r.count;
    const Index most =
        std::min(wanted, std::max<Index>(1, piece_bytes() / 8 / std::max<Index>(1, height)));
    const auto turned = allocate_together<double>(s.control, most * height);
    const Word sum =
        s.write_pieces<double>(dataset, dims, ranges, 1, [&](const Piece& p, double* out) {
          source(p.position, p.items(), turned.get());
          transpose(out, turned.get(), p.items(), height);
        });
    s.finish_dataset(dataset, dims, sum, attributes);
  });
}

#define TERRACE_OUTPUT(T)                                                                       \
  template void Output::write<T>(const std::string&, Index, Index, std::span<const Range>,      \
                                 const Source<T>&, const Attributes&);                          \
  template void Output::write_held<T>(const std::string&, Index, Index, std::span<const Range>, \
                                      const T*, const Attributes&);
TERRACE_OUTPUT(double)
TERRACE_OUTPUT(Index)
TERRACE_OUTPUT(Word)
#undef TERRACE_OUTPUT

}  // namespace terrace::io
