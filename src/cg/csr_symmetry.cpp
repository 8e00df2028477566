#include "src/cg/csr_symmetry.hpp"

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

double stored(const CsrOuter& a, Index row, Index column) {
  if (a.start.empty()) return 0;
  const Index* const base = a.column.data();
  const Index* const end = base + a.start[std::size_t(row) + 1];
  const Index* const at = std::lower_bound(base + a.start[std::size_t(row)], end, column);
  return at != end && *at == column ? a.value[std::size_t(at - base)] : 0.0;
}

namespace {

struct Coupling {  // an entry as it travels to the owner of row `column`
  Index row, column;
  double value, diagonal;
};

double pair_scale(double a, double b) { return std::sqrt(std::fabs(a)) * std::sqrt(std::fabs(b)); }

/// Of rows [c0, c1) of another rank.
void collect(const CsrOuter& a, Index r0, Index c0, Index c1, const std::vector<double>& diagonal,
             std::vector<Coupling>& out) {
  out.clear();
  for (Index i = 0; i + 1 < Index(a.start.size()); ++i) {
    const Index* const base = a.column.data();
    const Index* const end = base + a.start[std::size_t(i) + 1];
    const Index* at = std::lower_bound(base + a.start[std::size_t(i)], end, c0);
    for (; at != end && *at < c1; ++at)
      out.push_back({r0 + i, *at, a.value[std::size_t(at - base)], diagonal[std::size_t(i)]});
  }
}

}  // namespace

Index find_across(const Control& control, const std::vector<Index>& first, const CsrOuter& a,
                  const std::vector<double>& diagonal, Index best) {
  const int ranks = control.size(), me = control.rank();
  const Index n = first.back(), r0 = first[std::size_t(me)];
  const Communicator<Cpu> comm(control);
  const Stream<Cpu> lane;
  std::vector<Coupling> out, in;
  for (int step = 0; step < ranks && ranks > 1; ++step) {
    const int peer = (step - me + ranks) % ranks;
    Index mine = 0, theirs = 0;
    collectively(control, [&] {
      if (peer == me)
        out.clear();
      else
        collect(a, r0, first[std::size_t(peer)], first[std::size_t(peer) + 1], diagonal, out);
      mine = Index(out.size());
    });
    const Piece tell{peer, &mine, sizeof mine}, hear{peer, &theirs, sizeof theirs};
    comm.exchange(lane, {&tell, 1}, {&hear, 1});
    lane.synchronize();
    collectively(control, [&] { in.resize(std::size_t(theirs)); });
    const Piece send{peer, out.data(), mine * Index(sizeof(Coupling))};
    const Piece receive{peer, in.data(), theirs * Index(sizeof(Coupling))};
    comm.exchange(lane, {&send, 1}, {&receive, 1});
    lane.synchronize();
    for (const Coupling& c : in) {
      const Index j = c.column - r0;
      if (!symmetric_pair(c.value, stored(a, j, c.row),
                          pair_scale(c.diagonal, diagonal[std::size_t(j)])))
        best = std::min(best, std::min(c.row, c.column) * n + std::max(c.row, c.column));
    }
  }
  return best;
}

}  // namespace terrace::cg
