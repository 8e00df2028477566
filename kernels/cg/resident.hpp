// Whole iterations of conjugate gradients in one launch, for matrices that stay on the chip of one
// GPU: a dense lower triangle in the registers and the shared memory of the multiprocessors, CSR rows
// in shared memory and what is left in the second-level cache.
//
// Iterations, sums and stopping are those of kernels/cg/vectors.hpp on one device: iteration k
// leaves its row { p.q, p.p, r.r, r.z } at rows[(k % ring) * stride] and takes r.r and r.z from row
// k - 1. When it may not step, the launch ends: x, r and p stay, and the rows up to iteration first
// + count - 1 repeat the last one.
#pragma once
#include <vector>

#include "kernels/cg/products.hpp"
#include "kernels/cg/triangle.hpp"
#include "kernels/cg/vectors.hpp"

namespace terrace::cg {

/// Where iteration k of a launch leaves its row.
template <class B>
struct CgRing {
  View<double, B> rows;
  Index ring = 0, stride = 0;  ///< rows; doubles from one to the next
};

/// True when this GPU takes an n x n system. False without CUDA.
bool resident_cg_fits(Index n);
/// Doubles of scratch.
Index resident_cg_scratch(Index n);
/// Iterations first, ..., first + count - 1 (count < 2^32), or fewer. All tile rows on this device;
/// p, x, r: padded(n), zero beyond n; `inverse_diagonal` of size 0 means D = 1. One cooperative
/// launch, which takes the whole device.
void resident_cg(const Stream<Cuda>&, const TriangleTiles<Cuda>&,
                 View<const double, Cuda> inverse_diagonal, View<double, Cuda> p,
                 View<double, Cuda> x, View<double, Cuda> r, const CgRing<Cuda>& rows, Index first,
                 Index count, CgLimits, View<double, Cuda> scratch);

// --- CSR
// ------------------------------------------------------------------------------------------

/// What a CSR matrix takes beside its arrays. On the CPU an iteration is the product and the passes
/// of kernels/cg/vectors.hpp, with their bits, and there is one share.
struct ResidentSize {
  Index shares = 0;   ///< blocks of the launch; 0: the matrix does not fit
  Index room = 0;     ///< columns that a share may name
  Index places = 0;   ///< one an entry, or none
  Index bounds = 0;   ///< numbers about the shares
  Index scratch = 0;  ///< doubles
  [[nodiscard]] Index bytes() const {
    return 4 * shares * room + 2 * places + 8 * (bounds + scratch);
  }
};
ResidentSize resident_csr_size(Cpu, Index rows, Index entries);
ResidentSize resident_csr_size(Cuda, Index rows, Index entries);

/// Rows are dealt to shares in order, with about as many entries and rows each. The columns that
/// share s names stand in list[s room ...], ascending; entry e of the matrix is in column
/// list[s room + place[e]].
///
///   bounds = { first row of each share, n | lengths of the lists, - | places of the first own rows
///              in them, - | longest rows, - }                               shares + 1 numbers each
template <class B>
struct ResidentCsr {
  CsrRows<B> a;  ///< all rows, columns 0 .. rows - 1
  ResidentSize size;
  View<std::int32_t, B> list;
  View<std::uint16_t, B> place;
  View<Index, B> bounds;
};
/// Fills list, place and bounds; where resident_csr_fits() is false afterwards, a part of them. Reads
/// the columns twice.
void deal_shares(const Stream<Cpu>&, const ResidentCsr<Cpu>&);
void deal_shares(const Stream<Cuda>&, const ResidentCsr<Cuda>&);
/// Whether a launch takes the shares dealt; `bounds` on the host.
bool resident_csr_fits(Cpu, const ResidentSize&, const std::vector<Index>& bounds);
bool resident_csr_fits(Cuda, const ResidentSize&, const std::vector<Index>& bounds);
/// Iterations as above; p, x, r: n numbers, rows of cg_row::size(1) doubles.
void resident_cg(const Stream<Cpu>&, const ResidentCsr<Cpu>&,
                 View<const double, Cpu> inverse_diagonal, View<double, Cpu> p, View<double, Cpu> x,
                 View<double, Cpu> r, const CgRing<Cpu>& rows, Index first, Index count, CgLimits,
                 View<double, Cpu> scratch);
void resident_cg(const Stream<Cuda>&, const ResidentCsr<Cuda>&,
                 View<const double, Cuda> inverse_diagonal, View<double, Cuda> p,
                 View<double, Cuda> x, View<double, Cuda> r, const CgRing<Cuda>& rows, Index first,
                 Index count, CgLimits, View<double, Cuda> scratch);

}  // namespace terrace::cg
