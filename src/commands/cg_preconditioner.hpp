// What --preconditioner names, made for one operator.
#pragma once
#include <cmath>

#include "distrib/agree.hpp"
#include "src/cg/chebyshev.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/local_rows.hpp"
#include "src/cg/preconditioner.hpp"
#include "src/commands/cg_inputs.hpp"

namespace terrace {

/// Block-Jacobi, incomplete Cholesky or Chebyshev; nothing for none and jacobi, which conjugate
/// gradients have themselves. Kept while the solve lasts.
template <class B, class A>
class CgPreconditioning {
 public:
  /// `a` is normalised. Collective.
  CgPreconditioning(const Context<B>& c, A& a, const CgCommand& options, Index block)
      : sums_(collectively(c.control, [&] { return SumSpace<B>(c.ahead); })),
        ignored_(collectively(c.control, [&] { return Buffer<double, B>(2); })) {
    const std::string& name = options.preconditioner;
    if (name == "chebyshev") {
      const auto product = [this, &c, &a](const Operand<B>& p, View<double, B> q,
                                          const double* skip) {
        a.apply(c, p, q, ignored_.view(), sums_, skip);
      };
      polynomial_ = Chebyshev<B>(c, product, a.operand(c), a.rows(), a.diagonal(c), options.degree);
      const ChebyshevNotes& notes = polynomial_.notes();
      description = {{"degree", notes.degree}, {"low", notes.low}, {"high", notes.high}};
      bytes = double(notes.degree) * (a.bytes() + 64.0 * double(a.n()));
      bad_row = notes.bad_row;
      if (notes.indefinite) refused = CgReason::indefinite_matrix;
      if (bad_row >= 0) refused = CgReason::indefinite_preconditioner;
      function = [this, product](const Context<B>& context, View<const double, B> r,
                                 View<double, B> z, const double* skip) {
        polynomial_.apply(context, product, r, z, skip);
      };
    } else if (name == "block-jacobi" || name == "ic") {
      const bool blocks = name == "block-jacobi";
      const Index height = block > 0 ? block : 32;
      LocalRows rows = local_rows(c, a, blocks ? height : 0);
      // Square roots of 2 a are not those of a: factors are made of numbers around one.
      power = a.scale.middle;
      for (double& value : rows.value) value = std::ldexp(value, -power);
      local_ = blocks ? make_block_jacobi<B>(c, rows, a.rows(), height)
                      : make_incomplete_cholesky<B>(c, rows, a.rows());
      const PreconditionerNotes& notes = local_.notes();
      if (blocks)
        description = {{"block", notes.block}};
      else
        description = {{"shift", notes.shift},
                       {"attempts", notes.attempts},
                       {"levels", notes.levels},
                       {"nonzeros", notes.nonzeros}};
      bytes = notes.bytes;
      bad_row = notes.bad_row;
      if (bad_row >= 0) refused = CgReason::indefinite_preconditioner;
      function = [this](const Context<B>& context, View<const double, B> r, View<double, B> z,
                        const double* skip) { local_.apply(context, r, z, skip); };
    }
  }
  CgPreconditioning(const CgPreconditioning&) = delete;
  CgPreconditioning& operator=(const CgPreconditioning&) = delete;

  /// f(array) of what must not change, numbers first.
  template <class F>
  void each_array(const F& f) const {
    local_.each_array(f);
    polynomial_.each_array(f);
  }

  CgPreconditioner<B> function;     ///< empty: none
  std::optional<CgReason> refused;  ///< it may not be used
  Index bad_row = -1;               ///< the global row that is why, or -1
  double bytes = 0;                 ///< of one application
  int power = 0;                    ///< it gives 2^power M^-1 r
  nlohmann::json description;

 private:
  SumSpace<B> sums_;
  Buffer<double, B> ignored_;
  Preconditioner<B> local_;
  Chebyshev<B> polynomial_;
};

}  // namespace terrace
