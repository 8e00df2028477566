// What the host knows of one right-hand side while conjugate gradients run.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "src/cg/engine.hpp"

namespace terrace::cg {

/// Squares this small are next to the end of the range: differences between them mean nothing.
inline constexpr double cg_faint = 0x1p-960;

struct CgColumn {
  CgResult result;
  int shift = 0;                // b was divided by 2^shift
  double b_norm = 0;            // ||b||
  double b_norm2 = 0;           // square of the norm of b that is compared
  double rtol2 = 0, atol2 = 0;  // squares of that norm at which the iteration has converged
  double before = std::numeric_limits<double>::infinity();  // true residual at the last restart
  bool done = false, ended = false;                         // for good; until the next restart
  std::optional<CgReason> failure;
  CgScalars last, last_but_one;
  double smallest = 0;  // square of the smallest residual since the restart
  Index best = 0;       // its iteration

  void finish(CgReason reason) {
    result.reason = reason;
    done = true;
  }
  /// From the norms of 2^-shift b and how the system is scaled: A = 2^power times the numbers
  /// stored, M^-1 comes times 2^general_power.
  void aim(const CgScalars& of_b, const CgOptions& options, int power, int general_power);
  [[nodiscard]] double stop() const { return std::max(rtol2, atol2); }
  /// Square at which the recurrence ends: beyond 2^-900 of b's p.A p and others leave the range;
  /// the true residual says what is left.
  [[nodiscard]] double end() const {
    return std::max(stop(), std::max(std::ldexp(b_norm2, -900), cg_faint));
  }
  /// Of restarts: iterations start from the residual with these scalars.
  void begin(const CgScalars& s, double norm2) {
    before = std::sqrt(std::max(norm2, 0.0));
    ended = false;
    last = s;
    smallest = norm2;
    best = result.iterations;
  }
  /// Iteration `number` took a step to `now`. `coefficients`: they are Lanczos' still.
  void step(Index number, const CgScalars& now, double norm2, bool coefficients);
};

/// Why an iteration may not be followed by another; nothing when it may. rtol: it has ended, and
/// the true residual says how.
std::optional<CgReason> cg_verdict(const CgScalars& before, const CgScalars& now, CgNorm norm,
                                   CgLimits limits);

/// Of iteration `number`: largest relative residual of the columns that took a step in it, if any.
std::optional<double> largest_residual(const std::vector<CgColumn>& columns, Index number);

void archive_scalars(Archive& archive, const std::string& name, CgScalars& scalars);
void archive_column(Archive& archive, const std::string& name, CgColumn& column);

}  // namespace terrace::cg
