#include "src/cg/column.hpp"

namespace terrace::cg {

std::optional<CgReason> cg_verdict(const CgScalars& before, const CgScalars& now, CgNorm norm,
                                   CgLimits limits) {
  const auto norm2 = [&](const CgScalars& s) { return cg_norm2(norm, s.rr, s.rz, s.zz); };
  if (!cg_finite(now.pq) || !cg_finite(now.pp)) return CgReason::nan_or_inf;
  if (std::abs(now.pq) < cg_faint && (before.rz < cg_faint || now.pp < cg_faint))
    return CgReason::rtol;
  if (now.pq <= 0) return CgReason::indefinite_matrix;
  if (cg_step_length(norm2(before), before.rz, now.pq, now.pp, limits) == 0)
    return CgReason::breakdown;
  if (!cg_finite(now.rr) || !cg_finite(now.rz) || !cg_finite(norm2(now)))
    return CgReason::nan_or_inf;
  if (now.rz < 0) return CgReason::indefinite_preconditioner;
  if (norm2(now) <= limits.stop) return CgReason::rtol;
  if (now.rz == 0) return CgReason::breakdown;
  return {};
}

void CgColumn::aim(const CgScalars& of_b, const CgOptions& options, int power, int general_power) {
  b_norm = std::sqrt(of_b.rr);
  b_norm2 = std::max(0.0, cg_norm2(options.norm, of_b.rr, of_b.rz, of_b.zz));
  rtol2 = options.rtol * options.rtol * b_norm2;
  // The square compared is 2^-units that of the user's units.
  const int of_right = 2 * shift, of_m = power + general_power;
  const int units = options.norm == CgNorm::unpreconditioned ? of_right
                    : options.norm == CgNorm::preconditioned ? of_right - 2 * of_m
                                                             : of_right - of_m;
  const double atol = std::ldexp(options.atol, -(units >> 1));
  atol2 = units % 2 == 0 ? atol * atol : 0.5 * atol * atol;
}

void CgColumn::step(Index number, const CgScalars& now, double norm2, bool coefficients) {
  result.iterations = number;
  result.history.push_back(std::sqrt(std::max(norm2, 0.0) / b_norm2));
  if (coefficients) {
    result.alpha.push_back(last.rz / now.pq);
    result.beta.push_back(now.rz / last.rz);
  }
  if (norm2 < smallest) {
    smallest = norm2;
    best = number;
  }
  last_but_one = last;
  last = now;
}

std::optional<double> largest_residual(const std::vector<CgColumn>& columns, Index number) {
  std::optional<double> worst;
  for (const CgColumn& column : columns) {
    const CgResult& result = column.result;
    if (column.done || result.iterations != number || result.history.empty()) continue;
    worst = std::max(worst.value_or(0), result.history.back());
  }
  return worst;
}

void archive_scalars(Archive& archive, const std::string& name, CgScalars& s) {
  std::vector<double> all{s.pq, s.pp, s.rr, s.rz, s.zz, s.alpha};
  for (std::size_t i = 0; i < all.size(); ++i)
    archive.value(name + " " + std::to_string(i), all[i]);
  s = {all[0], all[1], all[2], all[3], all[4], all[5]};
}

void archive_column(Archive& archive, const std::string& name, CgColumn& c) {
  archive_result(archive, name, c.result);
  archive.value(name + " before", c.before);
  archive.value(name + " done", c.done);
  archive.value(name + " ended", c.ended);
  int failure = c.failure ? int(*c.failure) : -1;
  archive.value(name + " failure", failure);
  if (failure >= 0) c.failure = CgReason(failure);
  archive_scalars(archive, name + " last", c.last);
  archive_scalars(archive, name + " last_but_one", c.last_but_one);
  archive.value(name + " smallest", c.smallest);
  archive.value(name + " best", c.best);
}

}  // namespace terrace::cg
