// The preconditioner that a request names, made for one operator.
#pragma once
#include <cmath>
#include <optional>

#include "distrib/agree.hpp"
#include "distrib/hypre.hpp"
#include "src/cg/local_rows.hpp"
#include "src/cg/multigrid.hpp"
#include "src/cg/operators_user.hpp"
#include "src/cg/system.hpp"

namespace terrace::cg {

/// Block-Jacobi, incomplete Cholesky, Chebyshev, multigrid or hypre's; nothing for none and jacobi, which conjugate
/// gradients have themselves. Kept while the solve lasts.
template <class B, class A>
class CgPreconditioning {
 public:
  /// `a` is normalised. Collective.
  CgPreconditioning(const Context<B>& c, A& a, const CgRequest& request)
      : sums_(collectively(c.control, [&] { return SumSpace<B>(c.ahead); })),
        ignored_(collectively(c.control, [&] { return Buffer<double, B>(2); })) {
    if (request.preconditioner == "chebyshev")
      make_polynomial(c, a, request.degree);
    else if (request.preconditioner == "amg")
      make_multigrid(c, a, request);
    else if (request.preconditioner == "hypre")
      make_hypre(c, a);
    else if (request.general())
      make_local(c, a, request.preconditioner == "ic" ? 0 : request.block);
  }
  CgPreconditioning(const CgPreconditioning&) = delete;
  CgPreconditioning& operator=(const CgPreconditioning&) = delete;

  /// The same of other values in the same places; false: it has to be made anew. Collective.
  bool update(const Context<B>& c, A& a) {
    if constexpr (requires { rank_rows(c, a); }) {
      if (multigrid.notes().levels.empty()) return false;
      multigrid.update(c, product_of(c, a), a.operand(c), source_of(c, a));
      take_multigrid(c, a);
      return true;
    } else {
      return false;
    }
  }

  /// f(array) of what must not change, numbers first.
  template <class F>
  void each_array(const F& f) const {
    local.each_array(f);
    polynomial.each_array(f);
    multigrid.each_array(f);
  }

  Preconditioner<B> local;
  Chebyshev<B> polynomial;
  Multigrid<B> multigrid;
  std::optional<Hypre> hypre;
  CgPreconditioner<B> function;     ///< empty: none
  std::optional<CgReason> refused;  ///< it may not be used
  Index bad_row = -1;               ///< the global row that is why, or -1
  double bytes = 0;                 ///< of one application
  int power = 0;                    ///< it gives 2^power M^-1 r

 private:
  typename Multigrid<B>::Product product_of(const Context<B>& c, const A& a) {
    return [this, &c, &a](const Operand<B>& p, View<double, B> q, const double* skip) {
      a.apply(c, p, q, ignored_.view(), sums_, skip);
    };
  }
  void make_polynomial(const Context<B>& c, A& a, Index degree) {
    const auto product = product_of(c, a);
    const Index rows = a.rows().count;
    const Buffer<double, B> diagonal =
        collectively(c.control, [&] { return Buffer<double, B>(rows); });
    a.take_diagonal(c, diagonal.view());
    polynomial = Chebyshev<B>(c, product, a.operand(c), a.rows(), diagonal, degree);
    bytes = double(degree) * (a.bytes() + 64.0 * double(a.n()));
    bad_row = polynomial.notes().bad_row;
    if (polynomial.notes().indefinite) refused = CgReason::indefinite_matrix;
    if (bad_row >= 0) refused = CgReason::indefinite_preconditioner;
    function = [this, product](const Context<B>& context, View<const double, B> r,
                               View<double, B> z, const double* skip) {
      polynomial.apply(context, product, r, z, skip);
    };
  }
  void make_multigrid(const Context<B>& c, A& a, const CgRequest& request) {
    if constexpr (requires { rank_rows(c, a); }) {
      const auto product = product_of(c, a);
      MatrixSource<B> source = source_of(c, a);
      NodeVectors vectors;
      if (request.near_null_space) {
        RankRows rows = rank_rows(c, a);
        vectors = node_vectors(c.control, *request.near_null_space, rows, request.order);
        source.host = [&rows] { return std::move(rows); };
        multigrid = Multigrid<B>(c, product, a.operand(c), source, std::move(vectors));
      } else {
        multigrid = Multigrid<B>(c, product, a.operand(c), source);
      }
      take_multigrid(c, a);
    } else {
      fail_together(
          Exit::usage,
          "multigrid needs the entries of a sparse matrix; the preconditioner; use CSR or "
          "a band for amg, or chebyshev");
    }
  }
  void make_hypre(const Context<B>& c, A& a) {
    if constexpr (std::is_same_v<B, Cpu> && requires { rank_rows(c, a); }) {
      const CsrSlice rows = [&] {
        const RankRows all = rank_rows(c, a);
        return collectively(c.control, [&] { return all.slice(c.rank()); });
      }();
      hypre.emplace(c.control, a.n(), a.rows(), rows.start.data(), rows.column.data(),
                    rows.value.data());
      function = [this](const Context<B>& context, View<const double, B> r, View<double, B> z,
                        const double* skip) {
        context.ahead.run([this, r, z, skip] {
          if (!skip || *skip == 0) hypre->apply(r.data, z.data);
        });
      };
    } else {
      fail_together(
          Exit::usage,
          "hypre takes CSR matrices and bands, on the CPU; the preconditioner; use amg, or "
          "--backend cpu");
    }
  }
  void take_multigrid(const Context<B>& c, const A& a) {
    const MultigridNotes& notes = multigrid.notes();
    bytes = notes.bytes + double(notes.products) * a.bytes();
    bad_row = notes.bad_row;
    refused.reset();
    if (notes.indefinite) refused = CgReason::indefinite_matrix;
    if (bad_row >= 0) refused = CgReason::indefinite_preconditioner;
    function = [this, product = product_of(c, a)](
                   const Context<B>& context, View<const double, B> r, View<double, B> z,
                   const double* skip) { multigrid.apply(context, product, r, z, skip); };
  }
  /// Of blocks, or of all of the rank's rows where `block` is 0.
  void make_local(const Context<B>& c, A& a, Index block) {
    LocalRows rows = local_rows(c, a, block);
    // Square roots of 2 a are not those of a: factors are made of numbers around one.
    power = a.scale.middle;
    for (double& value : rows.value) value = std::ldexp(value, -power);
    local = block > 0 ? make_block_jacobi<B>(c, rows, a.rows(), block)
                      : make_incomplete_cholesky<B>(c, rows, a.rows());
    bytes = local.notes().bytes;
    bad_row = local.bad_row();
    if (bad_row >= 0) refused = CgReason::indefinite_preconditioner;
    function = [this](const Context<B>& context, View<const double, B> r, View<double, B> z,
                      const double* skip) { local.apply(context, r, z, skip); };
  }

  SumSpace<B> sums_;
  Buffer<double, B> ignored_;
};

}  // namespace terrace::cg
