// Steps of blocked in-place Gauss-Jordan elimination on one rank's rows, for both backends.
//
// Elimination of panel J = [first, first + width) with pivot rows I, D = A[I, J] = L U:
//   N = A[:, J] U^-1 for all rows (the pivot rows stand as -identity), Y = L^-1 A[I, :]
//   A[I, :] := 0,  A[:, J] := 0,  Y[:, J] := L^-1,  A -= N Y
// Active rows have N = L21, as in Gaussian elimination with the same pivots, and N Y is insensitive
// to the scaling of the rows of U, which is what is ill-conditioned in U as a rule; multiplying out
// N L^-1 or U^-1 Y first would lose that (Quintana-Orti, Quintana, Sun, van de Geijn 2001; Higham
// 2002, section 14.4). 2 n^3 flops.
#pragma once
#include "kernels/base/buffer.hpp"
#include "kernels/dense/emulated.hpp"

namespace terrace::dense {

/// This rank's rows of the matrix, row-major; stored rows never move.
///
///   slot 0   | a a a a ... | b |    columns = n + right-hand sides, ld >= columns
///   slot 1   | a a a a ... | b |    column_of[slot] = j once this row is the pivot row of
///   ...                             column j, -1 before
template <class B>
struct Rows {
  View<double, B> a;
  Index slots = 0, columns = 0, ld = 0;
  Index tile = 1;                   ///< rows of a block of the layout; CPU calls never cross one
  View<const Index, B> global_row;  ///< slots
  View<Index, B> column_of;         ///< slots
};

/// One panel of width <= block.
template <class B>
struct Panel {
  Index first = 0, width = 0, block = 0;
  View<double, B> n;   ///< BufferSizes::panel: A[:, J], then N; row-major on the CPU, column-major
                       ///< on CUDA
  View<double, B> lu;  ///< 2 block^2: L and U of D in pivot order, row-major, ld = block
  View<Index, B> pivots;    ///< block: global rows in pivot order
  View<Index, B> info;      ///< 2: first bad column of the panel or -1, 1: zero, 2: not finite
  View<double, B> summary;  ///< 2 + 2 block: info, pivots, diagonal of U, for the host
  Index skip =
      0;  ///< update() and update_panel() leave as many rows at the top alone; a multiple of
          ///< row_grain (lu.hpp)
};

/// Record of a pivot candidate: |value|, global row, slot, then the row of the panel.
constexpr Index record_size(Index block) { return 3 + block; }
/// Sizes of one rank's buffers in elements: Panel::n; `work`; the number of leaves
/// that choose_candidates plays with, `block` records each.
struct BufferSizes {
  Index panel = 0, work = 0, leaves = 1;
  bool separate_y = false;  ///< solve_lower() does not work in place; Y is packed for update()
};
/// The CPU's leaves: this many times as many rows as a panel has columns.
constexpr Index leaf_blocks = 4;
/// For up to `slots` rows per rank and `ranks` ranks. The CPU has a leaf for every tile, so that the
/// pivots do not depend on who owns it; CUDA has one leaf a rank.
BufferSizes sizes(Cpu, Index slots, Index tile, Index block, int ranks);
BufferSizes sizes(Cuda, Index slots, Index tile, Index block, int ranks);

// Every function below is specialised for Cpu (kernels/cpu/dense*.cpp) and Cuda
// (kernels/cuda/dense*.cu).

/// n := A[:, J]; `fresh`: info := none.
template <class B>
void load_panel(const Stream<B>&, const Rows<B>&, const Panel<B>&, bool fresh);

/// Partial pivoting over these rows only (ties to the lowest global row): N, LU, pivots, column_of.
/// slots width^2 flops. Needs width unused rows here. On CUDA nothing is done once info[0] >= 0,
/// and the pivot rows of N are final.
template <class B>
void factor_panel(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<double, B> work);

/// The same with one exchange of records a column: `record` := the best unused row in column 0 ...
template <class B>
void first_candidate(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<double, B> record,
                     View<double, B> work);
/// ... and, given all ranks' records of column j (number `mine` is this rank's), eliminate column
/// j; `record` := the best unused row in column j + 1.
template <class B>
void eliminate_column(const Stream<B>&, const Rows<B>&, const Panel<B>&, Index j,
                      View<const double, B> records, Index mine, View<double, B> record,
                      View<double, B> work);

/// Tournament pivoting (Grigori, Demmel, Xiang 2011): the best min(width, unused) rows of every
/// leaf, found by partial pivoting within it, become `block` records of A[:, J] (key -1: empty); n
/// is spoilt.
template <class B>
void choose_candidates(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<double, B> records,
                       View<double, B> work);
/// The panel's pivots by partial pivoting over all ranks' records: LU, pivots, info, and column_of
/// of this rank's rows among them. The same on all ranks.
template <class B>
void play_final(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<const double, B> records,
                View<double, B> work);
/// n := n U^-1 with the U of play_final.
template <class B>
void divide_by_upper(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<double, B> work);

/// Pivot rows of N := rows of -U^-1, unless they are final; the summary.
template <class B>
void finish_panel(const Stream<B>&, const Rows<B>&, const Panel<B>&, bool final,
                  View<double, B> work);

/// out[i, 0 ... columns - from) = A[list[i], from ... columns), packed rows.
template <class B>
void collect_rows(const Stream<B>&, const Rows<B>&, View<const Index, B> list, Index from,
                  View<double, B> out);
/// out[i, :] = packed[position[i], :], rows of `length`.
template <class B>
void place_rows(const Stream<B>&, Index length, View<const Index, B> position,
                View<const double, B> packed, View<double, B> out);

/// y := L^-1 p, rows of `length` that hold columns `from` on; with `inverse` columns J of p become
/// the identity first. y is p where BufferSizes::separate_y is false. width^2 length flops.
template <class B>
void solve_lower(const Stream<B>&, const Panel<B>&, Index length, Index from, bool inverse,
                 View<double, B> p, View<double, B> y);

/// A[I, from ... columns) := 0; with `inverse` also A[:, J] := 0.
template <class B>
void begin_update(const Stream<B>&, const Rows<B>&, const Panel<B>&, Index from, bool inverse);
/// A[:, c0 ... c1) -= N Y[:, c0 ... c1); y holds columns `from` on. 2 slots width (c1 - c0) flops.
template <class B>
void update(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<const double, B> y, Index from,
            Index c0, Index c1);

// One rank on CUDA needs no host between panels: pivots are slots, and the next panel is updated
// where it will be factored.
constexpr bool is_direct(Cpu) { return false; }
constexpr bool is_direct(Cuda) { return true; }
/// collect_rows() of the panel's pivots, solve_lower() and begin_update() at once.
template <class B>
void take_rows(const Stream<B>&, const Rows<B>&, const Panel<B>&, Index from, bool inverse,
               View<double, B> y);
/// A[:, J] := n, bit by bit: what update_panel() left to a checkpoint.
template <class B>
void store_panel(const Stream<B>&, const Rows<B>&, const Panel<B>&);
/// next.n -= N Y[:, next columns]; the same columns of A are left as they are. next.n has the rows
/// from panel.skip on.
template <class B>
void update_panel(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<const double, B> y,
                  Index from, const Panel<B>& next);

/// Panels of several ranks on one device, CUDA only. `part` has some rows, of columns the panel's alone:
/// row i of them becomes row place[i] of panel.n, which has `standing` rows, and with part.column_of
/// also its mark there.
template <class B>
void put_rows(const Stream<B>&, const Rows<B>& part, const Panel<B>& panel,
              View<const Index, B> place, Index standing, View<Index, B> column_of);
/// The way back, with the marks.
template <class B>
void get_rows(const Stream<B>&, const Rows<B>& part, const Panel<B>& panel,
              View<const Index, B> place, Index standing, View<Index, B> column_of);

/// update() by emulated products, CUDA only: N is taken once a panel, then any columns, shape.n at
/// most in a call. `workspace` holds emulated::workspace_bytes(shape); shape.k is the block.
template <class B>
void begin_emulated(const Stream<B>&, const Rows<B>&, const Panel<B>&, const emulated::Shape& shape,
                    View<std::byte, B> workspace);
template <class B>
void update_emulated(const Stream<B>&, const Rows<B>&, const Panel<B>&, View<const double, B> y,
                     Index from, Index c0, Index c1, const emulated::Shape& shape,
                     View<std::byte, B> workspace);

/// Every row: row[target[k]] = row[k] for k < target.size. `work` holds rows of target.size.
template <class B>
void permute_columns(const Stream<B>&, const Rows<B>&, View<const Index, B> target,
                     View<double, B> work);
/// a[s, j] = random_uniform(seed, global_row[s], j) for j < columns.
template <class B>
void fill_random(const Stream<B>&, const Rows<B>&, Index columns, Word seed);

}  // namespace terrace::dense
