// What the parts of `bench gf2` share: options, the clock, the bound, rivals.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/base/clock.hpp"
#include "src/bench/bench.hpp"
#include "src/gf2/backend.hpp"
#include "src/gf2/multiply.hpp"
#include "src/gf2/system.hpp"

namespace terrace::gf2 {

struct Gf2Bench {
  BenchOptions common;
  Index columns = 0;     ///< 0: as many as rows
  double density = 0.5;  ///< probability of a one
  Index rank = -1;       ///< negative: not limited
  Index candidates = 0;  ///< of the search for pivots; 0: its choice
  bool half_rank = false, echelon = false, checksum = false, transfers = false;
  bool product = false, inverse = false;
  std::string study, calibrate;  ///< which; empty: none
  Index levels = -1;             ///< of a product; -1: the planner's choice
};

/// What a run has beside its matrices.
struct Gf2Setting {
  std::pair<std::string, double> bound;  ///< name and rate
  EnergyMeter* meter = nullptr;          ///< --energy
};

/// What all our lines have.
inline BenchRun bit_line(const Gf2Bench& o, const Gf2Setting& setting, nlohmann::json sizes) {
  BenchRun line;
  line.sizes = std::move(sizes);
  if (o.transfers) line.sizes["transfers"] = "pinned";
  line.who = "terrace";
  line.unit = "bit-MAC/s";
  std::tie(line.bound_name, line.bound) = setting.bound;
  line.meter = setting.meter;
  return line;
}

/// Seconds of work() on the context's lanes: events on CUDA, wall clock on the CPU.
template <class B, class Work>
double timed(const Context<B>& context, EnergyMeter* meter, Work&& work) {
  context.control.barrier();
  const struct Metered {
    EnergyMeter* meter;
    explicit Metered(EnergyMeter* m) : meter(m) {
      if (meter) meter->start();
    }
    ~Metered() {
      if (meter) meter->stop();
    }
  } metered(meter);
  if constexpr (std::is_same_v<B, Cuda>) {
    const auto begin = context.bulk.record();
    work();
    const auto end = context.bulk.record();
    context.bulk.synchronize();
    return seconds_between(begin, end);
  } else {
    return seconds_of(work);
  }
}

/// For --transfers: this rank's rows in page-locked host memory. Void: nothing is transferred.
template <class B>
class HostRows {
 public:
  HostRows() = default;
  HostRows(const Gf2Bench& o, const BitMatrix<B>& matrix)
      : rows_(o.transfers ? matrix.data.size() : 0), wanted_(o.transfers) {}
  static Index bytes(const Gf2Bench& o, BlockCyclic rows, Index words) {
    return o.transfers ? BitMatrix<B>::bytes(rows, words) : 0;
  }
  /// From the backend, whose copy is cleared: only send() brings it back.
  void take(const Context<B>& context, const BitMatrix<B>& matrix) const {
    receive(context, matrix);
    if (wanted_) fill_zero(context.bulk, matrix.data.view());
    if (wanted_) context.bulk.synchronize();
  }
  void receive(const Context<B>& context, const BitMatrix<B>& matrix) const {
    if (!wanted_) return;
    download(context.bulk, rows_.data(), matrix.data.view());
    context.bulk.synchronize();
  }
  void send(const Context<B>& context, const BitMatrix<B>& matrix) const {
    if (!wanted_) return;
    upload(context.bulk, matrix.data.view(), rows_.data());
    context.bulk.synchronize();
  }

 private:
  PinnedBuffer<Word> rows_;
  bool wanted_ = false;
};

/// Refuses a run that the host or the backend has no memory for.
template <class B>
void require_bench_memory(const Run& run, Index backend_bytes, Index host_bytes) {
  constexpr bool on_host = std::is_same_v<B, Cpu>;
  require_memory(run.control, host_bytes + (on_host ? backend_bytes : 0),
                 on_host ? 0 : backend_bytes);
}

/// BenchRun::spoil: another bit at the begin of this rank's part.
template <class B>
std::function<void(double)> spoils_bits(const Context<B>& context, const BitMatrix<B>& matrix) {
  return [&](double) {
    if (matrix.data.size() == 0) return;
    const View<Word, B> first = matrix.data.view().slice(0, 1);
    Word word = 0;
    download(context.bulk, &word, first);
    context.bulk.synchronize();
    word ^= 1;
    upload(context.bulk, first, &word);
    context.bulk.synchronize();
  };
}

/// Name and rate of what bounds products, all ranks together: binary tensor cores, or the tables.
template <class B>
std::pair<std::string, double> bit_bound(const Context<B>& context);

/// Sum over the reduced form's words of a mix of place and value; the same in tests/rivals.
template <class B>
Word checksum(const Context<B>& context, const BitMatrix<B>& matrix, const Pivots& pivots,
              Index words);

/// Refuses names that are no rivals of eliminations: Error(usage) on all ranks.
void require_bit_rivals(const BenchOptions& options);
/// Ours, for the rivals to be compared with: the rank, and of a reduced form its bits.
struct BitAnswer {
  Index rank = 0;
  std::optional<Word> checksum;
};
/// M4RI on the matrix of `line`, n rows: separate programs on rank 0's host.
void bench_bit_rivals(Run& run, const Gf2Bench& o, const BenchRun& line, Index n,
                      const BitAnswer& ours);

template <class B>
void bench_product(Run& run, const Gf2Bench& o, Context<B>& context, Index n,
                   const Gf2Setting& setting);

}  // namespace terrace::gf2
