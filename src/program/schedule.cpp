#include "src/program/schedule.hpp"

#include <algorithm>
#include <cmath>

namespace terrace {

namespace {

/// When `work` seconds, begun at `start`, are done that take `beside` times as long until `busy`.
double finish(double start, double work, double busy, double beside) {
  const double shared = std::max(0.0, busy - start);
  return beside * work <= shared ? start + beside * work
                                 : start + shared + (work - shared / beside);
}

double hosts_of(const Machine& on) {
  return std::ceil(double(on.ranks) / std::max(1, on.per_host));
}

}  // namespace

double replay(const Steps& steps, const Rates& rates) {
  double ahead = 0, bulk = 0;
  const auto beside_bulk = [&](const Terms& terms) {
    ahead = finish(ahead, seconds_of(terms, rates), bulk, steps.beside);
  };
  for (Index k = 0; k < steps.count; ++k) {
    const Step step = steps.at(k);
    beside_bulk(step.choose);
    if (steps.share_after_update) ahead = std::max(ahead, bulk);
    beside_bulk(step.share);
    bulk = std::max(bulk, ahead);
    const double next = seconds_of(step.next, rates);
    if (steps.next_ahead) {
      ahead += steps.beside * next;
    } else {
      ahead = bulk = bulk + next;
    }
    bulk += seconds_of(step.rest, rates);
  }
  return std::max(ahead, bulk);
}

StepSums sums_of(const Steps& steps, const Rates& rates) {
  StepSums sums;
  for (Index k = 0; k < steps.count; ++k) {
    const Step step = steps.at(k);
    sums.choose += seconds_of(step.choose, rates);
    sums.share += seconds_of(step.share, rates);
    sums.next += seconds_of(step.next, rates);
    sums.rest += seconds_of(step.rest, rates);
  }
  return sums;
}

void add_call(Terms& terms, const Machine& on, double bytes, double efficiency) {
  if (on.ranks == 1) return;
  constexpr double nccl = 1.18;  // of 64 MiB: 339 GB/s, and 296 by peer memory, on two H100
  terms.push_back({on.nccl ? Rate::call : Rate::message, 1});
  const double hosts = hosts_of(on);
  if (hosts == 1) {
    terms.push_back({Rate::exchange, bytes, on.nccl ? nccl * efficiency : efficiency});
  } else {  // rings through every card's own adapter, one of them after the other
    terms.push_back({Rate::hop, std::ceil(std::log2(hosts))});
    terms.push_back({Rate::network, bytes / on.per_host, efficiency});
  }
}

void add_reduction(Terms& terms, const Machine& on, double bytes) {
  // NCCL, 268 MB on 2, 4, 8: 0.84, 0.63, 0.55. By peer memory a vector took three kernels, 28 us for
  // 1 MiB on two, and takes two there now, or where it is short: 14 us (jobs/results/messages.md).
  const bool vector = !on.nccl && bytes > 4096;
  add_call(terms, on, bytes, vector ? 0.2 : 0.6);
  if (vector && on.ranks > 1) terms.push_back({Rate::message, 2});
  if (const double hosts = hosts_of(on); on.ranks > 1 && hosts > 1)
    terms.push_back({Rate::hop, std::ceil(std::log2(hosts))});
}

namespace {
/// Pieces from all ranks at once. Stages of GF(2) on two and four GPUs had 0.5 and 0.32.
constexpr double grouped = 0.4;
/// Strips of a panel's rows over GF(2): its stages on two.
constexpr double strips = 0.6;
}  // namespace

// --- dense ---------------------------------------------------------------------------------------

Steps dense_steps(const DenseWork& w) {
  // A panel's own products, of DGEMM: the wider the panel, the larger they are. Beside products of
  // bytes they take longer still. Wide ones: emulated inverses of 16,384 to 65,536 on one and two H200;
  // in single precision, LU of 32,768 and 65,536 on one.
  const double tall = w.block > (w.mixed ? 512 : 1024) ? 0.14 : 0.07;
  const double moduli = w.mixed ? 7 : w.moduli;
  // Of the rate of 1,024 columns, panels beside it: inverses of 16,384 to 65,536 on one and two H200.
  const double integers = w.mixed ? 1.07 : 1.4 * double(w.block) / double(w.block + 720);
  // 6 us for a column in two rounds: n = 4,096 and 8,192 on two; by peer memory, where the host does
  // not wait for NCCL, 4.5 us: LU too, n to 16,384.
  const double tournament = w.on.nccl ? 4 : 2.9;
  const double n = double(w.n), right = double(w.right), b = double(w.block), ranks = w.on.ranks;
  const double efficiency = 0.84 * b / (b + 60);  // of updates of so many columns
  const bool direct = ranks == 1, lu = w.method == "lu";
  const double columns =
      lu ? 1.15 : 1;  // LU's rows come to rest; fitted to LU, n = 1,000 to 16,384
  Steps steps;
  steps.count = ceil_div(w.n, std::max<Index>(1, w.block));
  steps.share_after_update = steps.next_ahead = true;
  if (w.emulated) steps.beside = 2.5;
  steps.at = [=](Index k) {
    const double first = double(k) * b, p = std::min(b, n - first),
                 next = std::min(b, n - first - p);
    const double rows = std::ceil((lu ? n - first : n) / ranks);
    const double width = n + right - (w.inverse ? 0 : first);  // of the pivot rows
    const auto product = [&](double flops) {
      return w.emulated || w.mixed ? Term{Rate::integers, moduli * flops, integers}
                                   : Term{Rate::product, flops, efficiency};
    };
    Step step;
    if (direct) {
      step.choose = {{Rate::column, columns * p}, {Rate::product, rows * p * p, tall}};
    } else if (w.gathered) {
      const double all = lu ? n - first : n, sent = all * p * (1 - 1 / ranks);
      step.choose = {{Rate::column, columns * p},
                     {Rate::product, all * p * p, tall},
                     {Rate::memory, 64 * all * p},
                     {Rate::launch, 20},
                     {Rate::wait, 1}};
      add_call(step.choose, w.on, 8 * sent);  // there, and N back
      add_call(step.choose, w.on, 8 * sent);
      add_call(step.choose, w.on, 8 * p * p);
    } else if (w.tournament) {
      step.choose = {{Rate::column, tournament * p},
                     {Rate::product, (rows + ranks * p) * p * p, tall}};
      add_call(step.choose, w.on, 8 * ranks * p * (p + 3));
    } else {
      step.choose = {{Rate::column, tournament * p}, {Rate::product, rows * p * p, tall}};
      for (Term one : [&] {
             Terms terms;
             add_call(terms, w.on, 8 * ranks * (p + 3));
             return terms;
           }())
        step.choose.push_back({one.rate, one.amount * p, one.efficiency});
    }
    step.share = {{Rate::product, p * p * width, efficiency},
                  {Rate::memory, 32 * p * width},
                  {Rate::launch, 10}};
    add_call(step.share, w.on, 8 * p * width, grouped);
    step.next = {{Rate::product, 2 * rows * p * next, efficiency}};
    step.rest = {product(2 * rows * p * std::max(0.0, width - next - (w.inverse ? 0 : p))),
                 {Rate::launch, 4}};
    return step;
  };
  return steps;
}

// --- GF(2) ---------------------------------------------------------------------------------------

double bit_efficiency(double inner) {
  // H200: 1.2, 3.8 and 5.05e15 of 6.1e15 multiply-adds/s with 512, 2,048 and 4,096.
  constexpr double widths[] = {512, 2048, 4096}, of[] = {0.197, 0.62, 0.83};
  if (inner <= widths[0]) return of[0] * inner / widths[0];
  const int i = inner <= widths[1] ? 0 : 1;
  const double t = (1 / inner - 1 / widths[i]) / (1 / widths[i + 1] - 1 / widths[i]);
  return inner >= widths[2] ? of[2] : 1 / (1 / of[i] + t * (1 / of[i + 1] - 1 / of[i]));
}

Steps bit_steps(const BitWork& w, double tables, double stored) {
  constexpr double widening = 0.65;  // of an update's rate: few rows
  const bool tensor = w.method == "tensor cores";
  const bool inverse = w.command == "inverse";
  const bool echelon = w.command == "rank" || w.command == "echelon";
  const double n = double(w.rows), r = double(std::min(w.rows, w.columns)), b = double(w.block);
  const double words = std::ceil(double(w.columns) / 64) + std::ceil(double(w.right) / 64) + 1;
  const double ranks = w.on.ranks, others = ranks - 1;
  Steps steps;
  steps.count = ceil_div(Index(r), std::max<Index>(1, w.block));
  steps.share_after_update = true;
  steps.beside = 1;  // a panel has multiprocessors of its own
  steps.at = [=](Index k) {
    const double first = double(k) * b, p = std::min(b, r - first);
    const double rows = std::ceil((echelon ? n - first : n) / ranks);
    const double width = words - (inverse ? 0 : first / 64);  // of the pivot rows
    const auto product = [&](double macs, double reached) {
      return tensor ? Term{Rate::bits, macs, reached * bit_efficiency(p)}
                    : Term{Rate::tables, macs, reached * tables};
    };
    Step step;
    step.choose = {{Rate::pivot, p}, {Rate::wait, 1}, {Rate::to_device, 8 * rows}};
    add_call(step.choose, w.on, p * p / 8 + 24 * p);
    // Strips of columns: to each rank its own, and what becomes of them to all.
    step.share = {{Rate::memory, 32 * p * width / ranks},
                  {Rate::launch, 15},
                  product(64 * p * p * width / (stored > 0 ? 1 : ranks), widening)};
    if (ranks > 1) step.share.push_back({Rate::launch, 10});
    add_call(step.share, w.on, 8 * p * width * others / ranks, strips);
    if (stored == 0) add_call(step.share, w.on, 8 * p * width * others / ranks, strips);
    if (stored > 0) {
      step.share.push_back({Rate::memory, 16 * p * width * stored, 0.25});
      add_call(step.share, w.on, 8 * p * width * stored);
    }
    const double all = std::max(0.0, width - (inverse ? 0 : p / 64)), next = std::min(all, b / 64);
    step.next = {{Rate::launch, 4}, product(64 * rows * p * next, 1)};
    step.rest = {{Rate::launch, 2}, product(64 * rows * p * (all - next), 1)};
    return step;
  };
  return steps;
}

// --- band ----------------------------------------------------------------------------------------

Steps tile_steps(const BandAmounts& w) {
  // Four H200, m = 8,000 (a chain of 115 us) and m = 32,000 (its updates, of 128 columns each).
  const double b = double(w.width), m = std::min(double(w.half_bandwidth), double(w.n));
  Steps steps;
  steps.count = w.chain;
  steps.at = [=](Index k) {
    const double rows = std::min(m, std::max(0.0, double(w.n) - double(k + 1) * b));
    Step step;
    step.choose = {{Rate::launch, 57 * b / 128}};  // a diagonal block and the tiles below it
    add_call(step.share, w.on, 8 * b * rows);
    step.next = {{Rate::launch, 3}, {Rate::product, 2 * rows * b * b, 0.3}};
    step.rest = {{Rate::launch, 3}, {Rate::product, b * rows * rows / w.on.ranks, 0.42}};
    return step;
  };
  return steps;
}

}  // namespace terrace
