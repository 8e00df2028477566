#include "io/npz.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

namespace {
constexpr Index piece = Index(1) << 20;              // bytes that a thread reads at once
constexpr Index max_header = (Index(1) << 20) + 12;  // of an array
}  // namespace

Index NpzFile::Array::size() const {
  return std::accumulate(header.shape.begin(), header.shape.end(), Index(1), std::multiplies());
}

NpzFile::NpzFile(const Control& control, const std::string& path) : control_(control), path_(path) {
  collectively(control_, [&] {
    archive_ = std::make_unique<ZipReader>(path_);
    for (const ZipMember& m : archive_->members())
      if (m.name.ends_with(".npy")) members_[m.name.substr(0, m.name.size() - 4)] = m;
    if (members_.empty())
      throw Error(Exit::input, "no arrays in the archive; " + path_ + "; save it with numpy.savez");
  });
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, member] : members_) result.push_back(name);
  return result;
}

std::string NpzFile::where(const std::string& name) const { return path_ + " member " + name; }

const ZipMember& NpzFile::member(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end())
    throw Error(Exit::input, "an array is missing: " + name + "; " + path_ +
                                 "; save it with scipy.sparse.save_npz");
  return found->second;
}

LargeVector<char> NpzFile::raw(const std::string& name) const {
  return archive_->read(member(name));
}

std::vector<NpzFile::Array> NpzFile::open(const std::vector<std::string>& names) const {
  std::vector<Array> arrays(names.size());
  collectively(control_, [&] {
    int packed = 0;
    for (std::size_t k = 0; k < names.size(); ++k) {
      arrays[k].name = names[k];
      arrays[k].member = member(names[k]);
      if (!arrays[k].member.stored_as_is()) arrays[k].owner = packed++ % control_.size();
    }
    parallel_for(Index(names.size()), [&](Index k) {
      Array& a = arrays[std::size_t(k)];
      if (a.owner == control_.rank()) a.unpacked = archive_->read(a.member);
    });
  });
  for (Array& a : arrays) {
    std::string head;
    collectively(control_, [&] {
      if (a.owner < 0) {
        a.data = archive_->data(a.member);
        head.resize(std::size_t(std::min(a.member.size, max_header)));
        archive_->bytes(a.data, Index(head.size()), head.data());
      } else if (a.owner == control_.rank()) {
        head.assign(a.unpacked.data(), std::min(a.unpacked.size(), std::size_t(max_header)));
      }
    });
    if (a.owner >= 0) head = control_.broadcast(head, a.owner);
    collectively(control_, [&] { a.header = npy_header_of(head, a.member.size, where(a.name)); });
    if (a.owner < 0) test_sum(a);
  }
  return arrays;
}

/// All ranks and threads, each a part of the member.
void NpzFile::test_sum(const Array& a) const {
  const Index pieces = ceil_div(a.member.size, piece);
  const auto ranges = contiguous(pieces, control_.size()).ranges(control_.rank());
  const Range mine = ranges.empty() ? Range{pieces, 0} : ranges[0];
  std::vector<std::uint32_t> sums(std::size_t(mine.count));
  const auto length = [&](Index k) { return std::min(piece, a.member.size - k * piece); };
  collectively(control_, [&] {
    parallel_for(mine.count, [&](Index k) {
      thread_local std::vector<char> buffer(static_cast<std::size_t>(piece));
      const Index bytes = length(mine.first + k);
      archive_->bytes(a.data + (mine.first + k) * piece, bytes, buffer.data());
      sums[std::size_t(k)] = zip_sum({buffer.data(), std::size_t(bytes)});
    });
  });
  std::uint32_t sum = 0;
  Index bytes = 0;
  for (Index k = 0; k < mine.count; ++k) {
    sum = zip_sum_of_both(sum, sums[std::size_t(k)], length(mine.first + k));
    bytes += length(mine.first + k);
  }
  const auto all = control_.gather_all(Index(sum)), each = control_.gather_all(bytes);
  sum = 0;
  for (std::size_t r = 0; r < all.size(); ++r)
    sum = zip_sum_of_both(sum, std::uint32_t(all[r]), each[r]);
  if (sum != a.member.sum)
    fail_together(Exit::input, "a damaged archive: the check sum differs; " + where(a.name) +
                                   "; write it again");
}

void NpzFile::numbers(const Array& a, const Range& range, double* out) const {
  const Index bytes = a.header.bytes, each = piece / bytes;
  const Index begin = a.header.offset + range.first * bytes;
  if (a.owner >= 0) return npy_numbers(a.header, a.unpacked.data() + begin, range.count, out);
  parallel_ranges(range.count, each, [&](Index from, Index to) {
    thread_local std::vector<char> buffer;
    buffer.resize(std::size_t((to - from) * bytes));
    archive_->bytes(a.data + begin + from * bytes, Index(buffer.size()), buffer.data());
    npy_numbers(a.header, buffer.data(), to - from, out + from);
  });
}

std::vector<double> NpzFile::take(const Array& a, const Range& range) const {
  std::vector<double> result;
  collectively(control_, [&] {
    result.resize(std::size_t(range.count));
    if (a.here(control_)) numbers(a, range, result.data());
  });
  if (a.owner < 0 || control_.size() == 1) return result;
  const auto first = control_.gather_all(range.first), count = control_.gather_all(range.count);
  std::vector<LargeVector<char>> to(std::size_t(control_.size()));
  const bool owns = a.owner == control_.rank();
  collectively(control_, [&] {
    for (std::size_t r = 0; owns && r < to.size(); ++r) {
      if (int(r) == a.owner) continue;
      const char* const begin = a.unpacked.data() + a.header.offset + first[r] * a.header.bytes;
      to[r].assign(begin, begin + count[r] * a.header.bytes);
    }
  });
  const auto from = deal(control_, std::move(to));
  if (!owns) npy_numbers(a.header, from[std::size_t(a.owner)].data(), range.count, result.data());
  return result;
}

}  // namespace terrace::io
