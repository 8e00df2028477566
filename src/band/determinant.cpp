#include "src/band/determinant.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "distrib/agree.hpp"

namespace terrace::band {

template <class B>
std::vector<double> diagonal_of(const Stream<B>& lane, const double* first, Index ld, Index count) {
  constexpr Index most = Index(1) << 20;  // numbers at a time
  std::vector<double> numbers(static_cast<std::size_t>(count));
  const Buffer<double, B> room(std::min(count, most));
  for (Index at = 0; at < count; at += most) {
    const Index now = std::min(most, count - at);
    // A diagonal matrix in opposite order.
    band_reverse(lane, now, 0, now, 1, first + at * ld, ld, room.data(), 1);
    download(lane, numbers.data() + at, room.view().slice(0, now));
    lane.synchronize();
    std::reverse(numbers.begin() + at, numbers.begin() + at + now);
  }
  return numbers;
}

template <class B>
LogProduct product_of(const Stream<B>& lane, const std::vector<BandDiagonal>& diagonals) {
  LogProduct product;
  if constexpr (std::is_same_v<B, Cpu>) {
    lane.synchronize();
    for (const BandDiagonal& d : diagonals)
      for (Index i = 0; i < d.count; ++i) product.times(d.first[i * d.ld]);
  } else {
    Index groups = 0;
    for (const BandDiagonal& d : diagonals) groups += ceil_div(d.count, band_product_group);
    const Buffer<double, B> there(2 * groups);
    std::vector<double> parts(std::size_t(2 * groups));
    band_products(lane, diagonals, there.data());
    if (groups > 0) download(lane, parts.data(), there.view());
    lane.synchronize();
    for (std::size_t k = 0; k < parts.size(); k += 2) product.times(parts[k], Index(parts[k + 1]));
  }
  return product;
}

double log_determinant(const Control& control, std::vector<double> of_tiles) {
  control.reduce(of_tiles, Reduce::sum);  // exact: one rank has a number, the others zero
  return 2 * std::accumulate(of_tiles.begin(), of_tiles.end(), 0.0);
}

template <class B>
double log_determinant(const Context<B>& c, const BandTiles<B>& l) {
  const BandShape& s = l.shape;
  const Index own = l.columns.slots(c.rank());
  const std::vector<double> diagonal = collectively(
      c.control, [&] { return diagonal_of<B>(c.ahead, l.data.data(), s.column(), own); });
  std::vector<double> of_tiles(std::size_t(s.tiles()), 0.0);
  for (Index k = c.rank(); k < s.tiles(); k += c.size()) {
    LogProduct product;
    const Index slot = l.columns.slot(k * s.width);
    for (Index j = 0; j < std::min(s.width, s.n - k * s.width); ++j)
      product.times(diagonal[std::size_t(slot + j)]);
    of_tiles[std::size_t(k)] = product.log();
  }
  return log_determinant(c.control, std::move(of_tiles));
}

#define TERRACE_INSTANTIATE(B)                                                             \
  template std::vector<double> diagonal_of(const Stream<B>&, const double*, Index, Index); \
  template LogProduct product_of(const Stream<B>&, const std::vector<BandDiagonal>&);      \
  template double log_determinant(const Context<B>&, const BandTiles<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
