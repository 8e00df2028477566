// Rows that the ranks hold in any order, written at their places.
#include <cstring>
#include <numeric>

#include "distrib/communicator.hpp"
#include "distrib/faults.hpp"
#include "io/hash.hpp"
#include "io/input_file.hpp"
#include "io/output_state.hpp"

namespace terrace::io {

/// Wide rows: each run of rows that are neighbours here and in the file goes out by itself.
template <class T>
Word Output::State::write_rows_alone(hid_t dataset, Index width, std::span<const Index> destination,
                                     const Source<T>& source) {
  const Index rows = Index(destination.size());
  const Placing placing(control, file, dataset, temporary, reserved);
  const Index bytes = placing.possible() ? placed_bytes() : piece_bytes();
  const Index most =
      std::clamp<Index>(bytes / 8 / std::max<Index>(1, width), 1, std::max<Index>(1, rows));
  const auto part = [&](Index k) {
    return destination.subspan(std::size_t(k * most), std::size_t(std::min(most, rows - k * most)));
  };
  const Stage fill = [&](Index k, char* out) {
    source(k * most, Index(part(k).size()), reinterpret_cast<T*>(out));
  };
  if (placing.possible())
    return place(placing, ceil_div(rows, most), most * width * 8, placing_threads(), fill,
                 [&](Index k) { return runs_of(part(k), width); });
  const auto buffer = allocate_together<T>(control, most * width);
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  const Handle how = transfer(false);
  Word sum = 0;
  collectively(control, [&] {
    for (Index k = 0; k < ceil_div(rows, most); ++k) {
      fill(k, reinterpret_cast<char*>(buffer.get()));
      const std::vector<Run> runs = runs_of(part(k), width);
      sum += hash_runs(reinterpret_cast<const Word*>(buffer.get()), runs);
      for (const Run& r : runs) {
        const Piece piece{r.to / width, r.count / width, 1, r.count / width, 0};
        const Handle memory = select(space, &piece, 0);
        count_volume(0, r.count * Index(sizeof(T)));
        written(injected_full_disk()
                    ? -1
                    : H5Dwrite(dataset, type_of<T>(), memory, space, how, buffer.get() + r.from),
                "cannot write the output", target.file);
      }
    }
  });
  return sum;
}

/// Narrow rows: brought to the rank that writes them; returns the rows of this rank's contiguous
/// part.
template <class T>
std::vector<T> Output::State::redistribute(Index rows, Index width,
                                           std::span<const Index> destination,
                                           const Source<T>& source) {
  const Communicator<Cpu> comm(control);
  const Stream<Cpu> stream;
  const BlockCyclic layout = contiguous(rows, control.size());
  const Index mine = Index(destination.size()), ranks = control.size(), record = width + 1;
  const auto parts = std::size_t(ranks);
  std::vector<T> values, outgoing, incoming, result;
  std::vector<Index> start(parts + 1), sizes(parts), from(parts + 1);
  collectively(control, [&] {
    values.resize(std::size_t(mine * width));
    outgoing.resize(std::size_t(mine * record));
    result.resize(std::size_t(layout.slots(control.rank()) * width));
    if (mine > 0) source(0, mine, values.data());
    // Records of (destination, row), sorted by owner.
    for (const Index to : destination) ++start[std::size_t(layout.owner(to)) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<Index> next(start.begin(), start.end() - 1);
    for (Index i = 0; i < mine; ++i) {
      const Index to = destination[std::size_t(i)];
      T* at = outgoing.data() + next[std::size_t(layout.owner(to))]++ * record;
      std::memcpy(at, &to, sizeof to);
      std::copy_n(values.data() + i * width, width, at + 1);
    }
  });
  std::vector<Index> counts(parts);
  std::vector<terrace::Piece> sends(parts), receives(parts);
  for (std::size_t r = 0; r < parts; ++r) {
    counts[r] = start[r + 1] - start[r];
    sends[r] = {int(r), &counts[r], sizeof(Index)};
    receives[r] = {int(r), &sizes[r], sizeof(Index)};
  }
  comm.exchange(stream, sends, receives);
  stream.synchronize();
  std::partial_sum(sizes.begin(), sizes.end(), from.begin() + 1);
  collectively(control, [&] { incoming.resize(std::size_t(from[parts] * record)); });
  const Index bytes = record * Index(sizeof(T));
  for (std::size_t r = 0; r < parts; ++r) {
    sends[r] = {int(r), outgoing.data() + start[r] * record, counts[r] * bytes};
    receives[r] = {int(r), incoming.data() + from[r] * record, sizes[r] * bytes};
  }
  comm.exchange(stream, sends, receives);
  stream.synchronize();
  for (Index i = 0; i < from[parts]; ++i) {
    Index to = 0;
    std::memcpy(&to, incoming.data() + i * record, sizeof to);
    std::copy_n(incoming.data() + i * record + 1, width, result.data() + layout.slot(to) * width);
  }
  return result;
}

template <class T>
void Output::write_scattered(const std::string& name, Index rows, Index columns,
                             std::span<const Index> destination, const Source<T>& source,
                             const Attributes& attributes) {
  constexpr Index narrow_bytes = 4096;
  State& s = *state_;
  const Index width = columns < 0 ? 1 : columns;
  if (width * Index(sizeof(T)) < narrow_bytes) {
    s.step([&] {
      const std::vector<T> part = s.redistribute<T>(rows, width, destination, source);
      const auto ranges = contiguous(rows, s.control.size()).ranges(s.control.rank());
      write<T>(
          name, rows, columns, ranges,
          [&](Index position, Index count, T* out) {
            std::copy_n(part.data() + position * width, count * width, out);
          },
          attributes);
    });
    return;
  }
  s.step([&] {
    const auto dims = shape(rows, columns);
    const Handle dataset = s.create_dataset(name, dims, type_of<T>());
    const Word sum = s.write_rows_alone<T>(dataset, width, destination, source);
    s.finish_dataset(dataset, dims, sum, attributes);
  });
}

#define TERRACE_OUTPUT(T)                                                            \
  template void Output::write_scattered<T>(const std::string&, Index, Index,         \
                                           std::span<const Index>, const Source<T>&, \
                                           const Attributes&);
TERRACE_OUTPUT(double)
TERRACE_OUTPUT(Index)
TERRACE_OUTPUT(Word)
#undef TERRACE_OUTPUT

}  // namespace terrace::io
