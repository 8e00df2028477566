// Dense and band operators; CSR stands in operators_csr.cpp.
#include "src/cg/operators.hpp"

#include "src/cg/operators_triangle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/cg/diagonal.hpp"
#include "kernels/cg/heads.hpp"

namespace terrace::cg {
namespace {

Range slice_of(Index n, int ranks, int rank) {
  const Index block = contiguous(n, ranks).block;
  const Index from = std::min(n, rank * block);
  return {from, std::min(n, from + block) - from};
}
template <class B>
double largest_of(const Context<B>& context, View<const double, B> v) {
  return context.control.reduce(max_abs<B>(context.ahead, 1, v.size, v, std::max<Index>(1, v.size)),
                                Reduce::max);
}
constexpr Index staging_elements = Index(1) << 22;  // of exchanged pieces: 32 MB

}  // namespace

// --- dense
// ----------------------------------------------------------------------------------------

template <class B>
DenseOperator<B>::DenseOperator(const Context<B>& context, Index n)
    : n_(n),
      block_(contiguous(n, context.size()).block),
      ld_(round_up(n, 16)),
      rows_(slice_of(n, context.size(), context.rank())) {
  collectively(context.control, [&] {
    matrix_ = Buffer<double, B>(rows_.count * ld_);
    if (context.size() > 1) all_ = Buffer<double, B>(std::max(ld_, block_ * context.size()));
  });
  if (ld_ != n_) fill_zero(context.ahead, matrix_.view());
  fill_zero(context.ahead, all_.view());
  context.ahead.synchronize();
}

template <class B>
OperatorMemory DenseOperator<B>::memory(Index n, int ranks) {
  const Index block = contiguous(n, ranks).block, ld = round_up(n, 16);
  // The symmetry check exchanges two pieces.
  const Index pieces = ranks > 1 ? 2 * std::min(staging_elements + block, block * block) : 0;
  return {0, 8 * (block * ld + 2 * block + ld + pieces)};
}

template <class B>
void DenseOperator<B>::put_rows(const Context<B>& context, Index position, Index count,
                                const double* rows) {
  scale = {};
  copy_rows(context.ahead, matrix_.data() + position * ld_, ld_, rows, n_, n_, count);
  context.ahead.synchronize();
}

template <class B>
void DenseOperator<B>::fill_random(const Context<B>& context, Word seed, double diagonal) {
  scale = {};
  fill_dense_cg(context.ahead, seed, n_, rows_.first, rows_.count, ld_, matrix_.view(), diagonal);
  context.ahead.synchronize();
}

template <class B>
void DenseOperator<B>::multiply_by(const Context<B>& context, int power) {
  multiply_by_power<B>(context, matrix_.view(), power);
}
template <class B>
double DenseOperator<B>::largest(const Context<B>& context) const {
  return largest_of<B>(context, matrix_);
}

template <class B>
Operand<B> DenseOperator<B>::operand(const Context<B>& context, Index columns) {
  const Index ranks = context.size();
  return collectively(context.control, [&] {
    Operand<B> p{Buffer<double, B>((ranks > 1 ? block_ : ld_) * columns), 0, rows_.count, columns};
    fill_zero(context.ahead, p.memory.view());
    const Index all = std::max(ld_, block_ * ranks) * columns;
    if (ranks > 1 && all_.size() < all) {
      all_ = Buffer<double, B>(all);
      fill_zero(context.ahead, all_.view());
    }
    return p;
  });
}

template <class B>
void DenseOperator<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                             View<double, B> sums, const SumSpace<B>& space, const double* skip,
                             bool absolute, const Meanwhile& meanwhile) const {
  if (meanwhile) meanwhile();
  View<const double, B> all = p.memory;
  if (context.size() > 1) {
    const Index gathered = block_ * context.size() * p.columns;
    context.comm.all_gather(context.ahead, p.memory.view(), all_.view().slice(0, gathered));
    all = all_;
  }
  if (p.columns > 1)
    multiply_columns(context.ahead, matrix(), all.data, q, p.columns, skip);
  else
    multiply(context.ahead, matrix(), rows_.first, all, q, sums_to(space, sums), absolute, skip);
}

template <class B>
void DenseOperator<B>::take_diagonal(const Context<B>& context, View<double, B> to) const {
  copy_rows(context.ahead, to.data, 1, matrix_.data() + rows_.first, ld_ + 1, 1, rows_.count);
}

template <class B>
double DenseOperator<B>::entry(const Context<B>& context, Index i, Index j) const {
  double value = 0;
  if (i >= rows_.first && i < rows_.end()) {
    copy_rows(context.ahead, &value, 1, matrix_.data() + (i - rows_.first) * ld_ + j, 1, 1, 1);
    context.ahead.synchronize();
  }
  return context.control.reduce(value, Reduce::sum);
}

template <class B>
std::optional<Asymmetry> DenseOperator<B>::asymmetry(const Context<B>& context) const {
  const Stream<B>& lane = context.ahead;
  const int ranks = context.size(), me = context.rank();
  const Index none = std::numeric_limits<Index>::max();
  // Pieces of `chunk` rows of the higher rank's block travel to the lower rank of each pair.
  const Index chunk = std::clamp<Index>(staging_elements / block_, 1, block_);
  Buffer<double, B> sent, received, own_diagonal;
  Buffer<Index, B> worst;
  collectively(context.control, [&] {
    worst = Buffer<Index, B>(1);
    own_diagonal = Buffer<double, B>(block_);
    if (ranks > 1) {
      sent = Buffer<double, B>(chunk * block_);
      received = Buffer<double, B>(chunk * block_);
    }
  });
  upload(lane, worst.view(), &none);
  fill_zero(lane, own_diagonal.view());
  copy_rows(lane, own_diagonal.data(), 1, matrix_.data() + rows_.first, ld_ + 1, 1, rows_.count);
  View<const double, B> diagonal = own_diagonal;
  if (ranks > 1) {
    context.comm.all_gather(lane, own_diagonal.view(), all_.view().slice(0, block_ * ranks));
    diagonal = all_;
  }
  const double* const own = matrix_.data() + rows_.first;
  find_asymmetry(lane, {own, ld_, rows_.first, rows_.count, own, ld_, rows_.first, rows_.count}, n_,
                 diagonal, worst.view());
  for (int step = 0; step < ranks && ranks > 1; ++step) {
    const int peer = (step - me + ranks) % ranks;
    const Range other = slice_of(n_, ranks, peer);
    for (Index from = 0; from < block_; from += chunk) {
      const Index mine = std::clamp<Index>(rows_.count - from, 0, chunk);
      const Index theirs = std::clamp<Index>(other.count - from, 0, chunk);
      std::vector<Piece> out, in;
      if (peer < me && mine * other.count > 0) {
        copy_rows(lane, sent.data(), other.count, matrix_.data() + from * ld_ + other.first, ld_,
                  other.count, mine);
        out.push_back({peer, sent.data(), mine * other.count * Index(sizeof(double))});
      }
      if (peer > me && theirs * rows_.count > 0)
        in.push_back({peer, received.data(), theirs * rows_.count * Index(sizeof(double))});
      context.comm.exchange(lane, out, in);
      if (!in.empty())
        find_asymmetry(lane,
                       {matrix_.data() + other.first + from, ld_, rows_.first, rows_.count,
                        received.data(), rows_.count, other.first + from, theirs},
                       n_, diagonal, worst.view());
    }
  }
  Index found = none;
  download(lane, &found, worst.view());
  fill_zero(lane, all_.view());
  lane.synchronize();
  found = context.control.reduce(found, Reduce::min);
  if (found == none) return {};
  const Index i = found / n_, j = found % n_;
  return Asymmetry{i, j, entry(context, i, j), entry(context, j, i)};
}

// --- band
// -----------------------------------------------------------------------------------------

template <class B>
BandOperator<B>::BandOperator(const Context<B>& context, Index n, Index half_bandwidth)
    : n_(n),
      m_(std::max<Index>(0, std::min(half_bandwidth, n - 1))),
      rows_(slice_of(n, context.size(), context.rank())) {
  const Index lead = std::min(m_, rows_.count);
  ld_ = round_up(lead + rows_.count, 16);
  collectively(context.control, [&] {
    matrix_ = Buffer<double, B>((m_ + 1) * ld_);
    scratch_ = Buffer<double, B>(band_scratch(B{}, rows_.count, m_));
    begin_again();
  });
  fill_zero(context.ahead, matrix_.view());
  halo_ = halo(context, 1);
}

template <class B>
Halo<B> BandOperator<B>::halo(const Context<B>& context, Index columns) const {
  std::vector<Index> first, needed;
  collectively(context.control, [&] {
    for (int r = 0; r <= context.size(); ++r)
      first.push_back(r < context.size() ? slice_of(n_, context.size(), r).first : n_);
    if (rows_.count == 0) return;
    for (Index i = std::max<Index>(0, rows_.first - m_); i < rows_.first; ++i) needed.push_back(i);
    for (Index i = rows_.end(); i < std::min(n_, rows_.end() + m_); ++i) needed.push_back(i);
  });
  return halo_of_columns(context, first, needed, columns);
}

template <class B>
OperatorMemory BandOperator<B>::memory(Index n, Index half_bandwidth, int ranks, bool heads) {
  const Index rows = contiguous(n, ranks).block, m = std::min(half_bandwidth, n);
  const Index lead = std::min(m, rows), matrix = 8 * (m + 1) * (rows + lead + 16);
  const Index staged = std::is_same_v<B, Cpu> ? 0 : std::min(matrix, 4 * io::piece_bytes());
  return {8 * (m + 1) * lead, matrix + (heads ? matrix / 2 : 0) + staged +
                                  8 * (rows + 2 * m + band_scratch(B{}, rows, m))};
}

template <class B>
Range BandOperator<B>::columns_before() const {
  const Index from = rows_.count > 0 ? std::max<Index>(0, rows_.first - m_) : rows_.first;
  return {from, rows_.first - from};
}

template <class B>
void BandOperator<B>::begin_again() {
  scale = {};
  if (rows_.count > 0) lead_.assign(std::size_t((m_ + 1) * std::min(m_, rows_.count)), 0.0);
}

template <class B>
void BandOperator<B>::put_columns(const Context<B>& context, Index first, Index count, Index height,
                                  const double* columns) {
  const Index lead = std::min(m_, rows_.count);
  const Index diagonals = std::min(height, m_ + 1);
  const Index before = std::clamp<Index>(rows_.first - first, 0, count);
  for (Index c = 0; c < before; ++c) {
    for (Index d = 0; d < diagonals; ++d) {
      const Index i = first + c + d - rows_.first;
      if (i >= 0 && i < rows_.count && d > 0)
        lead_[std::size_t(d * lead + lead + i - std::min(d, lead))] = columns[c * height + d];
    }
  }
  const Index own = count - before;
  if (own > 0) {
    View<const double, B> from;
    if constexpr (std::is_same_v<B, Cpu>) {
      from = {columns + before * height, own * height};
    } else {
      if (staged_.size() < own * height) staged_ = Buffer<double, B>(own * height);
      upload(context.ahead, staged_.view().slice(0, own * height), columns + before * height);
      from = staged_.view();
    }
    const Index to = place(first + before);
    transpose<B>(context.ahead, own, diagonals, from, height,
                 matrix_.view().slice(to, matrix_.size() - to), ld_);
    context.ahead.synchronize();
    put_lead(context);
  }
}

template <class B>
void BandOperator<B>::put_diagonals(const Context<B>& context, Index first, Index count,
                                    Index height, const double* from) {
  copy_rows<double, B>(context.ahead, matrix_.data() + place(first), ld_, from, count, count,
                       std::min(height, m_ + 1));
  context.ahead.synchronize();
  put_lead(context);
}

template <class B>
void BandOperator<B>::put_lead(const Context<B>& context) {
  if (lead_.empty()) return;
  const Index lead = std::min(m_, rows_.count);
  copy_rows(context.ahead, matrix_.data(), ld_, lead_.data(), lead, lead, m_ + 1);
  context.ahead.synchronize();
  lead_ = {};
}

template <class B>
void BandOperator<B>::fill_random(const Context<B>& context, Word seed) {
  scale = {};
  fill_band_spd(context.ahead, seed, n_, rows_.first, rows_.count, m_, ld_, matrix_.view());
  context.ahead.synchronize();
  lead_ = {};
}

template <class B>
void BandOperator<B>::multiply_by(const Context<B>& context, int power) {
  multiply_by_power<B>(context, matrix_.view(), power);
}
template <class B>
double BandOperator<B>::largest(const Context<B>& context) const {
  return largest_of<B>(context, matrix_);
}

template <class B>
Operand<B> BandOperator<B>::operand(const Context<B>& context, Index columns) {
  if (columns > 1) halo_columns_ = halo(context, columns);
  return collectively(context.control, [&] {
    staged_ = {};
    const Index origin = round_up(m_, 32), scratch = columns * band_scratch(B{}, rows_.count, m_);
    if (scratch_.size() < scratch) scratch_ = Buffer<double, B>(scratch);
    Operand<B> p{Buffer<double, B>((origin + rows_.count + m_) * columns), origin, rows_.count,
                 columns};
    fill_zero(context.ahead, p.memory.view());
    return p;
  });
}

template <class B>
void BandOperator<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                            View<double, B> sums, const SumSpace<B>& space, const double* skip,
                            bool absolute, const Meanwhile& meanwhile) const {
  if (meanwhile) meanwhile();
  double* const own = p.own().data;
  (p.columns > 1 ? halo_columns_ : halo_).exchange(context.comm, context.ahead, own);
  if (p.columns > 1)
    multiply_columns(context.ahead, matrix(), own, q, scratch_.view(), sums_to(space, sums),
                     p.columns, skip);
  else
    multiply(context.ahead, matrix(), own, q, scratch_.view(), sums_to(space, sums), absolute,
             skip);
}

template <class B>
void BandOperator<B>::keep_heads(const Context<B>& context) {
  normalise(context, *this);
  collectively(context.control, [&] {
    if (head_.size() == 0) head_ = Buffer<std::uint32_t, B>(matrix_.size());
    take_heads(context.ahead, matrix_.view(), head_.view());
  });
}
template <class B>
void BandOperator<B>::apply_head(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                                 View<double, B> sums, const SumSpace<B>& space,
                                 const double* skip) const {
  double* const own = p.own().data;
  halo_.exchange(context.comm, context.ahead, own);
  BandRows<B> rows = matrix();
  rows.head = head_;
  multiply(context.ahead, rows, own, q, scratch_.view(), sums_to(space, sums), false, skip);
}

template <class B>
void BandOperator<B>::take_diagonal(const Context<B>& context, View<double, B> to) const {
  copy(context.ahead, to, matrix_.view().slice(std::min(m_, rows_.count), rows_.count));
}

// --------------------------------------------------------------------------------------------------

template <class B, class A>
double row_sum_norm(const Context<B>& context, A& a, const Operand<B>& p, View<double, B> q,
                    View<double, B> sums, const SumSpace<B>& space) {
  const Index rows = a.rows().count;
  fill<B>(context.ahead, p.own(), 1.0);
  a.apply(context, p, q, sums, space, nullptr, true);
  return context.control.reduce(
      max_abs<B>(context.ahead, 1, rows, q.slice(0, rows), std::max<Index>(1, rows)), Reduce::max);
}

template <class B>
void multiply_by_power(const Context<B>& context, View<double, B> v, int power) {
  while (power != 0) {
    const int step = std::clamp(power, -1000, 1000);
    add<B>(context.ahead, std::ldexp(1.0, step), v, 0.0, v, v);
    power -= step;
  }
  context.ahead.synchronize();
}

template <class B, class A>
void normalise(const Context<B>& context, A& a) {
  constexpr int safe = 128;  // squares of exponents this far out are harmless
  MatrixScale& scale = a.scale;
  if (scale.known) return;
  const Control& control = context.control;
  const Operand<B> p = a.operand(context);
  Buffer<double, B> q, sums;
  const SumSpace<B> space = collectively(control, [&] {
    q = Buffer<double, B>(p.memory.size());
    sums = Buffer<double, B>(2);
    return SumSpace<B>(context.ahead);
  });
  scale.norm = row_sum_norm(context, a, p, q.view(), sums.view(), space);
  const Index rows_here = a.rows().count;
  const View<double, B> diagonal = q.view().slice(0, rows_here);
  a.take_diagonal(context, diagonal);
  const Sizes ends =
      sizes_of<B>(context.ahead, 1, rows_here, diagonal, std::max<Index>(1, rows_here));
  double most = control.reduce(ends.largest, Reduce::max);
  const double least = control.reduce(ends.least, Reduce::min);
  // |a_ij| <= max a_ii, or A is indefinite (or the sum overflowed).
  const double rows = double(std::max<Index>(1, a.n()));
  if (!(scale.norm / (4 * rows) <= most)) most = std::max(most, a.largest(context));
  scale.known = true;
  if (!(most > 0 && most <= std::numeric_limits<double>::max())) return;
  const int high = std::ilogb(most), low = std::ilogb(std::min(least, most));
  scale.middle = (high + low) >> 1;
  if (high <= safe && low >= -safe) return;
  a.multiply_by(context, -scale.middle);
  scale.power += scale.middle;
  scale.middle = 0;
  scale.norm = row_sum_norm(context, a, p, q.view(), sums.view(), space);
}

template <class B>
Halo<B> halo_of_columns(const Context<B>& context, std::vector<Index> first,
                        const std::vector<Index>& needed, Index columns) {
  std::vector<Index> entries;
  collectively(context.control, [&] {
    for (Index& f : first) f *= columns;
    entries.reserve(needed.size() * std::size_t(columns));
    for (Index i : needed)
      for (Index v = 0; v < columns; ++v) entries.push_back(i * columns + v);
  });
  return Halo<B>(context.control, context.ahead, first, entries);
}

#define TERRACE_INSTANTIATE_NORM(B, A)                                                       \
  template double row_sum_norm(const Context<B>&, A<B>&, const Operand<B>&, View<double, B>, \
                               View<double, B>, const SumSpace<B>&);                         \
  template void normalise(const Context<B>&, A<B>&);
#define TERRACE_INSTANTIATE(B)                                              \
  template class DenseOperator<B>;                                          \
  template class BandOperator<B>;                                           \
  TERRACE_INSTANTIATE_NORM(B, DenseOperator)                                \
  TERRACE_INSTANTIATE_NORM(B, TriangleOperator)                             \
  TERRACE_INSTANTIATE_NORM(B, BandOperator)                                 \
  TERRACE_INSTANTIATE_NORM(B, CsrOperator)                                  \
  template void multiply_by_power(const Context<B>&, View<double, B>, int); \
  template Halo<B> halo_of_columns(const Context<B>&, std::vector<Index>,   \
                                   const std::vector<Index>&, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE
#undef TERRACE_INSTANTIATE_NORM

}  // namespace terrace::cg
