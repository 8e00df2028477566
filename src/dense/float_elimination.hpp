// LU in FP32 of a matrix on one device (kernels/dense/float_lu.hpp), for solutions that are refined.
#pragma once
#include <string>
#include <vector>

#include "distrib/context.hpp"
#include "kernels/dense/float_lu.hpp"
#include "src/frame/progress.hpp"
#include "src/frame/stages.hpp"

namespace terrace::dense {

/// The block of FloatElimination: what is asked for, or what suits the order where that is 0.
Index float_block(Index n, Index asked);
/// Bytes on the backend, of solutions with up to `right` columns.
template <class B>
Index float_elimination_bytes(const FloatLuShape& shape, Index right);

template <class B>
class FloatElimination {
 public:
  /// Takes all memory; throws Error(resources).
  FloatElimination(Context<B>& context, const FloatLuShape& shape, Index right);

  /// Of row-major A, n x n; empty, or why there is no factor. 2/3 n^3 flops.
  std::string factor(View<const double, B> a, Index lda, Progress& progress,
                     const StageTimes<B>& stages);
  /// A^-1 R nearly: n rows of `columns` numbers. 2 n^2 flops a column.
  [[nodiscard]] std::vector<double> solve(Index columns, const std::vector<double>& r);

  // Elimination of panel k; see src/frame/eliminate.hpp.
  static constexpr bool share_after_update = true, next_ahead = true;
  [[nodiscard]] Index steps() const { return lu_.shape.steps(); }
  void choose(const Stream<B>& lane, Index k);
  [[nodiscard]] bool stop(Index) const { return false; }  // the device sees for itself
  void share(const Stream<B>& lane, Index k) { share_float_panel(lane, lu_, k); }
  void update_next(const Stream<B>& lane, Index k);
  void update_rest(const Stream<B>& lane, Index k);

 private:
  Context<B>& context_;
  Buffer<float, B> a_;
  Buffer<Index, B> row_, info_;
  Buffer<int, B> powers_;
  Buffer<std::byte, B> work_;
  Buffer<double, B> x_;
  FloatLu<B> lu_;
  std::vector<Index> rows_;  // on the host, after factor()
  std::vector<int> exponents_;
};

}  // namespace terrace::dense
