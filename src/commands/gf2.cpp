// gf2 rref, rank, solve, kernel, inverse: options, phases, output.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "src/commands/gf2_run.hpp"

namespace terrace {

using namespace gf2_command;

namespace {

/// Of the witness, and of --guard's check sums.
Index extra_words(const Run& run) { return run.options.guard ? 2 : 1; }

template <class B>
PanelPlan guarded_plan(const Context<B>& context, const CommonOptions& options, const Gf2Options& o,
                       Index most_rank) {
  PanelPlan plan = plan_panels(context, options, most_rank, o.candidates, measured_panels(context));
  plan.witness = witness_seed(options.seed);
  return plan;
}

/// Of an elimination of [A | B].
template <class B>
Work elimination_work(const Run& run, const Context<B>& context, const std::string& command,
                      const PanelPlan& plan, Index rows, Index columns, Index right) {
  BitWork w{machine_of(context), command, elimination_method<B>(plan), rows, columns, right,
            plan.columns};
  w.k = plan.product.shape.k;
  w.stored = plan.product.stored;
  w.check = !run.options.no_check;
  w.output = !run.options.output.empty() || run.options.plan;
  return bit_work(w);
}

void write_vector(io::Output& output, const Control& control, const std::string& name,
                  const auto& values) {
  using T = typename std::decay_t<decltype(values)>::value_type;
  const std::vector<Range> ranges = control.rank() == 0 && !values.empty()
                                        ? std::vector<Range>{{0, Index(values.size())}}
                                        : std::vector<Range>{};
  output.write<T>(name, Index(values.size()), -1, ranges, [&](Index position, Index count, T* out) {
    std::copy_n(values.begin() + position, count, out);
  });
}

/// What `verify` needs: pivots, the rows that carried them, the witness words.
void write_terrace_group(io::Output& output, Run& run, const Pivots& pivots, const Witness& witness,
                         bool with_span) {
  output.group("terrace");
  write_vector(output, run.control, "pivots", pivots.columns);
  write_vector(output, run.control, "pivot_rows", pivots.rows);
  write_vector(output, run.control, "witness", witness.x);
  if (with_span) write_vector(output, run.control, "span", witness.y);
  output.group("");
}

/// Multiply-adds over GF(2) of an elimination that updates `rows` rows on average.
double multiply_adds(const Pivots& pivots, double rows, Index first_word_width) {
  double sum = 0;
  for (const auto& panel : pivots.panels)
    sum += double(panel.count) * rows * 64.0 * double(first_word_width - panel.word);
  return sum;
}

/// The destination of every row of this rank when pivot rows go first, the others behind them.
std::vector<Index> pivot_rows_first(const BlockCyclic& layout, int rank, const Pivots& pivots) {
  std::vector<Index> sorted(pivots.rows);
  std::sort(sorted.begin(), sorted.end());
  std::vector<Index> destination(std::size_t(layout.slots(rank)), -1);
  for (Index q = 0; q < pivots.rank(); ++q)
    if (layout.owner(pivots.rows[std::size_t(q)]) == rank)
      destination[std::size_t(layout.slot(pivots.rows[std::size_t(q)]))] = q;
  for (Index slot = 0; slot < Index(destination.size()); ++slot) {
    if (destination[std::size_t(slot)] >= 0) continue;
    const Index row = layout.global(slot, rank);
    const Index before = std::lower_bound(sorted.begin(), sorted.end(), row) - sorted.begin();
    destination[std::size_t(slot)] = pivots.rank() + row - before;
  }
  return destination;
}

/// [A | B | witness | check sums] in memory.
template <class B>
BitMatrix<B> read_matrix(Run& run, const Context<B>& context, const BitSource<B>& a,
                         const BitSource<B>* b, BlockCyclic layout, Word seed) {
  BitMatrix<B> matrix;
  run.phase("read", [&] {
    const Index words = a.words() + (b ? b->words() : 0);
    matrix = collectively(context.control,
                          [&] { return BitMatrix<B>(context, layout, words + extra_words(run)); });
    load(context, a, matrix);
    if (b) load(context, *b, matrix, a.words());
    put_witness(context, matrix, words, seed);
  });
  return matrix;
}

// --- rref, rank ----------------------------------------------------------------------------------

void reduce(Run& run, const Gf2Options& o) {
  Files files(run, o, nullptr);
  const bool rank_only = run.command == "gf2 rank";
  run.settings["echelon"] = o.echelon;
  const auto form = rank_only || o.echelon ? EchelonForm::echelon : EchelonForm::reduced;
  with_backend(run, files.elimination(), [&]<class B>(Context<B>& context) {
    const BlockCyclic layout = bit_row_layout(files.a.rows(), run.control.size());
    const auto source = file_source(context, files.a, layout);
    const Index columns = source.columns, words = source.words();
    const PanelPlan plan = guarded_plan(context, run.options, o, std::min(files.a.rows(), columns));
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(files.a.rows(), ranks);
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with),
          staging_bytes(words, rows.slots(0))};
    };
    const Work work = elimination_work(run, context,
                                       rank_only   ? "rank"
                                       : o.echelon ? "echelon"
                                                   : "rref",
                                       plan, files.a.rows(), columns, 0);
    if (planned(run, context, layout, plan, work, memory)) return;
    const Word seed = witness_seed(run.options.seed);
    BitMatrix<B> matrix = read_matrix<B>(run, context, source, nullptr, layout, seed);
    Pivots pivots;
    run.phase("solve", [&] {
      pivots = reduce_to_echelon(context, matrix, columns, form, plan, run.progress);
    });
    run.report["result"]["rank"] = pivots.rank();
    const double rows =
        double(layout.extent) - (form == EchelonForm::echelon ? 0.5 * double(pivots.rank()) : 0.0);
    rate(run, multiply_adds(pivots, rows, words));
    Witness witness;
    run.phase("check", [&] {
      witness = form == EchelonForm::reduced
                    ? witness_of_reduced(context, matrix, columns, words, pivots, seed)
                    : witness_of_echelon(context, matrix, columns, words, pivots, seed);
      if (!run.options.no_check) judge(run, check_rank(context, source, layout, pivots, witness));
    });
    if (files.output) {
      run.phase("write", [&] {
        if (!rank_only)
          files.output->write_scattered<Word>(
              "rref", layout.extent, words, pivot_rows_first(layout, context.rank(), pivots),
              row_source<B>(context, matrix.rows(), 0, words), bits_attributes(columns));
        write_vector(*files.output, run.control, "pivots", pivots.columns);
        write_terrace_group(*files.output, run, pivots, witness, rank_only);
        commit(*files.output, run, witness);
      });
    }
    run.say(fmt::format("rank {} of {} x {}, {:.3f} s, {:.3g} bit-MAC/s{}", pivots.rank(),
                        layout.extent, columns, run.seconds("solve"),
                        run.report["rate"]["value"].get<double>(),
                        run.options.no_check ? "" : ", certificate passed"));
  });
}

// --- solve ---------------------------------------------------------------------------------------

void solve(Run& run, const Gf2Options& o) {
  Files files(run, o, "rhs");
  if (files.b->rows() != files.a.rows())
    fail_together(Exit::input,
                  fmt::format("the right-hand side has {} rows, the matrix {}; {}; they must agree",
                              files.b->rows(), files.a.rows(), io::to_string(files.b->location())));
  with_backend(run, files.elimination(), [&]<class B>(Context<B>& context) {
    const BlockCyclic layout = bit_row_layout(files.a.rows(), run.control.size());
    const auto a = file_source(context, files.a, layout),
               b = file_source(context, *files.b, layout);
    const Index columns = a.columns, words = a.words() + b.words();
    const PanelPlan plan = guarded_plan(context, run.options, o, std::min(files.a.rows(), columns));
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(files.a.rows(), ranks);
      const Index x_rows = ceil_div(columns, ranks) + rows.slots(0);
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with) +
              8 * std::min(x_rows, columns) * round_up(b.words(), bit_row_alignment),
          staging_bytes(std::max(a.words(), b.words()), rows.slots(0))};
    };
    const Work work =
        elimination_work(run, context, "solve", plan, files.a.rows(), columns, b.columns);
    if (planned(run, context, layout, plan, work, memory)) return;
    const Word seed = witness_seed(run.options.seed);
    BitMatrix<B> matrix = read_matrix<B>(run, context, a, &b, layout, seed);
    Pivots pivots;
    BitSolution<B> solution;
    bool solvable = false;
    run.phase("solve", [&] {
      pivots =
          reduce_to_echelon(context, matrix, columns, EchelonForm::reduced, plan, run.progress);
      solvable = consistent(context, matrix, pivots, a.words(), b.words());
      if (solvable)
        solution = solution_of_reduced(context, matrix, pivots, columns, a.words(), b.words());
    });
    run.report["result"]["rank"] = pivots.rank();
    run.report["result"]["consistent"] = solvable;
    rate(run, multiply_adds(pivots, double(layout.extent), words));
    if (!solvable)
      run.outcome("inconsistent", "the system is inconsistent: no X has A X = B; " +
                                      io::to_string(files.b->location()) +
                                      "; check the right-hand sides");
    Witness witness;
    run.phase("check", [&] {
      witness = witness_of_reduced(context, matrix, columns, words, pivots, seed);
      if (!run.options.no_check)
        judge(run, check_solution(context, a, b, layout, solution, seed + 2));
    });
    run.phase("write", [&] {
      files.output->write_scattered<Word>(
          "x", columns, files.b->is_vector() ? -1 : b.words(), solution.destination,
          row_source<B>(context, solution.rows.rows(), 0, b.words()), bits_attributes(b.columns));
      write_terrace_group(*files.output, run, pivots, witness, false);
      commit(*files.output, run, witness);
    });
    run.say(fmt::format("rank {} of {} x {}, {} right-hand sides, {:.3f} s{}", pivots.rank(),
                        layout.extent, columns, b.columns, run.seconds("solve"),
                        run.options.no_check ? "" : ", certificate passed"));
  });
}

// --- kernel --------------------------------------------------------------------------------------

void kernel(Run& run, const Gf2Options& o) {
  Files files(run, o, nullptr);
  with_backend(run, files.elimination(), [&]<class B>(Context<B>& context) {
    const BlockCyclic layout = bit_row_layout(files.a.rows(), run.control.size());
    const auto source = file_source(context, files.a, layout);
    const Index columns = source.columns, words = source.words();
    const PanelPlan plan = guarded_plan(context, run.options, o, std::min(files.a.rows(), columns));
    // At least columns - rows basis rows; the exact number is checked once the rank is known.
    const auto basis_bytes = [&](Index rows, int ranks) {
      return BitMatrix<B>::bytes(kernel_layout(rows, words, ranks), words) +
             2 * staging_bytes(round_up(words, bit_row_alignment), rows);
    };
    const Index least = std::max<Index>(0, columns - layout.extent);
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(files.a.rows(), ranks);
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with) +
              basis_bytes(least, ranks),
          staging_bytes(words, rows.slots(0))};
    };
    const Work work = elimination_work(run, context, "kernel", plan, files.a.rows(), columns, 0);
    if (planned(run, context, layout, plan, work, memory)) return;
    const Word seed = witness_seed(run.options.seed);
    BitMatrix<B> matrix = read_matrix<B>(run, context, source, nullptr, layout, seed);
    Pivots pivots;
    BitMatrix<B> basis;
    run.phase("solve", [&] {
      pivots =
          reduce_to_echelon(context, matrix, columns, EchelonForm::reduced, plan, run.progress);
      const Index wanted = basis_bytes(columns - pivots.rank(), run.control.size());
      constexpr bool on_host = std::is_same_v<B, Cpu>;
      require_memory(run.control, on_host ? wanted : 0, on_host ? 0 : wanted);
      basis = kernel_basis(context, matrix, pivots, columns);
    });
    run.report["result"]["rank"] = pivots.rank();
    run.report["result"]["nullity"] = columns - pivots.rank();
    rate(run, multiply_adds(pivots, double(layout.extent), words));
    Witness witness;
    run.phase("check", [&] {
      witness = witness_of_reduced(context, matrix, columns, words, pivots, seed);
      if (run.options.no_check) return;
      std::string broken = check_rank(context, source, layout, pivots, witness);
      if (broken.empty()) broken = check_kernel(context, source, layout, basis, pivots, seed + 2);
      judge(run, broken);
    });
    run.phase("write", [&] {
      files.output->write<Word>(
          "kernel", columns - pivots.rank(), words, basis.layout.ranges(context.rank()),
          row_source<B>(context, basis.rows(), 0, words), bits_attributes(columns));
      write_terrace_group(*files.output, run, pivots, witness, false);
      commit(*files.output, run, witness);
    });
    run.say(fmt::format("rank {} of {} x {}, {} basis vectors, {:.3f} s{}", pivots.rank(),
                        layout.extent, columns, columns - pivots.rank(), run.seconds("solve"),
                        run.options.no_check ? "" : ", certificate passed"));
  });
}

// --- inverse -------------------------------------------------------------------------------------

void inverse(Run& run, const Gf2Options& o) {
  Files files(run, o, nullptr);
  const Index n = files.a.rows();
  if (n != files.a.columns())
    fail_together(Exit::input,
                  fmt::format("the matrix is {} x {}, not square; {}; only square matrices have an "
                              "inverse",
                              n, files.a.columns(), io::to_string(files.a.location())));
  with_backend(run, files.elimination(), [&]<class B>(Context<B>& context) {
    const BlockCyclic layout = bit_row_layout(n, run.control.size());
    const auto source = file_source(context, files.a, layout);
    const Index words = source.words();
    const PanelPlan plan = guarded_plan(context, run.options, o, n);
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(n, ranks);
      const Index staging = staging_bytes(words, rows.slots(0));
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with) +
              staging,
          staging};
    };
    const Work work = elimination_work(run, context, "inverse", plan, n, n, 0);
    if (planned(run, context, layout, plan, work, memory)) return;
    const Word seed = witness_seed(run.options.seed);
    BitMatrix<B> matrix = read_matrix<B>(run, context, source, nullptr, layout, seed);
    Pivots pivots;
    run.phase("solve", [&] {
      pivots = reduce_to_echelon(context, matrix, n, EchelonForm::inverse, plan, run.progress);
      if (pivots.first_zero_pivot < 0) order_inverse(context, matrix, pivots);
    });
    if (pivots.first_zero_pivot >= 0) {
      run.report["result"]["first_zero_pivot"] = pivots.first_zero_pivot;
      run.outcome("singular",
                  fmt::format("the matrix is singular: column {} depends on the columns before it; "
                              "{}; it has no inverse",
                              pivots.first_zero_pivot, io::to_string(files.a.location())));
    }
    run.report["result"]["rank"] = n;
    rate(run, double(n) * double(n) * double(n));
    Witness witness;
    run.phase("check", [&] {
      witness = {seed, witness_of_inverse(context, matrix, pivots, seed), {}};
      if (!run.options.no_check)
        judge(run, check_inverse(context, source, layout, witness.x, seed));
    });
    run.phase("write", [&] {
      files.output->write_scattered<Word>(
          "inverse", n, words, pivot_rows_first(layout, context.rank(), pivots),
          row_source<B>(context, matrix.rows(), 0, words), bits_attributes(n));
      write_terrace_group(*files.output, run, pivots, witness, false);
      commit(*files.output, run, witness);
    });
    run.say(fmt::format("inverse of {} x {}, {:.3f} s, {:.3g} bit-MAC/s{}", n, n,
                        run.seconds("solve"), run.report["rate"]["value"].get<double>(),
                        run.options.no_check ? "" : ", certificate passed"));
  });
}

}  // namespace

void add_gf2_commands(CLI::App& app, Selected& selected) {
  CLI::App* family = app.add_subcommand("gf2", "Dense matrices over GF(2)");
  family->require_subcommand(1);
  auto options = std::make_shared<Gf2Options>();
  const auto add = [&](const char* name, const char* what,
                       void (*action)(Run&, const Gf2Options&)) {
    CLI::App* command = family->add_subcommand(name, what);
    command->add_option("A", options->a, "Bit matrix, file.h5:/path")->required();
    add_common_options(*command, selected.options);
    add_bit_options(*command, selected.options);
    command->callback([&selected, options, name, action] {
      selected.command = std::string("gf2 ") + name;
      selected.action = [options, action](Run& run) { action(run, *options); };
    });
    return command;
  };
  const auto add_elimination = [&](const char* name, const char* what,
                                   void (*action)(Run&, const Gf2Options&)) {
    CLI::App* command = add(name, what, action);
    command->add_option("--candidates", options->candidates, candidates_help)
        ->check(not_negative());
    return command;
  };
  add_elimination("rref", "Reduced row echelon form", reduce)
      ->add_flag("--echelon", options->echelon, "Echelon form only");
  add_elimination("rank", "Rank", reduce);
  add_elimination("solve", "X with A X = B; free unknowns zero", solve)
      ->add_option("--rhs", options->b, "Right-hand sides, file.h5:/path or :/path")
      ->required();
  add_elimination("kernel", "Basis of {x : A x = 0}", kernel);
  add_elimination("inverse", "Inverse", inverse);
  CLI::App* product = add("multiply", "Product A B", multiply);
  product->add_option("B", options->b, "Second factor, file.h5:/path or :/path")->required();
  add_levels_option(*product, options->levels);
}

}  // namespace terrace
