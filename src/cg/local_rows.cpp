#include "src/cg/local_rows.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "distrib/agree.hpp"

namespace terrace::cg {
namespace {

/// Lower parts of the diagonal blocks, entry(i, j) of local rows j <= i.
template <class F>
LocalRows blocks_of(Index rows, Index block, const F& entry) {
  LocalRows local;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = i / block * block; j <= i; ++j) {
      local.column.push_back(j);
      local.value.push_back(entry(i, j));
    }
    local.start.push_back(Index(local.column.size()));
  }
  return local;
}

}  // namespace

template <class B>
LocalRows local_rows(const Context<B>& context, const DenseOperator<B>& a, Index block) {
  const DenseRows<B> m = a.matrix();
  const Index rows = m.rows, first = a.rows().first;
  return collectively(context.control, [&] {
    std::vector<double> diagonal(std::size_t(rows * block));  // row i: its block's columns
    for (Index from = 0; from < rows; from += block) {
      const Index height = std::min(block, rows - from);
      copy_rows(context.ahead, diagonal.data() + from * block, block,
                m.a.data + from * m.ld + first + from, m.ld, height, height);
    }
    context.ahead.synchronize();
    return blocks_of(rows, block, [&](Index i, Index j) {
      return diagonal[std::size_t(i * block + j - i / block * block)];
    });
  });
}

template <class B>
LocalRows local_rows(const Context<B>& context, const TriangleOperator<B>& a, Index block) {
  // Row i of the blocks stands in the last tiles of its tile row; every rank gets all rows.
  const Index n = a.n();
  std::vector<double> diagonal =
      collectively(context.control, [&] { return std::vector<double>(std::size_t(n * block)); });
  collectively(context.control, [&] {
    const TriangleTiles<B> t = a.tiles();
    constexpr Index tile = triangle::tile, width = triangle::width, height = triangle::height;
    const bool planes = t.read != triangle::Read::whole;
    std::vector<double> host;
    Index first = 0;  // tile of the tile row
    for (const Index row : a.my_tile_rows()) {
      const Index tiles = triangle::tiles_of(row), skip = std::max<Index>(0, tiles - 5);
      host.resize(std::size_t((tiles - skip) * tile));  // blocks reach one tile to the left
      download(context.ahead, host.data(), t.a.slice((first + skip) * tile, (tiles - skip) * tile));
      context.ahead.synchronize();
      first += tiles;
      for (Index i = row * height; i < std::min(n, (row + 1) * height); ++i) {
        for (Index j = i / block * block; j <= i; ++j) {
          const double* const from = host.data() + (j / width - skip) * tile;
          const Index at = i % height * width + j % width;
          double value = from[at];
          if (planes) {
            std::uint32_t words[2];
            std::memcpy(words, reinterpret_cast<const std::uint32_t*>(from) + at, sizeof *words);
            std::memcpy(words + 1, reinterpret_cast<const std::uint32_t*>(from) + tile + at,
                        sizeof *words);
            value = std::bit_cast<double>(triangle::joined(words[0], words[1]));
          }
          diagonal[std::size_t(i * block + j - i / block * block)] = i == j ? 2 * value : value;
        }
      }
    }
  });
  context.control.reduce(diagonal, Reduce::sum);
  return collectively(context.control, [&] {
    return blocks_of(n, block, [&](Index i, Index j) {
      return diagonal[std::size_t(i * block + j - i / block * block)];
    });
  });
}

template <class B>
LocalRows local_rows(const Context<B>& context, const BandOperator<B>& a, Index block) {
  const BandRows<B> m = a.matrix();
  const Index rows = m.rows, w = m.lead();
  const Index reach = std::min(block > 0 ? block - 1 : m.half_bandwidth, m.half_bandwidth);
  return collectively(context.control, [&] {
    std::vector<double> s(std::size_t((reach + 1) * rows));
    copy_rows(context.ahead, s.data(), rows, m.s.data + w, m.ld, rows, reach + 1);
    context.ahead.synchronize();
    LocalRows local;
    for (Index i = 0; i < rows; ++i) {
      const Index least = block > 0 ? i / block * block : 0;
      for (Index d = std::min(reach, i - least); d >= 0; --d) {
        const double value = s[std::size_t(d * rows + i - d)];
        if (value == 0 && d > 0) continue;
        local.column.push_back(i - d);
        local.value.push_back(value);
      }
      local.start.push_back(Index(local.column.size()));
    }
    return local;
  });
}

template <class B>
LocalRows local_rows(const Context<B>& context, const CsrOperator<B>& a, Index block) {
  return collectively(context.control, [&] { return a.own_rows(context, block); });
}

#define TERRACE_INSTANTIATE(B)                                                         \
  template LocalRows local_rows(const Context<B>&, const DenseOperator<B>&, Index);    \
  template LocalRows local_rows(const Context<B>&, const TriangleOperator<B>&, Index); \
  template LocalRows local_rows(const Context<B>&, const BandOperator<B>&, Index);     \
  template LocalRows local_rows(const Context<B>&, const CsrOperator<B>&, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
