#include "src/program/predict.hpp"

#include <algorithm>
#include <cmath>

#include "src/program/schedule.hpp"

namespace terrace {

namespace {

struct RateText {
  const char *name, *unit;
};
constexpr std::array<RateText, rate_count> rate_texts{{{"product", "flop/s"},
                                                       {"bits", "multiply-adds/s"},
                                                       {"tables", "multiply-adds/s"},
                                                       {"integers", "operations/s"},
                                                       {"memory", "bytes/s"},
                                                       {"to_device", "bytes/s"},
                                                       {"to_host", "bytes/s"},
                                                       {"file_read", "bytes/s"},
                                                       {"file_write", "bytes/s"},
                                                       {"exchange", "bytes/s"},
                                                       {"message", "1/s"},
                                                       {"launch", "1/s"},
                                                       {"start", "1/s"},
                                                       {"pivot", "1/s"},
                                                       {"wait", "1/s"},
                                                       {"column", "1/s"},
                                                       {"block", "1/s"},
                                                       {"call", "1/s"},
                                                       {"network", "bytes/s"},
                                                       {"hop", "1/s"},
                                                       {"second", ""}}};

/// Of its full rate, what a method reaches at size n.
double reached(double n, double half, double top = 1) { return top * n / (n + half); }

/// What a rank reads of a file and takes to its device, at `efficiency` of the raw rate.
Terms read_terms(const Machine& on, double bytes, double efficiency) {
  return {{Rate::second, bytes > 0 ? 0.002 : 0},  // opening
          {Rate::file_read, bytes, efficiency},
          {Rate::to_device, on.device ? 0.2 * bytes : 0}};  // most of it beside the reading
}
/// What a check reads once more, on a device: from the page cache and no further, `efficiency` times
/// as fast as what is kept (H200, whole runs).
Terms reread_terms(double seconds, double bytes, double efficiency) {
  return {{Rate::second, bytes > 0 ? seconds : 0}, {Rate::file_read, bytes, efficiency}};
}
Terms write_terms(const Machine& on, double bytes) {
  return {{Rate::second, bytes > 0 ? 0.005 : 0},  // opening, renaming
          {Rate::file_write, bytes},
          {Rate::to_host, on.device ? bytes : 0}};
}
/// Libraries begin; several GPUs speak to each other for the first time.
Terms first_use(const Machine& on, double seconds) {
  return {{Rate::second, on.device ? seconds + (on.nccl ? 0.15 : 0) : 0}};
}
/// Steps that the ranks of a CPU agree on, and numbers that all of them get; nothing on one rank.
void exchange(Terms& terms, const Machine& on, double messages, double numbers) {
  if (on.ranks == 1) return;
  terms.push_back({Rate::message, messages});
  terms.push_back({Rate::exchange, 8 * numbers});
}

}  // namespace

double seconds_of(const Terms& terms, const Rates& rates) {
  double seconds = 0;
  for (const Term& t : terms)
    if (t.amount > 0) seconds += t.amount / (rates[t.rate] * t.efficiency);
  return seconds;
}

const char* name_of(Rate rate) { return rate_texts[std::size_t(rate)].name; }
const char* unit_of(Rate rate) { return rate_texts[std::size_t(rate)].unit; }

Seconds predict(const Work& work, const Rates& rates) {
  Seconds s;
  s.start = 1 / rates[Rate::start];
  s.read = seconds_of(work.read, rates);
  s.iteration = seconds_of(work.iteration, rates);
  s.first = seconds_of(work.first, rates);
  // Measured with chains of 0.3 to 3 times their updates: neither hides the other wholly.
  const double launch = std::hypot(seconds_of(work.chain, rates), seconds_of(work.updates, rates));
  s.solve = std::max(seconds_of(work.solve, rates) + replay(work.steps, rates) + launch +
                         work.iterations * s.iteration,
                     seconds_of(work.beside, rates)) +
            s.first;
  s.check = seconds_of(work.check, rates);
  s.write = seconds_of(work.write, rates);
  return s;
}

// --- dense ---------------------------------------------------------------------------------------

namespace {

/// What LU in mixed precision does beside the update: A and the factor are read by each step of the
/// refinement, of the solution and of the probes of the condition.
Terms refinement_terms(const DenseWork& w, double n, double slots) {
  constexpr double steps = 3;
  // H200: a step of 32,768 takes three times what its bytes would.
  Terms terms{{Rate::memory, 2 * (steps + 1) * 8 * slots * n, w.on.device ? 0.28 : 0.5}};
  exchange(terms, w.on, (steps + 1) * n / double(w.block), (steps + 1) * n * (n > 0 ? w.right : 0));
  return terms;
}
/// FP64's flops that take as long as LU's in mixed precision on a CPU: its panels, and half of the
/// update.
double mixed_flops(const DenseWork& w, double n, double slots, double flops) {
  const double panels = std::min(flops, n * slots * double(w.block));
  return panels + (flops - panels) / 2;
}

constexpr Index exact_up_to = 4096;  // orders of inverses whose residual is exact
constexpr double read_dense = 0.5;   // of the raw rate, on a CPU: norms and scales on the way

/// The textbook's loop: on a CPU one thread, n = 600: 5.3 of a core's 47 GFLOP/s; on an H200, n =
/// 3,000, at the rate of memory.
Terms textbook_solve(const DenseWork& w, double n) {
  if (w.on.device) return {{Rate::launch, 5 * n}, {Rate::memory, 16 * n * n * n, 0.9}};
  return {{Rate::product, 2 * n * n * n, 0.09 / w.on.threads}};
}

}  // namespace

Work dense_work(const DenseWork& w) {
  const double n = double(w.n), right = double(w.right), ranks = w.on.ranks;
  const double slots = std::ceil(n / ranks), panels = std::ceil(n / double(w.block));
  const double whole = w.inverse ? 2.0 : w.method == "lu" ? 2.0 / 3 : 1.0;
  const double flops = whole * n * n * slots + (w.inverse ? 0 : 2 * n * slots * right);
  // CPU: n = 1,000 to 8,000 on 2 and 16 threads. H200: src/program/schedule.cpp.
  const double update = w.on.device ? 0.86 : reached(n, 225.0 * w.on.threads);
  Work work;
  work.model = std::string(w.inverse ? "dense invert, " : "dense solve, ") + w.method +
               (w.emulated ? ", emulated"
                : w.mixed  ? ", mixed"
                           : "") +
               (w.tournament ? ", tournament" : "");
  work.read = read_terms(w.on, 8 * slots * n, w.on.device ? 1 : read_dense);
  if (w.method == "textbook") {
    work.solve = textbook_solve(w, n);
  } else if (w.method == "cramer") {  // determinants of order n, one for each unknown and A's
    work.solve = {{Rate::product, (1 + n * right) * 2 / 3 * n * n * n, 0.09 / w.on.threads}};
  } else if (w.on.device) {
    work.steps = dense_steps(w);
    work.first = first_use(w.on, 0.06);
    // Columns of an inverse in their order; the triangle at the end.
    work.solve = {{Rate::memory, w.inverse ? 32 * n * slots : 4 * n * slots},
                  {Rate::launch, w.method == "lu" ? n / 64 : 0}};
    if (w.method == "lu" && ranks > 1)
      for (double k = 0; k < panels; ++k)
        add_call(work.solve, w.on, 8 * double(w.block) * double(w.block));
  } else {
    work.solve = {{Rate::product, w.mixed ? mixed_flops(w, n, slots, flops) : flops, update}};
    exchange(work.solve, w.on, w.tournament ? 2 * panels * std::log2(ranks) : n, n * (n + right));
  }
  if (w.mixed)
    for (const Term& term : refinement_terms(w, n, slots)) work.solve.push_back(term);
  const bool exact = w.inverse && w.n <= exact_up_to;
  if (w.check) {
    work.check = !w.on.device ? read_terms(w.on, 8 * slots * n, read_dense)
                 : w.inverse  ? reread_terms(0.015, 8 * slots * n, 2.5)
                              : reread_terms(0.008, 8 * slots * n, 20);  // A is on the device
    if (exact) work.check.push_back({Rate::product, 4 * n * n * slots, update});
  }
  work.write = write_terms(w.on, 8 * slots * (w.inverse ? n : right));
  return work;
}

// --- GF(2) ---------------------------------------------------------------------------------------

namespace {

/// Of an update of `rows` rows by tables of 2^k combinations, against k = 8. An H200: as measured
/// (jobs/results/gf2.md). A CPU: for each source row and row of the result what does not depend on
/// k, 1 / k look-ups, and 2^k / k entries for all rows together; k = 1 to 14 on one core, 8,192 and
/// 4,096 rows.
double table_efficiency(const Machine& on, Index k_or_zero, double rows) {
  constexpr double h200[14] = {2.5, 4.9, 6.0, 8.8, 9.1, 9.7, 9.6,
                               9.7, 6.0, 5.4, 5.4, 4.1, 3.2, 1.8};
  const Index k = k_or_zero > 0 ? k_or_zero : 8;
  if (on.device) return h200[k - 1] / h200[7];
  const auto cost = [rows](double with) {
    return 0.34 + 3.5 / with + 25 * std::exp2(with) / (with * std::max(1.0, rows));
  };
  return cost(8) / cost(double(k));
}
/// Numbers of stored tables for each number of their source.
double stored_tables(Index k) { return std::exp2(double(k > 0 ? k : 8)) / double(k > 0 ? k : 8); }

/// `macs` multiply-adds of a product or an update of `rows` rows.
Term bit_update(const Machine& on, const std::string& method, Index k, double rows, double macs,
                double efficiency) {
  if (method == "tensor cores") return {Rate::bits, macs, efficiency};
  return {Rate::tables, macs, efficiency * table_efficiency(on, k, rows)};
}

}  // namespace

Work bit_work(const BitWork& w) {
  const double n = double(w.rows), columns = double(w.columns), b = double(w.block);
  const double words = std::ceil(columns / 64) + std::ceil(double(w.right) / 64) + 1;
  const double slots = std::ceil(n / w.on.ranks), r = std::min(n, columns);
  const bool echelon = w.command == "rank" || w.command == "echelon";
  const double free = std::max(0.0, columns - n);  // columns without a pivot
  // Words that are updated: those right of the panel; in echelon form of the rows without a pivot.
  const double area =
      w.command == "inverse" ? slots * r * words
      : echelon ? (r * n * words - r * r / 2 * (words + n / 64) + r * r * r / 192) / w.on.ranks
                : slots * (r * words - r * r / 128);
  Work work;
  work.model = "gf2 " + (echelon ? std::string("echelon") : w.command) + ", " + w.method;
  work.read = read_terms(w.on, 8 * slots * (words - 1), 1);
  if (w.method == "columns") {
    // Half of the rows take a row: 16 bytes a word. H200: 36 s at n = 131,072.
    work.solve = {{Rate::memory, 8 * area, w.on.device ? 0.57 : 1}, {Rate::launch, 2 * r}};
  } else if (w.on.device) {
    work.steps =
        bit_steps(w, 0.87 * table_efficiency(w.on, w.k, slots), w.stored ? stored_tables(w.k) : 0);
    work.first = first_use(w.on, 0.008);
    work.solve = {{Rate::second, 0.00015}};
  } else {
    work.solve = {{Rate::memory, r * slots / 8},  // the search
                  bit_update(w.on, w.method, w.k, slots, 64 * area, 0.87)};
    if (w.stored)
      work.solve.push_back({Rate::memory, 16 * r * words / 2 * stored_tables(w.k), 0.25});
    exchange(work.solve, w.on, 4 * std::ceil(r / b),
             r * words * (w.stored ? stored_tables(w.k) : 1));
  }
  if (w.command == "kernel") work.solve.push_back({Rate::memory, 16 * free * words});
  work.check = {{Rate::memory, w.on.device ? 0 : 5 * r * slots},
                {Rate::launch, w.on.device ? 8.0 : 0}};
  if (w.check)
    work.check.push_back({Rate::file_read, 8 * slots * (words - 1), w.on.device ? 6.0 : 1.0});
  const double written = !w.output || w.command == "rank" ? 0
                         : w.command == "solve"  ? columns * std::ceil(double(w.right) / 64)
                         : w.command == "kernel" ? free * (words - 1)
                                                 : n * (words - 1);
  work.write = write_terms(w.on, 8 * written / w.on.ranks);
  return work;
}

Work bit_product_work(const BitProductWork& w) {
  const double words = std::ceil(double(w.columns) / 64), inner = double(w.inner);
  const double slots = std::ceil(double(w.rows) / w.on.ranks);
  const double left = slots * std::ceil(inner / 64), right = inner * words, out = slots * words;
  const double macs = 64 * slots * right * std::pow(7.0 / 8, w.levels);
  Work work;
  work.model = "gf2 multiply, " + w.method;
  work.first = first_use(w.on, 0);
  work.read = read_terms(w.on, 8 * (left + right / w.on.ranks), 1);
  work.solve = {bit_update(w.on, w.method, w.k, slots, macs, 0.95),
                {Rate::memory, 24 * w.levels * (left + right + out)}};
  if (w.on.device)
    add_call(work.solve, w.on, 8 * right);
  else
    exchange(work.solve, w.on, std::ceil(inner / 4096), right);
  if (w.check) work.check = {{Rate::file_read, 8 * (left + right / w.on.ranks)}};
  work.write = write_terms(w.on, 8 * out);
  return work;
}

// --- band ----------------------------------------------------------------------------------------

namespace {

/// Tile columns one after the other, each shared with all ranks.
bool one_by_one(const BandAmounts& w) {
  return w.method == "tile-columns" || w.method == "streamed, in a window";
}
}  // namespace

Work band_work(const BandAmounts& w) {
  const double n = double(w.n), m = double(w.half_bandwidth), ranks = w.on.ranks;
  const double numbers = n * (m + 1), stored = 8 * numbers / ranks, rhs = double(w.nrhs);
  const bool streamed = w.method == "streamed", mixed = w.method == "mixed";
  // H200: m = 128 to 32,000, in parts and from one or two ends; 3.3 in half precision. CPU: n m =
  // 40,000,000, m = 100 to 4,000 on 2 and 16 threads.
  const bool narrow = !mixed && !streamed && m <= 128;  // kernels/band/cuda/narrow.cuh
  const double update = !w.on.device ? reached(m, 120.0 * w.on.threads)
                        : mixed      ? reached(m, 200, 3.3)
                        : narrow     ? std::max(1.0, m) / 200
                                     : reached(m, 400, 0.75);
  Work work;
  work.model = w.command + ", " + w.method;
  work.first = first_use(w.on, 0.004);
  work.read = read_terms(w.on, streamed ? 8 * n * rhs : stored, w.on.device ? 0.7 : 1);
  if (!w.factored) {
    const double blocks = double(w.chain) * double(w.width) / 64;
    if (!w.on.device) {
      work.solve = {{Rate::product, w.flops, update}};
      exchange(work.solve, w.on, one_by_one(w) ? double(w.chain) : 4,
               one_by_one(w) ? numbers : 3 * m * m);
    } else if (one_by_one(w)) {
      work.steps = tile_steps(w);
    } else {
      // 64 columns take 7.6 us up to m = 64 and 10 up to 128, with multiprocessors of their own; then
      // 10 in parts, and 12.5 from m = 1,000 on, beside blocks that multiply: fitted. From one or two
      // ends they take 10.2 us, in mixed precision 17.
      const double beside = w.parts > 2 ? 0.25 : 0.02;
      const double block = mixed    ? 1.7
                           : narrow ? (m <= 64 ? 0.76 : 1.0)
                                    : 1 + beside * std::min(1.0, m / 1000);
      work.chain = {{Rate::block, blocks * block}};
      work.updates = {{Rate::product, w.flops, update}};
      const double s = double(w.separator);
      Step separators;
      add_call(separators.choose, w.on, 24 * s * s * double(w.parts) * (ranks - 1) / ranks);
      work.steps = {1, [separators](Index) { return separators; }};
    }
  }
  // Forward and backward. H200, one right-hand side: a quarter of the memory rate at m = 1,000 and
  // 2,000, 0.58 at 8,000; 16 to 256 of them share the reading.
  if (w.nrhs > 0) {
    const double sweeps = mixed ? 5 : 1;
    work.solve.push_back({Rate::memory, sweeps * 16 * numbers * (1 + std::min(2.0, rhs / 64)),
                          w.on.device ? std::max(0.25, reached(m, 6000)) : 0.5});
    work.solve.push_back({Rate::product, w.on.device ? 0 : 4 * n * m * rhs, reached(rhs, 16)});
  }
  if (streamed) {
    work.solve.push_back({Rate::file_read, w.on.device ? 0 : 8 * numbers});
    if (w.on.device) work.beside = {{Rate::to_device, 8 * numbers * (w.nrhs > 0 ? 2 : 1), 0.97}};
  }
  if (w.check) work.check = {{Rate::file_read, stored, w.on.device ? 1.4 : 0.12}};
  work.write = write_terms(w.on, w.command == "band factor" ? stored : 8 * n * rhs / ranks);
  return work;
}

// --- conjugate gradients -------------------------------------------------------------------------

Work iteration_work(const IterationWork& w) {
  const bool triangle = w.form == "dense triangle", dense = triangle || w.form == "dense rows";
  const double rhs = double(w.nrhs), passes = double(w.passes);
  // H200: dense 0.97 of the memory rate, band and CSR 0.83, in about six launches (four where one
  // follows a dense product); a CPU's triangle is faster than the sum that memory is measured with.
  // Single precision has half the bytes; rows that wait for one another use a third of what a core
  // can read.
  const bool finishes = triangle && w.nrhs == 1 && w.n <= 32768;
  const bool resident = triangle && w.on.ranks == 1 && w.matrix_bytes < 4e7;  // on the chip
  // Several right-hand sides in lock step: a pass more over p and A p, and gathers of p beside the
  // matrix (cg.md: 16 of them, CSR and bands of 64 and 300).
  const bool together = passes < rhs;
  const double product = (resident ? 2
                          : dense  ? 0.97
                                   : 0.83) *
                         (together && !dense && w.on.device ? 0.6 : 1) *
                         (!w.mixed || !triangle ? 1
                          : w.on.device         ? 1.8
                                                : 1.2);
  Work work;
  work.model =
      "cg " + w.form + ", " + w.method + ", " + w.preconditioner + (w.mixed ? ", mixed" : "");
  // What is read gets another form on the way: rows, tiles, columns numbered anew.
  const bool csr = w.form == "csr";
  const double read = w.on.device ? (csr ? 0.19 : 0.75) : dense ? 0.45 : 0.25;
  work.read = read_terms(w.on, w.file_bytes / w.on.ranks, read);
  work.first = first_use(w.on, dense ? 0.01 : 0.02);
  work.solve = {{Rate::file_read, csr ? w.matrix_bytes : 0, w.on.device ? 0.5 : 0.2},
                {Rate::memory, w.setup_bytes}};
  work.iteration = {
      {Rate::memory, w.matrix_bytes * passes, product},
      {Rate::memory, w.preconditioner_bytes * passes, w.on.device || w.chain == 0 ? 0.83 : 0.35},
      {Rate::memory, (together ? 96 : 80) * w.rows * rhs, w.on.device ? 0.83 : 1},
      {Rate::launch, (!w.on.device ? 100
                      : resident   ? 2
                      : finishes   ? 4
                                   : 6) *
                         passes},
      {Rate::launch, w.on.device ? 0.4 * w.chain * passes : 0}};
  const double reductions = triangle ? 0 : w.method == "classic" ? 2 : 1;
  if (!w.on.device) {
    exchange(work.iteration, w.on, (w.method == "classic" ? 3 : 2) * passes, w.shared * rhs);
  } else {
    for (Index pass = 0; pass < w.passes; ++pass) {
      if (triangle)
        add_reduction(work.iteration, w.on, 8 * w.shared * rhs / passes);
      else
        add_call(work.iteration, w.on, 8 * w.shared * rhs / passes);
      for (int i = 0; i < reductions; ++i) add_reduction(work.iteration, w.on, 24);
    }
  }
  work.iterations = w.iterations;
  work.write = write_terms(w.on, 8 * double(w.n) * rhs / w.on.ranks);
  return work;
}

}  // namespace terrace
