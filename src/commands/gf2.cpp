// gf2 rref, rank, solve, kernel, inverse, multiply: options, phases, output.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "src/commands.hpp"
#include "src/gf2.hpp"
#include "src/guard.hpp"
#include "src/plan.hpp"

namespace terrace {
namespace {

struct Gf2Options {
  std::string a, b;  ///< the second is a right-hand side or factor
  bool echelon = false;
  Index levels = -1;  ///< of Strassen's algorithm; -1: the planner's choice
};

/// Of the witness, and of --guard's check sums.
Index extra_words(const Run& run) { return run.options.guard ? 2 : 1; }

template <class B>
PanelPlan guarded_plan(const Context<B>& context, const CommonOptions& options, Index most_rank) {
  PanelPlan plan = plan_panels(context, options, most_rank);
  plan.witness = witness_seed(options.seed);
  return plan;
}

constexpr const char* passed = "passed: 64 random vectors";

io::Attributes bits_attributes(Index columns) {
  return {{"columns", columns}, {"format", std::string("bits")}};
}

/// Opens and notes the inputs and the output; the output is refused before anything is read.
struct Files {
  std::optional<io::Output> output;
  io::BitInput a;
  std::optional<io::BitInput> b;

  Files(Run& run, const Gf2Options& o, const char* second) {
    const CommonOptions& options = run.options;
    require_bit_method(options);
    if (run.command != "gf2 rank") require_output(options);
    if (!options.output.empty() && !options.plan)
      output.emplace(run.control, options.output, options.force);
    const io::Location location = io::parse_location(o.a);
    a = io::open_bits(run.control, location);
    run.note_input("input", a.location());
    if (second) {
      const auto role = run.command == "gf2 solve" ? io::Role::right_hand_side : io::Role::matrix;
      b = io::open_bits(run.control, io::parse_location(o.b, location.file), role);
      run.note_input(second, b->location());
    }
    run.adopt("block", run.options.block, Index(0));
    if (const nlohmann::json from = run.restart_settings(); from.is_object()) {
      const bool kept = from.value("guard", false);  // keeps its check sums, or has none
      if (run.options.guard && !kept)
        run.say("--guard has no effect: the checkpoint was written without it");
      run.options.guard = kept;
    }
    run.report["n"] = a.rows();
    run.report["rows"] = a.rows();
    run.report["columns"] = a.columns();
  }
  [[nodiscard]] BackendHint elimination() const { return elimination_hint(a.rows(), a.columns()); }
};

/// Host and device bytes a rank. `bytes`: on the backend; `staging`: between file and backend.
template <class B>
std::pair<Index, Index> memory_needed(Index bytes, Index staging) {
  constexpr bool on_host = std::is_same_v<B, Cpu>;
  const Index file_buffers = std::min(Index(64) << 20, bytes);
  return {(on_host ? bytes : 0) + staging + file_buffers, on_host ? 0 : bytes + staging};
}

/// On the backend, and between file and backend.
struct BitMemory {
  Index bytes = 0, staging = 0;
};
/// Memory of the rank with most among so many ranks.
using MemoryOf = std::function<BitMemory(const PanelPlan& plan, int ranks)>;

/// Says what --plan wants to know; true when that is all that is wanted. Otherwise the memory is
/// there.
template <class B>
bool planned(Run& run, const Context<B>& context, const BlockCyclic& layout, const PanelPlan& plan,
             const Work& work, const MemoryOf& memory, const std::string& more = {}) {
  const std::string method = elimination_method<B>(plan);
  const auto needed = [&](const PanelPlan& with, int ranks) {
    const BitMemory m = memory(with, ranks);
    const auto [host, device] = memory_needed<B>(m.bytes, m.staging);
    return RankMemory{host, device};
  };
  const auto [host, device] = needed(plan, layout.ranks);
  run.report["block"] = plan.columns;
  run.report["method"] = method;
  run.settings["block"] = plan.columns;
  run.settings["seed"] = run.options.seed;
  run.settings["guard"] = run.options.guard;
  run.report["memory"] = {{"host_bytes_per_rank", host}, {"device_bytes_per_rank", device}};
  run.work = work.json();
  if (!run.options.plan) {
    require_memory(run.control, host, device);
    return false;
  }
  if (run.report.contains("backend_reason"))
    run.say("backend: " + run.report["backend_reason"].get<std::string>());
  run.say(fmt::format(
      "method: {}, panels of {} columns; rows in blocks of {} over {} ranks, so that finished rows "
      "are spread evenly",
      method == "tables" ? describe_tables<B>(plan.product) + " (Four Russians)"
                         : "binary tensor cores",
      fmt::format("{}{}", plan.columns, plan.measured ? " (calibrated)" : ""), layout.block,
      layout.ranks));
  if (!more.empty()) run.say(more);
  run.report["result"]["plan"] = {{"method", method}, {"block", plan.columns}};
  PlanNeeds needs;
  needs.memory = [&](int ranks) { return needed(plan, ranks); };
  if (plan.columns > 512)
    needs.alternatives.push_back({"with --block 512", [&] {
                                    PanelPlan narrow = plan;
                                    narrow.columns = 512;
                                    return needed(narrow, layout.ranks);
                                  }});
  if (!std::is_same_v<B, Cpu>)
    needs.alternatives.push_back(
        {"with --backend cpu", [&] {
           const BitMemory m = memory(plan, layout.ranks);
           return RankMemory{memory_needed<Cpu>(m.bytes, m.staging).first, 0};
         }});
  conclude_plan(run, context, work, needs);
  return true;
}

/// Of an elimination of [A | B].
template <class B>
Work elimination_work(const Run& run, const std::string& command, const PanelPlan& plan, Index rows,
                      Index columns, Index right) {
  BitWork w{command,      elimination_method<B>(plan), rows, columns, right,
            plan.columns, run.control.size()};
  w.check = !run.options.no_check;
  w.output = !run.options.output.empty() || run.options.plan;
  return bit_work(w);
}

/// A check that fails is exit 4 and no output.
void judge(Run& run, const std::string& broken) {
  if (broken.empty()) {
    run.report["certificate"] = passed;
    return;
  }
  run.report["certificate"] = "failed: " + broken;
  run.outcome("check failed", "the certificate does not hold; " + broken +
                                  "; nothing was written, please report this as a bug");
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
void commit(io::Output& output, Run& run, const Witness& witness) {
  io::Attributes attributes = run.attributes();
  attributes["witness_seed"] = Index(witness.seed);
  output.commit(attributes);
}

/// Multiply-adds over GF(2) of an elimination that updates `rows` rows on average.
double multiply_adds(const Pivots& pivots, double rows, Index first_word_width) {
  double sum = 0;
  for (const auto& panel : pivots.panels)
    sum += double(panel.count) * rows * 64.0 * double(first_word_width - panel.word);
  return sum;
}
void rate(Run& run, double done) {
  run.rate(done / std::max(run.seconds("solve"), 1e-12), "bit-MAC/s");
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
    const PanelPlan plan = guarded_plan(context, run.options, std::min(files.a.rows(), columns));
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(files.a.rows(), ranks);
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with),
          staging_bytes(words, rows.slots(0))};
    };
    const Work work = elimination_work<B>(run,
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
    const PanelPlan plan = guarded_plan(context, run.options, std::min(files.a.rows(), columns));
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(files.a.rows(), ranks);
      const Index x_rows = ceil_div(columns, ranks) + rows.slots(0);
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with) +
              8 * std::min(x_rows, columns) * round_up(b.words(), bit_row_alignment),
          staging_bytes(std::max(a.words(), b.words()), rows.slots(0))};
    };
    const Work work = elimination_work<B>(run, "solve", plan, files.a.rows(), columns, b.columns);
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
    const PanelPlan plan = guarded_plan(context, run.options, std::min(files.a.rows(), columns));
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
    const Work work = elimination_work<B>(run, "kernel", plan, files.a.rows(), columns, 0);
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
    const PanelPlan plan = guarded_plan(context, run.options, n);
    const MemoryOf memory = [&](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(n, ranks);
      const Index staging = staging_bytes(words, rows.slots(0));
      return BitMemory{
          BitMatrix<B>::bytes(rows, words + extra_words(run)) +
              echelon_bytes<B>(rows, round_up(words + extra_words(run), bit_row_alignment), with) +
              staging,
          staging};
    };
    const Work work = elimination_work<B>(run, "inverse", plan, n, n, 0);
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

// --- multiply ------------------------------------------------------------------------------------

void multiply(Run& run, const Gf2Options& o) {
  if (run.options.guard && run.options.no_check)
    fail_together(Exit::usage,
                  "--guard of gf2 multiply goes by the certificate at the end; --no-check; leave "
                  "one of them out");
  Files files(run, o, "rhs");
  const Index rows = files.a.rows(), inner = files.a.columns(), columns = files.b->columns();
  if (files.b->rows() != inner)
    fail_together(
        Exit::input,
        fmt::format(
            "the factors do not fit: {} x {} times {} x {}; {}; the first one's columns must "
            "be the second one's rows",
            rows, inner, files.b->rows(), columns, io::to_string(files.b->location())));
  with_backend(run, product_hint(rows, inner, columns), [&]<class B>(Context<B>& context) {
    require_bit_method_on<B>(run.options);
    const BlockCyclic layout = bit_row_layout(rows, run.control.size());
    const BlockCyclic b_layout = factor_layout(inner, run.control.size());
    const auto a = file_source(context, files.a, layout);
    const auto b = file_source(context, *files.b, b_layout);
    const Index stride = round_up(std::max<Index>(1, b.words()), bit_row_alignment);
    const Index matrices = BitMatrix<B>::bytes(layout, a.words()) +
                           BitMatrix<B>::bytes(layout, b.words()) +
                           BitMatrix<B>::bytes(b_layout, b.words());
    const Index staging = staging_bytes(std::max(a.words(), b.words()), layout.slots(0));
    const int ranks = run.control.size();
    MultiplyPlan plan = plan_multiply<B>(
        ranks, layout.slots(0), inner, stride, multiply_wish(run, o.levels), [&](Index more) {
          const auto [host, device] = memory_needed<B>(matrices + more, staging);
          return memory_shortage(run.control, host, device).empty();
        });
    adopt_multiply_plan(run.progress, plan);
    run.report["levels"] = plan.levels;
    run.report["levels_reason"] = plan.reason;
    const MemoryOf needed = [&](const PanelPlan&, int with) {
      const BlockCyclic slices = bit_row_layout(rows, with), dealt = factor_layout(inner, with);
      return BitMemory{BitMatrix<B>::bytes(slices, a.words()) +
                           BitMatrix<B>::bytes(slices, b.words()) +
                           BitMatrix<B>::bytes(dealt, b.words()) +
                           multiply_bytes<B>(with, slices.slots(0), inner, stride, plan),
                       staging_bytes(std::max(a.words(), b.words()), slices.slots(0))};
    };
    const PanelPlan panels{plan.panel, plan.method};
    const Work work = bit_product_work(rows, inner, columns, plan.levels, ranks,
                                       elimination_method<B>(panels), !run.options.no_check);
    if (planned(run, context, layout, panels, work, needed,
                fmt::format("Strassen levels: {} ({})", plan.levels, plan.reason)))
      return;
    BitMatrix<B> left, right, product;
    auto memory = collectively(context.control, [&] {
      return MultiplyMemory<B>(context, layout.slots(context.rank()), inner, stride, plan);
    });
    run.phase("read", [&] {
      collectively(context.control, [&] {
        left = BitMatrix<B>(context, layout, a.words());
        right = BitMatrix<B>(context, b_layout, b.words());
        product = BitMatrix<B>(context, layout, b.words());
      });
      load(context, a, left);
      load(context, b, right);
    });
    run.phase("solve", [&] {
      const auto flip = [&](Index step, const BitMatrix<B>& m) {
        flip_for_tests(context.ahead, context.rank(), step, m.data.data(), 8 * m.data.size());
      };
      flip(1, left);
      multiply_bits(context, left, right, product, inner, memory, run.progress);
      flip(2, product);
    });
    rate(run, double(rows) * double(inner) * double(columns));
    Witness witness{witness_seed(run.options.seed), {}, {}};
    run.phase("check", [&] {
      if (run.options.no_check) return;
      const auto certify = [&] {
        return check_product(context, a, layout, b, b_layout, product, columns, witness.seed);
      };
      const std::string broken = certify();
      if (!broken.empty() && run.options.guard) {
        run.say("--guard: the certificate does not hold; all is done once more");
        load(context, a, left);
        load(context, b, right);
        fill_zero(context.bulk, product.data.view());
        context.bulk.synchronize();
        multiply_bits(context, left, right, product, inner, memory, run.progress);
        if (certify().empty())
          confirmed_fault(run.control,
                          "the certificate did not hold, but does with the factors read and "
                          "multiplied once more");
      }
      judge(run, broken);
    });
    run.phase("write", [&] {
      files.output->write<Word>("product", rows, b.words(), layout.ranges(context.rank()),
                                row_source<B>(context, product.rows(), 0, b.words()),
                                bits_attributes(columns));
      commit(*files.output, run, witness);
    });
    run.say(fmt::format("product {} x {} x {}, {:.3f} s, {:.3g} bit-MAC/s{}", rows, inner, columns,
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
  add("rref", "Reduced row echelon form", reduce)
      ->add_flag("--echelon", options->echelon, "Echelon form only");
  add("rank", "Rank", reduce);
  add("solve", "X with A X = B; free unknowns zero", solve)
      ->add_option("--rhs", options->b, "Right-hand sides, file.h5:/path or :/path")
      ->required();
  add("kernel", "Basis of {x : A x = 0}", kernel);
  add("inverse", "Inverse", inverse);
  CLI::App* product = add("multiply", "Product A B", multiply);
  product->add_option("B", options->b, "Second factor, file.h5:/path or :/path")->required();
  add_levels_option(*product, options->levels);
}

}  // namespace terrace
