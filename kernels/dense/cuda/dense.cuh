// Shared by the dense .cu files: layout of a panel on the device.
#pragma once
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/dense.hpp"
#include "kernels/dense/lu.hpp"

namespace terrace::dense {

/// Panels are column-major, rows of a column next to each other: slot s, column c at s + c * ld.
inline Index panel_ld(Index slots) { return round_up(slots > 32 ? slots : 32, 32); }

/// Number within the panel of pivot column `column`, or -1.
__device__ inline Index place_in(Index column, Index first, Index width) {
  return column >= first && column < first + width ? column - first : -1;
}

inline unsigned grid_for(Index work, Index threads) { return unsigned(ceil_div(work, threads)); }

/// a[:, first ... first + width) = `slots` rows of a panel's columns; floats or doubles.
template <class T, class P>
void store_columns(const Stream<Cuda>& stream, Index slots, Index width, T* a, Index lda,
                   Index first, const P* panel, Index ldp, const Index* place = nullptr);
/// The way back: a panel's columns of `slots` rows.
template <class T, class P>
void load_columns(const Stream<Cuda>& stream, Index slots, Index width, const T* a, Index lda,
                  Index first, P* panel, Index ldp, const Index* place = nullptr);

/// retire_rows() (lu.hpp) of rows at `a`, with rows.ld, in place of rows.a, and `n` in place of
/// panel.n. `room` in place of what.room; null: L is not kept.
template <class T, class P>
void retire_rows_of(const Stream<Cuda>& stream, const Rows<Cuda>& rows, T* a,
                    const Panel<Cuda>& panel, P* n, const Retirement<Cuda>& what, T* room);

/// x := U^-1 x or L^-1 x, L with a unit diagonal, as solve_upper() (lu.hpp); `t` holds both. Rows of
/// floats begin at multiples of 16 bytes.
template <bool lower, class T>
void solve_triangle(const Stream<Cuda>& stream, Index n, Index right, const T* t, Index ld,
                    double* x, Index ldx, View<double, Cuda> work);

}  // namespace terrace::dense
