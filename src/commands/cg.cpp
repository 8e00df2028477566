// terrace cg.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "io/input.hpp"
#include "src/commands.hpp"
#include "src/conjugate_gradients.hpp"

namespace terrace {
namespace {

struct CgCommand {
  std::string matrix, rhs, x0, format, preconditioner = "none";
  double rtol = 1e-10, atol = 0;
  Index max_iterations = -1;
};

/// The opened inputs: metadata, no data.
struct CgInputs {
  io::Kind kind = io::Kind::dense;
  io::DenseInput dense;
  io::BandInput band;
  io::CsrInput csr;
  Index n = 0;
  io::DenseInput rhs;
  std::optional<io::DenseInput> x0;
  std::string where;  ///< the matrix, for messages
};

CgInputs open_inputs(Run& run, const CgCommand& options) {
  const Control& control = run.control;
  const io::Location location = io::parse_location(options.matrix);
  CgInputs in;
  if (options.format.empty()) {
    in.kind = io::kind_of(control, location);
  } else {
    in.kind = options.format == "dense"  ? io::Kind::dense
              : options.format == "band" ? io::Kind::band
                                         : io::Kind::csr;
  }
  Index columns = 0;
  io::Location found;
  switch (in.kind) {
    case io::Kind::dense:
      in.dense = io::open_dense(control, location);
      in.n = in.dense.rows();
      columns = in.dense.columns();
      found = in.dense.location();
      break;
    case io::Kind::band:
      in.band = io::open_band(control, location, options.format == "band");
      in.n = columns = in.band.n();
      found = in.band.location();
      run.report["half_bandwidth"] = in.band.half_bandwidth();
      break;
    case io::Kind::csr:
      in.csr = io::open_csr(control, location);
      in.n = in.csr.rows();
      columns = in.csr.columns();
      found = in.csr.location();
      run.report["nonzeros"] = in.csr.nonzeros();
      break;
    case io::Kind::bits:
      fail_together(Exit::input, "conjugate gradients need a real matrix, this one holds bits; " +
                                     io::to_string(location) + "; see terrace gf2 --help");
  }
  in.where = io::to_string(found);
  run.report["n"] = in.n;
  run.report["method"] = "conjugate-gradients";
  run.report["preconditioner"] = options.preconditioner;
  if (in.n != columns)
    fail_together(Exit::input, fmt::format("the matrix is {} x {}, not square; {}; conjugate "
                                           "gradients need a symmetric matrix",
                                           in.n, columns, in.where));
  in.rhs = io::open_dense(control, io::parse_location(options.rhs, location.file),
                          io::Role::right_hand_side);
  if (in.rhs.rows() != in.n)
    fail_together(Exit::input,
                  fmt::format("the right-hand side has {} rows, the matrix {}; {}; give one row "
                              "for each row of the matrix",
                              in.rhs.rows(), in.n, io::to_string(in.rhs.location())));
  run.report["right_hand_sides"] = in.rhs.columns();
  run.note_input("input", found);
  run.note_input("rhs", in.rhs.location());
  if (!options.x0.empty()) {
    in.x0 = io::open_dense(control, io::parse_location(options.x0, location.file),
                           io::Role::right_hand_side);
    if (in.x0->rows() != in.n || in.x0->columns() != in.rhs.columns())
      fail_together(Exit::input, fmt::format("the start x0 is {} x {}, the solution {} x {}; {}; "
                                             "give it the shape of the right-hand side",
                                             in.x0->rows(), in.x0->columns(), in.n,
                                             in.rhs.columns(), io::to_string(in.x0->location())));
    run.note_input("x0", in.x0->location());
  }
  return in;
}

const char* form_name(io::Kind kind) {
  return kind == io::Kind::dense ? "dense" : kind == io::Kind::band ? "band" : "csr";
}
double gib(Index bytes) { return double(bytes) / 1073741824.0; }

/// Says the plan, or refuses what does not fit.
template <class B>
void plan_memory(Run& run, const Context<B>& c, const CgInputs& in, bool jacobi) {
  const int ranks = c.size();
  const Index rows = ceil_div(in.n, ranks), nrhs = in.rhs.columns();
  const OperatorMemory matrix = in.kind == io::Kind::dense ? DenseOperator<B>::memory(in.n, ranks)
                                : in.kind == io::Kind::band
                                    ? BandOperator<B>::memory(in.n, in.band.half_bandwidth(), ranks)
                                    : CsrOperator<B>::memory(in.n, in.csr.nonzeros(), ranks);
  const Index vectors = CgWork<B>::bytes(rows, jacobi);
  const Index backend = matrix.backend + vectors;
  const Index host = matrix.host + 8 * rows * (2 * nrhs + 4) + 2 * io::piece_bytes();
  run.report["memory"] = {{"backend_bytes", backend}, {"host_bytes", host}};
  if (run.options.plan) {
    run.say(fmt::format("{} matrix n = {}, {} right-hand sides, {} ranks", form_name(in.kind), in.n,
                        nrhs, ranks));
    run.say(
        fmt::format("method conjugate-gradients, the only one: row slices, {}, two reductions "
                    "of two numbers an iteration",
                    in.kind == io::Kind::dense ? "p gathered on every rank" : "halo exchange"));
    run.say(
        fmt::format("memory per rank: {:.3f} GiB on the backend (matrix {:.3f}, vectors "
                    "{:.3f}), {:.3f} GiB on the host for input and output",
                    gib(backend), gib(matrix.backend), gib(vectors), gib(host)));
    return;
  }
  constexpr bool device = std::is_same_v<B, Cuda>;
  require_memory(c.control, device ? host : host + backend, device ? backend : 0);
}

/// This rank's rows of a dense input, row-major.
std::vector<double> read_rows(const Control& control, const io::DenseInput& input, Range rows) {
  const Index columns = input.columns();
  std::vector<double> data =
      collectively(control, [&] { return std::vector<double>(std::size_t(rows.count * columns)); });
  input.read(control, {&rows, 1}, [&](Index position, Index count, const double* from) {
    std::copy_n(from, count * columns, data.begin() + position * columns);
  });
  return data;
}

template <class B>
DenseOperator<B> read_dense(Run& run, const Context<B>& c, const io::DenseInput& input) {
  DenseOperator<B> a(c, input.rows());
  const Range rows = a.rows();
  run.phase("read", [&] {
    input.read(c.control, {&rows, 1}, [&](Index position, Index count, const double* data) {
      a.put_rows(c, position, count, data);
    });
  });
  return a;
}

template <class B>
BandOperator<B> read_band(Run& run, const Context<B>& c, const io::BandInput& input) {
  BandOperator<B> a(c, input.n(), input.half_bandwidth());
  run.phase("read", [&] {
    for (const Range range : {a.columns_before(), a.rows()})
      input.read(c.control, {&range, 1}, [&](Index position, Index count, const double* data) {
        a.put_columns(c, range.first + position, count, input.half_bandwidth() + 1, data);
      });
  });
  return a;
}

template <class B>
CsrOperator<B> read_csr(Run& run, const Context<B>& c, const io::CsrInput& input) {
  std::vector<Index> first;
  CsrSlice slice;
  run.phase("read", [&] {
    const BlockCyclic deal = contiguous(input.rows(), c.size());
    const Index from = std::min(input.rows(), deal.block * c.rank());
    const Range piece{from, std::min(input.rows(), from + deal.block) - from};
    first = balanced_rows(c.control, input.rows(), input.nonzeros(), from,
                          input.row_pointers(c.control, piece));
    const Index begin = first[std::size_t(c.rank())];
    const Range rows{begin, first[std::size_t(c.rank()) + 1] - begin};
    slice.start = input.row_pointers(c.control, rows);
    const Index origin = slice.start.front();
    for (Index& s : slice.start) s -= origin;
    input.entries(c.control, rows, slice.column, slice.value);
  });
  // Sorting, numbering the halo and the symmetry check: a part of the solve.
  std::optional<CsrOperator<B>> a;
  run.phase("solve", [&] { a.emplace(c, std::move(first), std::move(slice)); });
  run.report["nonzeros"] = a->nonzeros();
  return std::move(*a);
}

void refuse_asymmetry(const CgInputs& in, const std::optional<Asymmetry>& found) {
  if (!found) return;
  fail_together(Exit::input,
                fmt::format("the matrix is not symmetric: A[{0}, {1}] = {2:.17g}, A[{1}, {0}] = "
                            "{3:.17g}; {4}; conjugate gradients need a symmetric matrix",
                            found->row, found->column, found->value, found->transposed, in.where));
}

nlohmann::json describe(const CgResult& r) {
  nlohmann::json json = {{"iterations", r.iterations},
                         {"reason", to_string(r.reason)},
                         {"converged", converged(r.reason)},
                         {"relative_residual", r.true_residual},
                         {"recurrence_residual", r.recurrence_residual},
                         {"initial_residual", r.initial_residual}};
  if (r.position >= 0) json["position"] = r.position;
  return json;
}

std::string explain(const CgResult& r, Index column, Index columns, const std::string& where) {
  std::string what = fmt::format("not converged ({}) after {} iterations, relative residual {:.3g}",
                                 to_string(r.reason), r.iterations, r.true_residual);
  if (columns > 1) what += fmt::format(", right-hand side {}", column);
  std::string advice = "x and residuals are written";
  if (r.position >= 0)
    what += fmt::format(": the diagonal entry ({0}, {0}) is not positive", r.position);
  else if (r.reason == CgReason::indefinite_matrix)
    what += ": the matrix is not positive definite";
  if (r.reason == CgReason::max_iterations) advice += "; raise --max-iterations or --rtol";
  if (r.reason == CgReason::stagnation) advice += "; this is what rounding allows: raise --rtol";
  return what + "; " + where + "; " + advice;
}

/// One row an iteration: its number, then each right-hand side's relative residual (the last one
/// repeated once it has stopped).
std::vector<double> residual_table(const std::vector<CgResult>& results, Index iterations) {
  const Index columns = Index(results.size()) + 1;
  std::vector<double> table(std::size_t(iterations * columns));
  for (Index k = 0; k < iterations; ++k) {
    table[std::size_t(k * columns)] = double(k + 1);
    for (Index j = 1; j < columns; ++j) {
      const CgResult& r = results[std::size_t(j - 1)];
      const Index at = std::min(k, Index(r.history.size()) - 1);
      table[std::size_t(k * columns + j)] =
          at >= 0 ? r.history[std::size_t(at)] : r.initial_residual;
    }
  }
  return table;
}

template <class B, class A>
void solve_and_write(Run& run, const Context<B>& c, A& a, const CgInputs& in,
                     const CgCommand& options, io::Output& output) {
  const Index nrhs = in.rhs.columns(), n = in.n;
  const Range rows = a.rows();
  std::vector<double> b, x;
  run.phase("read", [&] {
    b = read_rows(c.control, in.rhs, rows);
    if (in.x0)
      x = read_rows(c.control, *in.x0, rows);
    else
      collectively(c.control, [&] { x.assign(b.size(), 0.0); });
  });
  if (!run.options.no_check) run.phase("check", [&] { refuse_asymmetry(in, a.asymmetry(c)); });

  CgOptions how;
  how.rtol = options.rtol;
  how.atol = options.atol;
  how.max_iterations = options.max_iterations;
  how.jacobi = options.preconditioner == "jacobi";
  std::vector<CgResult> results;
  Index steps = 0;
  run.phase("solve", [&] {
    CgWork<B> work(c, a, how.jacobi);
    std::vector<double> b_column(std::size_t(rows.count)), x_column(std::size_t(rows.count));
    for (Index j = 0; j < nrhs; ++j) {
      for (Index i = 0; i < rows.count; ++i) {
        b_column[std::size_t(i)] = b[std::size_t(i * nrhs + j)];
        x_column[std::size_t(i)] = x[std::size_t(i * nrhs + j)];
      }
      // Progress counts the digits gained.
      run.progress.begin(nrhs > 1 ? fmt::format("cg, column {} of {}", j + 1, nrhs) : "cg", 100);
      const double digits = -std::log10(std::max(options.rtol, 1e-16));
      how.observe = [&](Index, double residual) {
        run.progress.tick(100 *
                          std::clamp(-std::log10(residual) / std::max(digits, 1.0), 0.0, 1.0));
      };
      results.push_back(conjugate_gradients(c, a, work, how, b_column, x_column));
      steps += results.back().iterations;
      for (Index i = 0; i < rows.count; ++i)
        x[std::size_t(i * nrhs + j)] = x_column[std::size_t(i)];
    }
    run.progress.end();
  });

  // The report speaks of the first right-hand side that failed, or of the first.
  const auto failed = std::find_if(results.begin(), results.end(),
                                   [](const CgResult& r) { return !converged(r.reason); });
  Index iterations = 0;
  double scaled = 0;
  for (const CgResult& r : results) {
    iterations = std::max(iterations, r.iterations);
    scaled = std::max(scaled, r.scaled_residual);
  }
  nlohmann::json result{{"iterations", 0}, {"reason", "rtol"}, {"converged", true}};
  if (nrhs > 0) result = describe(failed != results.end() ? *failed : results.front());
  if (nrhs > 1) {
    result["right_hand_sides"] = nlohmann::json::array();
    for (const CgResult& r : results) result["right_hand_sides"].push_back(describe(r));
  }
  run.report["result"] = result;
  run.report["residual"] = scaled;
  const double bytes = a.bytes() + (how.jacobi ? 88.0 : 72.0) * double(n);
  run.rate(1e-9 * bytes * double(steps) / run.seconds("solve"), "GB/s");

  run.phase("write", [&] {
    const std::string reason = result["reason"];
    const io::Attributes attributes{{"reason", reason},
                                    {"converged", Index(failed == results.end())},
                                    {"iterations", iterations}};
    output.write<double>(
        "x", n, in.rhs.is_vector() ? -1 : nrhs, {&rows, 1},
        [&](Index position, Index count, double* out) {
          std::copy_n(x.begin() + position * nrhs, count * nrhs, out);
        },
        attributes);
    const std::vector<double> table = residual_table(results, iterations);
    const Range all{0, c.rank() == 0 ? iterations : 0};
    output.write<double>(
        "residuals", iterations, nrhs + 1, {&all, 1},
        [&](Index position, Index count, double* out) {
          std::copy_n(table.begin() + position * (nrhs + 1), count * (nrhs + 1), out);
        },
        attributes);
    io::Attributes terrace = run.attributes();
    terrace["reason"] = reason;
    terrace["rtol"] = options.rtol;
    terrace["atol"] = options.atol;
    terrace["format"] = std::string(form_name(in.kind));
    terrace["rtol"] = options.rtol;
    terrace["atol"] = options.atol;
    if (!options.format.empty()) terrace["format"] = options.format;
    output.commit(terrace);
  });
  if (failed != results.end())
    run.outcome("not converged", explain(*failed, failed - results.begin(), nrhs, in.where));
  run.say(fmt::format("converged ({}), n = {}, {} iterations in {:.3f} s, {:.4g} GB/s",
                      result["reason"].get<std::string>(), n, iterations, run.seconds("solve"),
                      run.report["rate"]["value"].get<double>()));
  for (const CgResult& r : results)
    run.say(fmt::format("relative residual {:.3g} from the matrix, {:.3g} from the recurrence",
                        r.true_residual, r.recurrence_residual));
}

void cg(Run& run, const CgCommand& options) {
  require_output(run.options);
  if (!run.options.method.empty() && run.options.method != "conjugate-gradients")
    fail_together(Exit::usage, "unknown method '" + run.options.method +
                                   "'; --method of cg; leave it out or use conjugate-gradients");
  const CgInputs in = open_inputs(run, options);
  std::optional<io::Output> output;
  if (!run.options.plan) output.emplace(run.control, run.options.output, run.options.force);
  with_backend(run, [&]<class B>(Context<B>& c) {
    plan_memory(run, c, in, options.preconditioner == "jacobi");
    if (run.options.plan) return;
    const auto solve = [&](auto a) { solve_and_write(run, c, a, in, options, *output); };
    if (in.kind == io::Kind::dense) solve(read_dense(run, c, in.dense));
    if (in.kind == io::Kind::band) solve(read_band(run, c, in.band));
    if (in.kind == io::Kind::csr) solve(read_csr(run, c, in.csr));
  });
}

}  // namespace

void add_cg_command(CLI::App& app, Selected& selected) {
  const auto options = std::make_shared<CgCommand>();
  CLI::App* command = app.add_subcommand(
      "cg", "Conjugate gradients for a symmetric positive definite dense, band or CSR matrix");
  command->add_option("matrix", options->matrix, "FILE.h5:/path of the matrix")->required();
  command->add_option("--rhs", options->rhs, "Right-hand sides: FILE.h5:/path, or :/path")
      ->required();
  command->add_option("--rtol", options->rtol, "Stop at ||b - A x|| <= rtol ||b||")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--atol", options->atol, "Stop at ||b - A x|| <= atol")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--max-iterations", options->max_iterations, "Default 10 n + 1000")
      ->check(not_negative());
  command->add_option("--x0", options->x0, "Start from this solution: FILE.h5:/path");
  command->add_option("--preconditioner", options->preconditioner, "none or jacobi")
      ->check(CLI::IsMember({"none", "jacobi"}))
      ->capture_default_str();
  command
      ->add_option("--format", options->format, "dense, band or csr, where the file does not say")
      ->check(CLI::IsMember({"dense", "band", "csr"}));
  add_common_options(*command, selected.options);
  command->callback([&selected, options] {
    selected.command = "cg";
    selected.action = [options](Run& run) { cg(run, *options); };
  });
}

}  // namespace terrace
