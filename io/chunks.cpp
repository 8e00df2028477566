#include "io/chunks.hpp"

#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "distrib/mpi.hpp"
#include "distrib/session.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

/// What the ranks send each other in a round: to and from each, chunk after chunk.
struct ChunkRounds::Messages {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<Index> to, from;  ///< bytes, by rank
  Buffer<char, Cpu> out, in;
  std::vector<MPI_Request> requests;
  ~Messages() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

namespace {

/// A chunk of a round: who inflates it, who needs it.
struct Job {
  Index unit = 0, across = 0;
  int owner = 0;
  std::vector<int> needers;
};

/// A call of the network that failed: the others wait for ever for what it was to bring, so this
/// rank ends the job.
void must_arrive(int code, const char* call, const Control& control, const std::string& where) {
  try {
    check_mpi(code, call);
  } catch (const Error& e) {
    end_job(
        int(Exit::fault),
        fmt::format("terrace: rank {} on {} failed: {}; reading {}; look at the network and its "
                    "hosts, then run again",
                    control.rank(), host_name(), e.what(), where));
  }
}

Index units_last(const Range& r, Index unit) { return (r.end() - 1) / unit; }

/// The chunks of a round, in one order on all ranks; dealt among those that need them. Where there
/// are many across, those of one row of the file to one rank, which then reads long pieces.
std::vector<Job> jobs_of(const std::vector<std::vector<Portion>>& all, Index round, Index unit,
                         Index acrosses) {
  std::map<Index, std::vector<int>> needed;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (round < Index(all[r].size()))
      for (const Range& range : all[r][std::size_t(round)].ranges)
        for (Index u = range.first / unit; u <= units_last(range, unit); ++u)
          if (auto& ranks = needed[u]; ranks.empty() || ranks.back() != int(r))
            ranks.push_back(int(r));
  std::vector<Job> jobs;
  for (const auto& [u, ranks] : needed)
    for (Index a = 0; a < acrosses; ++a) {
      const bool many = acrosses >= 4 * Index(ranks.size());
      jobs.push_back({u, a, ranks[(many ? std::size_t(a) : jobs.size()) % ranks.size()], ranks});
    }
  return jobs;
}

}  // namespace

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

std::vector<Portion> ChunkRounds::plan(const std::vector<Range>& ranges) const {
  std::vector<Portion> portions;
  Index ordinal = -1, unit = -1, in_unit = 0, position = 0;
  for (Range r : ranges)
    while (r.count > 0) {
      const Index u = r.first / unit_;
      if (u != unit) {
        unit = u;
        ++ordinal;
        in_unit = 0;
      }
      Index take = std::min(r.count, (u + 1) * unit_ - r.first);
      Index round = ordinal / group_;
      if (parts_ > 1) {
        round = ordinal * parts_ + in_unit / most_;
        take = std::min(take, most_ - in_unit % most_);
      }
      while (Index(portions.size()) <= round) portions.push_back({position, {}, {}, 0});
      portions.back().add({r.first, take});
      r = {r.first + take, r.count - take};
      in_unit += take;
      position += take;
    }
  return portions;
}

ChunkRounds::ChunkRounds(const Control& control, const InputFile& input, hid_t dataset,
                         const Object& object, const Stored& stored, int axis,
                         std::span<const Range> ranges, Index most)
    : control_(control),
      input_(input),
      dataset_(dataset),
      stored_(stored),
      axis_(axis),
      extent_(object.dims[std::size_t(axis)]),
      others_(object.dims.size() == 2 ? object.dims[std::size_t(1 - axis)] : 1),
      unit_(stored.chunk[axis]),
      across_(stored.chunk[1 - axis]),
      element_(object.bytes),
      most_(std::max<Index>(1, most)) {
  std::string mine;
  Index end = 0, rises = 1;
  Portion merged;
  for (const Range& r : ranges) {
    if (r.count <= 0) continue;
    rises = rises && r.first >= end;
    end = r.end();
    merged.add(r);
  }
  possible_ = control.reduce(rises, Reduce::min) == 1;
  if (!possible_) return;
  mine.assign(reinterpret_cast<const char*>(merged.ranges.data()),
              merged.ranges.size() * sizeof(Range));
  std::vector<std::vector<Range>> wanted;
  for (const std::string& text : control.gather_all(mine)) {
    std::vector<Range> list(text.size() / sizeof(Range));
    if (!list.empty()) std::memcpy(list.data(), text.data(), text.size());
    wanted.push_back(std::move(list));
  }
  Index largest = 1;  // items of one unit that one rank needs
  for (const auto& list : wanted) {
    Index unit = -1, need = 0;
    for (Range r : list)
      while (r.count > 0) {
        const Index u = r.first / unit_, take = std::min(r.count, (u + 1) * unit_ - r.first);
        need = u == unit ? need + take : take;
        unit = u;
        largest = std::max(largest, need);
        r = {r.first + take, r.count - take};
      }
  }
  group_ = std::max<Index>(1, most_ / largest);
  parts_ = ceil_div(largest, most_);
  for (const auto& list : wanted) all_.push_back(plan(list));
  std::size_t rounds = 0;
  for (const auto& p : all_) rounds = std::max(rounds, p.size());
  portions_ = all_[std::size_t(control.rank())];
  Index position = 0;
  for (const Portion& p : portions_) position += p.items;
  portions_.resize(rounds, Portion{position, {}, {}, 0});
  messages_ = std::make_unique<Messages>();
  const int me = control.rank(), size = control.size();
  messages_->to.assign(std::size_t(size), 0);
  messages_->from = messages_->to;
  if (size == 1) {
    ahead_ = true;
    return;
  }
  int level = 0;
  MPI_Query_thread(&level);
  ahead_ = level == MPI_THREAD_MULTIPLE;
  Index most_out = 0, most_in = 0;
  for (Index round = 0; round < Index(rounds); ++round) {
    Index out = 0, in = 0;
    for (const Job& job : jobs_of(all_, round, unit_, ceil_div(others_, across_))) {
      const Index width = std::min(across_, others_ - job.across * across_);
      for (const int r : job.needers)
        if (r != job.owner && (r == me || job.owner == me))
          each_run(
              all_[std::size_t(r)][std::size_t(round)], {job.unit, job.across},
              [&](Index, Index count, Index) { (r == me ? in : out) += count * width * element_; });
    }
    most_out = std::max(most_out, out);
    most_in = std::max(most_in, in);
  }
  collectively(control, [&] {
    messages_->out = Buffer<char, Cpu>(most_out);
    messages_->in = Buffer<char, Cpu>(most_in);
    messages_->requests.resize(std::size_t(2 * size));
    check_mpi(MPI_Comm_dup(mpi_comm(control), &messages_->comm), "MPI_Comm_dup");
  });
}

ChunkRounds::~ChunkRounds() = default;

std::vector<Announcer::Window> ChunkRounds::windows(Index items) const {
  std::vector<Announcer::Window> result;
  std::map<Index, Portion> mine;  // by the number across
  Index first = extent_, end = 0;
  const auto rounds = Index(portions_.size());
  for (Index round = 0; round < rounds; ++round) {
    for (const Job& job : jobs_of(all_, round, unit_, ceil_div(others_, across_))) {
      const Index from = job.unit * unit_;
      first = std::min(first, from);
      end = std::max(end, std::min(extent_, from + unit_));
      Portion& part = mine[job.across];
      if (job.owner == control_.rank() && (part.ranges.empty() || part.ranges.back().end() <= from))
        part.add({from, std::min(unit_, extent_ - from)});
    }
    if (end - first < items && round + 1 < rounds) continue;
    Announcer::Window window;
    window.end = round + 1;
    for (const auto& [across, part] : mine)
      if (!part.ranges.empty())
        window.parts.push_back(
            {{across * across_, std::min(across_, others_ - across * across_)}, part.ranges});
    result.push_back(std::move(window));
    mine.clear();
    first = extent_;
    end = 0;
  }
  return result;
}

void ChunkRounds::ask_library(const hsize_t* offset, std::vector<char>& raw) const {
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
  std::vector<char>& raw = raw_[place];
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
  offset[axis_] = hsize_t(chunk.unit * unit_);
  offset[1 - axis_] = hsize_t(chunk.across * across_);
  hsize_t stored = 0;
  const bool found = H5Dget_chunk_storage_size(dataset_, offset, &stored) >= 0;
  std::uint32_t mask = 0;
  if (!found || stored == 0) {  // never written (HDF5 1.10: an error where others are), or damaged
    ask_library(offset, raw);
    mask = ~mask;
    spare_[place].assign(reinterpret_cast<const char*>(&mask),
                         reinterpret_cast<const char*>(&mask) + sizeof mask);
    return;
  }
  if (stored > hsize_t(2 * bytes + 4096))
    throw Error(Exit::input, "a chunk has the wrong size; " + input_.where() +
                                 "; the file is damaged: write it again");
  raw.resize(std::size_t(stored));
  if (H5Dread_chunk(dataset_, H5P_DEFAULT, offset, &mask, raw.data()) < 0)
    throw Error(Exit::input, "cannot read the data; " + input_.where() + "; " + hdf5_reason());
  spare_[place].assign(sizeof mask, 0);
  std::memcpy(spare_[place].data(), &mask, sizeof mask);
}

void ChunkRounds::load(Index round, char* slab) {
  const int me = control_.rank(), size = control_.size();
  const auto jobs = jobs_of(all_, round, unit_, ceil_div(others_, across_));
  const Index bytes = unit_ * across_ * element_;
  const Portion& mine = portions_[std::size_t(round)];
  // Copies a run between a chunk (or a message) and a slab (or a message); steps in bytes.
  const auto copy = [](char* to, Index to_step, const char* from, Index from_step, Index length,
                       Index count) {
    for (Index k = 0; k < count; ++k)
      std::memcpy(to + k * to_step, from + k * from_step, std::size_t(length));
  };
  struct Run {
    char* at;
    Index step, length, count;
  };
  const auto in_slab = [&](const Chunk& c, Index count, Index item) {
    const Index width = std::min(across_, others_ - c.across * across_);
    if (axis_ == 0)
      return Run{slab + (item * others_ + c.across * across_) * element_, others_ * element_,
                 width * element_, count};
    return Run{slab + (c.across * across_ * mine.items + item) * element_, mine.items * element_,
               count * element_, width};
  };
  // Where each job's part of each message begins.
  auto& m = *messages_;
  std::vector<std::vector<Index>> places(jobs.size());
  std::fill(m.to.begin(), m.to.end(), 0);
  std::fill(m.from.begin(), m.from.end(), 0);
  std::vector<std::size_t> own;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    const bool mine_alone = job.needers.size() == 1 && job.needers.front() == me;
    if (job.owner == me && !(given_up_ && mine_alone)) own.push_back(j);
    const Index width = std::min(across_, others_ - job.across * across_);
    for (const int r : job.needers) {
      if (job.owner == r || (job.owner != me && r != me)) continue;
      Index& total = job.owner == me ? m.to[std::size_t(r)] : m.from[std::size_t(job.owner)];
      places[j].push_back(total);
      each_run(all_[std::size_t(r)][std::size_t(round)], {job.unit, job.across},
               [&](Index, Index count, Index) { total += count * width * element_; });
    }
  }
  std::vector<Index> out_start(std::size_t(size), 0), in_start(std::size_t(size), 0);
  for (int r = 1; r < size; ++r) {
    out_start[std::size_t(r)] = out_start[std::size_t(r - 1)] + m.to[std::size_t(r - 1)];
    in_start[std::size_t(r)] = in_start[std::size_t(r - 1)] + m.from[std::size_t(r - 1)];
  }
  const auto spread = [&](const Job& job, const std::vector<Index>& at, const char* tile) {
    const Chunk chunk{job.unit, job.across};
    const Index width = std::min(across_, others_ - job.across * across_);
    std::size_t next = 0;
    for (const int r : job.needers) {
      Index place = r == me ? 0 : out_start[std::size_t(r)] + at[next++];
      each_run(all_[std::size_t(r)][std::size_t(round)], chunk,
               [&](Index first, Index count, Index item) {
                 const char* from = tile + first * (axis_ == 0 ? across_ : 1) * element_;
                 const Index step = (axis_ == 0 ? across_ : unit_) * element_;
                 if (r == me) {
                   const Run to = in_slab(chunk, count, item);
                   return copy(to.at, to.step, from, step, to.length, to.count);
                 }
                 const Index length = (axis_ == 0 ? width : count) * element_;
                 copy(m.out.data() + place, length, from, step, length, axis_ == 0 ? count : width);
                 place += count * width * element_;
               });
    }
  };
  const auto restore = [&](std::vector<char>& raw, std::vector<char>& spare) {
    std::uint32_t mask = 0;
    std::memcpy(&mask, spare.data(), sizeof mask);
    unfilter(stored_, mask, element_, raw, spare, bytes, input_.where());
  };
  const std::size_t batch =
      std::size_t(std::clamp<Index>((Index(128) << 20) / bytes, 1, 8 * thread_count()));
  try {
    if (raw_.size() < batch) raw_.resize(batch), spare_.resize(batch);
    for (std::size_t at = 0; at < own.size() && !failure_; at += batch) {
      const std::size_t count = std::min(batch, own.size() - at);
      const bool tiles = stored_.way == Stored::Way::direct;
      const auto fetch = [&](std::size_t k) {
        fetch_into({jobs[own[at + k]].unit, jobs[own[at + k]].across}, k);
      };
      std::mutex library;  // HDF5 takes one thread at a time
      parallel_for(Index(count), [&](Index i) {
        const auto k = std::size_t(i);
        std::vector<char>& raw = raw_[k];
        if (tiles) {
          fetch(k);
        } else {
          {
            const std::lock_guard lock(library);
            fetch(k);
          }
          restore(raw, spare_[k]);
        }
        spread(jobs[own[at + k]], places[own[at + k]], raw.data());
      });
    }
  } catch (const Error& e) {
    failure_ = e;
  } catch (const std::exception&) {
    failure_ = Error(Exit::resources, "out of host memory for chunks of " + std::to_string(bytes) +
                                          " bytes; " + input_.where() + "; use more ranks");
  }
  if (size == 1) return;
  std::size_t open = 0;
  const auto network = [&](int code, const char* call) {
    must_arrive(code, call, control_, input_.where());
  };
  constexpr Index most = Index(1) << 30;  // an int counts the bytes of a message
  const auto post = [&](bool sends, int r, Index bytes_left, char* data) {
    for (; bytes_left > 0; bytes_left -= most, data += most) {
      if (open == m.requests.size()) m.requests.resize(2 * open + 2);
      const int count = int(std::min(bytes_left, most));
      MPI_Request* const request = &m.requests[open++];
      if (sends)
        network(MPI_Isend(data, count, MPI_BYTE, r, 0, m.comm, request), "MPI_Isend");
      else
        network(MPI_Irecv(data, count, MPI_BYTE, r, 0, m.comm, request), "MPI_Irecv");
    }
  };
  for (int r = 0; r < size; ++r)
    if (r != me) post(false, r, m.from[std::size_t(r)], m.in.data() + in_start[std::size_t(r)]);
  for (int r = 0; r < size; ++r)
    if (r != me) post(true, r, m.to[std::size_t(r)], m.out.data() + out_start[std::size_t(r)]);
  network(MPI_Waitall(int(open), m.requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    if (job.owner == me || places[j].empty()) continue;
    const Chunk chunk{job.unit, job.across};
    const char* from = m.in.data() + in_start[std::size_t(job.owner)] + places[j][0];
    each_run(mine, chunk, [&](Index, Index count, Index item) {
      const Run to = in_slab(chunk, count, item);
      copy(to.at, to.step, from, to.length, to.length, to.count);
      from += to.length * to.count;
    });
  }
}

}  // namespace terrace::io
