// terrace band factor, terrace band solve.
#include <fmt/core.h>

#include "io/input.hpp"
#include "src/band_hybrid.hpp"
#include "src/commands.hpp"

namespace terrace {
namespace {

constexpr double kPass = 30.0;  // LAPACK's threshold for residual ratios

struct BandOptions {
  std::string matrix, rhs, factor;
  BandPlaces places;
};

std::string size_text(Index bytes) {
  return bytes < Index(1) << 30 ? fmt::format("{:.1f} MiB", double(bytes) / 1048576.0)
                                : fmt::format("{:.2f} GiB", double(bytes) / 1073741824.0);
}

/// Columns of the file, straight into memory of the backend.
template <class B>
BandSource<B> file_source(const io::BandInput& input) {
  return [&input](Context<B>& c, Range columns, Index height, View<double, B> to) {
    const Index stored = input.half_bandwidth() + 1;
    input.read(c.control, {&columns, 1}, [&](Index position, Index count, const double* data) {
      copy_rows<double, B>(c.ahead, to.data + position * height, height, data, stored, height,
                           count);
      c.ahead.synchronize();
    });
  };
}

/// Own tile columns from a file in the matrix's layout.
template <class B>
void read_tiles(Context<B>& c, const io::BandInput& input, BandTiles<B>& a) {
  const BandShape& s = a.shape;
  const std::vector<Range> ranges = BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank());
  const Index stored = input.half_bandwidth() + 1, height = s.half_bandwidth + 1;
  input.read(c.control, ranges, [&](Index position, Index count, const double* data) {
    copy_rows<double, B>(c.ahead, a.data.data() + position * s.column(), s.column(), data, stored,
                         height, count);
    c.ahead.synchronize();
  });
}

/// Own rows of the right-hand sides, slots x nrhs.
std::vector<double> read_rows(const Control& control, const io::DenseInput& input,
                              const BandShape& s) {
  const BlockCyclic rows{s.n, s.width, control.size()};
  const BlockCyclic padded{s.padded(), s.width, control.size()};
  const Index nrhs = input.columns();
  std::vector<double> b = collectively(control, [&] {
    return std::vector<double>(std::size_t(padded.slots(control.rank()) * nrhs), 0.0);
  });
  input.read(control, rows.ranges(control.rank()),
             [&](Index position, Index count, const double* data) {
               std::copy(data, data + count * nrhs, b.begin() + position * nrhs);
             });
  return b;
}

/// What both commands do alike on one backend.
template <class B>
class BandRun {
 public:
  BandRun(Run& run, Context<B>& context, const io::BandInput& input, Index nrhs)
      : run_(run),
        c_(context),
        input_(input),
        shape_(band_shape(input.n(), input.half_bandwidth(),
                          band_width(B{}, input.half_bandwidth(), run.options.block))),
        problem_{shape_.n, shape_.half_bandwidth, file_source<B>(input)} {
    run.report["n"] = shape_.n;
    run.report["half_bandwidth"] = input.half_bandwidth();
    run.report["method"] = "tile-columns";
    run.report["block"] = shape_.width;
    const BandMemory memory = band_memory(shape_, nrhs, c_.size(), !run.options.no_check);
    const Index rows = 2 * ceil_div(shape_.tiles(), c_.size()) * shape_.width * nrhs;  // x and b
    host_ = rows * Index(sizeof(double)) + 3 * io::piece_bytes();
    device_ = memory.total();
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    if (run.options.plan) describe(memory, nrhs);
  }

  void require() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    tiles_ = collectively(c_.control, [&] { return band_tiles<B>(c_, shape_); });
  }

  /// tiles := the factor of the matrix.
  void factor(const BandPlaces& places = {}) {
    BandWork<B> work = collectively(c_.control, [&] { return BandWork<B>(shape_); });
    if (places.diagonal == "cpu" && std::is_same_v<B, Cuda>)
      work.host_diagonal = collectively(c_.control, [&] { return band_host_diagonal(shape_); });
    run_.phase("read", [&] { read_tiles(c_, input_, tiles_); });
    Index failed = 0;
    run_.phase("solve", [&] { failed = band_cholesky(c_, tiles_, work, run_.progress); });
    if (failed != 0) {
      run_.report["result"]["failed_minor"] = failed;
      run_.outcome("not positive definite",
                   fmt::format("the matrix is not positive definite: its leading minor of order {} "
                               "is not; {}; check the matrix, or shift its diagonal",
                               failed, io::to_string(input_.location())));
    }
  }

  void read_factor(const io::BandInput& stored) {
    run_.phase("read", [&] { read_tiles(c_, stored, tiles_); });
  }

  void judge(double residual) {
    run_.report["residual"] = residual;
    if (residual < kPass) return;
    run_.outcome("check failed",
                 fmt::format("the residual is {:.3g}, above {}; {}; the matrix may be too ill "
                             "conditioned, or the factor belongs to another matrix",
                             residual, kPass, io::to_string(input_.location())));
  }

  Run& run_;
  Context<B>& c_;
  const io::BandInput& input_;
  const BandShape shape_;
  const BandProblem<B> problem_;
  BandTiles<B> tiles_;

 private:
  void describe(const BandMemory& m, Index nrhs) {
    run_.say(fmt::format("band matrix n = {}, half-bandwidth = {}, {} right-hand sides", shape_.n,
                         input_.half_bandwidth(), nrhs));
    run_.say(fmt::format(
        "method tile-columns: {} tile columns of width {} dealt to {} ranks; the width {}",
        shape_.tiles(), shape_.width, c_.size(),
        run_.options.block > 0 ? "was asked for"
                               : "makes the update a matrix product of full rate while the chain "
                                 "of diagonal blocks stays short"));
    run_.say("one panel broadcast per tile column: " + size_text(m.panels / 2));
    run_.say(fmt::format(
        "memory per rank: {} on the backend (matrix {}, panels {}, right-hand sides {}, check {}), "
        "{} on the host for input and output",
        size_text(m.total()), size_text(m.matrix), size_text(m.panels), size_text(m.solution),
        size_text(m.check), size_text(host_)));
  }

  Index host_ = 0, device_ = 0;
};

void check_method(const Run& run) {
  if (!run.options.method.empty() && run.options.method != "tile-columns")
    fail_together(Exit::usage, "unknown method '" + run.options.method +
                                   "'; --method of band; leave it out or use tile-columns");
}

void band_factor(Run& run, const BandOptions& options) {
  check_method(run);
  require_output(run.options);
  const io::Location location = io::parse_location(options.matrix);
  const io::BandInput input = io::open_band(run.control, location);
  run.note_input("input", input.location());
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  with_backend(run, [&]<class B>(Context<B>& c) {
    BandRun<B> band(run, c, input, 0);
    if (run.options.plan) return;
    band.require();
    band.factor();
    const BandShape& s = band.shape_;
    const double flops = band_factor_flops(s.n, s.half_bandwidth);
    run.rate(flops * 1e-9 / run.seconds("solve"), "GFLOP/s");
    if (!run.options.no_check)
      run.phase("check", [&] {
        band.judge(band_factor_residual(c, band.problem_, band.tiles_, Word(run.options.seed)));
      });
    run.phase("write", [&] {
      const Index height = input.half_bandwidth() + 1;
      const std::vector<Range> ranges = BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank());
      const auto source = [&](Index position, Index count, double* out) {
        std::fill(out, out + count * height, 0.0);
        copy_rows<double, B>(c.ahead, out, height, band.tiles_.data.data() + position * s.column(),
                             s.column(), std::min(height, s.half_bandwidth + 1), count);
        c.ahead.synchronize();
      };
      const io::Attributes attributes{{"format", std::string("band")},
                                      {"uplo", std::string("lower")},
                                      {"content", std::string("Cholesky factor")},
                                      {"matrix", run.inputs["input"].get<std::string>()}};
      output->write_columns("factor", height, s.n, ranges, source, attributes);
      output->commit(run.attributes());
    });
    run.say(fmt::format("factored n = {}, half-bandwidth {}, in {:.3f} s, {:.4g} GFLOP/s", s.n,
                        s.half_bandwidth, run.seconds("solve"),
                        flops * 1e-9 / run.seconds("solve")));
  });
}

/// The stored factor must have the matrix's sizes.
void check_factor(const io::BandInput& factor, const io::BandInput& matrix) {
  if (factor.n() == matrix.n() && factor.half_bandwidth() == matrix.half_bandwidth()) return;
  fail_together(
      Exit::input,
      fmt::format("the factor has order {} and half-bandwidth {}, the matrix {} and {}; {}; name "
                  "the factor of this matrix",
                  factor.n(), factor.half_bandwidth(), matrix.n(), matrix.half_bandwidth(),
                  io::to_string(factor.location())));
}

void band_solve(Run& run, const BandOptions& options) {
  check_method(run);
  require_output(run.options);
  const io::Location location = io::parse_location(options.matrix);
  const io::BandInput input = io::open_band(run.control, location);
  const io::DenseInput rhs =
      io::open_dense(run.control, io::parse_location(options.rhs, location.file));
  if (rhs.rows() != input.n())
    fail_together(
        Exit::input,
        fmt::format("the right-hand side has {} rows, the matrix {}; {}; give one row for "
                    "each row of the matrix",
                    rhs.rows(), input.n(), io::to_string(rhs.location())));
  run.note_input("input", input.location());
  run.note_input("rhs", rhs.location());
  std::optional<io::BandInput> factor;
  if (!options.factor.empty()) {
    factor = io::open_band(run.control, io::parse_location(options.factor, location.file));
    check_factor(*factor, input);
    run.note_input("factor", factor->location());
  }
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  const Index nrhs = rhs.columns();
  with_backend(run, [&]<class B>(Context<B>& c) {
    check_places(B{}, options.places);
    BandRun<B> band(run, c, input, nrhs);
    run.report["right_hand_sides"] = nrhs;
    if (run.options.plan) return;
    band.require();
    const BandShape& s = band.shape_;
    BandVectors<B> x = collectively(c.control, [&] { return band_vectors<B>(c, s, nrhs); });
    std::vector<double> rows;  // on the host: b, then x
    run.phase("read", [&] {
      rows = read_rows(c.control, rhs, s);
      upload(c.ahead, x.data.view(), rows.data());
      c.ahead.synchronize();
    });
    if (factor)
      band.read_factor(*factor);
    else
      band.factor(options.places);
    std::optional<HostSubstitution<B>> host;
    if (options.places.substitution == "cpu" && std::is_same_v<B, Cuda>)
      collectively(c.control, [&] { host.emplace(c, s, nrhs); });
    run.phase("solve", [&] {
      if (host)
        band_substitute_on_host(c, band.tiles_, x, *host, run.progress);
      else
        band_substitute(c, band.tiles_, x, run.progress);
    });
    double flops = band_solve_flops(s.n, s.half_bandwidth, nrhs);
    if (!factor) flops += band_factor_flops(s.n, s.half_bandwidth);
    run.rate(flops * 1e-9 / run.seconds("solve"), "GFLOP/s");
    download(c.ahead, rows.data(), x.data.view());
    c.ahead.synchronize();
    if (!run.options.no_check)
      run.phase("check", [&] {
        const std::vector<double> b = read_rows(c.control, rhs, s);
        band.judge(band_residual(c, band.problem_, x.rows, rows, b, nrhs));
      });
    run.phase("write", [&] {
      const std::vector<Range> ranges = BlockCyclic{s.n, s.width, c.size()}.ranges(c.rank());
      const io::Source<double> source = [&](Index position, Index count, double* out) {
        std::copy_n(rows.begin() + position * nrhs, count * nrhs, out);
      };
      output->write<double>("x", s.n, rhs.is_vector() ? -1 : nrhs, ranges, source);
      output->commit(run.attributes());
    });
    run.say(fmt::format(
        "solved n = {}, half-bandwidth {}, {} right-hand sides, in {:.3f} s, {:.4g} GFLOP/s", s.n,
        s.half_bandwidth, nrhs, run.seconds("solve"), flops * 1e-9 / run.seconds("solve")));
    if (run.report.contains("residual"))
      run.say(fmt::format("residual {:.3g} (scaled; below {} is good)",
                          run.report["residual"].get<double>(), kPass));
  });
}

}  // namespace

void add_band_commands(CLI::App& app, Selected& selected) {
  CLI::App* band = app.add_subcommand("band", "Symmetric positive definite band matrices");
  band->require_subcommand(1);
  const auto options = std::make_shared<BandOptions>();
  const auto add = [&](const char* name, const char* what, auto action) {
    CLI::App* command = band->add_subcommand(name, what);
    command->add_option("matrix", options->matrix, "FILE.h5:/path of the band matrix")->required();
    add_common_options(*command, selected.options);
    command->callback([&selected, options, action, text = std::string("band ") + name] {
      selected.command = text;
      selected.action = [options, action](Run& run) { action(run, *options); };
    });
    return command;
  };
  add("factor", "Cholesky factor, written as dataset 'factor'", band_factor);
  CLI::App* solve = add("solve", "Factor and solve; writes 'x'", band_solve);
  solve->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5:/path, or :/path")
      ->required();
  solve->add_option("--diagonal", options->places.diagonal,
                    "gpu or cpu: who factors the diagonal blocks");
  solve->add_option("--substitution", options->places.substitution,
                    "gpu or cpu: who does the triangular solves");
  solve->add_option("--factor", options->factor, "Use the factor that 'band factor' stored");
}

}  // namespace terrace
