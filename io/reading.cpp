#include "io/reading.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "distrib/access.hpp"
#include "distrib/faults.hpp"
#include "io/announce.hpp"
#include "io/chunks.hpp"
#include "io/column_tiles.hpp"
#include "io/transpose.hpp"
#include "io/volume.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

namespace {

constexpr Index step_bytes = Index(256) << 10;  // what one thread reads, converts and checks
constexpr int direct_threads = 8;               // that have a portion each

char* scratch(int which, Index bytes) {
  thread_local std::vector<char> kept[2];
  auto& mine = kept[which];
  if (Index(mine.size()) < bytes) mine.resize(std::size_t(bytes));
  return mine.data();
}

/// One read: where the elements stand, and what becomes of them.
class Reading {
 public:
  Reading(const InputFile& input, const Request& request, const Object& object)
      : input_(input),
        request_(request),
        object_(object),
        dataset_(input.source(request.dataset).dataset),
        items_(object.dims[std::size_t(request.axis)]),
        others_(object.dims.size() == 2 ? object.dims[std::size_t(1 - request.axis)] : 1) {
    memory_type_ = Handle(H5Dget_type(dataset_), &H5Tclose);
    if (const auto known = element_of(memory_type_)) {
      element_ = *known;
    } else if (request.as == As::stored) {
      element_.bytes = object.bytes;
    } else {  // HDF5 converts
      memory_type_ = Handle(H5Tcopy(wanted_type()), &H5Tclose);
      element_ = element_of(memory_type_).value();
      converts_ = true;
    }
    stored_ = where_stored(input.source(request.dataset).file, dataset_, object, input.where());
    if (converts_ || (request.upper && stored_.way == Stored::Way::filtered))
      stored_.way = Stored::Way::library;
    raw_item_ = others_ * element_.bytes;
    in_place_ = request.axis == 0 && !request.packs && raw_item_ == request.item_bytes;
  }

  [[nodiscard]] const Stored& stored() const { return stored_; }
  [[nodiscard]] hid_t dataset() const { return dataset_; }
  [[nodiscard]] Index raw_item() const { return raw_item_; }
  /// A slab may be the buffer itself.
  [[nodiscard]] bool in_place() const { return in_place_; }
  [[nodiscard]] bool direct() const { return stored_.way == Stored::Way::direct; }
  /// Tiles that one rank reads and the others get their columns of: 8 KiB of up to 64 rows, so
  /// that every rank has some of each item.
  void cut_in_tiles(int ranks) {
    stored_.chunk[1] = std::min(items_, (Index(8) << 10) / element_.bytes);
    stored_.chunk[0] = std::clamp<Index>(others_ / (4 * ranks), 1, 64);
  }
  void to_library() { stored_.way = Stored::Way::library; }

  /// Straight from the file.
  void from_file(const Portion& p, char* out) const { take_all(p, out, nullptr); }
  /// From a slab in the order of the file.
  void from_slab(const Portion& p, const char* slab, char* out) const { take_all(p, out, slab); }
  /// Fills a slab through HDF5; the band's upper form is sheared: row d holds element d.
  void ask_library(const Portion& p, char* slab) const {
    const Handle space(hdf5_check(H5Dget_space(dataset_), "damaged dataset", input_.where()),
                       &H5Sclose);
    for (std::size_t k = 0; k < p.ranges.size(); ++k) {
      const Range r = p.ranges[k];
      if (!request_.upper) {
        transfer_block(space, p, r.first, r.count, 0, others_, p.starts[k], slab);
        continue;
      }
      for (Index d = 0; d < others_ && r.first + d < items_; ++d)
        transfer_block(space, p, r.first + d, std::min(r.count, items_ - r.first - d),
                       others_ - 1 - d, 1, p.starts[k], slab);
    }
  }
  /// Tells the kernel what comes next (axis 0).
  void announce(const Portion& p) const {
    for (const Range& r : p.ranges)
      announce_run(stored_.descriptor, stored_.offset + r.first * raw_item_, r.count * raw_item_);
  }
  /// Tells it in a thread of its own (axis 1); null where that brings nothing. `rounds`: or null.
  [[nodiscard]] std::unique_ptr<Announcer> announcer(const Control& control,
                                                     std::span<const Range> ranges,
                                                     const ChunkRounds* rounds) const {
    std::vector<Announcer::Window> windows;
    const Index height = others_ * element_.bytes;
    if (rounds) {
      const Index items = window_items(items_, ceil_div(height, control.size()), element_.bytes,
                                       control.local_size());
      if (items > 0) windows = rounds->windows(items);
    } else {
      // What lies between short runs is for other ranks of this host.
      const Index between = control.size() > 1 ? (Index(64) << 10) / element_.bytes : 0;
      Index all = 0;
      for (const Range& r : ranges) all += r.count;
      const Index items = window_items(all, height, element_.bytes, control.local_size());
      if (items > 0)
        for (const Portion& p : cut(ranges, items))
          windows.push_back({{{{0, others_}, joined(p.ranges, between)}}, p.position + p.items});
    }
    if (windows.empty() || others_ == 0) return nullptr;
    return std::make_unique<Announcer>(
        Announcer::Columns{stored_.descriptor, element_.bytes,
                           [this](Index item, Index row) { return place(item, row); }},
        std::move(windows));
  }

 private:
  void take_all(const Portion& p, char* out, const char* slab) const {
    if (request_.axis == 0)
      rows(p, out, slab);
    else if (request_.turned)
      columns(p, out, slab);
    else
      diagonals(p, out, slab);
  }
  [[nodiscard]] hid_t wanted_type() const {
    switch (request_.as) {
      case As::indices:
        return H5T_NATIVE_INT64;
      case As::words:
        return H5T_NATIVE_UINT64;
      case As::bytes:
        return object_.number == Number::unsigned_integer ? H5T_NATIVE_UINT8 : H5T_NATIVE_INT8;
      default:
        return H5T_NATIVE_DOUBLE;
    }
  }
  [[nodiscard]] Index place(Index item, Index other) const {
    const Index row = request_.upper ? others_ - 1 - other : other;
    return stored_.offset + (row * items_ + item + (request_.upper ? other : 0)) * element_.bytes;
  }
  /// Items [first, first + count) of others [other, other + others) to the slab.
  void transfer_block(hid_t space, const Portion& p, Index first, Index count, Index other,
                      Index others, Index item, char* slab) const {
    const int axis = request_.axis, rank = object_.dims.size() == 2 ? 2 : 1;
    hsize_t start[2], extent[2], memory[2], memory_start[2];
    start[axis] = hsize_t(first);
    start[1 - axis] = hsize_t(other);
    extent[axis] = hsize_t(count);
    extent[1 - axis] = hsize_t(others);
    memory[axis] = hsize_t(p.items);
    memory[1 - axis] = hsize_t(others_);
    memory_start[axis] = hsize_t(item);
    memory_start[1 - axis] = hsize_t(request_.upper ? others_ - 1 - other : other);
    if (extent[0] == 0 || (rank == 2 && extent[1] == 0)) return;
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, extent, nullptr);
    const Handle to(H5Screate_simple(rank, memory, nullptr), &H5Sclose);
    H5Sselect_hyperslab(to, H5S_SELECT_SET, memory_start, nullptr, extent, nullptr);
    if (H5Dread(dataset_, memory_type_, to, space, H5P_DEFAULT, slab) < 0)
      throw unreadable(dataset_, input_.where());
  }

  void take(const Portion& p, Index item, Index items, const char* raw, char* out) const {
    request_.take(p, item, items, element_, raw, out + item * request_.item_bytes);
  }

  /// Items that are rows of the file.
  void rows(const Portion& p, char* out, const char* slab) const {
    const Index group = std::max<Index>(1, step_bytes / std::max<Index>(1, raw_item_));
    parallel_for(ceil_div(p.items, group), [&](Index g) {
      const Index end = std::min(p.items, (g + 1) * group);
      for (Index item = g * group; item < end;) {
        std::size_t k = p.range_of(item);
        const Range& r = p.ranges[k];
        const Index within = item - p.starts[k], run = std::min(end - item, r.count - within);
        char* const place = in_place_ ? out + item * raw_item_ : scratch(0, run * raw_item_);
        if (slab) {
          const char* from = slab + item * raw_item_;
          if (in_place_ && from != place) std::memcpy(place, from, std::size_t(run * raw_item_));
          take(p, item, run, in_place_ ? place : from, out);
          item += run;
        } else if (run * raw_item_ >= short_run || k + 1 == p.ranges.size()) {
          read_at(stored_.descriptor, stored_.offset + (r.first + within) * raw_item_,
                  run * raw_item_, place, input_.where());
          take(p, item, run, place, out);
          item += run;
        } else {
          item = sieve(p, k, item, end, out);
        }
      }
    });
  }

  /// Short runs from `item` on, read with the gaps between them; the item that follows.
  Index sieve(const Portion& p, std::size_t k, Index item, Index end, char* out) const {
    const Index from = p.ranges[k].first + item - p.starts[k];
    Index hull = from, last = item;
    std::size_t stop = k;
    for (; stop < p.ranges.size() && last < end; ++stop) {
      const Range& r = p.ranges[stop];
      const Index begins = stop == k ? from : r.first;
      const Index run = std::min(end - last, r.end() - begins);
      if (stop > k && (begins < hull || (begins + run - from) * raw_item_ > step_bytes)) break;
      hull = begins + run;
      last += run;
    }
    char* const whole = scratch(1, (hull - from) * raw_item_);
    read_at(stored_.descriptor, stored_.offset + from * raw_item_, (hull - from) * raw_item_, whole,
            input_.where());
    char* const packed = in_place_ ? out + item * raw_item_ : scratch(0, (last - item) * raw_item_);
    Index done = 0;
    for (std::size_t s = k; s < stop; ++s) {
      const Index begins = s == k ? from : p.ranges[s].first;
      const Index run = std::min(last - item - done, p.ranges[s].end() - begins);
      std::memcpy(packed + done * raw_item_, whole + (begins - from) * raw_item_,
                  std::size_t(run * raw_item_));
      done += run;
    }
    take(p, item, last - item, packed, out);
    return last;
  }

  /// Element d of a tile's first items, those below column `end`, converted; their number.
  Index fetch_tile(const Portion& p, const ColumnTile& t, Index d, Index end, const char* slab,
                   double* to) const {
    const Index hull = std::clamp<Index>(end - t.first, 0, t.hull);
    if (hull > 0 && t.hull == t.count) fetch(p, t.first, t.item, d, hull, slab, to);
    if (hull == 0 || t.hull == t.count) return hull;
    char* const raw = scratch(1, hull * element_.bytes);
    read_at(stored_.descriptor, place(t.first, d), hull * element_.bytes, raw, input_.where());
    Index done = 0;
    each_run(p, t, hull, [&](Index first, Index count) {
      convert(raw + (first - t.first) * element_.bytes, to + done, count);
      done += count;
    });
    return done;
  }

  /// Items that are columns of the file: tiles of some elements of a run of items are read row by
  /// row of the file, checked, and turned while they are in the cache.
  ///
  ///   file      d: |....[run]....|      out   item: |d0 .. d1|....
  ///           d+1: |....[run]....|            item+1: |d0 .. d1|....
  void columns(const Portion& p, char* out, const char* slab) const {
    const std::vector<ColumnTile> tiles = column_tiles(p, element_.bytes, slab ? 0 : narrow_gap);
    Index widest = 1;
    for (const ColumnTile& t : tiles) widest = std::max(widest, t.count);
    const Index deep = std::min(others_, std::clamp<Index>((step_bytes * 2) / 8 / widest, 8, 64));
    if (deep == 0) return;
    const Index blocks = ceil_div(others_, deep), ld = widest + 8;
    parallel_for(Index(tiles.size()) * blocks, [&](Index task) {
      const ColumnTile& t = tiles[std::size_t(task / blocks)];
      const Index d0 = task % blocks * deep, d1 = std::min(others_, d0 + deep);
      auto* const tile = reinterpret_cast<double*>(scratch(0, deep * ld * 8));
      for (Index d = d0; d < d1; ++d) {
        double* const row = tile + (d - d0) * ld;
        const Index inside = fetch_tile(p, t, d, request_.band ? items_ - d : items_, slab, row);
        std::fill(row + inside, row + t.count, 0.0);
        if (request_.as != As::doubles) continue;
        if (const Index at = not_finite(row, inside); at >= 0)
          request_.wrong(p.global(t.item + at), d, row[at]);
      }
      turn(reinterpret_cast<double*>(out) + t.item * others_ + d0, others_, tile, ld, d1 - d0,
           t.count);
    });
  }

  /// The same, doubles of one range, as they lie: element d of all items, then element d + 1.
  void diagonals(const Portion& p, char* out, const char* slab) const {
    const Index first = p.ranges.front().first, longest = step_bytes / 8;
    const Index pieces = ceil_div(p.items, longest), deep = std::max<Index>(1, longest / p.items);
    parallel_for(ceil_div(others_, deep) * pieces, [&](Index task) {
      const Index item = task % pieces * longest, count = std::min(longest, p.items - item);
      const Index d0 = task / pieces * deep;
      for (Index d = d0; d < std::min(others_, d0 + deep); ++d) {
        double* const row = reinterpret_cast<double*>(out) + d * p.items + item;
        const Index inside =
            request_.band ? std::clamp<Index>(items_ - d - first - item, 0, count) : count;
        if (inside > 0) fetch(p, first + item, item, d, inside, slab, row);
        std::fill(row + inside, row + count, 0.0);
        if (const Index at = not_finite(row, inside); at >= 0)
          request_.wrong(first + item + at, d, row[at]);
      }
    });
  }

  /// Elements in their 8-byte form. A tile is moved as doubles whatever its bits mean.
  void convert(const char* from, double* to, Index count) const {
    if (request_.as == As::indices)
      to_indices(element_, from, reinterpret_cast<Index*>(to), count);
    else if (request_.as == As::words)
      to_words(element_, from, reinterpret_cast<Word*>(to), count);
    else
      to_doubles(element_, from, to, count);
  }

  /// Element d of `count` items from global item `first`, item `item` of the portion, converted.
  void fetch(const Portion& p, Index first, Index item, Index d, Index count, const char* slab,
             double* to) const {
    if (slab) {
      convert(slab + (d * p.items + item) * element_.bytes, to, count);
      return;
    }
    const bool as_is =
        element_.form == (request_.as == As::words ? Element::Form::u64 : Element::Form::f64) &&
        !element_.swapped;
    char* const raw = as_is ? reinterpret_cast<char*>(to) : scratch(1, count * element_.bytes);
    read_at(stored_.descriptor, place(first, d), count * element_.bytes, raw, input_.where());
    if (!as_is) convert(raw, to, count);
  }

  const InputFile& input_;
  const Request& request_;
  const Object& object_;
  hid_t dataset_;
  Index items_, others_, raw_item_ = 0;
  Handle memory_type_;
  Element element_;
  Stored stored_;
  bool converts_ = false, in_place_ = false;
};

/// How a rank's items are cut, and how many threads take a portion each.
struct Cut {
  Index bytes;
  int threads = 1;
};
/// Where nothing is shared, small portions by several threads; of columns, whose runs are as long as a
/// portion is wide, those of 4 KiB at least. Else larger ones, in each of which all threads work.
Cut cut_for(const Control& control, const Request& request, const Object& object,
            const Reading& reading, Index items) {
  constexpr Index small = Index(512) << 10, most = 96 * small;  // of all that are under way
  const Index large = (request.axis == 1 ? 8 : 4) * small;
  const Index runs = request.axis == 1 ? 4096 / object.bytes * request.item_bytes : 0;
  if (reading.direct() && (request.axis == 0 || control.size() == 1)) {
    const Index wanted = std::max(std::clamp(items * request.item_bytes / 16, small, large), runs);
    const Index bytes = std::min(piece_bytes(), wanted);
    const int threads =
        std::min(thread_count(), int(std::clamp<Index>(most / bytes - 2, 1, direct_threads)));
    if (request.axis == 0 || threads > 2) return {bytes, threads};
  }
  if (request.axis == 1) return {std::clamp(runs, piece_bytes(), 4 * piece_bytes())};
  if (reading.stored().way != Stored::Way::filtered) return {piece_bytes()};
  // A row of chunks is taken whole, else each would be inflated several times.
  const Index raw = std::max(request.item_bytes, reading.raw_item());
  return {std::clamp(reading.stored().chunk[0] * raw, piece_bytes(), 16 * piece_bytes())};
}

/// Chunks, and tiles of short runs, are dealt among the ranks; null where each reads for itself.
/// Collective.
std::unique_ptr<ChunkRounds> rounds_of(const Control& control, const InputFile& input,
                                       const Request& request, const Object& object,
                                       Reading& reading, std::span<const Range> ranges,
                                       Index most) {
  // A few ranks of one host read short runs themselves, from the same page cache.
  constexpr int few = 8;
  const bool alone = control.local_size() == control.size() && control.size() <= few &&
                     !test_setting("TERRACE_TEST_TILES");
  const bool tiles = control.size() > 1 && !alone && request.axis == 1 && !request.upper &&
                     reading.direct() &&
                     ChunkRounds::shortest_run(control, ranges) * object.bytes < short_run;
  if (tiles) reading.cut_in_tiles(control.size());
  if (!tiles && reading.stored().way != Stored::Way::filtered) return nullptr;
  auto rounds = std::make_unique<ChunkRounds>(control, input, reading.dataset(), object,
                                              reading.stored(), request.axis, ranges, most);
  if (rounds->possible()) return rounds;
  if (!tiles) reading.to_library();
  return nullptr;
}

}  // namespace

void read_portions(const Control& control, const InputFile& input, const Request& request,
                   std::span<const Range> ranges,
                   const std::function<void(const Portion&, const char*)>& use) {
  const Object& object =
      request.dataset.empty() ? input.object : input.object.children.at(request.dataset);
  auto reading =
      collectively(control, [&] { return std::make_unique<Reading>(input, request, object); });
  const bool nothing = object.dims[0] == 0 || (object.dims.size() == 2 && object.dims[1] == 0);
  Index items = 0;
  for (const Range& r : ranges) items += r.count;
  const Cut how = cut_for(control, request, object, *reading, items);
  const Index most =
      how.bytes / std::max<Index>(1, std::max(request.item_bytes, reading->raw_item()));
  const auto rounds =
      nothing ? nullptr : rounds_of(control, input, request, object, *reading, ranges, most);
  const std::vector<Portion> portions = rounds ? rounds->portions() : cut(ranges, most);
  Index largest = 0;
  for (const Portion& p : portions) largest = std::max(largest, p.items);
  // The slab may be the buffer itself where items keep their form.
  const bool slabs = !nothing && !reading->in_place() && (rounds || !reading->direct());
  const auto slab = allocate_together<char>(control, slabs ? largest * reading->raw_item() : 0);
  const auto announcer = request.axis == 1 && reading->direct() && !nothing
                             ? reading->announcer(control, ranges, rounds.get())
                             : nullptr;
  const int ahead = !rounds || rounds->ahead() ? how.threads : 0;  // 0: the ranks meet
  std::optional<Error> mine;
  const auto load = [&](Index k, char* buffer) {
    const Portion& p = portions[std::size_t(k)];
    if (nothing) return;
    char* const raw = reading->in_place() ? buffer : slab.get();
    std::optional<AccessWatch> watch;
    if (!reading->direct())
      watch.emplace([](void*) { return true; }, nullptr,
                    "terrace: HDF5 read what is not in memory; " + input.where() +
                        "; the file is damaged: write it again\n",
                    int(Exit::input));
    if (rounds) {
      if (announcer) announcer->wait(k);
      rounds->load(k, raw);
      if (p.items > 0 && !rounds->failure()) reading->from_slab(p, raw, buffer);
    } else if (reading->direct()) {
      if (announcer) announcer->wait(p.position + p.items - 1);
      if (request.axis == 0 && k + how.threads < Index(portions.size()))
        reading->announce(portions[std::size_t(k + how.threads)]);
      reading->from_file(p, buffer);
    } else {
      reading->ask_library(p, raw);
      reading->from_slab(p, raw, buffer);
    }
  };
  const auto take = [&](Index k, char* buffer) {
    const Portion& p = portions[std::size_t(k)];
    if (p.items == 0 || mine || (rounds && rounds->failure())) return;
    count_volume(p.items * reading->raw_item(), 0);
    mine = failure_of([&] { use(p, buffer); });
    if (!mine) return;
    if (!rounds || control.size() == 1) throw *mine;
    rounds->give_up();  // the others wait for this rank's part of the rounds
  };
  collectively(control, [&] {
    try {
      overlap(Index(portions.size()), largest * request.item_bytes, ahead, load, take);
    } catch (const Error& e) {
      if (!mine) throw;
    }
    if (mine) throw *mine;
    if (rounds && rounds->failure()) throw *rounds->failure();
    if (const auto shorter = input.shortened()) throw *shorter;
  });
}

}  // namespace terrace::io
