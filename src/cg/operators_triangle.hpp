// A dense symmetric matrix as packed tiles of its lower triangle (kernels/cg/triangle.hpp): half
// the bytes of row slices, read once a product.
//
// Tile rows are dealt to the ranks in a snake from the last, longest one upwards: 0, 1, .., R-1,
// R-1, .., 0, 0, 1, ..  Vectors are whole on every rank; a product ends with one all-reduce of q.
#pragma once
#include <functional>

#include "io/input.hpp"
#include "kernels/cg/triangle.hpp"
#include "kernels/cg/triangle_block.hpp"
#include "src/cg/operand.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

template <class B>
class TriangleOperator {
 public:
  static constexpr bool replicated = true, sums_columns = false;

  /// planes: the tiles are kept in two planes of 32-bit words once they are complete, for
  /// apply_head(). Throws Error(resources). Collective, as is all that takes the context.
  TriangleOperator(const Context<B>& context, Index n, bool planes = false);
  /// Tiles, partial sums, the slabs of reading, and `columns` vectors.
  static OperatorMemory memory(Index n, int ranks, Index columns = 1);
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Range rows() const { return {0, n_}; }
  [[nodiscard]] const std::vector<Index>& my_tile_rows() const { return held_; }

  /// Reading: for every round in [0, rounds()) each rank puts the whole rows slab(round), perhaps
  /// none, of n host values each, which `read` gives to its sink in portions; then asymmetry() ends
  /// it. A round's slabs travel to all ranks, which compare their upper parts with the tiles they
  /// hold. Stored are the numbers times 2^-scale.power.
  [[nodiscard]] Index rounds() const;
  [[nodiscard]] Range slab(Index round) const { return slab(round, rank_); }
  void put_slab(const Context<B>& context, Index round,
                const std::function<void(const io::Sink<double>&)>& read);
  /// The first pair (lowest row, then column) that is not symmetric, the same on every rank. Gives
  /// the memory of the slabs back, and splits the tiles, normalised, into planes.
  [[nodiscard]] std::optional<Asymmetry> asymmetry(const Context<B>& context);

  /// dense_cg_entry
  void fill_random(const Context<B>& context, Word seed, double diagonal = 2);
  void take_diagonal(const Context<B>& context, View<double, B> to) const;  ///< all n
  [[nodiscard]] double bytes(bool heads = false) const {
    return (heads ? 2.0 : 4.0) * double(n_) * (double(n_) + 1.0);
  }
  MatrixScale scale;
  /// Every number by 2^power, and the largest of all ranks (a_ii / 2 on the diagonal): not in
  /// planes.
  void multiply_by(const Context<B>& context, int power);
  [[nodiscard]] double largest(const Context<B>& context) const;

  /// padded(n) zero entries per column.
  [[nodiscard]] Operand<B> operand(const Context<B>& context, Index columns = 1) const;
  /// q[0..n) = A p (or |A| p) on context.ahead, complete on every rank; sums = { p.q, p.p } of the
  /// whole vectors, the same bits on every rank; empty: without. q has n entries or more; of several
  /// columns (without sums, from whole tiles) padded(n). With *skip != 0 only the all-reduce of q
  /// takes place.
  void apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
             View<double, B> sums, const SumSpace<B>& space, const double* skip = nullptr,
             bool absolute = false) const;
  /// The same with the heads of the entries: half the bytes, 20 bits after the point. Needs planes.
  void apply_head(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                  View<double, B> sums, const SumSpace<B>& space,
                  const double* skip = nullptr) const;
  [[nodiscard]] TriangleTiles<B> tiles(triangle::Read read) const {
    return {tiles_.view(), n_, row_.view(), start_.view(), read};
  }
  template <class F>
  void each_array(const F& f) const {
    f(tiles_), f(row_), f(start_);
  }
  /// Tiles as they are stored now.
  [[nodiscard]] TriangleTiles<B> tiles() const {
    return tiles(split_ ? triangle::Read::both : triangle::Read::whole);
  }

 private:
  [[nodiscard]] Range tile_rows(Index round, int rank) const;
  [[nodiscard]] Range slab(Index round, int rank) const;
  [[nodiscard]] double entry(const Context<B>& context, Index i, Index j) const;
  void complete(const Context<B>& context);
  void product(const Context<B>& context, triangle::Read read, const Operand<B>& p,
               View<double, B> q, View<double, B> sums, const SumSpace<B>& space,
               const double* skip, bool absolute) const;

  Index n_ = 0, tile_rows_ = 0;
  int rank_ = 0, ranks_ = 1;
  Index together_ = 1;  // tile rows of a rank's slab
  bool planes_ = false, split_ = false;
  std::vector<Index> held_, first_;  // tile rows, and where their tiles start
  Buffer<double, B> tiles_, scratch_;
  mutable Buffer<double, B> block_scratch_;  // grows in operand()
  Buffer<Index, B> row_, start_;
  // While reading:
  Buffer<double, B> own_slab_, other_slab_;
  Buffer<Index, B> worst_;
  Index found_ = 0;  // i n + j of the first unequal pair that this rank saw
  double found_value_ = 0;
};

}  // namespace terrace::cg

/// F(B, operator) for each form of A, for explicit instantiations.
#define TERRACE_FOR_EACH_OPERATOR(F, B) \
  F(B, DenseOperator) F(B, TriangleOperator) F(B, BandOperator) F(B, CsrOperator)
