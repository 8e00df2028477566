// terrace bench io: the input classes beside the raw parallel read rate of the same file, cold and
// from the page cache.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "io/sample.hpp"
#include "kernels/base/clock.hpp"
#include "src/bench/bench.hpp"

namespace terrace {
namespace {

struct IoBench : BenchOptions {
  double gib = 0.25;
  std::string folder = ".";
  std::vector<std::string> layouts;
  bool keep = false, warm = false;
};

/// Counts the rows that came, and looks at some elements of each.
struct Look {
  Index items = 0, wrong = 0;
};

class IoRun {
 public:
  IoRun(Run& run, const IoBench& options, const io::Sample& sample)
      : run_(run), options_(options), sample_(sample), control_(run.control) {
    const auto& l = sample.layout;
    if (l == "band" || l == "band-upper") {
      band_ = io::open_band(control_, sample.location);
      read_ = [this](std::span<const Range> ranges, Look& look) { read_band(ranges, look); };
    } else if (l == "words" || l == "bytes" || l == "plain") {
      bits_ = io::open_bits(control_, sample.location);
      read_ = [this](std::span<const Range> ranges, Look& look) { read_bits(ranges, look); };
    } else {
      dense_ = io::open_dense(control_, sample.location);
      read_ = [this](std::span<const Range> ranges, Look& look) { read_dense(ranges, look); };
    }
    items_ = band_.n() > 0 ? sample.columns : sample.rows;
  }

  void measure(bool cold) {
    const double gb = double(sample_.bytes) * 1e-9;
    const bool inflates = sample_.layout == "gzip";
    std::vector<double> floor;
    const auto raw = [&](const auto& once) {
      floor.clear();
      for (Index k = 0; k < options_.repeat + (cold ? 0 : 1); ++k) {
        if (cold) io::drop_cache(control_, sample_.location.file);
        control_.barrier();
        const double mine = once();
        const double slowest = control_.reduce(mine, Reduce::max);
        if (cold || k > 0) floor.push_back(slowest);  // the first warms the cache
      }
      return median(floor);
    };
    double seconds = raw([&] { return io::raw_read_seconds(control_, sample_.location.file); });
    const char* bound = cold ? "raw read, cold" : "raw read, warm";
    if (inflates) {
      const double inflating = raw([&] { return io::raw_inflate_seconds(control_, sample_); });
      if (inflating > seconds) {
        seconds = inflating;
        bound = cold ? "inflating, cold" : "inflating, warm";
      }
    }
    for (const bool cyclic : {false, true}) {
      const BlockCyclic deal =
          cyclic ? BlockCyclic{items_, band_.n() > 0 ? Index(256) : Index(64), control_.size()}
                 : contiguous(items_, control_.size());
      const auto ranges = deal.ranges(control_.rank());
      Look look;
      BenchRun line;
      line.sizes = {{"layout", sample_.layout},
                    {"rows", sample_.rows},
                    {"columns", sample_.columns},
                    {"slices", cyclic ? "block-cyclic" : "contiguous"},
                    {"cache", cold ? "cold" : "warm"}};
      line.who = "terrace";
      line.work = gb;
      line.unit = "GB/s";
      line.bound_name = bound;
      line.bound = gb / seconds;
      line.warm_up = !cold;
      line.measure = [&] {
        if (cold) io::drop_cache(control_, sample_.location.file);
        control_.barrier();
        look = {};
        return seconds_of([&] { read_(ranges, look); });
      };
      line.certificate = [&] {
        const bool whole = look.items == deal.slots(control_.rank()) && look.wrong == 0;
        return control_.reduce(Index(whole), Reduce::min) == 1 ? "passed" : "failed: wrong values";
      };
      line.spoil = [&](double) { ++look.wrong; };
      bench_run(run_, options_, line);
    }
  }

 private:
  /// Calls look(global item, data) for a piece's items.
  template <class T, class F>
  io::Sink<T> walk(std::span<const Range> ranges, Index width, Look& look, const F& good) {
    return [=, &look, range = std::size_t(0), before = Index(0)](Index position, Index count,
                                                                 const T* data) mutable {
      for (Index k = 0; k < count; ++k) {
        while (position + k >= before + ranges[range].count) before += ranges[range++].count;
        if (position + k != look.items++) ++look.wrong;
        if (!good(ranges[range].first + position + k - before, data + k * width)) ++look.wrong;
      }
    };
  }
  void read_dense(std::span<const Range> ranges, Look& look) {
    const Index n = dense_.columns();
    dense_.read(control_, ranges, walk<double>(ranges, n, look, [n](Index i, const double* row) {
                  const Index j = i * 7 % n;
                  return row[0] == io::sample_value(i, 0) && row[j] == io::sample_value(i, j) &&
                         row[n - 1] == io::sample_value(i, n - 1);
                }));
  }
  void read_band(std::span<const Range> ranges, Look& look) {
    const Index n = band_.n(), height = band_.half_bandwidth() + 1;
    band_.read(control_, ranges,
               walk<double>(ranges, height, look, [n, height](Index j, const double* column) {
                 const auto at = [&](Index d) {
                   return column[d] == (j + d < n ? io::sample_value(j + d, j) : 0.0);
                 };
                 return at(0) && at(j % height) && at(height - 1);
               }));
  }
  void read_bits(std::span<const Range> ranges, Look& look) {
    const Index n = bits_.columns();
    bits_.read(control_, ranges,
               walk<Word>(ranges, bits_.words(), look, [n](Index i, const Word* row) {
                 const Index j = i * 7 % n;
                 return (row[j / 64] >> (j % 64) & 1) == Word(io::sample_bit(i, j)) &&
                        (row[(n - 1) / 64] >> ((n - 1) % 64) & 1) == Word(io::sample_bit(i, n - 1));
               }));
  }

  Run& run_;
  const IoBench& options_;
  const io::Sample& sample_;
  const Control& control_;
  io::DenseInput dense_;
  io::BandInput band_;
  io::BitInput bits_;
  Index items_ = 0;
  std::function<void(std::span<const Range>, Look&)> read_;
};

void bench_io(Run& run, const IoBench& options) {
  const auto& all = io::sample_layouts();
  const auto& layouts = options.layouts.empty() ? all : options.layouts;
  for (const std::string& layout : layouts)
    if (std::find(all.begin(), all.end(), layout) == all.end())
      fail_together(Exit::usage, "unknown layout '" + layout + "'; --layout; see bench io --help");
  const auto bytes = Index(options.gib * 1073741824.0);
  run.report["gib"] = options.gib;
  for (const std::string& layout : layouts) {
    const std::string name = run.control.broadcast(
        fmt::format("{}/terrace-io-{}-{}.h5", options.folder, layout, getpid()), 0);
    const Removed removed{run.control, name, options.keep};
    const io::Sample sample = io::write_sample(run.control, name, layout, bytes);
    IoRun measured(run, options, sample);
    if (!options.warm) measured.measure(true);
    measured.measure(false);
    run.control.barrier();
  }
}

}  // namespace

void add_bench_io(CLI::App& bench, Selected& selected) {
  auto options = std::make_shared<IoBench>();
  CLI::App* command = add_command(
      bench, selected,
      {"io", "Reading matrices, compared with the raw read rate of the same file",
       "terrace bench io --gib 1 --layout chunked", usual_options + "--check=auto,none --no-check"},
      [options](Run& run, const CLI::App&) { bench_io(run, *options); });
  command->add_option("--gib", options->gib, "Size of a test file, in GiB")
      ->check(CLI::Range(1e-4, 1e5));
  command->add_option("--file-dir", options->folder,
                      "Folder for the test files (default: the current one)");
  command
      ->add_option("--layout", options->layouts,
                   "contiguous, chunked, gzip, column-major, band, band-upper, float32, int32, "
                   "words, bytes, plain; comma-separated (default: all)")
      ->delimiter(',');
  command->add_option("--repeat", options->repeat, "Measured runs; the median is reported")
      ->check(positive());
  command->add_flag("--keep", options->keep, "Keep the test files");
  command->add_flag("--warm", options->warm, "From the page cache only");
}

}  // namespace terrace
