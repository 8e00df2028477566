#include "distrib/halo.hpp"

#include <algorithm>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/gather.hpp"

namespace terrace {

namespace {
/// Where each rank's entries begin among those needed, and where the last one's end.
std::vector<Index> runs_by_owner(const std::vector<Index>& first,
                                 const std::vector<Index>& needed) {
  std::vector<Index> bounds;
  bounds.reserve(first.size());
  for (const Index begin : first)
    bounds.push_back(std::lower_bound(needed.begin(), needed.end(), begin) - needed.begin());
  return bounds;
}
}  // namespace

AskedEntries asked_entries(const Control& control, const std::vector<Index>& first,
                           const std::vector<Index>& needed) {
  const std::vector<Index> bounds = runs_by_owner(first, needed);
  AskedEntries asked(std::size_t(control.size()));
  collectively(control, [&] {
    for (std::size_t r = 0; r < asked.size(); ++r)
      asked[r].assign(needed.begin() + bounds[r], needed.begin() + bounds[r + 1]);
  });
  asked = deal(control, std::move(asked));
  for (std::vector<Index>& list : asked)
    for (Index& i : list) i -= first[std::size_t(control.rank())];
  return asked;
}

template <class B>
Halo<B>::Halo(const Control& control, const Stream<B>& stream, const std::vector<Index>& first,
              const std::vector<Index>& needed, AskedEntries asked)
    : asked_(std::move(asked)) {
  const auto ranks = std::size_t(control.size()), me = std::size_t(control.rank());
  own_ = first[me + 1] - first[me];
  const std::vector<Index> bounds = runs_by_owner(first, needed);
  left_ = bounds[me];
  right_ = Index(needed.size()) - left_;
  for (std::size_t r = 0; r < ranks; ++r)
    if (const Index count = bounds[r + 1] - bounds[r]; count > 0)
      receives_.push_back({int(r), bounds[r] - left_ + (r < me ? 0 : own_), count});
  // One run of own entries is sent where it stands; the others are packed.
  std::vector<Index> packed;
  collectively(control, [&] {
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::vector<Index>& list = asked_[r];
      const auto count = Index(list.size());
      if (count == 0) continue;
      sent_ += count;
      const bool direct = list.back() - list.front() == count - 1;
      sends_.push_back({int(r), direct ? list.front() : Index(packed.size()), count, direct});
      if (!direct) packed.insert(packed.end(), list.begin(), list.end());
    }
    packed_index_ = Buffer<Index, B>(Index(packed.size()));
    packed_ = Buffer<double, B>(Index(packed.size()));
  });
  if (!packed.empty()) upload(stream, packed_index_.view(), packed.data());
  stream.synchronize();
}

template <class B>
void Halo<B>::exchange(const Communicator<B>& comm, const Stream<B>& stream, double* own) const {
  if (comm.size() == 1) return;
  if (packed_.size() > 0)
    gather(stream, packed_index_, View<const double, B>{own, own_}, packed_.view());
  std::vector<Piece> out, in;
  for (const Send& s : sends_)
    out.push_back(
        {s.peer, (s.direct ? own : packed_.data()) + s.offset, s.count * Index(sizeof(double))});
  for (const Receive& r : receives_)
    in.push_back({r.peer, own + r.offset, r.count * Index(sizeof(double))});
  comm.exchange(stream, out, in);
}

#define TERRACE_INSTANTIATE(B) template class Halo<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
