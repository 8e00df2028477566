// A rectangular sparse matrix over the ranks: what carries vectors between two levels of multigrid.
#pragma once
#include "distrib/halo.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

/// Rows of rank r by columns first[r] .. first[r + 1] - 1 of its own, and needed ones of other ranks.
template <class B>
class Transfer {
 public:
  Transfer() = default;
  /// `a`: this rank's rows, a.first those of the columns. Collective.
  Transfer(const Context<B>& context, const RankRows& a);
  /// The same of rows that are there; `scattered` as CsrRows has it. Collective.
  Transfer(const Context<B>& context, RowsThere<B>&& a, bool scattered, Scratch<B>& scratch);
  /// The same, of vectors that each rank has whole. Collective.
  static Transfer of_whole(const Context<B>& context, RowsThere<B>&& a, bool scattered,
                           Scratch<B>& scratch);
  /// Of a vector that apply() multiplies: this rank's, or all where it has them whole.
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] Index rows() const { return part_.view().rows(); }
  /// Whether a rank has entries in columns of others; the same on every rank.
  [[nodiscard]] bool crosses() const { return crosses_; }
  /// A vector that apply() multiplies, zero.
  [[nodiscard]] Operand<B> operand(const Context<B>& context) const;
  /// q = A p of own rows on context.ahead, p an operand(). Collective.
  void apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
             View<double, B> ignored, const SumSpace<B>& space, const double* skip = nullptr) const;
  /// The same where it does not cross(): own entries of p alone, as many as rows() or columns(). Not of
  /// whole ones.
  void apply(const Context<B>& context, View<const double, B> p, View<double, B> q,
             View<double, B> ignored, const SumSpace<B>& space, const double* skip = nullptr) const;

  template <class F>
  void each_array(const F& f) const {
    part_.each_array(f);
  }

 private:
  /// Without entries. Collective.
  Transfer(const Context<B>& context, const std::vector<Index>& first,
           const std::vector<Index>& needed);
  void take(const Context<B>& context, RowsThere<B>& a, bool scattered, Scratch<B>& scratch);
  Index columns_ = 0, before_ = 0;  // before_: of whole vectors, entries in front of this rank's
  bool crosses_ = false;
  CsrPart<B> part_;
  Halo<B> halo_;
};

}  // namespace terrace::cg
