// What `bench gf2` measures beside itself: the bound, M4RI, and the checksum that both print.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "src/bench/gf2.hpp"

namespace terrace::gf2 {

// --- bound ---------------------------------------------------------------------------------------

namespace {

/// Rate of combine() on rows that stay in cache: what the tables alone allow.
double table_rate(const Context<Cpu>& context) {
  const Index rows = 4096 * thread_count(), words = 64, bits = 512;
  const Buffer<Word, Cpu> out(rows * words), source(bits * words), multipliers(rows * bits / 64);
  fill_zero(context.bulk, out.view());
  std::vector<Index> numbers(static_cast<std::size_t>(rows));
  for (Index i = 0; i < rows; ++i) numbers[std::size_t(i)] = i;
  random_bits(context.bulk, {multipliers.data(), bits / 64, rows, nullptr}, numbers.data(),
              {1, bits, false, 0});
  random_bits(context.bulk, {source.data(), words, bits, nullptr}, numbers.data(),
              {2, 64 * words, false, 0});
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const double seconds = timed(context, nullptr, [&] {
      combine(context.bulk, {out.data(), words, rows, nullptr},
              {multipliers.data(), bits / 64, rows, nullptr}, {source.data(), words, bits, nullptr},
              0, 0, words);
      context.bulk.synchronize();
    });
    best = std::max(best, double(rows) * double(bits) * double(64 * words) / seconds);
  }
  return context.control.reduce(best, Reduce::sum);
}

/// Shared-memory look-ups of 132 multiprocessors at k = 8, measured on an H200 at 1.98 GHz; scaled.
[[maybe_unused]] double table_rate(const Context<Cuda>& context) {
  const Index sum =
      context.control.reduce(Index(current_cuda_device().multiprocessors), Reduce::sum);
  return 2.09e15 * double(sum) / 132.0 / (context.device.shared ? context.size() : 1);
}

}  // namespace

template <class B>
std::pair<std::string, double> bit_bound(const Context<B>& context) {
  if constexpr (std::is_same_v<B, Cpu>) {
    return {"look-ups in cache-resident tables, measured in this run", table_rate(context)};
  } else {
    const double tensor = bit_tensor_rate(context.bulk);
    if (tensor == 0)
      return {"shared-memory look-ups at k = 8, 2.09e15 bit-MAC/s an H200", table_rate(context)};
    const double sum = context.control.reduce(tensor, Reduce::sum);
    return {"binary tensor cores, the instruction alone, measured in this run",
            sum / (context.device.shared ? context.size() : 1)};
  }
}

// --- checksum ------------------------------------------------------------------------------------

template <class B>
Word checksum(const Context<B>& context, const BitMatrix<B>& matrix, const Pivots& pivots,
              Index words) {
  std::vector<Word> row(static_cast<std::size_t>(words));
  std::vector<Word> sum(1, 0);
  for (Index q = 0; q < pivots.rank(); ++q) {
    const Index i = pivots.rows[std::size_t(q)];
    if (matrix.layout.owner(i) != context.rank()) continue;
    download(context.bulk, row.data(),
             matrix.data.view().slice(matrix.layout.slot(i) * matrix.stride, words));
    context.bulk.synchronize();
    for (Index j = 0; j < words; ++j)
      sum[0] ^= mix(mix(Word(q) * 0x9e3779b97f4a7c15ull + Word(j)) ^ row[std::size_t(j)]);
  }
  context.control.reduce(sum, Reduce::bit_xor);
  return sum[0];
}

#define TERRACE_INSTANTIATE(B)                                          \
  template std::pair<std::string, double> bit_bound(const Context<B>&); \
  template Word checksum(const Context<B>&, const BitMatrix<B>&, const Pivots&, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

// --- rivals --------------------------------------------------------------------------------------

namespace {

/// tests/rivals/m4ri_bench with a method of M4RI's.
struct Rival {
  const char *name, *method;
  const char* variable;  ///< in the environment: where the program is
  bool beside;           ///< otherwise tests/m4ri_bench beside this program
};
constexpr Rival rivals[] = {{"m4ri", "auto", "TERRACE_M4RI_BENCH", true},
                            {"m4ri-m4ri", "m4ri", "TERRACE_M4RI_BENCH", true},
                            {"m4ri-pluq", "pluq", "TERRACE_M4RI_BENCH", true},
                            {"m4ri-all", "auto", "TERRACE_M4RI_OMP_BENCH", false}};

const Rival* rival_of(const std::string& name) {
  for (const Rival& rival : rivals)
    if (name == rival.name) return &rival;
  return nullptr;
}

struct RivalTime {
  double seconds = 0;         ///< 0: the program is not there
  int cores = 0, status = 0;  ///< status: its exit code; -1: its answer is not understood
  long rank = -1;
  unsigned long long checksum = 0;
  double joules = -1;  ///< negative: the host has no counter
  char why[200] = {};
};

/// M4RI's reduction of the matrix `what` of n rows, on rank 0's host; equal on all ranks.
/// Its environment is ours, OMP_NUM_THREADS included.
RivalTime m4ri_time(const Control& control, const Rival& rival, Index n, const RandomBits& what,
                    bool echelon) {
  RivalTime time;
  if (control.rank() == 0) {
    const char* named = std::getenv(rival.variable);
    std::error_code none;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
    const std::string program = named ? named
                                : rival.beside
                                    ? (self.parent_path() / "tests" / "m4ri_bench").string()
                                    : "";
    if (std::filesystem::exists(program, none)) {
      const std::string line = fmt::format(
          "'{}' {} {} {} {} {} {} {} {}", program, n, what.seed, what.even_rank ? "half" : "full",
          rival.method, what.columns, what.density, what.rank, echelon ? "echelon" : "rref");
      if (FILE* pipe = popen(line.c_str(), "r")) {
        char joules[32] = {};
        const int read =
            std::fscanf(pipe, "seconds %lf threads %d rank %ld checksum %llx joules %31s %199[^\n]",
                        &time.seconds, &time.cores, &time.rank, &time.checksum, joules, time.why);
        time.status = pclose(pipe);
        if (time.status == 0 && read < 4) time.status = -1;
        if (read == 5) time.joules = std::strtod(joules, nullptr);
      }
    }
  }
  control.broadcast(&time, sizeof time, 0);
  return time;
}

/// The rival counts its own joules, of the processor packages and of the reduction alone.
void rival_energy(Run& run, nlohmann::json& line, const std::vector<RivalTime>& times) {
  double joules = 0, seconds = 0;
  for (const RivalTime& time : times) {
    if (time.joules < 0) {
      const std::string why = time.why[0] != 0 ? time.why : "the rival gives none";
      line["energy"] = nullptr;
      line["energy_reason"] = why;
      run.say("  energy: not measured, " + why);
      return;
    }
    joules += time.joules, seconds += time.seconds;
  }
  const double solves = double(times.size());
  line["energy"] = {{"joules_per_solve", joules / solves},
                    {"seconds_per_solve", seconds / solves},
                    {"watts", seconds > 0 ? joules / seconds : 0.0},
                    {"solves", times.size()},
                    {"counter", "RAPL"}};
  run.say(fmt::format("  energy: {:.4g} J per solve, {:.4g} W; {} solves, by RAPL", joules / solves,
                      joules / seconds, times.size()));
}

}  // namespace

void require_bit_rivals(const BenchOptions& options) {
  std::vector<std::string> known;
  for (const Rival& rival : rivals) known.emplace_back(rival.name);
  require_rivals(options, "gf2", known);
}

void bench_bit_rivals(Run& run, const Gf2Bench& o, const BenchRun& line, Index n,
                      const BitAnswer& ours) {
  const Index columns = o.columns > 0 ? o.columns : n;
  const RandomBits what{Word(run.options.seed), columns, o.half_rank, n, o.density, o.rank};
  for (const std::string& name : o.common.rivals) {
    const Rival& rival = *rival_of(name);
    const RivalTime probe = m4ri_time(run.control, rival, 64, {1, 64, false, 64}, false);
    if (probe.seconds == 0 && probe.status == 0) {
      run.warn(fmt::format("rival {} is not here; --rivals; {}", name,
                           rival.beside ? "build the tests with libm4ri-dev"
                                        : fmt::format("set {}", rival.variable)));
      continue;
    }
    BenchRun other = line;
    other.who =
        fmt::format("m4ri {}, {} core{}", rival.method, probe.cores, probe.cores == 1 ? "" : "s");
    other.bound = 0;
    other.rival = true;
    other.stages = nullptr;
    other.meter = nullptr;
    RivalTime found;
    std::vector<RivalTime> times;
    other.measure = [&] {
      found = m4ri_time(run.control, rival, n, what, o.echelon);
      times.push_back(found);
      return found.seconds;
    };
    other.trouble = [&] {
      return found.status == 0
                 ? std::string()
                 : fmt::format("the program gave no answer (status {})", found.status);
    };
    other.certificate = [&]() -> std::string {  // an echelon form may have other bits than ours
      if (Index(found.rank) != ours.rank)
        return fmt::format("failed: rank {}, ours is {}", found.rank, ours.rank);
      if (ours.checksum && Word(found.checksum) != *ours.checksum)
        return fmt::format("failed: checksum {:016x}, ours is {:016x}", found.checksum,
                           *ours.checksum);
      return "passed";
    };
    other.spoil = [&](double) { ++found.rank; };
    bench_run(run, o.common, other);
    auto& last = run.report["runs"].back();
    last["cores"] = probe.cores;
    if (o.common.energy) rival_energy(run, last, times);
  }
}

}  // namespace terrace::gf2
