// terrace generate KIND: test problems, written by all ranks in slices; the matrix depends on the
// seed alone.
#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/size_text.hpp"
#include "src/commands/problems.hpp"
#include "src/commands/verify.hpp"
#include "src/program/register.hpp"

namespace terrace {

namespace {

struct GenerateOptions {
  Index rows = 0, columns = 0, rank = 0, n = 0, half_bandwidth = 0, points = 0, rhs = 0;
  double density = 0.5, condition = 0;
  int dim = 2;
};

constexpr Word solution_stream = 0x5851f42d4c957f2dull;

/// x_true[j, k].
double solution(Word seed, Index j, Index k) {
  return random_uniform(seed ^ solution_stream, j, k);
}

std::vector<Range> own(const Run& run, Index extent) {
  return contiguous(extent, run.control.size()).ranges(run.control.rank());
}
Index first_of(const std::vector<Range>& ranges) { return ranges.empty() ? 0 : ranges[0].first; }

io::Attributes description(const Run& run) {
  return {{"kind", run.command.substr(run.command.find(' ') + 1)}, {"seed", run.options.seed}};
}

/// Datasets b (made with the matrix) and x_true; one right-hand side is 1-D.
void write_rhs(Run& run, io::Output& output, Index n, Index rhs, const std::vector<double>& b) {
  if (rhs == 0) return;
  const auto ranges = own(run, n);
  const Index columns = rhs == 1 ? -1 : rhs, first = first_of(ranges);
  output.write<double>("b", n, columns, ranges, [&](Index position, Index count, double* out) {
    std::copy_n(b.begin() + position * rhs, count * rhs, out);
  });
  output.write<double>("x_true", n, columns, ranges, [&](Index position, Index count, double* out) {
    for (Index i = 0; i < count * rhs; ++i)
      out[i] = solution(Word(run.options.seed), first + position + i / rhs, i % rhs);
  });
}

std::vector<double> own_rows(const Run& run, Index n, Index rhs) {
  return collectively(run.control, [&] {
    const Index rows = contiguous(n, run.control.size()).slots(run.control.rank());
    return std::vector<double>(std::size_t(rows * rhs));
  });
}

void write_dense(Run& run, io::Output& output, const DenseProblem& a, const GenerateOptions& o) {
  const Index n = a.n, rhs = o.rhs;
  const Word seed = Word(run.options.seed);
  std::vector<double> b = own_rows(run, n, rhs), x;
  collectively(run.control, [&] {
    x.resize(std::size_t(n * rhs));
    for (Index i = 0; i < n * rhs; ++i) x[std::size_t(i)] = solution(seed, i / rhs, i % rhs);
  });
  const auto ranges = own(run, n);
  const Index first = first_of(ranges);
  auto attributes = description(run);
  if (o.condition > 0) attributes["condition"] = o.condition;
  output.write<double>(
      "A", n, n, ranges,
      [&](Index position, Index count, double* out) {
        a.fill({first + position, count}, out);
        parallel_for(rhs == 0 ? 0 : count, [&](Index i) {
          for (Index j = 0; j < n; ++j)
            for (Index k = 0; k < rhs; ++k)
              b[std::size_t((position + i) * rhs + k)] +=
                  out[i * n + j] * x[std::size_t(j * rhs + k)];
        });
      },
      attributes);
  write_rhs(run, output, n, rhs, b);
}

void write_band(Run& run, io::Output& output, const BandProblemFormula& a,
                const GenerateOptions& o) {
  const Index n = a.n, m = a.half_bandwidth, rhs = o.rhs;
  const Word seed = Word(run.options.seed);
  const auto ranges = own(run, n);
  const Index first = first_of(ranges);
  auto attributes = description(run);
  attributes["format"] = std::string("band");
  attributes["uplo"] = std::string("lower");
  if (o.condition > 0) attributes["condition"] = o.condition;
  output.write_columns(
      "A", m + 1, n, ranges,
      [&](Index position, Index count, double* out) {
        parallel_ranges(count, 16, [&](Index from, Index to) {
          for (Index c = from; c < to; ++c)
            for (Index d = 0, j = first + position + c; d <= m; ++d)
              out[c * (m + 1) + d] = j + d < n ? a.entry(j + d, j) : 0.0;
        });
      },
      attributes);
  std::vector<double> b = own_rows(run, n, rhs);
  parallel_ranges(rhs == 0 || ranges.empty() ? 0 : ranges[0].count, 16, [&](Index from, Index to) {
    for (Index r = from; r < to; ++r)
      for (Index i = first + r, j = std::max<Index>(0, i - m); j <= std::min(n - 1, i + m); ++j) {
        const double entry = i >= j ? a.entry(i, j) : a.entry(j, i);
        if (entry == 0) continue;
        for (Index k = 0; k < rhs; ++k) b[std::size_t(r * rhs + k)] += entry * solution(seed, j, k);
      }
  });
  write_rhs(run, output, n, rhs, b);
}

void write_laplace(Run& run, io::Output& output, const CsrLaplace& a, const GenerateOptions& o) {
  const Index n = a.n(), rhs = o.rhs, nonzeros = a.entries_before(n);
  const auto ranges = own(run, n);
  const Index first = first_of(ranges), last = ranges.empty() ? 0 : ranges[0].end();
  const Index from = a.entries_before(first), until = a.entries_before(last);
  const std::vector<Range> entries{{from, until - from}};
  // Entries [position, position + count) of this rank, handed one by one to put(k, column, value).
  const auto each_entry = [&](Index position, Index count, const auto& put) {
    Index low = first, high = last;  // the last row that begins at or before the first entry
    while (high - low > 1) {
      const Index middle = low + (high - low) / 2;
      (a.entries_before(middle) <= from + position ? low : high) = middle;
    }
    Index columns[7];
    double values[7];
    Index at = a.entries_before(low) - from - position;
    for (Index i = low; at < count; ++i) {
      const int stored = a.row(i, columns, values);
      for (int k = 0; k < stored; ++k, ++at)
        if (at >= 0 && at < count) put(at, columns[k], values[k]);
    }
  };
  output.group("A");
  output.write<Index>(
      "indptr", n + 1, -1, own(run, n + 1),
      [&, start = first_of(own(run, n + 1))](Index position, Index count, Index* out) {
        for (Index i = 0; i < count; ++i) out[i] = a.entries_before(start + position + i);
      });
  output.write<Index>(
      "indices", nonzeros, -1, entries, [&](Index position, Index count, Index* out) {
        each_entry(position, count, [&](Index at, Index column, double) { out[at] = column; });
      });
  output.write<double>(
      "data", nonzeros, -1, entries, [&](Index position, Index count, double* out) {
        each_entry(position, count, [&](Index at, Index, double value) { out[at] = value; });
      });
  output.attribute("shape", std::vector<Index>{n, n});
  output.attribute("encoding-type", std::string("csr_matrix"));
  output.attribute("encoding-version", std::string("0.1.0"));
  output.group("");
  std::vector<double> b = own_rows(run, n, rhs);
  Index columns[7];
  double values[7];
  for (Index i = first; rhs > 0 && i < last; ++i) {
    const int stored = a.row(i, columns, values);
    for (Index k = 0; k < rhs; ++k)
      for (int e = 0; e < stored; ++e)
        b[std::size_t((i - first) * rhs + k)] +=
            values[e] * solution(Word(run.options.seed), columns[e], k);
  }
  write_rhs(run, output, n, rhs, b);
  run.report["nonzeros"] = nonzeros;
}

void write_bits(Run& run, io::Output& output, const BitProblem& a, const GenerateOptions& o) {
  const Index words = a.words(), rhs = o.rhs, rhs_words = ceil_div(rhs, 64);
  const Word seed = Word(run.options.seed) ^ solution_stream;
  const auto ranges = own(run, a.rows);
  const Index first = first_of(ranges);
  // Column k of x_true as bits along the rows of x: word w of it holds rows 64 w, 64 w + 1, ...
  const auto x_word = [&](Index k, Index w) {
    const Index left = a.columns - w * 64;
    return random_word(seed, k, w) & (left >= 64 ? ~Word(0) : ~(~Word(0) << left));
  };
  std::vector<Word> x, b;
  collectively(run.control, [&] {
    x.resize(std::size_t(rhs * words));
    for (Index i = 0; i < rhs * words; ++i) x[std::size_t(i)] = x_word(i / words, i % words);
    b.resize(std::size_t((ranges.empty() ? 0 : ranges[0].count) * rhs_words));
  });
  auto attributes = description(run);
  attributes["columns"] = a.columns;
  attributes["format"] = std::string("bits");
  if (o.rank > 0) attributes["rank"] = o.rank;
  output.write<Word>(
      "A", a.rows, words, ranges,
      [&](Index position, Index count, Word* out) {
        a.fill({first + position, count}, out);
        parallel_for(rhs == 0 ? 0 : count, [&](Index i) {
          for (Index k = 0; k < rhs; ++k) {
            Word sum = 0;
            for (Index w = 0; w < words; ++w)
              sum ^= out[i * words + w] & x[std::size_t(k * words + w)];
            b[std::size_t((position + i) * rhs_words + k / 64)] |= Word(std::popcount(sum) & 1)
                                                                   << (k % 64);
          }
        });
      },
      attributes);
  if (rhs == 0) return;
  const io::Attributes packed{{"columns", rhs}, {"format", std::string("bits")}};
  output.write<Word>(
      "b", a.rows, rhs_words, ranges,
      [&](Index position, Index count, Word* out) {
        std::copy_n(b.begin() + position * rhs_words, count * rhs_words, out);
      },
      packed);
  const auto x_ranges = own(run, a.columns);
  const Index x_first = first_of(x_ranges);
  output.write<Word>(
      "x_true", a.columns, rhs_words, x_ranges,
      [&](Index position, Index count, Word* out) {
        std::fill(out, out + count * rhs_words, Word(0));
        for (Index i = 0; i < count; ++i)
          for (Index k = 0, j = x_first + position + i; k < rhs; ++k)
            out[i * rhs_words + k / 64] |= (x[std::size_t(k * words + j / 64)] >> (j % 64) & 1)
                                           << (k % 64);
      },
      packed);
}

/// Writes the problem that `make` puts into the output; `bytes`: of its matrix.
void generate(Run& run, Index n, Index bytes, const std::function<void(io::Output&)>& make) {
  require_output(run.options);
  run.report["n"] = n;
  run.report["backend"] = "cpu";
  run.report["result"]["seed"] = run.options.seed;
  if (run.options.plan) {
    run.report["result"]["plan"] = {{"file_bytes", bytes}};
    run.say(fmt::format("{} of order {}: {} on disk; made in pieces of at most {} MiB per rank",
                        run.command, n, size_text(bytes), io::piece_bytes() >> 20));
    return;
  }
  io::Output output(run.control, run.options.output, run.options.force);
  run.phase("write", [&] {
    run.show_bytes("writing", true, double(bytes) / run.control.size(), double(bytes));
    make(output);
    auto attributes = run.attributes();
    attributes["seed"] = run.options.seed;
    output.commit(attributes);
  });
  run.say(fmt::format("{}: {} written in {:.3f} s", run.command, run.options.output,
                      run.seconds("write")));
}

[[noreturn]] void misuse(const Run& run, const std::string& what) {
  fail_together(Exit::usage,
                what + "; on the command line; see terrace " + run.command + " --help");
}

void check(const Run& run, const GenerateOptions& o) {
  if (!(o.density >= 0 && o.density <= 1)) misuse(run, "--density is not between 0 and 1");
  if (o.condition != 0 && !(o.condition >= 1 && std::isfinite(o.condition)))
    misuse(run, "--condition is below 1");
}

double order_of(const GenerateOptions& o) { return o.condition > 0 ? o.condition : 100.0; }

void generate_bits(Run& run, GenerateOptions o, bool with_rank) {
  check(run, o);
  if (o.columns == 0) o.columns = o.rows;
  if (with_rank && o.rank > std::min(o.rows, o.columns))
    misuse(run, fmt::format("--rank {} does not lie between 0 and {}", o.rank,
                            std::min(o.rows, o.columns)));
  require_countable({double(o.rows), double(o.columns) + double(o.rhs)});
  run.report["columns"] = o.columns;
  const Word seed = Word(run.options.seed);
  const BitProblem a = with_rank ? gf2_rank(seed, o.rows, o.columns, o.rank)
                                 : gf2_random(seed, o.rows, o.columns, o.density);
  if (with_rank) run.report["result"]["rank"] = o.rank;
  generate(run, o.rows, 8 * o.rows * ceil_div(o.columns, 64),
           [&](io::Output& output) { write_bits(run, output, a, o); });
}

void generate_dense(Run& run, const GenerateOptions& o) {
  const std::string kind = run.command.substr(run.command.find(' ') + 1);
  check(run, o);
  if (kind == "dense-condition" && o.condition == 0) misuse(run, "--condition is below 1");
  require_countable({double(o.n), double(o.n) + double(o.rhs)});
  const Word seed = Word(run.options.seed);
  const DenseProblem a = kind == "dense-random"      ? dense_random(seed, o.n)
                         : kind == "dense-condition" ? dense_condition(seed, o.n, o.condition)
                                                     : dense_spd(seed, o.n, order_of(o));
  generate(run, o.n, 8 * o.n * o.n, [&](io::Output& output) { write_dense(run, output, a, o); });
}

void generate_band(Run& run, const GenerateOptions& given, bool laplace) {
  GenerateOptions o = given;
  check(run, o);
  if (laplace) {
    if (o.points == 0) o.points = o.half_bandwidth;
    if (o.points == 0) o.points = Index(std::llround(std::sqrt(double(o.n))));
    if (o.points == 0) misuse(run, "--points is missing");
    require_countable({double(o.points), double(o.points), double(o.points)});
    if (o.n == 0) o.n = o.points * o.points;
    o.half_bandwidth = o.points;
  }
  require_countable({double(o.n), double(o.half_bandwidth) + 1 + double(o.rhs)});
  run.report["half_bandwidth"] = o.half_bandwidth;
  const BandProblemFormula a =
      laplace ? band_laplace(o.n, o.points)
              : band_spd(Word(run.options.seed), o.n, o.half_bandwidth, o.condition);
  generate(run, o.n, 8 * o.n * (o.half_bandwidth + 1),
           [&](io::Output& output) { write_band(run, output, a, o); });
}

void generate_csr(Run& run, const GenerateOptions& o) {
  check(run, o);
  require_countable({std::pow(double(o.points), double(o.dim)), 7 + double(o.rhs)});
  const CsrLaplace a{o.points, o.dim};
  generate(run, a.n(), 16 * (2 * o.dim + 1) * a.n(),
           [&](io::Output& output) { write_laplace(run, output, a, o); });
}

}  // namespace

void add_generate_commands(CLI::App& app, Selected& selected) {
  CLI::App* group = app.add_subcommand("generate", "Test problems with known answers");
  group->require_subcommand(1);
  const auto o = std::make_shared<GenerateOptions>();
  const auto add = [&](const char* name, const char* about, const char* example,
                       void (*action)(Run&, const GenerateOptions&)) {
    CLI::App* kind = add_command(
        *group, selected,
        {name, about, example, usual_options + "--seed --output --force --plan --backend=auto,cpu",
         verify_problem},
        [o, action](Run& run, const CLI::App&) { action(run, *o); });
    kind->add_option("--rhs", o->rhs,
                     "Number of right-hand sides b = A x_true to add, with x_true (default: none)")
        ->check(not_negative());
    return kind;
  };
  const auto sizes = [&](CLI::App* kind) {
    kind->add_option("--rows", o->rows, "Rows")->required()->check(positive());
    kind->add_option("--columns", o->columns, "Columns (default: as many as rows)")
        ->check(positive());
    return kind;
  };
  const auto order = [&](CLI::App* kind, const char* condition = nullptr) {
    kind->add_option("--n", o->n, "Order of the matrix")->required()->check(positive());
    return condition ? kind->add_option("--condition", o->condition, condition) : nullptr;
  };
  sizes(add("gf2-random", "Random bit matrix",
            "terrace generate gf2-random --rows 4000 --rhs 1 -o bits.h5",
            [](Run& run, const GenerateOptions& o) { generate_bits(run, o, false); }))
      ->add_option("--density", o->density, "Fraction of ones (default 0.5)");
  sizes(add("gf2-rank", "Bit matrix of known rank",
            "terrace generate gf2-rank --rows 4000 --rank 3000 -o bits.h5",
            [](Run& run, const GenerateOptions& o) { generate_bits(run, o, true); }))
      ->add_option("--rank", o->rank, "The rank")
      ->required()
      ->check(not_negative());
  CLI::App* spd = add("band-spd", "Symmetric positive definite band matrix",
                      "terrace generate band-spd --n 10000 --half-bandwidth 100 --rhs 1 -o band.h5",
                      [](Run& run, const GenerateOptions& o) { generate_band(run, o, false); });
  order(spd, "Condition number, about (default: a small one)");
  spd->add_option("--half-bandwidth", o->half_bandwidth, "Diagonals below the main one")
      ->required()
      ->check(not_negative());
  CLI::App* grid =
      add("band-laplace", "Laplacian on a square grid in natural order, as a band matrix",
          "terrace generate band-laplace --points 100 --rhs 1 -o band.h5",
          [](Run& run, const GenerateOptions& o) { generate_band(run, o, true); });
  grid->add_option("--points", o->points, "Grid points per line: n = points^2")->check(positive());
  grid->add_option("--half-bandwidth", o->half_bandwidth, "The same as --points")
      ->check(positive());
  grid->add_option("--n", o->n, "Order of the matrix, if it is not points^2")->check(positive());
  order(add("dense-random", "Random dense matrix, uniform in (-1, 1)",
            "terrace generate dense-random --n 2000 --rhs 1 -o dense.h5", generate_dense));
  order(
      add("dense-condition", "Dense matrix with known singular values",
          "terrace generate dense-condition --n 2000 --condition 1e6 -o dense.h5", generate_dense),
      "Condition number")
      ->required();
  order(add("dense-spd", "Symmetric positive definite dense matrix",
            "terrace generate dense-spd --n 2000 --rhs 1 -o dense.h5", generate_dense),
        "Condition number (default 100)");
  CLI::App* laplace =
      add("csr-laplace", "Laplacian on a grid, sparse",
          "terrace generate csr-laplace --dim 3 --points 50 --rhs 1 -o sparse.h5", generate_csr);
  laplace->add_option("--dim", o->dim, "Dimensions of the grid, 2 or 3")
      ->check(CLI::IsMember({2, 3}));
  laplace->add_option("--points", o->points, "Grid points per line")->required()->check(positive());
}

}  // namespace terrace
