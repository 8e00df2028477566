#include "io/output.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>

#include "distrib/agree.hpp"
#include "distrib/communicator.hpp"
#include "io/hash.hpp"
#include "io/input_file.hpp"
#include "io/inspect.hpp"
#include "io/slices.hpp"
#include "io/transpose.hpp"
#include "io/unfinished.hpp"
#include "kernels/parallel.hpp"

namespace terrace::io {

namespace {

template <class T>
hid_t type_of() {
  if constexpr (std::is_same_v<T, double>)
    return H5T_NATIVE_DOUBLE;
  else if constexpr (std::is_same_v<T, Index>)
    return H5T_NATIVE_INT64;
  else
    return H5T_NATIVE_UINT64;
}

AnyAttributes any(const Attributes& attributes) {
  AnyAttributes result;
  for (const auto& [name, value] : attributes)
    std::visit([&, n = name](const auto& v) { result[n] = v; }, value);
  return result;
}

/// Throws Error(resources): nearly always the disk.
hid_t written(hid_t id, const std::string& what, const std::string& file) {
  if (id < 0)
    throw Error(Exit::resources, what + "; " + file + "; free space on the disk? " + hdf5_reason());
  return id;
}

void put_attribute(hid_t object, const std::string& name, const AnyAttribute& value,
                   const std::string& file) {
  std::visit(
      [&](const auto& v) {
        using V = std::decay_t<decltype(v)>;
        const char* text = nullptr;
        hid_t type = H5T_NATIVE_DOUBLE;
        const void* data = &v;
        hsize_t count = 0;
        Handle string_type;
        if constexpr (std::is_same_v<V, std::string>) {
          string_type = Handle(H5Tcopy(H5T_C_S1), &H5Tclose);
          H5Tset_size(string_type, H5T_VARIABLE);
          H5Tset_cset(string_type, H5T_CSET_UTF8);
          type = string_type;
          text = v.c_str();
          data = &text;
        } else if constexpr (std::is_same_v<V, Index> || std::is_same_v<V, std::vector<Index>>) {
          type = H5T_NATIVE_INT64;
        }
        if constexpr (std::is_same_v<V, std::vector<Index>> ||
                      std::is_same_v<V, std::vector<double>>) {
          data = v.data();
          count = v.size();
        }
        const Handle space(count > 0 ? H5Screate_simple(1, &count, nullptr) : H5Screate(H5S_SCALAR),
                           &H5Sclose);
        const Handle attribute(
            written(H5Acreate2(object, name.c_str(), name == hash_name ? H5T_NATIVE_UINT64 : type,
                               space, H5P_DEFAULT, H5P_DEFAULT),
                    "cannot write attribute " + name, file),
            &H5Aclose);
        written(H5Awrite(attribute, name == hash_name ? H5T_NATIVE_UINT64 : type, data),
                "cannot write attribute " + name, file);
      },
      value);
}

Handle compact_attributes(hid_t property_class) {
  Handle properties(H5Pcreate(property_class), &H5Pclose);
  H5Pset_attr_phase_change(properties, 1000, 0);
  return properties;
}

}  // namespace

struct Output::State {
  Control control;
  Location target;
  std::string temporary, sub;
  Unfinished unfinished;  // rank 0
  Handle file;
  std::map<std::string, AnyAttributes> group_attributes;

  [[nodiscard]] bool first() const { return control.rank() == 0; }
  [[nodiscard]] std::string target_group() const { return target.path.empty() ? "/" : target.path; }
  [[nodiscard]] std::string group() const {
    return sub.empty() ? target_group() : target.path + "/" + sub;
  }

  /// Runs a collective step; an agreed failure leaves nothing behind.
  template <class F>
  void step(F&& work) {
    try {
      work();
    } catch (const Error& e) {
      if (e.agreed()) abandon();
      throw;
    }
  }
  /// HDF5 must close the file whole, or it crashes at the end of the program: emptied first, the
  /// file gives a full disk the room for that.
  void abandon() {
    if (first() && file.valid() && truncate(temporary.c_str(), 0) != 0) unfinished.remove();
    control.barrier();
    file.close();
    unfinished.remove();
  }

  void begin();
  Handle open_group(const std::string& path);
  void put_attributes(hid_t object, const AnyAttributes& attributes) {
    for (const auto& [name, value] : attributes) put_attribute(object, name, value, target.file);
  }
  Handle create_dataset(const std::string& name, const std::vector<Index>& dims, hid_t type);
  template <class T, class F>
  Word write_pieces(hid_t dataset, const std::vector<Index>& dims, std::span<const Range> ranges,
                    int axis, const F& fill);
  void finish_dataset(hid_t dataset, const std::vector<Index>& dims, Word sum,
                      const Attributes& attributes);
  template <class T>
  Word write_rows_alone(hid_t dataset, Index width, std::span<const Index> destination,
                        const Source<T>& source);
  template <class T>
  std::vector<T> redistribute(Index rows, Index width, std::span<const Index> destination,
                              const Source<T>& source);
};

Output::Output(const Control& control, const std::string& target, bool force)
    : state_(new State{control, {}, {}, {}, {}, {}, {}}) {
  State& s = *state_;
  s.target = collectively(control, [&] { return parse_location(target); });
  bool file_exists = false;
  collectively(control, [&] {
    if (!s.first()) return;
    struct stat status {};
    file_exists = stat(s.target.file.c_str(), &status) == 0;
    if (file_exists && S_ISDIR(status.st_mode))
      throw Error(Exit::usage, "the output is a folder; " + s.target.file + "; name a file in it");
    if (file_exists && s.target.path.empty() && !force)
      throw Error(Exit::usage,
                  "the output exists; " + s.target.file + "; choose another name or add --force");
    const std::string folder = folder_of(s.target.file), reason = why_not_writable(folder);
    if (!reason.empty())
      throw Error(Exit::usage, "cannot write in the output folder: " + reason + "; " + folder +
                                   "; choose a writable folder");
  });
  file_exists = control.reduce(Index(file_exists), Reduce::max) > 0;
  if (file_exists && !s.target.path.empty() && exists(control, s.target) && !force)
    fail_together(Exit::usage, "the output group exists; " + to_string(s.target) +
                                   "; choose another name or add --force");
  std::string name = fmt::format(".{}.terrace-{}.tmp",
                                 s.target.file.substr(s.target.file.rfind('/') + 1), getpid());
  s.temporary = control.broadcast(folder_of(s.target.file) + "/" + name, 0);
}

Output::~Output() = default;

Handle Output::State::open_group(const std::string& path) {
  if (path == "/") return {H5Gopen2(file, "/", H5P_DEFAULT), &H5Gclose};
  if (const hid_t there = H5Gopen2(file, path.c_str(), H5P_DEFAULT); there >= 0)
    return {there, &H5Gclose};
  const Handle links(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  return {written(H5Gcreate2(file, path.c_str(), links, compact_attributes(H5P_GROUP_CREATE),
                             H5P_DEFAULT),
                  "cannot create group " + path, target.file),
          &H5Gclose};
}

/// Creates the temporary file: new, or a copy of the file that gets a group.
void Output::State::begin() {
  if (file.valid()) return;
  bool copied = false;
  collectively(control, [&] {
    if (!first()) return;
    unfinished.begin(temporary);
    std::error_code failed;
    if (target.path.empty() || !std::filesystem::exists(target.file, failed)) return;
    std::filesystem::copy_file(target.file, temporary,
                               std::filesystem::copy_options::overwrite_existing, failed);
    if (failed)
      throw Error(Exit::resources, "cannot copy the file that gets the group: " + failed.message() +
                                       "; " + target.file + "; free space on the disk?");
    copied = true;
  });
  copied = control.reduce(Index(copied), Reduce::max) > 0;
  file = copied ? open_parallel(control, temporary, true) : create_parallel(control, temporary);
  collectively(control, [&] { written(file, "cannot create the output", target.file); });
  if (!copied) return;
  // The group is replaced, and the root's link to its terrace group with it.
  collectively(control, [&] {
    const Handle old(H5Gopen2(file, "/terrace", H5P_DEFAULT), &H5Gclose);
    if (old.valid()) {
      const auto attributes = read_all_attributes(old);
      const auto named = attributes.find("group");
      if (named != attributes.end() && named->second == AnyAttribute(target.path))
        written(H5Ldelete(file, "/terrace", H5P_DEFAULT), "cannot replace the group", target.file);
    }
    const Handle there(H5Oopen(file, target.path.c_str(), H5P_DEFAULT), &H5Oclose);
    if (there.valid())
      written(H5Ldelete(file, target.path.c_str(), H5P_DEFAULT), "cannot replace the group",
              target.file);
  });
}

Handle Output::State::create_dataset(const std::string& name, const std::vector<Index>& dims,
                                     hid_t type) {
  Index bytes = 8;
  for (const Index d : dims) bytes *= d;
  begin();
  // A disk that fills while the ranks write together would leave some of them waiting in MPI-IO.
  collectively(control, [&] {
    constexpr Index metadata = Index(1) << 18;
    hsize_t so_far = 0;
    H5Fget_filesize(file, &so_far);
    if (!first()) return;
    std::string reason;
    if (bytes > free_bytes(folder_of(target.file)))
      reason = fmt::format("{:.3g} GB are free", double(free_bytes(folder_of(target.file))) / 1e9);
    else
      reason = reserve_space(temporary, Index(so_far) + bytes + metadata);
    if (!reason.empty())
      throw Error(Exit::resources,
                  fmt::format("no room on the disk: {} needs {:.3g} GB, {}; {}; free space or "
                              "choose another folder",
                              name, double(bytes) / 1e9, reason, target.file));
  });
  return collectively(control, [&] {
    const std::vector<hsize_t> extent(dims.begin(), dims.end());
    const Handle space(H5Screate_simple(int(extent.size()), extent.data(), nullptr), &H5Sclose);
    const Handle properties = compact_attributes(H5P_DATASET_CREATE);
    H5Pset_layout(properties, H5D_CONTIGUOUS);
    H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
    const Handle where = open_group(group());
    return Handle(
        written(H5Dcreate2(where, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
                "cannot create dataset " + name, target.file),
        &H5Dclose);
  });
}

/// Calls fill(piece, buffer) for each piece of this rank and writes it; the sum of the hashes.
template <class T, class F>
Word Output::State::write_pieces(hid_t dataset, const std::vector<Index>& dims,
                                 std::span<const Range> ranges, int axis, const F& fill) {
  const Index other = dims.size() == 2 ? dims[std::size_t(1 - axis)] : 1;
  const auto pieces = plan_pieces(ranges, piece_bytes() / std::max<Index>(1, other * 8));
  const Rounds rounds = agree_rounds(control, pieces, axis == 0 ? other * 8 : 8, true);
  Index largest = 0;
  for (const Piece& p : pieces) largest = std::max(largest, p.items());
  const auto buffer = allocate_together<T>(control, largest * other);
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  const Handle how = transfer(rounds.collective);
  std::optional<Error> mine;
  Word sum = 0;
  for (Index k = 0; k < rounds.count; ++k) {
    const Piece* piece = k < Index(pieces.size()) ? &pieces[std::size_t(k)] : nullptr;
    if (!rounds.collective && (piece == nullptr || mine)) break;
    if (piece != nullptr && !mine) {
      try {
        fill(*piece, buffer.get());
      } catch (const Error& e) {  // told at the end, by all
        mine = e;
      }
      const Word* bits = reinterpret_cast<const Word*>(buffer.get());
      const Index rows = axis == 0 ? 1 : other, width = axis == 0 ? other : 1;
      const Index pitch = axis == 0 ? 0 : dims[1];
      for (Index r = 0; r < rows; ++r)
        for (Index b = 0; b < piece->count; ++b)
          sum +=
              hash_run(bits + (r * piece->items() + b * piece->block) * width, piece->block * width,
                       r * pitch + (piece->first + b * piece->stride) * width);
    }
    const Handle memory = select(space, piece, axis);
    if (other > 0 && H5Dwrite(dataset, type_of<T>(), memory, space, how, buffer.get()) < 0 && !mine)
      mine = Error(Exit::resources, "cannot write the output; " + target.file +
                                        "; free space on the disk? " + hdf5_reason());
  }
  collectively(control, [&] {
    if (mine) throw *mine;
  });
  return sum;
}

void Output::State::finish_dataset(hid_t dataset, const std::vector<Index>& dims, Word sum,
                                   const Attributes& attributes) {
  std::vector<Word> total{sum};
  control.reduce(total, Reduce::sum);
  const AnyAttributes all = any(attributes);
  collectively(control, [&] {
    put_attributes(dataset, all);
    put_attribute(dataset, hash_name, Index(total[0] + hash_frame(all, dims)), target.file);
  });
}

namespace {
std::vector<Index> shape(Index rows, Index columns) {
  return columns < 0 ? std::vector<Index>{rows} : std::vector<Index>{rows, columns};
}
}  // namespace

template <class T>
void Output::write(const std::string& name, Index rows, Index columns,
                   std::span<const Range> ranges, const Source<T>& source,
                   const Attributes& attributes) {
  State& s = *state_;
  s.step([&] {
    const auto dims = shape(rows, columns);
    const Handle dataset = s.create_dataset(name, dims, type_of<T>());
    const Word sum = s.write_pieces<T>(dataset, dims, ranges, 0, [&](const Piece& p, T* out) {
      source(p.position, p.items(), out);
    });
    s.finish_dataset(dataset, dims, sum, attributes);
  });
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

/// Wide rows: each run of rows that are neighbours here and in the file goes out by itself.
template <class T>
Word Output::State::write_rows_alone(hid_t dataset, Index width, std::span<const Index> destination,
                                     const Source<T>& source) {
  const Index rows = Index(destination.size());
  const Index most =
      std::clamp<Index>(piece_bytes() / 8 / std::max<Index>(1, width), 1, std::max<Index>(1, rows));
  const auto buffer = allocate_together<T>(control, most * width);
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  const Handle how = transfer(false);
  Word sum = 0;
  collectively(control, [&] {
    for (Index at = 0; at < rows; at += most) {
      const Index count = std::min(most, rows - at);
      source(at, count, buffer.get());
      for (Index i = 0; i < count;) {
        const Index to = destination[std::size_t(at + i)];
        Index run = 1;
        while (i + run < count && destination[std::size_t(at + i + run)] == to + run) ++run;
        const Piece piece{to, run, 1, run, 0};
        const T* data = buffer.get() + i * width;
        sum += hash_run(reinterpret_cast<const Word*>(data), run * width, to * width);
        const Handle memory = select(space, &piece, 0);
        written(H5Dwrite(dataset, type_of<T>(), memory, space, how, data),
                "cannot write the output", target.file);
        i += run;
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

void Output::attribute(const std::string& name, const Attribute& value) {
  state_->step([&] {
    state_->begin();
    std::visit([&](const auto& v) { state_->group_attributes[state_->group()][name] = v; }, value);
  });
}

void Output::attribute(const std::string& name, const std::vector<Index>& values) {
  state_->step([&] {
    state_->begin();
    state_->group_attributes[state_->group()][name] = values;
  });
}

void Output::group(const std::string& name) { state_->sub = name; }

void Output::commit(const Attributes& terrace) {
  State& s = *state_;
  s.step([&] {
    s.begin();
    const std::string base = s.target.path;  // empty for the root
    AnyAttributes record = any(terrace);
    record["group"] = s.target_group();
    s.group_attributes[base + "/terrace"] = record;
    hsize_t expected = 0;
    collectively(s.control, [&] {
      for (const auto& [path, attributes] : s.group_attributes) {
        const Handle group = s.open_group(path);
        s.put_attributes(group, attributes);
        put_attribute(group, hash_name, Index(hash_frame(attributes, {})), s.target.file);
      }
      if (!base.empty() && H5Lexists(s.file, "terrace", H5P_DEFAULT) <= 0)
        written(H5Lcreate_hard(s.file, (base + "/terrace").c_str(), s.file, "/terrace", H5P_DEFAULT,
                               H5P_DEFAULT),
                "cannot link the terrace group", s.target.file);
      written(H5Fflush(s.file, H5F_SCOPE_GLOBAL), "cannot write the output", s.target.file);
      H5Fget_filesize(s.file, &expected);
    });
    const herr_t closed = s.file.close();
    collectively(s.control, [&] {
      if (closed < 0)
        throw Error(Exit::resources, "cannot finish the output; " + s.target.file +
                                         "; free space on the disk? " + hdf5_reason());
      if (!s.first()) return;
      struct stat status {};
      const bool whole =
          stat(s.temporary.c_str(), &status) == 0 && status.st_size >= static_cast<off_t>(expected);
      const std::string reason = whole ? sync_file(s.temporary) : "it is too short";
      if (!reason.empty())
        throw Error(Exit::resources, "the output did not get to the disk: " + reason + "; " +
                                         s.target.file + "; free space on the disk?");
      if (std::rename(s.temporary.c_str(), s.target.file.c_str()) != 0)
        throw Error(Exit::resources, std::string("cannot name the output: ") +
                                         std::strerror(errno) + "; " + s.target.file +
                                         "; choose another name");
      s.unfinished.finish();
    });
  });
}

#define TERRACE_OUTPUT(T)                                                                  \
  template void Output::write<T>(const std::string&, Index, Index, std::span<const Range>, \
                                 const Source<T>&, const Attributes&);                     \
  template void Output::write_scattered<T>(const std::string&, Index, Index,               \
                                           std::span<const Index>, const Source<T>&,       \
                                           const Attributes&);
TERRACE_OUTPUT(double)
TERRACE_OUTPUT(Index)
TERRACE_OUTPUT(Word)

}  // namespace terrace::io
