// terrace bench profile: the raw rates of this machine, for --plan.
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "kernels/base/rates.hpp"
#include "kernels/dense/emulated.hpp"
#include "kernels/gf2/product.hpp"
#include "src/bench/bench.hpp"
#include "src/program/profile.hpp"

namespace terrace {

namespace {

using Clock = std::chrono::steady_clock;
double wall() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// Since this process began, by its number in /proc; 0 where that is not known.
double process_seconds() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  const auto name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string field;
  for (int number = 3; number < 22; ++number) fields >> field;
  double ticks = 0;
  timespec now{};
  if (!(fields >> ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double seconds = double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  return std::max(0.0, seconds - ticks / double(sysconf(_SC_CLK_TCK)));
}

/// Seconds of one call, after one that is not counted, among as many as take 50 ms: a GPU that was
/// idle has slow clocks. The slowest rank's.
template <class B, class Call>
double each(const Context<B>& c, Call&& call) {
  call();
  c.ahead.synchronize();
  for (int count = 1;; count *= 2) {
    c.control.barrier();
    const double start = wall();
    for (int i = 0; i < count; ++i) call();
    c.ahead.synchronize();
    const double seconds = c.control.reduce(wall() - start, Reduce::max);
    if (seconds >= 0.05 || count >= 1 << 14) return seconds / count;
  }
}

/// Multiply-adds of a product over GF(2), as wide as the backend's updates are.
template <class B>
double bit_rate(const Context<B>& c, gf2::ProductMethod method) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  const Index rows = device ? 32768 : 8192, inner = !device ? 256 : method.tables ? 512 : 4096;
  const Index words = device ? 1024 : 256;
  const Buffer<Word, B> out(rows * words), left(rows * inner / 64), right(inner * words);
  for (const auto* buffer : {&out, &left, &right}) fill_zero(c.ahead, buffer->view());
  gf2::BitProduct<B> product(rows, inner, words, method);
  const double seconds = each(c, [&] {
    product.set_right(c.ahead, {right.data(), words, inner, nullptr}, words);
    product.set_left(c.ahead, {left.data(), inner / 64, rows, nullptr});
    product.add(c.ahead, {out.data(), words, rows, nullptr}, 0, 0, words);
  });
  return double(rows) * double(inner) * 64.0 * double(words) / seconds;
}

/// Operations of the emulated product; 0 where dense has none.
template <class B>
double integer_rate(const Context<B>& c) {
  if (std::is_same_v<B, Cpu> || !dense::emulated::available(B{})) return 0;
  const dense::emulated::Shape shape{8192, 8192, 1024, 14};
  const Buffer<double, B> a(shape.m * shape.n), left(shape.m * shape.k), right(shape.k * shape.n);
  const Buffer<std::byte, B> workspace(dense::emulated::workspace_bytes(B{}, shape));
  for (const auto* buffer : {&a, &left, &right}) fill_zero(c.ahead, buffer->view());
  const double seconds = each(c, [&] {
    dense::emulated::set_left<B>(c.ahead, shape, left.view(), shape.m, workspace.view());
    dense::emulated::subtract_product<B>(c.ahead, shape, right.view(), shape.n, a.view(), shape.n,
                                         workspace.view());
  });
  return 2.0 * double(shape.m) * double(shape.n) * double(shape.k) * shape.moduli / seconds;
}

/// A matrix through the program's own writing and reading, from the page cache.
void measure_files(const Control& control, const std::string& folder, Rates& rates) {
  const std::string file =
      control.broadcast(fmt::format("{}/terrace-profile-{}.h5", folder, getpid()), 0);
  const Removed removed{control, file, false};
  const Index rows = 32768, columns = 4096;  // 1 GiB
  const double bytes = 8 * double(rows) * double(columns) / control.size();
  const auto own = contiguous(rows, control.size()).ranges(control.rank());
  double start = wall();
  io::Output output(control, file, true);
  output.write<double>("A", rows, columns, own, [&](Index, Index count, double* out) {
    std::fill_n(out, count * columns, 1.0);
  });
  output.commit({});
  rates[Rate::file_write] = bytes / control.reduce(wall() - start, Reduce::max);
  const io::DenseInput input = io::open_dense(control, io::parse_location(file + ":/A"));
  for (int i = 0; i < 3; ++i) {
    control.barrier();
    start = wall();
    input.read(control, own, [](Index, Index, const double*) {});
    const double rate = bytes / control.reduce(wall() - start, Reduce::max);
    rates[Rate::file_read] = std::max(rates[Rate::file_read], rate);
  }
}

template <class B>
void measure_exchange(const Context<B>& c, Rates& rates) {
  const Buffer<double, B> one(1), many(Index(1) << 20);
  fill_zero(c.ahead, one.view());
  fill_zero(c.ahead, many.view());
  rates[Rate::launch] = 1 / each(c, [&] { fill_zero(c.ahead, one.view()); });
  if (c.size() == 1) return;
  const auto broadcast = [&](const Buffer<double, B>& numbers) {
    return [&c, &numbers] { c.comm.template broadcast<double>(c.ahead, 0, numbers.view()); };
  };
  rates[Rate::message] = 1 / each(c, broadcast(one));
  rates[Rate::exchange] = 8 * double(many.size()) / each(c, broadcast(many));
}

template <class B>
Rates measure_rates(const Context<B>& c, const std::string& folder) {
  Rates rates;
  rates[Rate::product] = 1e9 * dgemm_rate(c.ahead);
  rates[Rate::memory] = 1e9 * read_rate(c.ahead);
  rates[Rate::bits] = bit_rate(c, {});
  rates[Rate::tables] = bit_rate(c, {.tables = true});
  rates[Rate::integers] = integer_rate(c);
  if (std::is_same_v<B, Cuda>) {
    const CopyRates copies = copy_rates(c.ahead, c.bulk, Index(512) << 20);
    rates[Rate::to_device] = 1e9 * copies.to_device;
    rates[Rate::to_host] = 1e9 * copies.to_host;
  }
  measure_exchange(c, rates);
  measure_files(c.control, folder, rates);
  for (double& rate : rates.per_second) rate = c.control.reduce(rate, Reduce::min);
  return rates;
}

struct ProfileOptions {
  std::string folder = ".";
};

void bench_profile(Run& run, const ProfileOptions& options) {
  const double entry = wall();
  run.report["method"] = "profile";
  with_backend(run, [&]<class B>(Context<B>& c) {
    const double begin =
        run.control.reduce(std::max(wall() - entry, process_seconds()), Reduce::max);
    const std::string machine = machine_name(c, c.size());
    run.say(fmt::format("raw rates per rank: {}", machine));
    Rates rates = measure_rates(c, options.folder);
    constexpr double end =
        std::is_same_v<B, Cuda> ? 0.15 : 0.01;  // of CUDA: jobs/results/whole-runs.md
    rates[Rate::start] = 1 / (begin + end);
    nlohmann::json measured;
    for (int r = 0; r < int(Rate::second); ++r) {
      const double value = rates[Rate(r)];
      if (!(value > 0)) continue;
      measured[name_of(Rate(r))] = {{"value", value}, {"unit", unit_of(Rate(r))}};
      run.say(fmt::format("{:<12}{:>10.3g} {}", name_of(Rate(r)), value, unit_of(Rate(r))));
    }
    save_rates(c, measured);
    run.report["result"] = {{"machine", machine}, {"rates", measured}, {"file", profile_path()}};
    run.say(fmt::format("{:.1f} s, stored in {}", wall() - entry, profile_path()));
  });
}

}  // namespace

void add_bench_profile(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* command =
      add_command(bench, selected,
                  {"profile", "Measure the rates of this machine for --plan, about ten seconds",
                   "terrace bench profile",
                   usual_options + "--backend=auto,cpu,cuda --oversubscribe --no-bind"},
                  [options](Run& run, const CLI::App&) { bench_profile(run, *options); });
  command->add_option("--folder", options->folder, "Where a file of 1 GiB is written and read");
}

}  // namespace terrace
