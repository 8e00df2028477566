// The vectors of a solve by conjugate gradients on this rank, and what is known of A before it.
#pragma once
#include <functional>
#include <variant>

#include "distrib/context.hpp"
#include "kernels/cg/resident.hpp"
#include "kernels/cg/vectors.hpp"
#include "src/cg/operators.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::cg {

template <class B>
class TriangleOperator;

/// Reductions of scalars over the ranks per iteration: classic two; single_reduction one; pipelined
/// one, beside the product.
enum class CgMethod { classic, single_reduction, pipelined };

/// z = M^-1 r on this rank's rows; does nothing where *skip != 0 by then. Neither allocates nor
/// waits.
template <class B>
using CgPreconditioner = std::function<void(const Context<B>&, View<const double, B> r,
                                            View<double, B> z, const double* skip)>;

// The vectors of each method beside b, x and r, by the letters of its paper. The members say which
// of them have one role in all methods, and each(f) calls f(name in checkpoints, vector).
// Those marked M exist for a general M alone; where M is diagonal or 1 nobody stores them.

/// Hestenes and Stiefel (1952).
template <class B>
struct CgClassic {
  Operand<B> p;
  Buffer<double, B> q;     // A p
  Buffer<double, B> z;     // M: M^-1 r
  Buffer<double, B> kept;  // p, while A x is computed

  [[nodiscard]] const Operand<B>& operand() const { return p; }
  [[nodiscard]] View<double, B> product() const { return q; }
  [[nodiscard]] View<double, B> solved() const { return z; }
  [[nodiscard]] View<double, B> aside() const { return kept; }
  void allocate(Index rows, Index product_rows) {
    q = Buffer<double, B>(product_rows * p.columns);
    kept = Buffer<double, B>(rows * p.columns);
  }
  void precondition(Index rows) { z = Buffer<double, B>(rows * p.columns); }
  template <class F>
  void each(const F& f) const {
    f("p", p.own()), f("q", q.view()), f("z", z.view()), f("t", kept.view());
  }
};

/// Chronopoulos and Gear (1989).
template <class B>
struct CgSingleReduction {
  Operand<B> u;             // M^-1 r; r itself where M = 1
  Buffer<double, B> w;      // A u
  Buffer<double, B> p, s;   // s = A p
  Buffer<double, B> first;  // M: the first u, until it is an operand

  [[nodiscard]] const Operand<B>& operand() const { return u; }
  [[nodiscard]] View<double, B> product() const { return w; }
  [[nodiscard]] View<double, B> solved() const { return first; }
  [[nodiscard]] View<double, B> aside() const { return p; }
  void allocate(Index rows, Index product_rows) {
    w = Buffer<double, B>(product_rows);
    for (Buffer<double, B>* vector : {&p, &s}) *vector = Buffer<double, B>(rows);
  }
  void precondition(Index rows) { first = Buffer<double, B>(rows); }
  template <class F>
  void each(const F& f) const {
    f("p", u.own()), f("q", w.view()), f("z", first.view()), f("s", s.view()), f("t", p.view());
  }
};

/// Ghysels and Vanroose (2014).
template <class B>
struct CgPipelined {
  Operand<B> m;               // M^-1 w
  Buffer<double, B> n;        // A m
  Buffer<double, B> p, s, z;  // s = A p, z = A q
  Buffer<double, B> w;        // A u
  Buffer<double, B> u, q;     // M: u = M^-1 r, q = M^-1 s

  [[nodiscard]] const Operand<B>& operand() const { return m; }
  [[nodiscard]] View<double, B> product() const { return n; }
  [[nodiscard]] View<double, B> solved() const { return z; }
  [[nodiscard]] View<double, B> aside() const { return p; }
  void allocate(Index rows, Index product_rows) {
    n = Buffer<double, B>(product_rows);
    for (Buffer<double, B>* vector : {&p, &s, &w, &z}) *vector = Buffer<double, B>(rows);
  }
  void precondition(Index rows) {
    for (Buffer<double, B>* vector : {&u, &q}) *vector = Buffer<double, B>(rows);
  }
  template <class F>
  void each(const F& f) const {
    f("p", m.own()), f("q", n.view()), f("z", z.view()), f("s", s.view()), f("t", p.view());
    f("u", u.view()), f("v", q.view()), f("w", w.view());
  }
};

/// The vectors of one solve on this rank, and what is known of A. Reusable over right-hand sides.
template <class B>
struct CgWork {
  /// Collective. Normalises A where that was not done, and takes its norm and diagonal. `columns`
  /// right-hand sides at once: 1, 2, 4, 8 or 16 (variants: 1).
  template <class A>
  CgWork(const Context<B>& context, A& a, bool jacobi, Index columns = 1,
         CgMethod method = CgMethod::classic);
  /// Takes the place of jacobi. `general` gives 2^power M^-1 r for the matrix as the operator holds
  /// it. Collective.
  void precondition(const Context<B>& context, CgPreconditioner<B> general, int power = 0);
  static Index bytes(Index rows, bool jacobi, Index columns = 1,
                     CgMethod method = CgMethod::classic, bool general = false);

  /// What A multiplies, A times it, where M^-1 r stands when an iteration starts, and room for the
  /// operand or, in the variants, for a direction that the iteration makes anew.
  [[nodiscard]] const Operand<B>& operand() const {
    return std::visit([](const auto& v) -> const Operand<B>& { return v.operand(); }, vectors);
  }
  [[nodiscard]] View<double, B> product() const {
    return std::visit([](const auto& v) { return v.product(); }, vectors);
  }
  [[nodiscard]] View<double, B> solved() const {
    return std::visit([](const auto& v) { return v.solved(); }, vectors);
  }
  [[nodiscard]] View<double, B> aside() const {
    return std::visit([](const auto& v) { return v.aside(); }, vectors);
  }
  /// r. With one reduction and M = 1 it is u, the operand: one vector with two names.
  [[nodiscard]] View<double, B> residual() const {
    const bool same =
        method == CgMethod::single_reduction && !general && inverse_diagonal.size() == 0;
    return same ? operand().own() : r.view();
  }
  /// The vectors and scalars between two batches, of which `launched` iterations are done.
  /// Collective.
  template <class A>
  void archive(Archive& archive, const Context<B>& context, const A& a, Index launched);

  Index columns = 1, local_rows = 0;
  CgMethod method = CgMethod::classic;
  std::variant<CgClassic<B>, CgSingleReduction<B>, CgPipelined<B>> vectors;
  Buffer<double, B> b, x, r, inverse_diagonal;
  CgPreconditioner<B> general;
  int general_power = 0;
  SumSpace<B> sums;
  Buffer<double, B> scalars;  // rows of four iterations, kernels/cg/vectors.hpp; then `stop`
  Buffer<double, B> ring, partials;
  Buffer<Index, B> finished;
  Buffer<Word, B> ticket;
  PinnedBuffer<double> seen;                   // the ring on the host
  Stream<B> observer;                          // copies it out beside the iteration
  double norm = 0;                             // largest row sum of |A|, as the operator holds it
  Index negative_row = -1, unusable_row = -1;  // global rows with a_ii < 0, a_ii <= 0
  static constexpr Index ring_rows = 256;
  /// Of iterations in one launch, on a matrix that stays on the chip (kernels/cg/resident.hpp).
  struct Resident {
    bool on = false;
    Buffer<double, B> vectors;  ///< dense: x, r and D, padded
    Buffer<double, B> scratch;
    ResidentSize size;  ///< CSR: its shares
    Buffer<std::int32_t, B> list;
    Buffer<std::uint16_t, B> place;
    Buffer<Index, B> bounds;
    [[nodiscard]] ResidentCsr<B> shares(const CsrRows<B>& a) const {
      return {a, size, list, place, bounds};
    }
  } resident;

 private:
  /// Makes `resident` for one right-hand side where A fits.
  void hold(const Context<B>& context, const TriangleOperator<B>& a);
  void hold(const Context<B>& context, const CsrOperator<B>& a);
  void archive_scalars(Archive& archive, const Context<B>& context, bool replicated,
                       Index launched);
};

}  // namespace terrace::cg
