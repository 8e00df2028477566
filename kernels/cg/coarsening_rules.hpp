// Decisions of the coarsening that both backends make alike.
#pragma once
#include <cstdint>

#include "kernels/base/backend.hpp"

namespace terrace::cg::coarsening {

/// Whether a_ij = v is strong; i and j different. factor: the threshold's square.
constexpr bool is_strong(double v, double factor, double a_ii, double a_jj) {
  return v != 0 && v * v >= factor * (a_ii * a_jj);
}

/// Of a row while an independent set is chosen.
enum class State : std::uint8_t {
  undecided,
  in,
  out,     ///< no candidate, but a neighbour between others
  blocked  ///< as if it were not there
};
/// Rounds until rows that are undecided count as out. 20 are many; it binds where strength is not
/// symmetric.
constexpr int most_rounds = 48;

/// A word for an undecided row: small ones go first. No two rows have the same, none is zero.
constexpr Word priority(std::int32_t row, int round) {
  std::uint32_t x = std::uint32_t(row) * 0x9e3779b9u + std::uint32_t(round) * 0x85ebca6bu;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  x ^= x >> 16;
  return Word(x >> 1) << 32 | (Word(std::uint32_t(row)) + 1);
}
/// The smallest word among a row and its neighbours where one of them is in, or none is undecided. It stays.
constexpr Word settled = ~Word(0);

/// A second root has so many free neighbours of all strong ones.
constexpr bool may_begin(std::int64_t free, std::int64_t all) {
  return 3 * (free + 1) >= 2 * (all + 1);
}

/// Neighbours that a row which joins an aggregate looks at.
constexpr std::int64_t most_looked_at = 64;

/// A diagonal entry of a coarse matrix, by that of P' D P.
enum class Settled : std::uint8_t { positive, null, negative };
constexpr Settled settle(double value, double scale) {
  constexpr double rounding = 1e-12;
  return value < -rounding * scale   ? Settled::negative
         : value <= rounding * scale ? Settled::null
                                     : Settled::positive;
}

constexpr double prolongation_weight = 4.0 / 3.0;

}  // namespace terrace::cg::coarsening
