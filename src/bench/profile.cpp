// terrace bench --profile: what this machine needs for each amount of work, for --plan.
//
// The calibration solves are the program's own commands on generated files, small ones first, each
// family and method as long as its share of the time lasts; their phases are what the rates of
// src/program/predict.hpp are fitted to. One rank solves each in a process of its own, as users do:
// memory and libraries that are new to a process cost it time in every phase.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/rates.hpp"
#include "kernels/gf2/bits.hpp"
#include "src/bench/bench.hpp"
#include "src/bench/fresh.hpp"
#include "src/gf2/plan.hpp"
#include "src/program/plan.hpp"
#include "src/program/profile.hpp"

namespace terrace {

namespace {

using Clock = std::chrono::steady_clock;
double wall() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

using Words = std::vector<std::string>;

Words split(const std::string& line) {
  Words words;
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

struct Done {
  nlohmann::json report, work;
};

const std::string& alike() {
  static const std::string options = " --quiet --force --progress never";
  return options;
}

/// The command as the program would run it; its report. Throws as it does.
Done run_command(const Run& outer, const std::string& line) {
  CLI::App app("terrace", "terrace");
  app.require_subcommand(1);
  Selected selected;
  add_gf2_commands(app, selected);
  add_band_commands(app, selected);
  add_dense_commands(app, selected);
  add_cg_command(app, selected);
  add_generate_commands(app, selected);
  Words words = split(line + alike());
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  app.parse(words);
  Run inner(outer.control, selected.options, selected.command, "terrace " + line);
  selected.action(inner);
  return {inner.report, inner.work};
}

/// The same in a process of its own. Throws where the command's outcome is not an answer; null
/// where such a process does not get that far, here and now.
std::optional<Done> run_apart(const Run& outer, const std::string& line,
                              const std::string& report_file) {
  const FreshRun fresh = run_fresh(split(line + alike()), report_file);
  if (fresh.code == int(Exit::outcome)) fail_together(Exit::outcome, "no answer; " + line);
  if (fresh.code != 0 || !fresh.report.contains("seconds")) return std::nullopt;
  return Done{fresh.report, run_command(outer, line + " --plan").work};
}

/// One family or method: its problems by size, 0, 1, 2, ..., each with about twice the work.
struct Problem {
  std::string generate, solve;  ///< IN and OUT stand for the files
};
struct Series {
  std::string name;
  std::function<Problem(int size)> problem;
  double share = 1;  ///< of the time
  int step = 1;      ///< between sizes: a GPU must get beyond its latencies
};

Index even(double value, Index multiple) {
  return std::max<Index>(multiple, Index(std::llround(value / double(multiple))) * multiple);
}
/// Growth of an order when the work, its third power (or `power`), doubles.
double grown(double first, int size, double power = 3) {
  return first * std::pow(2.0, double(size) / power);
}

std::vector<Series> all_series(bool device, int ranks) {
  std::vector<Series> list;
  const double dense = device ? 2048 : 360, bits = device ? 8192 : 2048;
  const std::string backend = device ? " --backend cuda" : " --backend cpu";
  const auto add = [&](const std::string& name, double share, std::function<Problem(int)> make) {
    list.push_back({name,
                    [make, backend](int size) {
                      Problem p = make(size);
                      p.solve += backend;
                      return p;
                    },
                    share,
                    !device || name.rfind("band", 0) == 0 ? 1
                    : name.rfind("cg", 0) == 0            ? 2
                                                          : 3});
  };
  const auto dense_series = [&](const std::string& command, const std::string& more, double share) {
    add("dense " + command + more, share, [=](int size) {
      const Index n = even(grown(dense, size), 8);
      return Problem{fmt::format("generate dense-random --n {} --rhs 1 -o IN", n),
                     "dense " + command + (command == "solve" ? " IN:/A --rhs :/b" : " IN:/A") +
                         " -o OUT" + more};
    });
  };
  dense_series("invert", "", 2);
  dense_series("solve", "", 1.5);
  if (device) dense_series("invert", " --precision emulated", 1.5);
  if (device) dense_series("solve", " --precision emulated", 1);
  for (const char* command : {"rref", "rank", "solve", "kernel", "inverse"})
    add(std::string("gf2 ") + command, 1.2, [=, name = std::string(command)](int size) {
      const Index n = even(grown(bits, size), 64);
      const Index columns = name == "kernel" ? n + n / 4 : n;
      return Problem{
          fmt::format("generate gf2-random --rows {} --columns {} --rhs 64 -o IN", n, columns),
          "gf2 " + name + (name == "solve" ? " IN:/A --rhs :/b" : " IN:/A") + " -o OUT"};
    });
  add("gf2 multiply", 1, [=](int size) {
    const Index n = even(grown(bits, size), 64);
    return Problem{fmt::format("generate gf2-random --rows {} -o IN", n),
                   "gf2 multiply IN:/A :/A -o OUT"};
  });
  // Half-bandwidths by turns, each again with four times the rows.
  const auto band_series = [&](const std::string& command, const std::string& more, double share) {
    add("band " + command + more, share, [=](int size) {
      const Index m =
          std::vector<Index>{64, 192, 512, 1024, 1536}[std::size_t(size % 5)] * (device ? 2 : 1);
      const double rows = (device ? 60000.0 : 3000.0) * std::pow(2.5, size / 5) *
                          (m < 200   ? 3.0
                           : m > 700 ? 0.6
                                     : 1.0);
      return Problem{
          fmt::format("generate band-spd --n {} --half-bandwidth {} --rhs 1 -o IN", Index(rows), m),
          "band " + command + (command == "solve" ? " IN:/A --rhs :/b -o OUT" : " IN:/A -o OUT") +
              more};
    });
  };
  band_series("solve", device ? "" : " --method tile-columns", 2);
  band_series("factor", "", 1.5);
  if (device) {
    if (ranks > 1) band_series("solve", " --method tile-columns", 1.5);
    band_series("solve", " --method two-ends", 1.5);
    band_series("solve", " --method partition", 1);
  }
  if (ranks == 1) {
    band_series("solve", " --method streamed", 1);
    if (device) band_series("solve", " --precision mixed", 1);
  }
  const auto cg_series = [&](const std::string& form, const std::string& more, double share) {
    add("cg " + form + more, share, [=](int size) {
      std::string make;
      if (form == "dense")
        make =
            fmt::format("dense-spd --n {} --rhs 1", even(grown(device ? 4096 : 512, size, 2), 8));
      else if (form == "band")
        // By turns with many iterations and with few, which tell the set-up apart.
        make = fmt::format("band-spd --n {} --half-bandwidth {} --rhs 1{}",
                           Index(grown(device ? 400000 : 10000, size, device ? 2 : 1)),
                           20 + 60 * (size / (device ? 2 : 1) % 2),
                           size / (device ? 2 : 1) % 2 == 0 ? " --condition 100" : "");
      else
        make = fmt::format("csr-laplace --dim 2 --points {} --rhs 1",
                           even(grown(device ? 400 : 64, size, 3), 4));
      return Problem{
          "generate " + make + " -o IN",
          "cg IN:/A --rhs :/b -o OUT" + std::string(form == "csr" ? " --rtol 1e-8" : "") + more};
    });
  };
  cg_series("dense", "", 1.5);
  cg_series("dense", " --layout rows", 1);
  cg_series("band", "", 1);
  cg_series("csr", "", 1);
  for (const char* preconditioner : {"jacobi", "block-jacobi", "ic", "chebyshev"})
    cg_series("csr", std::string(" --preconditioner ") + preconditioner, 0.4);
  cg_series("csr", " --method single-reduction", 0.3);
  cg_series("csr", " --method pipelined", 0.3);
  return list;
}

const std::vector<std::string>& phases() {
  static const std::vector<std::string> names{"read", "solve", "check", "write"};
  return names;
}

/// Samples of a series by model and phase.
using Samples = std::map<std::string, std::map<std::string, std::vector<Sample>>>;

/// The family of a model: its first word.
std::string family_of(const std::string& model) { return model.substr(0, model.find(' ')); }

/// What first solves took longer than their repetitions, by family: the most.
using FirstSolves = std::map<std::string, double>;

void note_first(FirstSolves& first, const std::vector<Done>& runs) {
  const auto solve = [](const Done& run) { return run.report["seconds"].value("solve", 0.0); };
  if (runs.size() < 2) return;
  double least = solve(runs.front());
  for (const Done& run : runs) least = std::min(least, solve(run));
  // Every kernel is loaded when it is first launched: the largest of the family's first times.
  double& known = first[family_of(runs.front().work.value("model", ""))];
  known = std::max(known, solve(runs.front()) - least);
}

void note_samples(Samples& samples, const std::vector<Done>& runs) {
  const Work work = [&] {
    Work w = Work::from(runs.front().work);
    const nlohmann::json& result = runs.front().report["result"];
    if (!w.iteration.empty()) {
      double steps = result.value("iterations", 0.0);
      w.iterations = steps;
    }
    return w;
  }();
  for (const std::string& phase : phases()) {
    Sample sample;
    std::vector<double> seconds;
    for (const Done& run : runs) seconds.push_back(run.report["seconds"].value(phase, 0.0));
    std::sort(seconds.begin(), seconds.end());
    sample.seconds = seconds[(seconds.size() - 1) / 2];
    sample.amounts = phase == "read"    ? work.read
                     : phase == "solve" ? work.solve
                     : phase == "check" ? work.check
                                        : work.write;
    if (phase == "solve")
      for (const auto& [name, value] : work.iteration)
        sample.amounts.emplace_back(name, value * work.iterations);
    samples[work.model][phase].push_back(sample);
  }
}

/// What runs took beside their phases, by family: opening files, taking memory.
using Besides = std::map<std::string, std::vector<double>>;

void note_beside(Besides& besides, const Done& run, double seconds) {
  for (const std::string& phase : phases()) seconds -= run.report["seconds"].value(phase, 0.0);
  besides[family_of(run.work.value("model", ""))].push_back(std::max(0.0, seconds));
}

/// Solves larger and larger problems while the time lasts, apart in processes of their own until
/// one of them cannot be had. Collective: the clock is rank 0's.
void measure_series(Run& run, const Series& series, double budget, const std::string& folder,
                    bool& apart, Samples& samples, FirstSolves& first, Besides& besides) {
  const std::string in = folder + "/in.h5", out = folder + "/out.h5";
  const auto with_files = [&](const std::string& line) {
    std::string full;
    for (std::size_t i = 0; i < line.size();) {
      const bool is_in = line.compare(i, 2, "IN") == 0, is_out = line.compare(i, 3, "OUT") == 0;
      full += is_in ? in : is_out ? out : line.substr(i, 1);
      i += is_in ? 2 : is_out ? 3 : 1;
    }
    return full;
  };
  const double start = wall();
  double last = 0, before = 0;
  int count = 0;
  std::string note;
  const int step = series.step;
  for (int size = 0; size < 60; size += step) {
    double spent = run.control.reduce(wall() - start, Reduce::max);
    if (count >= 3 && spent + (step > 1 ? 3 : 2.2) * std::max(last, before) > budget) break;
    if (count >= 1 && spent > 1.5 * budget) break;
    const double begin = wall();
    const Problem problem = series.problem(size);
    // A random matrix may have no inverse: then others.
    for (int seed = 1; seed <= 12; ++seed) try {
        run_command(run, with_files(problem.generate) + fmt::format(" --seed {}", seed));
        std::vector<Done> runs;
        double once = 0;
        do {
          const double one = wall();
          std::optional<Done> done;
          if (apart) done = run_apart(run, with_files(problem.solve), folder + "/report.json");
          apart = done.has_value() || (apart && !besides.empty());  // else: its own fault
          if (!done) done = run_command(run, with_files(problem.solve));
          once = run.control.reduce(wall() - one, Reduce::max);
          note_beside(besides, *done, apart ? done->report["seconds"].value("total", 0.0) : once);
          runs.push_back(std::move(*done));
        } while (runs.size() < 3 && once < 0.06 * budget);
        if (!apart) note_first(first, runs);
        note_samples(samples, runs);
        ++count;
        note.clear();
        break;
      } catch (const Error& e) {
        if (!e.agreed() || e.code() == Exit::internal || e.code() == Exit::fault) throw;
        note = e.what();
        if (e.code() != Exit::outcome) break;
      }
    if (!note.empty()) break;
    before = last;
    last = run.control.reduce(wall() - begin, Reduce::max);
  }
  run.say(fmt::format("{:<44} {:3} sizes, {:6.2f} s{}", series.name, count, wall() - start,
                      note.empty() ? "" : "  (" + note.substr(0, note.find(';')) + ")"));
}

// --- raw rates -----------------------------------------------------------------------------------

/// Seconds of one of `count` calls, after one that is not counted; the slowest rank's.
template <class B, class Work>
double each(const Context<B>& c, int count, Work&& work) {
  work();
  c.ahead.synchronize();
  c.control.barrier();
  const double start = wall();
  for (int i = 0; i < count; ++i) work();
  c.ahead.synchronize();
  return c.control.reduce((wall() - start) / count, Reduce::max);
}

template <class B>
nlohmann::json raw_rates(Run& run, Context<B>& c) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  nlohmann::json rates;
  const auto least = [&](double value) { return c.control.reduce(value, Reduce::min); };
  for (const Index n :
       device ? std::vector<Index>{512, 2048, 8192} : std::vector<Index>{128, 512, 1024})
    rates["gemm_gflops"].push_back({n, least(dgemm_rate(c.ahead, n))});
  rates["memory_read_gb_per_s"] = least(read_rate(c.ahead));
  const CopyRates copies = copy_rates(c.ahead, c.bulk, Index(device ? 512 : 64) << 20);
  rates["copies_gb_per_s"] = {least(copies.to_device), least(copies.to_host),
                              least(copies.to_device_alone)};
  // Update over GF(2): rows x inner bits times inner rows of some words.
  const Index rows = device ? 32768 : 4096, inner = 512;
  for (const Index words : {Index(64), Index(device ? 512 : 256)}) {
    const Buffer<Word, B> out(rows * words), left(rows * inner / 64), right(inner * words);
    for (const auto* buffer : {&out, &left, &right}) fill_zero(c.ahead, buffer->view());
    const double seconds = each(c, 3, [&] {
      combine(c.ahead, BitRows<Word, B>{out.data(), words, rows, nullptr},
              BitRows<const Word, B>{left.data(), inner / 64, rows, nullptr},
              BitRows<const Word, B>{right.data(), words, inner, nullptr}, 0, 0, words, {});
    });
    rates["gf2_bit_macs_per_s"].push_back(
        {words, double(rows) * double(inner) * 64.0 * double(words) / seconds});
  }
  const Buffer<double, B> some(1), large(Index(1) << 20), all((Index(1) << 20) * c.size());
  fill_zero(c.ahead, some.view());
  fill_zero(c.ahead, large.view());
  rates["launch_seconds"] = each(c, 200, [&] { fill_zero(c.ahead, some.view()); });
  rates["synchronize_seconds"] = each(c, 50, [&] {
    fill_zero(c.ahead, some.view());
    c.ahead.synchronize();
  });
  if (c.size() > 1) {
    const double megabytes = 8e-6 * double(Index(1) << 20);
    const auto collective = [&](const char* name, auto&& call) {
      const double small = each(c, 50, [&] { call(some); });
      const double big = each(c, 4, [&] { call(large); });
      rates[name] = {{"latency_seconds", small}, {"gb_per_s", 1e-3 * megabytes / big}};
    };
    collective("all_reduce", [&](const Buffer<double, B>& data) {
      c.comm.template all_reduce<double>(c.ahead, Reduce::sum, data.view());
    });
    collective("broadcast", [&](const Buffer<double, B>& data) {
      c.comm.template broadcast<double>(c.ahead, 0, data.view());
    });
    collective("all_gather", [&](const Buffer<double, B>& data) {
      c.comm.template all_gather<double>(c.ahead, data.view(),
                                         all.view().slice(0, data.size() * c.size()));
    });
  }
  run.say("raw rates: " + rates.dump());
  return rates;
}

/// How far the fitted rates are from what was measured, root mean square of the relative errors.
double misfit(const std::vector<Sample>& samples, const nlohmann::json& rates) {
  double sum = 0;
  int count = 0;
  for (const Sample& sample : samples) {
    if (sample.seconds < 2e-3) continue;
    double seconds = 0;
    for (const auto& [name, value] : sample.amounts) seconds += value * rates.value(name, 0.0);
    const double error = seconds / sample.seconds - 1;
    sum += error * error;
    ++count;
  }
  return count > 0 ? std::sqrt(sum / count) : 0;
}

struct ProfileOptions {
  bool profile = false;
  double seconds = 120;
  std::string folder = ".", only;
};

/// A folder of its own, gone at the end.
class Folder {
 public:
  Folder(const Control& control, const std::string& inside) : control_(control) {
    std::string path;
    if (control.rank() == 0) {
      path = (std::filesystem::path(inside) / "terrace-profile-XXXXXX").string();
      if (!mkdtemp(path.data())) path.clear();
    }
    path_ = control.broadcast(path, 0);
    if (path_.empty())
      fail_together(Exit::resources, "no folder can be made for the calibration files; " + inside +
                                         "; name a writable one with --folder");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (control_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const Control& control_;
  std::string path_;
};

void bench_profile(Run& run, const ProfileOptions& options) {
  std::string machine;
  nlohmann::json rates, models;
  bool device = false;
  run.report["method"] = "profile";
  const double entry = wall();
  double begin = 0;
  bool apart = run.control.size() == 1;
  with_backend(run, [&]<class B>(Context<B>& c) {
    begin = run.control.reduce(wall() - entry, Reduce::max);  // as every run of this machine
    machine = machine_name(c, c.size());
    device = std::is_same_v<B, Cuda>;
    run.say("machine: " + machine);
    models = load_profile(c.control, machine, "models");  // --only keeps the others
  });
  const Folder folder(run.control, options.folder);
  std::vector<Series> list = all_series(device, run.control.size());
  std::erase_if(list,
                [&](const Series& s) { return s.name.find(options.only) == std::string::npos; });
  double shares = 0;
  for (const Series& series : list) shares += series.share;
  Samples samples;
  FirstSolves first;
  Besides besides;
  const double start = wall();
  for (const Series& series : list) {
    const double budget = run.control.reduce(options.seconds * series.share / shares, Reduce::max);
    measure_series(run, series, budget, folder.path(), apart, samples, first, besides);
  }
  if (apart) begin = 0;  // is in their totals
  // After the solves, the first of which start the libraries.
  if (options.only.empty())
    with_backend(run, [&]<class B>(Context<B>& c) { rates = raw_rates(run, c); });
  Samples shared;  // by who shares the rates of a phase
  for (const auto& [model, by_phase] : samples)
    for (const auto& [phase, list_of] : by_phase) {
      std::vector<Sample>& all = shared[rates_shared_by(model, phase)][phase];
      all.insert(all.end(), list_of.begin(), list_of.end());
    }
  for (const auto& [model, by_phase] : samples) {
    nlohmann::json fitted;
    double off = 0, largest = 0;
    for (const auto& [phase, list_of] : by_phase) {
      fitted[phase] =
          fit_rates(shared[rates_shared_by(model, phase)][phase],
                    phase == "solve" ? solve_floor(model, rates) : nlohmann::json::object());
      if (phase == "solve") {
        off = misfit(list_of, fitted[phase]);
        for (const Sample& sample : list_of) largest = std::max(largest, sample.seconds);
      }
    }
    fitted["first"] = run.control.reduce(first[family_of(model)], Reduce::max);
    std::vector<double>& beside = besides[family_of(model)];
    fitted["begin"] = begin + median(beside);
    fitted["samples"] = Index(by_phase.begin()->second.size());
    fitted["solve_misfit"] = off;
    fitted["longest_solve_seconds"] = largest;
    models[model] = fitted;
    run.say(fmt::format("{:<52} solve fitted within {:.0f} %, longest {:.3g} s", model, 100 * off,
                        largest));
  }
  save_profile(run.control, machine, "models", models);
  if (!rates.is_null()) save_profile(run.control, machine, "rates", rates);
  run.report["result"] = {
      {"machine", machine}, {"models", models}, {"rates", rates}, {"file", profile_path()}};
  run.say(fmt::format("{} models in {:.1f} s, stored in {}", samples.size(), wall() - start,
                      profile_path()));
}

}  // namespace

void add_bench_profile(CLI::App& bench, Selected& selected) {
  const auto options = std::make_shared<ProfileOptions>();
  const auto action = [&bench, &selected, options] {
    selected.command = "bench profile";
    const CLI::App* given = bench.get_subcommands().empty() ? &bench : bench.get_subcommands()[0];
    selected.action = [options, given](Run& run) {
      require_no_others(run, *given, {"--method", "--block", "--seed", "--no-check"});
      bench_profile(run, *options);
    };
  };
  const auto add = [&](CLI::App& command) {
    command.add_option("--seconds", options->seconds, "Of calibration solves, about")
        ->check(positive())
        ->capture_default_str();
    command.add_option("--folder", options->folder, "Where their files are put")
        ->capture_default_str();
    command.add_option("--only", options->only, "Series whose name holds this word");
    add_common_options(command, selected.options);
  };
  CLI::App* command =
      bench.add_subcommand("profile", "Measure this machine for --plan, about two minutes");
  add(*command);
  command->callback(action);
  // The same as an option: terrace bench --profile.
  bench.add_flag("--profile", options->profile,
                 "Measure this machine for --plan, about two minutes");
  add(bench);
  bench.callback([&bench, options, action] {
    if (!bench.get_subcommands().empty()) {
      if (options->profile)
        fail_together(Exit::usage,
                      "--profile measures all families; terrace bench; leave the family out");
      return;
    }
    if (!options->profile)
      fail_together(Exit::usage, "bench needs a family or --profile; see terrace bench --help");
    action();
  });
}

}  // namespace terrace
