// Smoothed aggregation multigrid (Vanek, Mandel, Brezina 1996) as a preconditioner: one symmetric
// V-cycle over a hierarchy of matrices, each P' A P of the one before.
//
//   smooth z = S r      restrict r - A z by P'            prolong by P, z += S (r - A z)
//   level 0: A of the caller \                           /
//   level 1:                   \                       /
//   coarsest:                     z = A^-1 r, dense
//
// Aggregates stay within a rank's own rows, P reaches over ranks. Levels that are small beside a rank's
// part of A stand whole on each rank, which then makes and applies them alone: no messages, and aggregates of
// all rows. All products are those of whole matrices, so M is symmetric and positive definite on any number
// of ranks. The hierarchy is made where
// the matrix is (multigrid_there.cpp); on CPUs for given vectors in blocks of nodes (multigrid.cpp). A cycle
// is products and vector passes of the backend.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cg/coarsening.hpp"
#include "src/cg/chebyshev.hpp"
#include "src/cg/near_null_space.hpp"
#include "src/cg/operators.hpp"
#include "src/cg/transfer.hpp"

namespace terrace::cg {

/// What to tell the user; the same on every rank.
struct MultigridNotes {
  struct Level {
    Index rows = 0, nonzeros = 0;
  };
  std::vector<Level> levels;
  double seconds = 0;       ///< to make the hierarchy
  double bytes = 0;         ///< read and written by one cycle beside products with A, on all ranks
  Index products = 0;       ///< with A a cycle
  Index bad_row = -1;       ///< global row of the diagonal that is not positive
  bool indefinite = false;  ///< A is not positive definite; M must not be applied
  Index updates = 0;        ///< the hierarchy got the values of other matrices so often
  Index vectors = 0;        ///< of the near null-space given; 0: constants
  Index unknowns = 0;       ///< ... of a node
  Index there = 0;          ///< levels, from the first on, that were made where the matrix is
  Index whole = 0;          ///< levels, from the last one on, that each of several ranks has whole
  /// Seconds of what was done to make them, added up over the levels.
  std::vector<std::pair<std::string, double>> parts;
  /// Nonzeros of all levels by those of A.
  [[nodiscard]] double operator_complexity() const;
};

/// Where a hierarchy finds this rank's rows of A: on the host, and where they are in CSR rows there.
template <class B>
struct MatrixSource {
  std::function<RankRows()> host;      ///< collective
  std::optional<CsrRows<B>> matrix{};  ///< own columns alone, which ascend; of one rank all of them
  std::function<RowsThere<B>()> there{};  ///< on several ranks, of all columns; collective
};

template <class B>
class Multigrid {
 public:
  static constexpr Index default_coarsest = 256;
  /// As of Chebyshev.
  using Product = std::function<void(const Operand<B>& p, View<double, B> q, const double* skip)>;

  Multigrid() = default;
  /// Of A = `a`, normalised, whose product is `product` on operands like `p`. A level of at most
  /// `coarsest` rows is inverted. Coarse levels keep `vectors` of A's rows. Collective.
  Multigrid(const Context<B>& context, const Product& product, Operand<B>&& p,
            const MatrixSource<B>& a, NodeVectors vectors = {}, Index coarsest = default_coarsest);
  /// Of another matrix with the same rows on each rank: aggregates stay. Collective.
  void update(const Context<B>& context, const Product& product, Operand<B>&& p,
              const MatrixSource<B>& a);
  [[nodiscard]] const MultigridNotes& notes() const { return notes_; }
  /// z = M r of own rows on context.ahead, r and z not the same memory: one V-cycle. Collective.
  void apply(const Context<B>& context, const Product& product, View<const double, B> r,
             View<double, B> z, const double* skip = nullptr) const {
    if (!levels_.empty()) cycle(context, 0, product, r, z, skip);
  }
  /// Bytes on the backend and on the host of a rank, by the shape alone. `vectors` of a near null-space;
  /// `alone`: one rank has all rows. No row is too long for a device.
  static OperatorMemory memory(Index rows, Index nonzeros, Index vectors, bool alone);

  /// f(array) of what apply() never writes, numbers first.
  template <class F>
  void each_array(const F& f) const {
    for (const auto& level : levels_) {
      level->restriction.each_array(f), level->prolongation.each_array(f);
      level->smoother.each_array(f);
      for (const auto* a : {&level->a, &level->inverse})
        if (*a) (*a)->each_array(f);
    }
  }

 private:
  struct Level {
    std::optional<CsrOperator<B>> a;        // none: the caller's
    Chebyshev<B> smoother;                  // unless there is an inverse
    Transfer<B> restriction, prolongation;  // P', P to the next level; none on the last one
    Operand<B> rest, correction;  // what they multiply: of the next level; rest if it travels
    Buffer<double, B> r;          // below the first level
    std::optional<CsrOperator<B>> inverse;  // of the coarsest matrix, all entries
    Operand<B> p;                           // what it multiplies
  };
  /// What a level keeps for other values.
  struct Pattern {
    RowAggregates<B> there;    // of own rows
    std::vector<Index> first;  // of these on each rank
    Aggregates aggregates;     // constants
    NodeAggregates nodes;      // given vectors
    bool chosen = false, smooth = true;
  };
  void cycle(const Context<B>& context, std::size_t l, const Product& product,
             View<const double, B> r, View<double, B> z, const double* skip) const;
  /// P' (r - A z) of level l becomes the right-hand side of the next, and the correction comes back.
  void descend(const Context<B>& context, std::size_t l, View<const double, B> rest,
               const double* skip) const;
  /// Whether each rank has level l, or rows that are to be it, for itself.
  [[nodiscard]] bool is_whole(std::size_t l) const { return whole_from_ && l >= *whole_from_; }
  /// This rank alone, on the lanes of `context`.
  [[nodiscard]] static Context<B> alone_on(const Context<B>& context);
  [[nodiscard]] Product product_of(const Context<B>& context, const CsrOperator<B>& a) const;
  void build(const Context<B>& context, const Product& product, Operand<B>&& p,
             const MatrixSource<B>& a);
  // `p`, of the first level, is taken where that level is made.
  void build_on_host(const Context<B>& context, const Product& product, Operand<B>& p,
                     RankRows& rows);
  struct LevelThere;
  struct Coming;
  /// Of level l, with those that its aggregates are to keep.
  NodeVectors& vectors_of(std::size_t l) { return l == 0 ? vectors_ : patterns_[l - 1].nodes.next; }
  /// Levels of A where it is: `made`, whose rows are `first`. True where the host goes on with the level
  /// in `rest`, which for given vectors holds A's rows before, unless aggregates stay.
  bool build_there(const Context<B>& context, const Product& product, Operand<B>& p,
                   RowsThere<B>&& made, const CsrRows<B>& first, RankRows& rest);
  bool go_on_there(const Context<B>& context, const Product& product, Operand<B>& p, Coming& next,
                   RankRows& rest);
  /// Decides whether level l, whose rows are `next`, is to be whole.
  bool choose_whole(const Control& control, std::size_t l, const RowsThere<B>& next, double share);
  /// The products of a cycle with a level of `rows` own rows, and its bytes; `last`: no coarse level.
  void note_cycle(Index rows, Index nonzeros, bool last);
  void note_time(const char* part, double seconds);
  /// P of the last level, not smoothed where vectors are given.
  RankRows prolong(const Control& control, const RankRows& rows,
                   const std::vector<double>& diagonal);
  /// Makes the next level's matrix of `rows`; false where there is none, and this level is the last.
  bool coarsen(const Context<B>& context, const Product& product, Operand<B>&& p, RankRows& rows,
               const std::vector<double>& diagonal);
  void invert(const Context<B>& context, const RankRows& rows);

  MultigridNotes notes_;
  Index coarsest_ = default_coarsest;
  NodeVectors vectors_;  // of the first level, until its aggregates are made
  std::vector<Pattern> patterns_;
  std::vector<std::unique_ptr<Level>> levels_;
  std::optional<std::size_t> whole_from_;  // the first level that each rank has for itself
  std::optional<SumSpace<B>> sums_;
  Buffer<double, B> ignored_;
};

/// This rank's rows on the host. Collective.
template <class B>
RankRows rank_rows(const Context<B>& context, const CsrOperator<B>& a);
template <class B>
RankRows rank_rows(const Context<B>& context, const BandOperator<B>& a);
/// While `a` and its context stay where they are.
template <class B, class A>
MatrixSource<B> source_of(const Context<B>& context, const A& a) {
  MatrixSource<B> source{[&context, &a] { return rank_rows(context, a); }};
  if constexpr (std::is_same_v<A, CsrOperator<B>>) {
    source.matrix = a.matrix();
    source.there = [&context, &a] { return a.rows_there(context); };
  }
  return source;
}

/// How a level smooths.
namespace smoothing {
/// Products, and the part of the spectrum that they reduce most.
constexpr Index degree = 1;
constexpr double ratio = 5;
/// Products on the last level, where it is not inverted.
constexpr Index last_degree = 8;
}  // namespace smoothing

/// How a level coarsens.
namespace levels {
/// Of given vectors: P = (I - 4/3 D^-1 A / largest eigenvalue) T (Vanek, Mandel, Brezina 1996).
constexpr double damping = 4.0 / 3.0;
/// An entry is strong from this part of the roots of its diagonals on; half of it a level deeper
/// (Vanek, Mandel, Brezina 1996).
constexpr double strength = 0.08;
/// With more nonzeros on all levels, in those of A, P is not smoothed: it fills up on graphs without
/// dimension.
constexpr double most_nonzeros = 2.5;
/// A level with at most this part of the nonzeros that a rank has of A, or with at most so many, is kept whole
/// on each rank: to make and apply it, messages and waits for other ranks would cost more than its products.
template <class B>
constexpr double whole_part = std::is_same_v<B, Cuda> ? 0.25 : 0.03;
template <class B>
constexpr double whole_nonzeros = std::is_same_v<B, Cuda> ? 1e6 : 2000;
/// A level that leaves more of the rows is not worth it; then so many products smooth the last one.
constexpr double least_gain = 0.8;
}  // namespace levels

}  // namespace terrace::cg
