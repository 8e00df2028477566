// Iterations of conjugate gradients on CSR rows on the CPU, called together: the product and the
// passes of an iteration each, so their bits.
#include "kernels/cg/resident.hpp"

#include <algorithm>

namespace terrace::cg {
namespace {

constexpr Index row_size = cg_row::size(1);
/// Scratch: a count, the stop, a row of the history, partial sums of the passes and of the product, q.
constexpr Index pass_partials = Index(1) << 12, product_partials = 2 * SumSpace<Cpu>::pieces;
constexpr Index head = 2 + row_size + pass_partials + product_partials;

}  // namespace

ResidentSize resident_csr_size(Cpu, Index rows, Index entries) {
  constexpr Index most_rows = Index(1) << 19, most_entries = 6'000'000;  // about those of a GPU
  if (rows < 1 || rows > most_rows || entries > most_entries) return {};
  return {1, 0, 0, 0, head + rows};
}

void deal_shares(const Stream<Cpu>&, const ResidentCsr<Cpu>&) {}
bool resident_csr_fits(Cpu, const ResidentSize& size, const std::vector<Index>&) {
  return size.shares > 0;
}

void resident_cg(const Stream<Cpu>& lane, const ResidentCsr<Cpu>& m, View<const double, Cpu> d,
                 View<double, Cpu> p, View<double, Cpu> x, View<double, Cpu> r,
                 const CgRing<Cpu>& rows, Index first, Index count, CgLimits limits,
                 View<double, Cpu> scratch) {
  CgPass<Cpu> at;
  at.finished = {reinterpret_cast<Index*>(scratch.data), 1};
  const View<double, Cpu> stop = scratch.slice(1, 1);
  at.stop = stop;
  at.floor = limits.floor;
  at.history = scratch.slice(2, row_size);
  at.partials = scratch.slice(2 + row_size, pass_partials);
  const View<double, Cpu> sums = scratch.slice(2 + row_size + pass_partials, product_partials);
  const View<double, Cpu> q = scratch.slice(head, m.size.scratch - head);
  lane.run([=] {
    *at.finished.data = 0;
    *stop.data = limits.stop;
  });
  const auto row = [&](Index k) { return rows.rows.slice(k % rows.ring * rows.stride, row_size); };
  for (Index k = first; k < first + count; ++k) {
    at.before = row(k - 1);
    at.now = row(k);
    copy(lane, at.now, at.before);  // what stays where the iteration may not step
    multiply(lane, m.a, p.data, q, {sums, {}, at.now.slice(cg_row::pq, 2)}, false, at.skip());
    cg_step<Cpu>(lane, at, q, d, r);
    cg_direction<Cpu>(lane, at, r, d, x, p);
  }
}

}  // namespace terrace::cg
