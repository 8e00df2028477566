// How eliminations go on GPUs: what each step of src/frame/eliminate.hpp waits for. Fractions of
// the raw rates are those of an H200, measured in November 2026, and hold for its sisters.
#pragma once
#include "src/program/predict.hpp"

namespace terrace {

/// Seconds of all steps, each member alone.
struct StepSums {
  double choose = 0, share = 0, next = 0, rest = 0;
};
StepSums sums_of(const Steps& steps, const Rates& rates);

/// One call of NCCL between all ranks, which brings `bytes` to each; `efficiency`: of the rate of
/// a long broadcast. Nothing on one rank.
void add_call(Terms& terms, const Machine& on, double bytes, double efficiency = 1);
/// The same with a sum on the way, there and back.
void add_reduction(Terms& terms, const Machine& on, double bytes);

/// By panels: gauss-jordan, lu.
Steps dense_steps(const DenseWork& w);
/// By panels: tensor cores, or tables that reach `tables` of their raw rate; `stored`: numbers of
/// tables that are sent for each of their source, 0: they are not sent.
Steps bit_steps(const BitWork& w, double tables, double stored);
/// Of an update or a product over GF(2) whose inner extent is `inner`, of the raw rate.
double bit_efficiency(double inner);
/// Band Cholesky, tile column by tile column.
Steps tile_steps(const BandAmounts& w);

}  // namespace terrace
