#include "io/chunks.hpp"

#include <cstring>
#include <limits>

namespace terrace::io {

namespace {

Index units_last(const Range& r, Index unit) { return (r.end() - 1) / unit; }

/// Every rank's ranges.
std::vector<std::vector<Range>> gather_ranges(const Control& control,
                                              const std::vector<Range>& mine) {
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Range));
  std::vector<std::vector<Range>> all;
  for (const std::string& text : control.gather_all(bytes)) {
    std::vector<Range> list(text.size() / sizeof(Range));
    if (!list.empty()) std::memcpy(list.data(), text.data(), text.size());
    all.push_back(std::move(list));
  }
  return all;
}

/// Items of one unit that one rank needs, at most.
Index largest_need(const std::vector<std::vector<Range>>& wanted, Index unit) {
  Index largest = 1;
  for (const auto& list : wanted) {
    Index last = -1, need = 0;
    for (Range r : list)
      while (r.count > 0) {
        const Index u = r.first / unit, take = std::min(r.count, (u + 1) * unit - r.first);
        need = u == last ? need + take : take;
        last = u;
        largest = std::max(largest, need);
        r = {r.first + take, r.count - take};
      }
  }
  return largest;
}

}  // namespace

/// In one order on all ranks; dealt among those that need them. Where there are many across, those
/// of one row of the file to one rank, which then reads long pieces.
std::vector<ChunkRounds::Job> ChunkRounds::jobs(Index round) const {
  const Index acrosses = ceil_div(others_, across_);
  std::map<Index, std::vector<int>> needed;
  for (std::size_t r = 0; r < all_.size(); ++r)
    if (round < Index(all_[r].size()))
      for (const Range& range : all_[r][std::size_t(round)].ranges)
        for (Index u = range.first / unit_; u <= units_last(range, unit_); ++u)
          if (auto& ranks = needed[u]; ranks.empty() || ranks.back() != int(r))
            ranks.push_back(int(r));
  std::vector<Job> jobs;
  for (const auto& [u, ranks] : needed)
    for (Index a = 0; a < acrosses; ++a) {
      const bool many = acrosses >= 4 * Index(ranks.size());
      jobs.push_back({{u, a}, ranks[(many ? std::size_t(a) : jobs.size()) % ranks.size()], ranks});
    }
  return jobs;
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
  const std::vector<std::vector<Range>> wanted = gather_ranges(control, merged.ranges);
  const Index largest = largest_need(wanted, unit_);
  group_ = std::max<Index>(1, most_ / largest);
  parts_ = ceil_div(largest, most_);
  for (const auto& list : wanted) all_.push_back(plan(list));
  std::size_t rounds = 0;
  for (const auto& p : all_) rounds = std::max(rounds, p.size());
  portions_ = all_[std::size_t(control.rank())];
  Index position = 0;
  for (const Portion& p : portions_) position += p.items;
  portions_.resize(rounds, Portion{position, {}, {}, 0});
  prepare_messages();
}

Index ChunkRounds::shortest_run(const Control& control, std::span<const Range> ranges) {
  Portion whole;
  for (const Range& r : ranges) whole.add(r);
  Index shortest = std::numeric_limits<Index>::max();
  for (const Range& r : whole.ranges)
    if (&r != &whole.ranges.back() || whole.ranges.size() == 1)
      shortest = std::min(shortest, r.count);
  return control.reduce(shortest, Reduce::min);
}

std::vector<Announcer::Window> ChunkRounds::windows(Index items) const {
  std::vector<Announcer::Window> result;
  std::map<Index, Portion> mine;  // by the number across
  Index first = extent_, end = 0;
  const auto rounds = Index(portions_.size());
  for (Index round = 0; round < rounds; ++round) {
    for (const Job& job : jobs(round)) {
      const Index from = job.chunk.unit * unit_;
      first = std::min(first, from);
      end = std::max(end, std::min(extent_, from + unit_));
      Portion& part = mine[job.chunk.across];
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

}  // namespace terrace::io
