// A round of chunks: read, inflated, spread over those who need them, and collected.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/session.hpp"
#include "io/chunks.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

template <class F>
void ChunkRounds::each_run(const Portion& p, const Chunk& chunk, const F& run) const {
  const Index from = chunk.unit * unit_, to = from + unit_;
  auto k = std::size_t(std::partition_point(p.ranges.begin(), p.ranges.end(),
                                            [&](const Range& r) { return r.end() <= from; }) -
                       p.ranges.begin());
  for (; k < p.ranges.size() && p.ranges[k].first < to; ++k) {
    const Index first = std::max(from, p.ranges[k].first);
    const Index count = std::min(to, p.ranges[k].end()) - first;
    run(first - from, count, p.starts[k] + first - p.ranges[k].first);
  }
}

/// Memory for the messages of the largest round.
void ChunkRounds::prepare_messages() {
  messages_.to.assign(std::size_t(control_.size()), 0);
  messages_.from = messages_.to;
  if (control_.size() == 1) {
    ahead_ = true;
    return;
  }
  int level = 0;
  MPI_Query_thread(&level);
  ahead_ = level == MPI_THREAD_MULTIPLE;
  Index most_out = 0, most_in = 0;
  for (Index round = 0; round < Index(portions_.size()); ++round) {
    (void)open(round, nullptr);
    const auto total = [](const std::vector<Index>& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), Index(0));
    };
    most_out = std::max(most_out, total(messages_.to));
    most_in = std::max(most_in, total(messages_.from));
  }
  collectively(control_, [&] {
    messages_.out = Buffer<char, Cpu>(most_out);
    messages_.in = Buffer<char, Cpu>(most_in);
  });
  messages_.lane = std::make_unique<MpiLane>(control_);
}

void ChunkRounds::ask_library(const hsize_t* offset, LargeVector<char>& raw) const {
  const Handle type(H5Dget_type(dataset_), &H5Tclose), space(H5Dget_space(dataset_), &H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  const hsize_t beginning[2] = {0, 0};
  hsize_t whole[2] = {1, 1}, inside[2] = {1, 1};
  whole[axis_] = hsize_t(unit_);
  whole[1 - axis_] = hsize_t(across_);
  inside[axis_] = std::min(whole[axis_], hsize_t(extent_) - offset[axis_]);
  inside[1 - axis_] = std::min(whole[1 - axis_], hsize_t(others_) - offset[1 - axis_]);
  const Handle memory(H5Screate_simple(rank, whole, nullptr), &H5Sclose);
  raw.assign(std::size_t(unit_ * across_ * element_), 0);
  if (H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, nullptr, inside, nullptr) < 0 ||
      H5Sselect_hyperslab(memory, H5S_SELECT_SET, beginning, nullptr, inside, nullptr) < 0 ||
      H5Dread(dataset_, type, memory, space, H5P_DEFAULT, raw.data()) < 0)
    throw Error(Exit::input, "a chunk cannot be found; " + input_.where() + "; " + hdf5_reason());
}

void ChunkRounds::fetch_into(const Chunk& chunk, std::size_t place) {
  LargeVector<char>& raw = raw_[place];
  const Index bytes = unit_ * across_ * element_;
  if (stored_.way == Stored::Way::direct) {  // a tile of a dataset without gaps, axis 1
    raw.resize(std::size_t(bytes));
    const Index first = chunk.unit * unit_, width = std::min(unit_, extent_ - first);
    for (Index d = 0; d < std::min(across_, others_ - chunk.across * across_); ++d)
      read_at(stored_.descriptor,
              stored_.offset + ((chunk.across * across_ + d) * extent_ + first) * element_,
              width * element_, raw.data() + d * unit_ * element_, input_.where());
    return;
  }
  hsize_t offset[2] = {0, 0};
  const Index first = chunk.unit * unit_, beside = chunk.across * across_;
  offset[axis_] = hsize_t(first);
  offset[1 - axis_] = hsize_t(beside);
  hsize_t stored = 0;
  const bool found = H5Dget_chunk_storage_size(dataset_, offset, &stored) >= 0;
  if (!found || stored == 0) {  // never written (HDF5 1.10: an error where others are), or damaged
    ask_library(offset, raw);
    masks_[place] = ~std::uint32_t(0);
    return;
  }
  if (stored > hsize_t(2 * bytes + 4096))
    throw Error(Exit::input, "a chunk has the wrong size; " + input_.where() +
                                 "; the file is damaged: write it again");
  raw.resize(std::size_t(stored));
  if (H5Dread_chunk(dataset_, H5P_DEFAULT, offset, &masks_[place], raw.data()) < 0)
    throw Error(Exit::input, "cannot read the data; " + input_.where() + "; " + hdf5_reason());
}

void ChunkRounds::load(Index number, char* slab) {
  const Round round = open(number, slab);
  inflate(round);
  if (control_.size() == 1) return;
  exchange(round);
  collect(round);
}

/// Who inflates what, and where each job's part of each message begins.
ChunkRounds::Round ChunkRounds::open(Index number, char* slab) {
  Round round{number, slab, jobs(number), {}, {}, {}, {}};
  const int me = control_.rank(), size = control_.size();
  Messages& m = messages_;
  std::fill(m.to.begin(), m.to.end(), 0);
  std::fill(m.from.begin(), m.from.end(), 0);
  round.places.resize(round.jobs.size());
  for (std::size_t j = 0; j < round.jobs.size(); ++j) {
    const Job& job = round.jobs[j];
    const bool mine_alone = job.needers.size() == 1 && job.needers.front() == me;
    if (job.owner == me && !(given_up_ && mine_alone)) round.own.push_back(j);
    for (const int r : job.needers) {
      if (job.owner == r || (job.owner != me && r != me)) continue;
      Index& total = job.owner == me ? m.to[std::size_t(r)] : m.from[std::size_t(job.owner)];
      round.places[j].push_back(total);
      each_run(all_[std::size_t(r)][std::size_t(number)], job.chunk,
               [&](Index, Index count, Index) { total += count * width(job.chunk) * element_; });
    }
  }
  round.out_start.assign(std::size_t(size), 0);
  round.in_start.assign(std::size_t(size), 0);
  for (std::size_t r = 1; r < std::size_t(size); ++r) {
    round.out_start[r] = round.out_start[r - 1] + m.to[r - 1];
    round.in_start[r] = round.in_start[r - 1] + m.from[r - 1];
  }
  return round;
}

/// Elements across of a chunk that are inside the dataset.
Index ChunkRounds::width(const Chunk& chunk) const {
  return std::min(across_, others_ - chunk.across * across_);
}

/// This rank's jobs: from the file to the slab and to the messages.
void ChunkRounds::inflate(const Round& round) {
  const Index bytes = unit_ * across_ * element_;
  const auto batch =
      std::size_t(std::clamp<Index>((Index(128) << 20) / bytes, 1, 8 * thread_count()));
  const bool tiles = stored_.way == Stored::Way::direct;
  std::mutex library;  // HDF5 takes one thread at a time
  const auto fetch = [&](const Chunk& chunk, std::size_t k) {
    if (tiles) return fetch_into(chunk, k);
    {
      const std::lock_guard lock(library);
      fetch_into(chunk, k);
    }
    unfilter(stored_.filters, masks_[k], element_, raw_[k], spare_[k], bytes, input_.where());
  };
  const std::optional<Error> failed = failure_of([&] {
    if (raw_.size() < batch) raw_.resize(batch), spare_.resize(batch), masks_.resize(batch);
    for (std::size_t at = 0; at < round.own.size() && !failure_; at += batch) {
      const std::size_t count = std::min(batch, round.own.size() - at);
      parallel_for(Index(count), [&](Index i) {
        const auto k = std::size_t(i);
        const std::size_t job = round.own[at + k];
        fetch(round.jobs[job].chunk, k);
        spread(round, job, raw_[k].data());
      });
    }
  });
  if (failed) failure_ = failed;
}

/// `count` items of a chunk, from item `item` of this rank's portion, in the slab.
ChunkRounds::Strided ChunkRounds::in_slab(const Round& round, const Chunk& chunk, Index count,
                                          Index item) const {
  const Index first = chunk.across * across_;
  if (axis_ == 0)
    return {round.slab + (item * others_ + first) * element_, others_ * element_,
            width(chunk) * element_, count};
  const Index items = portions_[std::size_t(round.number)].items;
  return {round.slab + (first * items + item) * element_, items * element_, count * element_,
          width(chunk)};
}

/// Between a chunk or a message and a slab or a message.
void ChunkRounds::copy(const Strided& to, const char* from, Index from_step) {
  for (Index k = 0; k < to.count; ++k)
    std::memcpy(to.at + k * to.step, from + k * from_step, std::size_t(to.length));
}

/// An inflated chunk to those who need it.
void ChunkRounds::spread(const Round& round, std::size_t j, const char* tile) {
  const Job& job = round.jobs[j];
  const Index step = (axis_ == 0 ? across_ : unit_) * element_, wide = width(job.chunk);
  std::size_t next = 0;
  for (const int r : job.needers) {
    const bool mine = r == control_.rank();
    Index place = mine ? 0 : round.out_start[std::size_t(r)] + round.places[j][next++];
    each_run(all_[std::size_t(r)][std::size_t(round.number)], job.chunk,
             [&](Index first, Index count, Index item) {
               const char* from = tile + first * (axis_ == 0 ? across_ : 1) * element_;
               if (mine) return copy(in_slab(round, job.chunk, count, item), from, step);
               const Index length = (axis_ == 0 ? wide : count) * element_;
               copy({messages_.out.data() + place, length, length, axis_ == 0 ? count : wide}, from,
                    step);
               place += count * wide * element_;
             });
  }
}

/// Where it fails, the others wait for ever for what it was to bring: this rank ends the job.
void ChunkRounds::exchange(const Round& round) {
  const Messages& m = messages_;
  std::vector<terrace::Piece> sends, receives;  // not those of a plan of reading
  for (int r = 0; r < control_.size(); ++r) {
    const auto k = std::size_t(r);
    receives.push_back({r, m.in.data() + round.in_start[k], m.from[k]});
    sends.push_back({r, m.out.data() + round.out_start[k], m.to[k]});
  }
  try {
    m.lane->exchange(sends, receives);
  } catch (const Error& e) {
    end_job(
        int(Exit::fault),
        fmt::format("terrace: rank {} on {} failed: {}; reading {}; look at the network and its "
                    "hosts, then run again",
                    control_.rank(), host_name(), e.what(), input_.where()));
  }
}

/// What the others inflated, from the messages to the slab.
void ChunkRounds::collect(const Round& round) const {
  for (std::size_t j = 0; j < round.jobs.size(); ++j) {
    const Job& job = round.jobs[j];
    if (job.owner == control_.rank() || round.places[j].empty()) continue;
    const char* from =
        messages_.in.data() + round.in_start[std::size_t(job.owner)] + round.places[j][0];
    each_run(portions_[std::size_t(round.number)], job.chunk, [&](Index, Index count, Index item) {
      const Strided to = in_slab(round, job.chunk, count, item);
      copy(to, from, to.length);
      from += to.length * to.count;
    });
  }
}

}  // namespace terrace::io
