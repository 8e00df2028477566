// Seconds of a run before it starts: amounts of work, times what a machine was measured to need for
// each.
//
//   seconds(phase) = sum over its amounts a of  a * rate[a]        (all amounts are per rank)
//
// and, for the solve, what the first one of a process pays for its libraries ("first").
//
// The amounts are those of the critical path: panels and columns (latencies), flops, bytes, words
// shared. `terrace bench --profile` solves small problems of each family and method, and fits the
// rates, none negative, to their phases.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace {

/// Amounts of one phase by name. Flops, words and bytes in units of 1e9.
using Amounts = std::vector<std::pair<std::string, double>>;

/// What a run will do.
struct Work {
  std::string model;  ///< family, command and method: has rates of its own
  Amounts read, solve, check, write;
  Amounts iteration;      ///< of one iteration, where their number is not known before
  double iterations = 0;  ///< how many are assumed, or were done
  [[nodiscard]] nlohmann::json json() const;
  static Work from(const nlohmann::json& json);
};

/// Gauss-Jordan elimination of [A | B]; `precision`: fp64 or emulated.
struct DenseWork {
  Index n = 0, right = 0, block = 1;
  int ranks = 1;
  bool inverse = true, tournament = false, check = true;
  std::string precision = "fp64";
};
Work dense_work(const DenseWork& w);
/// Column by column (--method textbook), one rank; and Cramer's rule.
Work textbook_work(Index n, bool check);
Work cramer_work(Index n, Index right);

/// `command`: rref, echelon, rank, solve, kernel, inverse. The rank is assumed to be full.
struct BitWork {
  std::string command, method;
  Index rows = 0, columns = 0, right = 0, block = 64;
  int ranks = 1;
  bool check = true, output = true;
};
Work bit_work(const BitWork& w);
Work bit_product_work(Index rows, Index inner, Index columns, int levels, int ranks,
                      const std::string& method, bool check);

/// `chain`: tile columns one after the other; `flops` of the factorization on the busiest rank.
struct BandAmounts {
  std::string command, method;  ///< "band solve", "tile-columns"
  Index n = 0, half_bandwidth = 0, width = 1, nrhs = 0;
  int ranks = 1;
  Index chain = 0;
  double flops = 0;
  bool factored = false, check = true;
};
Work band_work(const BandAmounts& w);

/// Bytes of the matrix on a rank and of what a preconditioner reads; rows of the vectors there.
struct IterationWork {
  std::string form, method;  ///< "dense triangle", "classic, jacobi"
  Index n = 0;
  int ranks = 1;
  double matrix_bytes = 0, extra_bytes = 0, rows = 0, shared = 0;  ///< numbers exchanged
  double file_bytes = 0;
  Index nrhs = 1, passes = 1;  ///< systems solved one after the other
  double iterations = 0;
};
Work iteration_work(const IterationWork& w);

/// Seconds of the phases; `iteration` of one.
struct Seconds {
  double start = 0;  ///< of the process: the device, its libraries, memory
  double read = 0, solve = 0, check = 0, write = 0, iteration = 0;
  [[nodiscard]] double total() const { return start + read + solve + check + write; }
};
/// `rates`: {"read": {"start": s, ...}, "solve": ..., ..., "first": s, "begin": s} of the work's
/// model. Amounts without a rate cost nothing.
Seconds predict(const Work& work, const nlohmann::json& rates);

/// Which models' samples of a phase tell the same rates: reading and writing are the family's (cg:
/// the form's), a check the command's, a solve its own.
std::string rates_shared_by(const std::string& model, const std::string& phase);

/// One measured phase.
struct Sample {
  Amounts amounts;
  double seconds = 0;
};
/// Rates, none negative, with the least squares of relative errors, later samples (which are the
/// larger ones) counting more. At most ten amounts. No rate is below its `floor`, what the machine
/// needs at least for one of that amount (missing: zero).
nlohmann::json fit_rates(const std::vector<Sample>& samples,
                         const nlohmann::json& floor = nlohmann::json::object());
/// Floors of a model's solve from the machine's raw rates (FP64 products, memory).
nlohmann::json solve_floor(const std::string& model, const nlohmann::json& raw_rates);

/// Rates that stand in for a machine that was not measured: those of a CPU core times `threads`, or
/// of an H200.
nlohmann::json built_in_rates(const std::string& model, bool device, int threads);

/// Rates of a model as it was measured, but those of the solve built in (of an H200) where the
/// calibration's solves on a device were too short to tell a rate from a latency.
nlohmann::json trusted_rates(const nlohmann::json& measured, const std::string& model);

}  // namespace terrace
