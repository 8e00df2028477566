// A product that the caller computes: a matrix that nobody stores. On the host.
#pragma once
#include <functional>
#include <vector>

#include "src/cg/operators.hpp"

namespace terrace::cg {

template <class B>
class UserOperator {
 public:
  static_assert(std::is_same_v<B, Cpu>, "the caller's product runs on the host");
  static constexpr bool replicated = false, sums_columns = false;
  /// product(p, q): q := this rank's rows of A p from p's; called on all ranks at the same time, it
  /// may communicate. `diagonal`: this rank's part, or empty: ones. Estimates ||A||: 8 products.
  /// Collective.
  using Product = std::function<void(const double* p, double* q)>;
  UserOperator(const Context<B>& context, Index n, Range rows, Product product,
               std::vector<double> diagonal);
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Range rows() const { return rows_; }
  [[nodiscard]] Operand<B> operand(const Context<B>& context, Index columns = 1);
  void apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
             View<double, B> sums, const SumSpace<B>& space, const double* skip = nullptr,
             bool absolute = false, const Meanwhile& meanwhile = {}) const;
  void take_diagonal(const Context<B>& context, View<double, B> to) const {
    upload(context.ahead, to, diagonal_.data());
  }
  [[nodiscard]] std::optional<Asymmetry> asymmetry(const Context<B>&) const { return {}; }
  [[nodiscard]] double bytes(bool = false) const { return 16.0 * double(n_); }
  MatrixScale scale;  ///< known from the start: nothing is scaled
  template <class F>
  void each_array(const F&) const {}

 private:
  void estimate_norm(const Context<B>& context);
  Index n_;
  Range rows_;
  Product product_;
  std::vector<double> diagonal_;
};

/// Nothing to do.
template <class B>
void normalise(const Context<B>&, UserOperator<B>&) {}
/// Refused: no rows are known.
template <class B>
LocalRows local_rows(const Context<B>& context, const UserOperator<B>& a, Index block);

}  // namespace terrace::cg
