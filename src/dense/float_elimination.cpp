#include "src/dense/float_elimination.hpp"

#include <algorithm>
#include <cmath>

#include "src/frame/eliminate.hpp"

namespace terrace::dense {

Index float_block(Index n, Index asked) {
  const Index block = asked > 0    ? asked
                      : n <= 4096  ? 128
                      : n <= 12288 ? 256
                      : n < 32768  ? 512
                                   : 1024;
  return round_up(std::min(block, std::max<Index>(1, n)), 32);
}

template <class B>
Index float_elimination_bytes(const FloatLuShape& shape, Index right) {
  return 4 * shape.n * shape.ld() + 8 * shape.n * (2 + right) + float_lu_bytes(B{}, shape);
}

template <class B>
FloatElimination<B>::FloatElimination(Context<B>& context, const FloatLuShape& shape, Index right)
    : context_(context),
      a_(shape.n * shape.ld()),
      row_(shape.n),
      info_(2),
      powers_(2 * shape.n),
      work_(float_lu_bytes(B{}, shape)),
      x_(shape.n * right),
      lu_{shape, a_, row_, powers_, info_, work_},
      rows_(std::size_t(shape.n)),
      exponents_(std::size_t(2 * shape.n)) {}

template <class B>
std::string FloatElimination<B>::factor(View<const double, B> a, Index lda, Progress& progress,
                                        const StageTimes<B>& stages) {
  const Stream<B>& lane = context_.ahead;
  if (lu_.shape.n == 0) return {};
  begin_float_lu<B>(lane, lu_, a, lda);
  progress.begin("elimination", double(steps()));
  eliminate(context_, *this, progress, stages);
  progress.end();
  Index info[2] = {};
  download(lane, info, info_.view());
  download(lane, rows_.data(), row_.view());
  download(lane, exponents_.data(), powers_.view());
  lane.synchronize();
  if (info[0] < 0) return {};
  return info[1] == 2 ? "a number is not finite" : "a pivot is zero";
}

template <class B>
void FloatElimination<B>::choose(const Stream<B>& lane, Index k) {
  factor_float_panel(lane, lu_, k);
}

template <class B>
void FloatElimination<B>::update_next(const Stream<B>& lane, Index k) {
  const Index n = lu_.shape.n, end = std::min(n, (k + 1) * lu_.shape.block);
  if (end == n) return;
  update_floats(lane, lu_, k, end, std::min(n, end + lu_.shape.block));
  load_float_panel(lane, lu_, k + 1);
}

template <class B>
void FloatElimination<B>::update_rest(const Stream<B>& lane, Index k) {
  const Index next_end = std::min(lu_.shape.n, (k + 2) * lu_.shape.block);
  update_floats(lane, lu_, k, next_end, lu_.shape.columns());
}

template <class B>
std::vector<double> FloatElimination<B>::solve(Index columns, const std::vector<double>& r) {
  const Index n = lu_.shape.n;
  const Stream<B>& lane = context_.ahead;
  std::vector<double> x(std::size_t(n * columns));
  for (Index i = 0; i < n; ++i) {
    const Index row = rows_[std::size_t(i)];
    for (Index c = 0; c < columns; ++c)
      x[std::size_t(i * columns + c)] =
          std::ldexp(r[std::size_t(row * columns + c)], exponents_[std::size_t(row)]);
  }
  const View<double, B> there = x_.view().slice(0, n * columns);
  upload(lane, there, static_cast<const double*>(x.data()));
  lane.synchronize();
  solve_float_lu<B>(lane, lu_, columns, there);
  download(lane, x.data(), there);
  lane.synchronize();
  for (Index i = 0; i < n; ++i)
    for (Index c = 0; c < columns; ++c) {
      double& number = x[std::size_t(i * columns + c)];
      number = std::ldexp(number, exponents_[std::size_t(n + i)]);
    }
  return x;
}

#define TERRACE_INSTANTIATE(B)                                           \
  template Index float_elimination_bytes<B>(const FloatLuShape&, Index); \
  template class FloatElimination<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
