// Panels of Gauss-Jordan elimination: pivot search and elimination within b columns.
// An inner block of 16 columns first takes all columns left of it at once, a product that reads the
// strip from the caches; then it is eliminated column by column. slots b^2 flops, 2 to 4 per cent
// of the time of the elimination. The threads keep their rows for the whole panel and meet once a
// column, through the candidates that they show each other.
#include "kernels/dense/cpu/panel.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "kernels/base/parallel.hpp"
#include "kernels/dense/cpu/steps.hpp"

namespace terrace::dense {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Index team_rows = 256;  // for each thread at least, or waiting takes longer than the work
constexpr Index most_threads = 64;
constexpr Index piece_slivers = 256;  // of a step without a team

bool better(const Best& a, const Best& b) {
  return a.key > b.key || (a.key == b.key && a.row < b.row);
}
bool usable(double key) { return key > 0 && key < infinity; }

/// What a thread shows the others: its best row in column `round` - 1, from the first of the four
/// columns in work to the end of the inner block.
struct Offer {
  alignas(64) std::atomic<Index> round{0};
  Best best;
  alignas(64) double row[inner_width];
};
/// Of odd and even columns: who writes the next one has seen all of the last.
using Offers = std::array<std::array<Offer, most_threads>, 2>;

Best search(const Strip& strip, Index j, Index begin, Index end) {
  Best best;
  column_step({.strip = strip, .begin = begin, .end = end, .next = j, .best = &best});
  return best;
}

/// Panels that one thread factors because a thread of the last team lost its core: every column
/// would wait for it. The bits are the same.
std::atomic<int> panels_alone = 0;
constexpr int late_limit = 4, panels_alone_after = 12;

/// U of inner block j0 by the rows above: L^-1 times the pivot rows; kept in `packed` (rows of 16).
double* packed_block(const Factors& factors, Index j0) {
  return factors.packed + j0 * (j0 - inner_width) / 2;
}
void pack_upper(const Strip& strip, const Factors& factors, Index j0) {
  const Index columns = std::min(inner_width, strip.width - j0);
  double* const x = packed_block(factors, j0);
  for (Index t = 0; t < j0; ++t) {
    std::fill_n(x + t * inner_width, inner_width, 0.0);
    std::copy_n(factors.lu + t * factors.ld + j0, columns, x + t * inner_width);
  }
}
void finish_upper(const Strip& strip, const Factors& factors, Index j0) {
  pack_upper(strip, factors, j0);
  const Index columns = std::min(inner_width, strip.width - j0);
  double* const x = packed_block(factors, j0);
  upper_block({factors.lu, factors.ld, j0, x});
  for (Index t = 0; t < j0; ++t)
    std::copy_n(x + t * inner_width, columns, factors.lu + t * factors.ld + j0);
}

/// piece(begin, end) over all slivers; the best of what the pieces found.
template <class Piece>
Best reduce_slivers(const Strip& strip, const Piece& piece) {
  std::array<Best, most_threads> found;
  const Index count = slivers(strip.rows);
  const Index grain = std::max(piece_slivers, ceil_div(count, most_threads));
  parallel_ranges(count, grain,
                  [&](Index begin, Index end) { found[begin / grain] = piece(begin, end); });
  return *std::min_element(found.begin(), found.end(), better);
}

}  // namespace

void load_strip(const Strip& strip, const double* a, Index ld, Index from, Index to) {
  const Index lane = lanes(), columns = round_up(strip.width, inner_width);
  for (Index s = from / lane; s < ceil_div(to, lane); ++s) {
    double* const x = strip.x.x + s * strip.x.stride;
    const Index rows = std::min(lane, to - s * lane);
    const double* const top = a + s * lane * ld;
    if (rows < lane) {
      std::fill_n(x, columns * lane, 0.0);
      for (Index k = 0; k < strip.width; ++k)
        for (Index r = 0; r < rows; ++r) x[k * lane + r] = top[r * ld + k];
    } else {
      load_slivers({strip.x, a, ld, strip.width, s, s + 1});
    }
    std::fill_n(x + strip.width * lane, (columns - strip.width) * lane, 0.0);
  }
}

Best best_in_column(const Strip& strip, Index j) {
  return reduce_slivers(strip,
                        [&](Index begin, Index end) { return search(strip, j, begin, end); });
}

void copy_row(const Strip& strip, Index slot, double* out) {
  const double* const row = strip.x.row(slot);
  for (Index k = 0, step = lanes(); k < strip.width; ++k) out[k] = row[k * step];
}

void become_unit_row(const Strip& strip, Index slot, Index j) {
  double* const row = strip.x.row(slot);
  for (Index k = 0, step = lanes(); k < strip.width; ++k) row[k * step] = k == j ? -1 : 0;
}

Best eliminate_in_strip(const Strip& strip, const Factors& factors, Index j) {
  const Index j0 = j / inner_width * inner_width, j1 = std::min(strip.width, j0 + inner_width);
  const Index next = j + 1 < j1 ? j + 1 : -1;
  const double* const u = factors.lu + j * factors.ld + j;
  const Best best = reduce_slivers(strip, [&](Index begin, Index end) {
    Best found;
    column_step({strip, begin, end, j, j1, next, u[0], u, &found});
    return found;
  });
  if (next >= 0 || j1 == strip.width) return best;
  finish_upper(strip, factors, j1);
  return reduce_slivers(strip, [&](Index begin, Index end) {
    block_step({strip.x, begin, end, j1, packed_block(factors, j1)});
    return search(strip, j1, begin, end);
  });
}

bool take_pivot(const Strip& strip, const Factors& factors, Index j, double key, Index row,
                const double* values) {
  if (factors.info[0] >= 0) return false;
  if (!usable(key)) {
    factors.info[0] = j;
    factors.info[1] = key > 0 ? 2 : 1;
    return false;
  }
  std::copy_n(values, strip.width, factors.lu + j * factors.ld);
  factors.pivots[j] = row;
  return true;
}

void factor_strip(const Strip& strip, const Factors& factors, Index first, bool skip) {
  const Index count = slivers(strip.rows), width = strip.width, ld = factors.ld;
  Offers offers;
  // Writes of the winner alone: its row, and what the panel says of the column.
  const auto take = [&](const Best& best, Index j) {
    double* const row = factors.lu + j * ld;
    if (usable(best.key)) {
      copy_row(strip, best.slot, row);
      factors.pivots[j] = best.row;
      strip.column_of[best.slot] = first + j;
      become_unit_row(strip, best.slot, j);
    } else if (skip) {
      if (best.key > 0) strip.column_of[best.slot] = first + j;  // not finite: let it show
      std::fill_n(row, width, 0.0);
      row[j] = 1;
    } else {
      factors.info[0] = j;
      factors.info[1] = best.key > 0 ? 2 : 1;
    }
  };
  std::atomic<int> late = 0;
  const bool alone = panels_alone.load() > 0;
  if (alone) --panels_alone;
  const Index most = alone ? 1 : std::clamp<Index>(strip.rows / team_rows, 1, most_threads);
  parallel_team(most, [&](const Team& team) {
    const Index begin = count * team.rank / team.size, end = count * (team.rank + 1) / team.size;
    double u[inner_width]
            [inner_width];  // rows of U of the inner block; row j from its four's first
    Best best = search(strip, 0, begin, end);
    for (Index j = 0; j < width; ++j) {
      const Index j0 = j / inner_width * inner_width, j1 = std::min(width, j0 + inner_width);
      const Index q0 = j / narrow_width * narrow_width, q1 = std::min(j1, q0 + narrow_width);
      std::array<Offer, most_threads>& round = offers[std::size_t(j % 2)];
      Offer& mine = round[std::size_t(team.rank)];
      mine.best = best;
      if (best.slot >= 0) {
        const double* const row = strip.x.row(best.slot);
        for (Index c = q0; c < j1; ++c) mine.row[c - q0] = row[c * lanes()];
      }
      mine.round.store(j + 1, std::memory_order_release);
      Index winner = 0;
      for (Index rank = 0; rank < team.size; ++rank) {
        if (Team::await(round[std::size_t(rank)].round, j + 1)) ++late;
        if (better(round[std::size_t(rank)].best, round[std::size_t(winner)].best)) winner = rank;
      }
      const Offer& offer = round[std::size_t(winner)];
      if (winner == team.rank) take(offer.best, j);
      double* const row = u[j - j0];
      if (usable(offer.best.key)) {
        std::copy_n(offer.row, j1 - q0, row);
      } else if (skip) {
        std::fill_n(row, inner_width, 0.0);
        row[j - q0] = 1;
      } else {
        return;
      }
      const Index next = j + 1 < q1 ? j + 1 : -1;
      const double* const tail = row + (j - q0);
      column_step({strip, begin, end, j, q1, next, tail[0], tail, &best});
      if (next >= 0) continue;
      if (q1 < j1) {
        narrow_upper({u[q0 - j0], j1 - q0});
        narrow_step({strip, begin, end, q0, j1, u[q0 - j0], &best});
        continue;
      }
      team.barrier();  // all rows of L and U above are there, but for what waited
      if (team.rank == 0) {
        for (Index t = j0; t < j1; ++t)
          for (Index c = t / narrow_width * narrow_width + narrow_width; c < j1; ++c)
            factors.lu[t * ld + c] = u[t - j0][c - t / narrow_width * narrow_width];
        if (j1 < width) finish_upper(strip, factors, j1);
      }
      if (j1 == width) return;
      team.barrier();
      block_step({strip.x, begin, end, j1, packed_block(factors, j1)});
      best = search(strip, j1, begin, end);
    }
  });
  if (late > late_limit) panels_alone = panels_alone_after;
}

void divide_strip(const Strip& strip, const Factors& factors) {
  for (Index j0 = inner_width; j0 < strip.width; j0 += inner_width) pack_upper(strip, factors, j0);
  parallel_ranges(slivers(strip.rows), 64, [&](Index begin, Index end) {
    for (Index j0 = 0; j0 < strip.width; j0 += inner_width) {
      if (j0 > 0) block_step({strip.x, begin, end, j0, packed_block(factors, j0)});
      const Index j1 = std::min(strip.width, j0 + inner_width);
      for (Index j = j0; j < j1; ++j) {
        const double* const u = factors.lu + j * factors.ld + j;
        column_step({strip, begin, end, j, j1, -1, u[0], u, nullptr});
      }
    }
  });
}

}  // namespace terrace::dense
