// Seconds of a run before it starts: its own work, at the raw rates of the machine.
//
//   seconds(phase) = sum over its terms of  amount / (rate * efficiency)
//
// The solve of an elimination on GPUs is replayed step by step, on the two lanes that it has.
// Amounts are those of the critical path: of one rank where the ranks share the work. Every family
// has one function that knows the work of all its methods, and how far below the raw rate each
// stays: top * n / (n + half) at size n. Their constants, and where they come from: predict.cpp.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace {

/// Raw rates, units per second of one rank while all ranks work. `terrace bench profile` measures
/// those up to `start`; the others are those of known GPUs, src/program/machines.cpp.
enum class Rate {
  product,     ///< flops of a large FP64 matrix product
  bits,        ///< multiply-adds over GF(2) of the fastest product: tensor cores, or tables
  tables,      ///< the same by tables of 2^8 combinations
  integers,    ///< operations of the 8-bit products of --precision emulated
  memory,      ///< bytes read
  to_device,   ///< bytes from the host
  to_host,     ///< bytes to the host
  file_read,   ///< bytes, from the page cache
  file_write,  ///< bytes, to the page cache
  exchange,    ///< bytes of a long broadcast
  message,     ///< broadcasts of one number
  launch,      ///< launches, one after the other
  start,       ///< starts of the backend: one over their seconds
  pivot,       ///< pivots of a panel over GF(2), one after the other
  wait,        ///< times that the host waits for the device and goes on
  column,      ///< columns of a dense panel with their pivots, one after the other
  block,       ///< diagonal blocks of 64 columns of a band, one after the other
  call,        ///< calls of NCCL
  network,     ///< bytes between hosts
  hop,         ///< messages from one host to the next
  second       ///< always 1: what no rate describes
};
constexpr int rate_count = int(Rate::second) + 1;
const char* name_of(Rate rate);  ///< as in profiles: "product"
const char* unit_of(Rate rate);  ///< "flop/s"

struct Rates {
  std::array<double, rate_count> per_second{};
  double& operator[](Rate rate) { return per_second[std::size_t(rate)]; }
  double operator[](Rate rate) const { return per_second[std::size_t(rate)]; }
};
/// Of an H200, or of `threads` cores of a CPU: for machines that were not measured.
Rates built_in_rates(bool device, int threads);

/// What a rank waits for.
struct Term {
  Rate rate;
  double amount;
  double efficiency = 1;  ///< above 1: it is faster than what the rate was measured with
};
using Terms = std::vector<Term>;

/// Step k of the loop of src/frame/eliminate.hpp: what its members wait for.
struct Step {
  Terms choose, share, next, rest;
};
/// All of them; the flags are those of the loop.
struct Steps {
  Index count = 0;
  std::function<Step(Index k)> at;
  bool share_after_update = false, next_ahead = false;
  double beside = 1.5;  ///< what runs beside rest(k) takes so much longer
};
double seconds_of(const Terms& terms, const Rates& rates);
double replay(const Steps& steps, const Rates& rates);

/// What a run will do.
struct Work {
  std::string model;  ///< command and method: "gf2 rref, tables"
  Terms read, solve, check, write;
  Steps steps;            ///< of the solve, beside its terms
  Terms chain, updates;   ///< likewise, of one launch: dependent steps, partly hidden by the rest
  Terms first;            ///< what only the first solve of a process takes more
  Terms beside;           ///< goes on at the same time as the solve, which takes as long at least
  Terms iteration;        ///< of one iteration, where their number is not known before
  double iterations = 0;  ///< how many are assumed
};

/// What the work is done on.
struct Machine {
  int ranks = 1;
  bool device = false;
  int threads = 1;    ///< of a rank
  int per_host = 1;   ///< ranks on a host, at most
  bool nccl = false;  ///< GPUs send by NCCL, not by stores into each other's memory
};

/// Elimination of [A | B]; method gauss-jordan, lu, textbook or cramer.
struct DenseWork {
  Machine on;
  std::string method = "gauss-jordan";
  Index n = 0, right = 0, block = 1;
  bool inverse = true, tournament = false, emulated = false, check = true;
  int moduli = 14;        ///< of emulated
  bool mixed = false;     ///< of LU: the update in low precision, then refined
  bool gathered = false;  ///< one of several GPUs factors the panels
};
Work dense_work(const DenseWork& w);

/// `command`: rref, echelon, rank, solve, kernel, inverse. The rank is assumed to be full.
struct BitWork {
  Machine on;
  std::string command, method;  ///< "tensor cores", "tables" or "columns"
  Index rows = 0, columns = 0, right = 0, block = 64;
  Index k = 0;          ///< rows that a table combines; 0: 8
  bool stored = false;  ///< --tables broadcast
  bool check = true, output = true;
};
Work bit_work(const BitWork& w);
/// gf2 multiply with `levels` of Strassen's algorithm.
struct BitProductWork {
  Machine on;
  std::string method;
  Index rows = 0, inner = 0, columns = 0;
  Index k = 0;
  int levels = 0;
  bool check = true;
};
Work bit_product_work(const BitProductWork& w);

/// `chain`: tile columns one after the other; `flops` of the factorization on the busiest rank.
struct BandAmounts {
  Machine on;
  std::string command, method;  ///< "band solve", "tile-columns"
  Index n = 0, half_bandwidth = 0, width = 1, nrhs = 0;
  Index chain = 0;
  double flops = 0;
  bool factored = false, check = true;
  Index parts = 0, separator = 0;  ///< of a band in parts
};
Work band_work(const BandAmounts& w);

/// Bytes of the matrix on a rank; rows of the vectors there.
struct IterationWork {
  Machine on;
  std::string form, method, preconditioner;  ///< "dense triangle", "classic", "jacobi"
  Index n = 0;
  bool mixed = false;
  double matrix_bytes = 0, rows = 0, shared = 0;  ///< numbers exchanged
  double preconditioner_bytes = 0, chain = 0;     ///< rows that wait for one another there
  double setup_bytes = 0;                         ///< to make the preconditioner
  double file_bytes = 0;
  Index nrhs = 1, passes = 1;  ///< systems solved one after the other
  double iterations = 0;
};
Work iteration_work(const IterationWork& w);

/// Seconds of the phases; `iteration` of one.
struct Seconds {
  double start = 0, read = 0, solve = 0, check = 0, write = 0, iteration = 0;
  double first = 0;  ///< part of the solve: what only the first of a process takes
  [[nodiscard]] double total() const { return start + read + solve + check + write; }
};
Seconds predict(const Work& work, const Rates& rates);

}  // namespace terrace
