#include "src/cg/csr_symmetry.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/parallel.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

namespace {

/// Where own row `row` stands among those listed; -1: it has no entry in columns of other ranks.
Index place_of_row(const CsrOuter& a, Index row) {
  const auto at = std::lower_bound(a.row.begin(), a.row.end(), row);
  return at != a.row.end() && *at == row ? at - a.row.begin() : -1;
}
double stored_at(const CsrOuter& a, Index place, Index column) {
  const Index* const base = a.column.data();
  const Index* const end = base + a.start[std::size_t(place) + 1];
  const Index* const at = std::lower_bound(base + a.start[std::size_t(place)], end, column);
  return at != end && *at == column ? a.value[std::size_t(at - base)] : 0.0;
}

}  // namespace

double stored(const CsrOuter& a, Index row, Index column) {
  const Index place = place_of_row(a, row);
  return place < 0 ? 0.0 : stored_at(a, place, column);
}

namespace {

struct Coupling {  // an entry as it travels to the owner of row `column`
  Index row, column;
  double value, diagonal;
};

double pair_scale(double a, double b) { return std::sqrt(std::fabs(a)) * std::sqrt(std::fabs(b)); }

/// For each rank those in columns that are its rows. diagonal[k]: of row a.row[k].
std::vector<std::vector<Coupling>> couplings(const std::vector<Index>& first, Index r0,
                                             const CsrOuter& a,
                                             const std::vector<double>& diagonal) {
  std::vector<std::vector<Coupling>> to(first.size() - 1);
  std::size_t r = 0;
  for (std::size_t k = 0; k < a.row.size(); ++k)
    for (Index e = a.start[k]; e < a.start[k + 1]; ++e) {
      const Index column = a.column[std::size_t(e)];
      if (column < first[r] || column >= first[r + 1]) r = std::size_t(owner_of(first, column));
      if (to[r].empty()) to[r].reserve(a.column.size() / (to.size() - 1) + 1);
      to[r].push_back({r0 + a.row[k], column, a.value[std::size_t(e)], diagonal[k]});
    }
  return to;
}

/// `best`, or i n + j of an earlier pair whose one entry arrived in `part`. own[k]: diagonal of row a.row[k].
Index worst_of(const std::vector<Coupling>& part, const CsrOuter& a, Index r0, Index n,
               const std::vector<double>& own, const Diagonal& diagonal, Index best) {
  std::vector<Index> place(part.size()), unlisted;
  parallel_ranges(Index(part.size()), 1024, [&](Index from, Index to) {
    for (auto k = std::size_t(from); k < std::size_t(to); ++k)
      place[k] = place_of_row(a, part[k].column - r0);
  });
  for (std::size_t k = 0; k < part.size(); ++k)
    if (place[k] < 0) {
      place[k] = -1 - Index(unlisted.size());
      unlisted.push_back(part[k].column - r0);
    }
  const std::vector<double> others = diagonal(unlisted);
  std::atomic<Index> worst{best};
  parallel_ranges(Index(part.size()), 1024, [&](Index from, Index to) {
    for (auto k = std::size_t(from); k < std::size_t(to); ++k) {
      const Coupling& c = part[k];
      const Index at = place[k];
      const double there = at < 0 ? 0.0 : stored_at(a, at, c.row);
      const double middle = at < 0 ? others[std::size_t(-1 - at)] : own[std::size_t(at)];
      if (symmetric_pair(c.value, there, pair_scale(c.diagonal, middle))) continue;
      const Index pair = std::min(c.row, c.column) * n + std::max(c.row, c.column);
      for (Index seen = worst; pair < seen && !worst.compare_exchange_weak(seen, pair);) {
      }
    }
  });
  return worst;
}

}  // namespace

Index find_across(const Control& control, const std::vector<Index>& first, const CsrOuter& a,
                  const Diagonal& diagonal, Index best) {
  if (control.size() == 1) return best;
  const Index n = first.back(), r0 = first[std::size_t(control.rank())];
  std::vector<double> own;  // diagonals of rows listed
  auto in = collectively(control, [&] {
    own = diagonal(a.row);
    return couplings(first, r0, a, own);
  });
  in = deal(control, std::move(in));
  collectively(control, [&] {
    for (const std::vector<Coupling>& part : in)
      best = worst_of(part, a, r0, n, own, diagonal, best);
  });
  return best;
}

}  // namespace terrace::cg
