#include "src/cg/preconditioner.hpp"

#include <algorithm>
#include <limits>

#include "distrib/agree.hpp"

namespace terrace::cg {

Index block_jacobi_bytes(Index rows, Index block) {
  return 8 * DiagonalBlocks<Cpu>::size(rows, block);
}
Index incomplete_cholesky_bytes(Index rows, Index nonzeros, Index columns) {
  const Index triangle = (nonzeros - rows) / 2;
  return 24 * triangle + (28 + 16 * columns) * rows;
}

namespace {

/// The first bad row of all ranks, -1 when there is none.
Index first_bad(const Control& control, Range rows, Index local) {
  const Index none = std::numeric_limits<Index>::max();
  const Index row = control.reduce(local < 0 ? none : rows.first + local, Reduce::min);
  return row == none ? -1 : row;
}

template <class T, class B>
Buffer<T, B> on_backend(const Stream<B>& stream, const std::vector<T>& values) {
  Buffer<T, B> result(Index(values.size()));
  if (!values.empty()) upload(stream, result.view(), values.data());
  return result;
}

}  // namespace

template <class B>
void Preconditioner<B>::apply(const Context<B>& context, View<const double, B> r, View<double, B> z,
                              const double* skip) const {
  if (rows_ == 0) return;
  const Index columns = r.size / rows_;
  if (kind_ == Kind::blocks)
    multiply_blocks(context.ahead, DiagonalBlocks<B>{values_, rows_, notes_.block}, columns, r, z,
                    skip);
  else
    solve_factor(context.ahead, factor(), columns, r, z, skip);
}

template <class B>
Preconditioner<B> make_block_jacobi(const Context<B>& context, const LocalRows& a, Range rows,
                                    Index block) {
  if (block < 1 || block > most_block)
    fail_together(Exit::usage, "blocks of block-Jacobi have 1 to 64 rows; --block " +
                                   std::to_string(block) + "; choose one of these");
  Preconditioner<B> result;
  result.kind_ = Preconditioner<B>::Kind::blocks;
  result.rows_ = rows.count;
  Index bad = -1;
  collectively(context.control, [&] {
    std::vector<double> blocks(std::size_t(DiagonalBlocks<B>::size(rows.count, block)), 0.0);
    bad = invert_diagonal_blocks(a, block, blocks.data());
    result.values_ = on_backend(context.ahead, blocks);
    context.ahead.synchronize();
  });
  PreconditionerNotes& notes = result.notes_;
  notes.block = block;
  notes.bad_row = first_bad(context.control, rows, bad);
  notes.bytes =
      context.control.reduce(8.0 * double(result.values_.size() + 2 * rows.count), Reduce::sum);
  return result;
}

template <class B>
Preconditioner<B> make_incomplete_cholesky(const Context<B>& context, const LocalRows& a,
                                           Range rows, Index columns) {
  Preconditioner<B> result;
  result.kind_ = Preconditioner<B>::Kind::factor;
  result.rows_ = rows.count;
  result.columns_ = columns;
  PreconditionerNotes& notes = result.notes_;
  Index bad = -1;
  collectively(context.control, [&] {
    const Stream<B>& lane = context.ahead;
    const IncompleteFactor f = incomplete_cholesky(
        a, [](Index n, Index levels) { return wants_levels(B{}, n, levels); }, slice_height(B{}));
    notes.shift = f.shift;
    notes.attempts = f.attempts;
    notes.levels = Index(f.level.size()) - 1;
    notes.nonzeros = f.nonzeros;
    bad = f.bad_row;
    if (bad >= 0) return;
    const auto triangle = [&](const HostTriangle& t, typename Preconditioner<B>::Triangle& to) {
      to.start = on_backend(lane, t.start);
      to.column = on_backend(lane, t.column);
      to.value = on_backend(lane, t.value);
    };
    triangle(f.lower, result.lower_);
    triangle(f.upper, result.upper_);
    result.values_ = on_backend(lane, f.inverse_diagonal);
    result.order_ = on_backend(lane, f.order);
    result.level_ = Buffer<Index, Cpu>(Index(f.level.size()));
    std::copy(f.level.begin(), f.level.end(), result.level_.data());
    result.y_ = Buffer<double, B>(rows.count * columns);
    if (result.order_.size() > 0) result.x_ = Buffer<double, B>(rows.count * columns);
    result.tickets_ = Buffer<Word, B>(2);
    prepare_solve(lane, result.factor());
    lane.synchronize();
  });
  const Control& control = context.control;
  notes.bad_row = first_bad(control, rows, bad);
  notes.shift = control.reduce(notes.shift, Reduce::max);
  notes.attempts = control.reduce(notes.attempts, Reduce::max);
  notes.levels = control.reduce(notes.levels, Reduce::max);
  notes.nonzeros = control.reduce(notes.nonzeros, Reduce::sum);
  notes.bytes = control.reduce(
      24.0 * double(result.lower_.value.size()) + 48.0 * double(rows.count), Reduce::sum);
  return result;
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template class Preconditioner<B>;                                                                \
  template Preconditioner<B> make_block_jacobi(const Context<B>&, const LocalRows&, Range, Index); \
  template Preconditioner<B> make_incomplete_cholesky(const Context<B>&, const LocalRows&, Range,  \
                                                      Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
