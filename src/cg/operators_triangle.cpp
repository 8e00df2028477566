#include "src/cg/operators_triangle.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"

namespace terrace::cg {
namespace {

using triangle::height, triangle::Read, triangle::tile;
constexpr Index none = std::numeric_limits<Index>::max();

/// Tile row number `round` of a rank, from the last one upwards; negative when there is none.
Index dealt(Index tile_rows, Index round, int ranks, int rank) {
  return tile_rows - 1 - round * ranks - (round % 2 == 0 ? rank : ranks - 1 - rank);
}
/// Tile rows that are read at once: each reading begins and ends with one thread. Several ranks take
/// one each.
Index read_together(Index n, int ranks) {
  constexpr Index most = Index(1) << 26;  // numbers
  const Index tile_rows = ceil_div(n, height);
  return ranks > 1 ? 1 : std::clamp<Index>(most / (height * n + 1), 1, ceil_div(tile_rows, 8) + 1);
}
Index tiles_dealt(Index tile_rows, int ranks, int rank) {
  Index tiles = 0;
  for (Index round = 0; round * ranks < tile_rows; ++round) {
    const Index row = dealt(tile_rows, round, ranks, rank);
    if (row >= 0) tiles += triangle::tiles_of(row);
  }
  return tiles;
}

}  // namespace

template <class B>
TriangleOperator<B>::TriangleOperator(const Context<B>& context, Index n, bool planes)
    : n_(n),
      tile_rows_(ceil_div(n, height)),
      rank_(context.rank()),
      ranks_(context.size()),
      together_(read_together(n, ranks_)),
      planes_(planes),
      found_(none) {
  collectively(context.control, [&] {
    for (Index round = rounds() - 1; round >= 0; --round) {
      const Range rows = tile_rows(round, rank_);
      for (Index row = rows.first; row < rows.end(); ++row) held_.push_back(row);
    }
    first_.assign(1, 0);
    for (const Index row : held_) first_.push_back(first_.back() + triangle::tiles_of(row));
    tiles_ = Buffer<double, B>(first_.back() * tile);
    scratch_ = Buffer<double, B>(triangle_scratch(B{}, first_.back(), Index(held_.size())));
    row_ = Buffer<Index, B>(Index(held_.size()));
    start_ = Buffer<Index, B>(Index(first_.size()));
  });
  upload(context.ahead, row_.view(), held_.data());
  upload(context.ahead, start_.view(), first_.data());
  fill_zero(context.ahead, tiles_.view());
  fill_zero(context.ahead, scratch_.view());
  context.ahead.synchronize();
}

template <class B>
OperatorMemory TriangleOperator<B>::memory(Index n, int ranks, Index columns) {
  const Index tile_rows = ceil_div(n, height), most = ceil_div(tile_rows, Index(ranks));
  Index numbers = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Index tiles = tiles_dealt(tile_rows, ranks, rank);
    numbers = std::max(numbers, tiles * tile + triangle_scratch(B{}, tiles, most));
  }
  if (columns > 1) numbers += triangle_block_scratch(B{}, n, most, columns);
  const Index slabs = std::min(n, height * read_together(n, ranks)) * n * (ranks > 1 ? 2 : 1);
  return {0, 8 * (numbers + slabs + triangle::padded(n) * columns + 2 * most + 2)};
}

template <class B>
Index TriangleOperator<B>::rounds() const {
  return ceil_div(tile_rows_, ranks_ * together_);
}
template <class B>
Range TriangleOperator<B>::tile_rows(Index round, int rank) const {
  if (together_ == 1) {
    const Index row = dealt(tile_rows_, round, ranks_, rank);
    return row < 0 ? Range{0, 0} : Range{row, 1};
  }
  const Index end = tile_rows_ - round * together_, first = std::max<Index>(0, end - together_);
  return {first, end - first};
}
template <class B>
Range TriangleOperator<B>::slab(Index round, int rank) const {
  const Range rows = tile_rows(round, rank);
  const Index first = rows.first * height;
  return {first, std::min(n_, rows.end() * height) - first};
}

template <class B>
void TriangleOperator<B>::put_slab(const Context<B>& context, Index round,
                                   const std::function<void(const io::Sink<double>&)>& read) {
  const Stream<B>& lane = context.ahead;
  if (round == 0) {
    collectively(context.control, [&] {
      const Index most = std::min(n_, height * together_) * n_;
      own_slab_ = Buffer<double, B>(most);
      if (ranks_ > 1) other_slab_ = Buffer<double, B>(most);
      worst_ = Buffer<Index, B>(1);
    });
    found_ = none;
    upload(lane, worst_.view(), &found_);
  }
  read([&](Index position, Index count, const double* rows) {
    upload(lane, own_slab_.view().slice(position * n_, count * n_), rows);
    lane.synchronize();
  });
  const auto of_row = [&](const Buffer<double, B>& slab, Index first, Index row) {
    const Index rows = std::min(n_, (row + 1) * height) - row * height;
    return View<double, B>{slab.view().slice((row * height - first) * n_, rows * n_)};
  };
  if (const Range rows = slab(round); rows.count > 0) {
    if (scale.power != 0)
      multiply_by_power<B>(context, own_slab_.view().slice(0, rows.count * n_), -scale.power);
    const Range own = tile_rows(round, rank_);
    for (Index row = own.first; row < own.end(); ++row) {
      const auto place = std::lower_bound(held_.begin(), held_.end(), row) - held_.begin();
      pack_rows(
          lane, of_row(own_slab_, rows.first, row), n_, row,
          tiles_.view().slice(first_[std::size_t(place)] * tile, triangle::tiles_of(row) * tile));
    }
  }
  for (int source = 0; source < ranks_; ++source) {
    const Range range = slab(round, source), rows = tile_rows(round, source);
    if (range.count == 0) continue;
    const Buffer<double, B>& from = source == rank_ ? own_slab_ : other_slab_;
    const View<double, B> data = from.view().slice(0, range.count * n_);
    if (ranks_ > 1) context.comm.broadcast(lane, source, data);
    for (Index row = rows.first; row < rows.end(); ++row)
      compare_upper(lane, of_row(from, range.first, row), row, tiles(), worst_.view());
    Index found = none;
    download(lane, &found, worst_.view());
    lane.synchronize();
    if (found != found_) {
      found_ = found;
      download(lane, &found_value_, data.slice(found - range.first * n_, 1));
      lane.synchronize();
    }
  }
}

template <class B>
std::optional<Asymmetry> TriangleOperator<B>::asymmetry(const Context<B>& context) {
  const Index found = context.control.reduce(found_, Reduce::min);
  std::optional<Asymmetry> result;
  if (found != none) {
    const Index i = found / n_, j = found % n_;
    const double value = context.control.reduce(found_ == found ? found_value_ : 0.0, Reduce::sum);
    result = Asymmetry{i, j, value, i == j ? value : entry(context, j, i)};
  }
  own_slab_ = {};
  other_slab_ = {};
  complete(context);
  return result;
}

template <class B>
void TriangleOperator<B>::complete(const Context<B>& context) {
  if (!planes_ || split_) return;
  normalise(context, *this);
  split_planes(context.ahead, tiles_.view());
  context.ahead.synchronize();
  split_ = true;
}

/// i > j.
template <class B>
double TriangleOperator<B>::entry(const Context<B>& context, Index i, Index j) const {
  double value = 0;
  const auto place = std::lower_bound(held_.begin(), held_.end(), i / height) - held_.begin();
  if (place < Index(held_.size()) && held_[std::size_t(place)] == i / height) {
    const Index at = (first_[std::size_t(place)] + j / triangle::width) * tile;
    const Index k = i % height * triangle::width + j % triangle::width;
    if (split_) {
      const auto* const head = reinterpret_cast<const std::uint32_t*>(tiles_.data() + at);
      std::uint32_t words[2];
      copy_rows(context.ahead, words, 1, head + k, tile, 1, 2);
      context.ahead.synchronize();
      value = std::bit_cast<double>(triangle::joined(words[0], words[1]));
    } else {
      download(context.ahead, &value, tiles_.view().slice(at + k, 1));
      context.ahead.synchronize();
    }
  }
  return context.control.reduce(value, Reduce::sum);
}

template <class B>
void TriangleOperator<B>::fill_random(const Context<B>& context, Word seed, double diagonal) {
  split_ = false;
  scale = {};
  fill_triangle(context.ahead, seed, tiles(), tiles_.view(), diagonal);
  context.ahead.synchronize();
  complete(context);
}

template <class B>
void TriangleOperator<B>::multiply_by(const Context<B>& context, int power) {
  multiply_by_power<B>(context, tiles_.view(), power);
}
template <class B>
double TriangleOperator<B>::largest(const Context<B>& context) const {
  const Index count = tiles_.size();
  return context.control.reduce(
      max_abs<B>(context.ahead, 1, count, tiles_, std::max<Index>(1, count)), Reduce::max);
}

template <class B>
void TriangleOperator<B>::take_diagonal(const Context<B>& context, View<double, B> to) const {
  triangle_diagonal(context.ahead, tiles(), to);
  if (ranks_ > 1) context.comm.all_reduce(context.ahead, Reduce::sum, to);
}

template <class B>
Operand<B> TriangleOperator<B>::operand(const Context<B>& context, Index columns) const {
  if (columns > 1) {
    const Index scratch = triangle_block_scratch(B{}, n_, Index(held_.size()), columns);
    if (block_scratch_.size() < scratch) {
      collectively(context.control, [&] { block_scratch_ = Buffer<double, B>(scratch); });
      fill_zero(context.ahead, block_scratch_.view());
    }
  }
  Operand<B> p;
  p.memory = collectively(context.control,
                          [&] { return Buffer<double, B>(triangle::padded(n_) * columns); });
  p.rows = n_;
  p.columns = columns;
  fill_zero(context.ahead, p.memory.view());
  return p;
}

template <class B>
void TriangleOperator<B>::product(const Context<B>& context, Read read, const Operand<B>& p,
                                  View<double, B> q, View<double, B> sums, const SumSpace<B>& space,
                                  const double* skip, bool absolute) const {
  const Stream<B>& lane = context.ahead;
  if (p.columns > 1) {
    multiply_block(lane, tiles(read), p.memory.view(), q, p.columns, block_scratch_.view(), skip);
    if (ranks_ > 1) context.comm.all_reduce(lane, Reduce::sum, q.slice(0, n_ * p.columns));
    return;
  }
  SumTarget<B> target = sums_to(space, sums);
  if (ranks_ > 1) target.result = {};
  multiply(lane, tiles(read), p.memory.view(), q, scratch_.view(), target, skip, absolute);
  if (ranks_ > 1) {
    context.comm.all_reduce(lane, Reduce::sum, q.slice(0, n_));
    if (sums.size > 0) sum_products(lane, p.own(), q.slice(0, n_), sums_to(space, sums), skip);
  }
}

template <class B>
void TriangleOperator<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                                View<double, B> sums, const SumSpace<B>& space, const double* skip,
                                bool absolute) const {
  product(context, split_ ? Read::both : Read::whole, p, q, sums, space, skip, absolute);
}

template <class B>
void TriangleOperator<B>::apply_head(const Context<B>& context, const Operand<B>& p,
                                     View<double, B> q, View<double, B> sums,
                                     const SumSpace<B>& space, const double* skip) const {
  product(context, Read::head, p, q, sums, space, skip, false);
}

#define TERRACE_INSTANTIATE(B) template class TriangleOperator<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
