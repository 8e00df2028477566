#include "src/cg/csr_symmetry.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

double stored(const CsrOuter& a, Index row, Index column) {
  const auto k = std::size_t(std::lower_bound(a.row.begin(), a.row.end(), row) - a.row.begin());
  if (k == a.row.size() || a.row[k] != row) return 0;
  const Index* const base = a.column.data();
  const Index* const end = base + a.start[k + 1];
  const Index* const at = std::lower_bound(base + a.start[k], end, column);
  return at != end && *at == column ? a.value[std::size_t(at - base)] : 0.0;
}

namespace {

struct Coupling {  // an entry as it travels to the owner of row `column`
  Index row, column;
  double value, diagonal;
};

double pair_scale(double a, double b) { return std::sqrt(std::fabs(a)) * std::sqrt(std::fabs(b)); }

/// Of columns [c0, c1), rows of another rank. diagonal[k]: of row a.row[k].
void collect(const CsrOuter& a, Index r0, Index c0, Index c1, const std::vector<double>& diagonal,
             std::vector<Coupling>& out) {
  out.clear();
  for (std::size_t k = 0; k < a.row.size(); ++k) {
    const Index* const base = a.column.data();
    const Index* const end = base + a.start[k + 1];
    const Index* at = std::lower_bound(base + a.start[k], end, c0);
    for (; at != end && *at < c1; ++at)
      out.push_back({r0 + a.row[k], *at, a.value[std::size_t(at - base)], diagonal[k]});
  }
}

}  // namespace

Index find_across(const Control& control, const std::vector<Index>& first, const CsrOuter& a,
                  const std::function<std::vector<double>(const std::vector<Index>&)>& diagonal,
                  Index best) {
  const int ranks = control.size(), me = control.rank();
  const Index n = first.back(), r0 = first[std::size_t(me)];
  const Communicator<Cpu> comm(control);
  const Stream<Cpu> lane;
  std::vector<Coupling> out, in;
  std::vector<double> own, theirs_own;  // diagonals: of rows listed, of the columns that came
  if (ranks > 1) collectively(control, [&] { own = diagonal(a.row); });
  for (int step = 0; step < ranks && ranks > 1; ++step) {
    const int peer = (step - me + ranks) % ranks;
    Index mine = 0, theirs = 0;
    collectively(control, [&] {
      if (peer == me)
        out.clear();
      else
        collect(a, r0, first[std::size_t(peer)], first[std::size_t(peer) + 1], own, out);
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
    collectively(control, [&] {
      std::vector<Index> rows;
      for (const Coupling& c : in) rows.push_back(c.column - r0);
      theirs_own = diagonal(rows);
    });
    std::atomic<Index> worst{best};
    parallel_ranges(Index(in.size()), 1024, [&](Index from, Index to) {
      for (auto k = std::size_t(from); k < std::size_t(to); ++k) {
        const Coupling& c = in[k];
        if (symmetric_pair(c.value, stored(a, c.column - r0, c.row),
                           pair_scale(c.diagonal, theirs_own[k])))
          continue;
        const Index pair = std::min(c.row, c.column) * n + std::max(c.row, c.column);
        for (Index seen = worst; pair < seen && !worst.compare_exchange_weak(seen, pair);) {
        }
      }
    });
    best = worst;
  }
  return best;
}

}  // namespace terrace::cg
