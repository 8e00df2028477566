#include "distrib/halo.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/gather.hpp"

namespace terrace {

template <class B>
Halo<B>::Halo(const Control& control, const Stream<B>& stream, const std::vector<Index>& first,
              const std::vector<Index>& needed) {
  const int ranks = control.size(), me = control.rank();
  const Index begin = first[std::size_t(me)];
  own_ = first[std::size_t(me) + 1] - begin;
  // Needed numbers ascend, so each owner's are one run of them.
  std::vector<Index> wanted(std::size_t(ranks), 0), asked(std::size_t(ranks), 0);
  std::vector<Piece> out, in;
  std::vector<const Index*> run(std::size_t(ranks), nullptr);
  const Index* at = needed.data();
  const Index* const end = at + needed.size();
  for (int r = 0; r < ranks; ++r) {
    const Index* from = std::lower_bound(at, end, first[std::size_t(r)]);
    at = std::lower_bound(from, end, first[std::size_t(r) + 1]);
    run[std::size_t(r)] = from;
    wanted[std::size_t(r)] = at - from;
  }
  left_ = std::lower_bound(needed.data(), end, begin) - needed.data();
  right_ = Index(needed.size()) - left_;
  Index offset = -left_;
  for (int r = 0; r < ranks; ++r) {
    if (r == me) offset = own_;
    if (wanted[std::size_t(r)] > 0) receives_.push_back({r, offset, wanted[std::size_t(r)]});
    offset += wanted[std::size_t(r)];
  }

  // Tell the owners how many, then which.
  const Communicator<Cpu> host(control);
  const Stream<Cpu> lane;
  for (int r = 0; r < ranks; ++r) {
    out.push_back({r, &wanted[std::size_t(r)], Index(sizeof(Index))});
    in.push_back({r, &asked[std::size_t(r)], Index(sizeof(Index))});
  }
  host.exchange(lane, out, in);
  lane.synchronize();
  std::vector<Index> index;
  collectively(control, [&] {
    for (Index count : asked) sent_ += count;
    index.resize(std::size_t(sent_));
  });
  out.clear();
  in.clear();
  Index position = 0;
  for (int r = 0; r < ranks; ++r) {
    if (wanted[std::size_t(r)] > 0)
      out.push_back({r, const_cast<Index*>(run[std::size_t(r)]),
                     wanted[std::size_t(r)] * Index(sizeof(Index))});
    if (asked[std::size_t(r)] > 0)
      in.push_back({r, index.data() + position, asked[std::size_t(r)] * Index(sizeof(Index))});
    position += asked[std::size_t(r)];
  }
  host.exchange(lane, out, in);
  lane.synchronize();

  // One run of own entries is sent where it stands; the others are packed.
  std::vector<Index> packed;
  position = 0;
  for (int r = 0; r < ranks; ++r) {
    const Index count = asked[std::size_t(r)];
    if (count == 0) continue;
    Index* const list = index.data() + position;
    for (Index i = 0; i < count; ++i) list[i] -= begin;
    const bool direct = list[count - 1] - list[0] == count - 1;
    sends_.push_back({r, direct ? list[0] : Index(packed.size()), count, direct});
    if (!direct) packed.insert(packed.end(), list, list + count);
    position += count;
  }
  collectively(control, [&] {
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
