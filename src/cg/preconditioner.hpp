// Preconditioners made of a rank's own rows: block-Jacobi and incomplete Cholesky. The Chebyshev
// polynomial, which needs products with the whole matrix, is in src/cg/chebyshev.hpp.
#pragma once
#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "kernels/cg/preconditioner.hpp"

namespace terrace::cg {

/// What to tell the user; the same on every rank.
struct PreconditionerNotes {
  Index block = 0;     ///< block-Jacobi: rows of a block
  double shift = 0;    ///< incomplete Cholesky: the largest shift of a rank, in units of diag(A)
  Index attempts = 0;  ///< ... and the most factorisations
  Index levels = 0;    ///< ... the longest chain of rows that wait for one another
  Index nonzeros = 0;  ///< ... of L on all ranks
  double bytes = 0;    ///< read and written by one application on all ranks
  Index bad_row = -1;  ///< global row that makes it indefinite; then it must not be applied
};

/// z = M r with a symmetric positive definite M. Made once, applied any number of times.
template <class B>
class Preconditioner {
 public:
  Preconditioner() = default;
  [[nodiscard]] const PreconditionerNotes& notes() const { return notes_; }
  /// Row that is not positive definite, or -1; the same on every rank.
  [[nodiscard]] Index bad_row() const { return notes_.bad_row; }
  /// On context.ahead, with own rows alone: no communication, nothing allocated, no wait. r and z
  /// hold rows x columns values, row-major, and are not the same memory.
  void apply(const Context<B>& context, View<const double, B> r, View<double, B> z,
             const double* skip = nullptr) const;

  /// f(array) of what apply() never writes, numbers first.
  template <class F>
  void each_array(const F& f) const {
    f(values_), f(order_);
    for (const Triangle* t : {&lower_, &upper_}) f(t->start), f(t->column), f(t->value);
  }

 private:
  template <class Backend>
  friend Preconditioner<Backend> make_block_jacobi(const Context<Backend>&, const LocalRows&, Range,
                                                   Index);
  template <class Backend>
  friend Preconditioner<Backend> make_incomplete_cholesky(const Context<Backend>&, const LocalRows&,
                                                          Range, Index);
  struct Triangle {
    Buffer<Index, B> start;
    Buffer<std::int32_t, B> column;
    Buffer<double, B> value;
    [[nodiscard]] TriangleView<B> view() const { return {start, column, value}; }
  };
  [[nodiscard]] FactorView<B> factor() const {
    return {lower_.view(), upper_.view(), values_, order_, level_, y_, x_, tickets_};
  }

  enum class Kind { none, blocks, factor } kind_ = Kind::none;
  PreconditionerNotes notes_;
  Index rows_ = 0, columns_ = 1;
  Buffer<double, B> values_;  // blocks, or the inverse diagonal of L
  Triangle lower_, upper_;
  Buffer<std::int32_t, B> order_;
  Buffer<Index, Cpu> level_;
  Buffer<double, B> y_, x_;
  Buffer<Word, B> tickets_;
};

/// Inverses of the diagonal blocks of `block` rows (1 ... most_block), counted from the first row
/// of each rank. `rows`: this rank's rows; of `a` only the entries within blocks are read.
/// Collective.
template <class B>
Preconditioner<B> make_block_jacobi(const Context<B>& context, const LocalRows& a, Range rows,
                                    Index block = 32);
/// (L L')^-1 of each rank's own rows, for up to `columns` vectors at once. Collective.
template <class B>
Preconditioner<B> make_incomplete_cholesky(const Context<B>& context, const LocalRows& a,
                                           Range rows, Index columns = 1);

/// Bytes of backend memory on a rank of `rows` rows (and `nonzeros` of the whole diagonal part).
Index block_jacobi_bytes(Index rows, Index block);
Index incomplete_cholesky_bytes(Index rows, Index nonzeros, Index columns = 1);

}  // namespace terrace::cg
