// gf2 rref, rank, solve, kernel, inverse: options, phases, output.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "src/commands/gf2_elimination.hpp"

namespace terrace {

using namespace gf2_command;

namespace {

// --- rref, rank ----------------------------------------------------------------------------------

template <class B>
class ReduceBits : public EliminationJob<B> {
  using Base = EliminationJob<B>;
  using Base::a_, Base::checks, Base::columns_, Base::context_, Base::files_, Base::form_,
      Base::layout_, Base::matrix_, Base::pivots_, Base::run_, Base::seed_, Base::witness_,
      Base::words_, Base::write_rows, Base::write_terrace_group;

 public:
  ReduceBits(Run& run, Context<B>& context, Files& files, const Gf2Options& o)
      : Base(run, context, files, o,
             run.command == "gf2 rank" ? "rank"
             : o.echelon               ? "echelon"
                                       : "rref",
             run.command == "gf2 rank" || o.echelon ? EchelonForm::echelon : EchelonForm::reduced),
        rank_only_(run.command == "gf2 rank") {}

  void outcome() {
    const double half = form_ == EchelonForm::echelon ? 0.5 : 0.0;
    Base::outcome(double(layout_.extent) - half * double(pivots_.rank()));
  }
  void check() {
    if (form_ == EchelonForm::reduced)
      Base::check();
    else
      witness_ = witness_of_echelon(context_, matrix_, columns_, words_, pivots_, seed_);
    if (checks()) judge(run_, check_rank(context_, a_, layout_, pivots_, witness_));
  }
  bool writes() const { return files_.output.has_value(); }
  void write() {
    if (!rank_only_) write_rows("rref", layout_.extent);
    write_vector(*files_.output, run_.control, "pivots", pivots_.columns);
    write_terrace_group(rank_only_);
  }
  std::string sentence() const {
    const Run& run = run_;
    return fmt::format("rank {} of {} x {}, {:.3f} s, {:.3g} bit-MAC/s{}", pivots_.rank(),
                       layout_.extent, columns_, run.seconds("solve"),
                       run.report["rate"]["value"].get<double>(), certified(run));
  }

 private:
  bool rank_only_;
};

// --- solve ---------------------------------------------------------------------------------------

template <class B>
class SolveBits : public EliminationJob<B> {
  using Base = EliminationJob<B>;
  using Base::a_, Base::b_, Base::checks, Base::columns_, Base::context_, Base::files_,
      Base::layout_, Base::matrix_, Base::pivots_, Base::run_, Base::seed_,
      Base::write_terrace_group;

 public:
  SolveBits(Run& run, Context<B>& context, Files& files, const Gf2Options& o)
      : Base(run, context, files, o, "solve", EchelonForm::reduced, [this](int ranks) {
          const BlockCyclic rows = bit_row_layout(files_.a.rows(), ranks);
          const Index x_rows = ceil_div(columns_, Index(ranks)) + rows.slots(0);
          return 8 * std::min(x_rows, columns_) * round_up(b_.words(), bit_row_alignment);
        }) {}

  void solve() {
    Base::solve();
    const Index word = a_.words(), words = b_.words();
    solvable_ = consistent(context_, matrix_, pivots_, word, words);
    if (solvable_)
      solution_ = solution_of_reduced(context_, matrix_, pivots_, columns_, word, words);
  }
  void outcome() {
    Base::outcome();
    run_.report["result"]["consistent"] = solvable_;
    if (!solvable_)
      run_.outcome("inconsistent", "the system is inconsistent: no X has A X = B; " +
                                       io::to_string(files_.b->location()) +
                                       "; check the right-hand sides");
  }
  void check() {
    Base::check();
    if (checks()) judge(run_, check_solution(context_, a_, b_, layout_, solution_, seed_ + 2));
  }
  void write() {
    const Index words = b_.words();
    files_.output->template write_scattered<Word>(
        "x", columns_, files_.b->is_vector() ? -1 : words, solution_.destination,
        row_source<B>(context_, solution_.rows.rows(), 0, words), bits_attributes(b_.columns));
    write_terrace_group();
  }
  std::string sentence() const {
    return fmt::format("rank {} of {} x {}, {} right-hand sides, {:.3f} s{}", pivots_.rank(),
                       layout_.extent, columns_, b_.columns, run_.seconds("solve"),
                       certified(run_));
  }

 private:
  BitSolution<B> solution_;
  bool solvable_ = false;
};

// --- kernel --------------------------------------------------------------------------------------

template <class B>
class KernelBits : public EliminationJob<B> {
  using Base = EliminationJob<B>;
  using Base::a_, Base::checks, Base::columns_, Base::context_, Base::files_, Base::layout_,
      Base::matrix_, Base::pivots_, Base::run_, Base::seed_, Base::witness_, Base::words_,
      Base::write_terrace_group;

 public:
  // At least columns - rows basis rows; the exact number is checked once the rank is known.
  KernelBits(Run& run, Context<B>& context, Files& files, const Gf2Options& o)
      : Base(run, context, files, o, "kernel", EchelonForm::reduced, [this](int ranks) {
          return basis_bytes(std::max<Index>(0, columns_ - files_.a.rows()), ranks);
        }) {}

  void solve() {
    Base::solve();
    const Index wanted = basis_bytes(nullity(), run_.control.size());
    constexpr bool on_host = std::is_same_v<B, Cpu>;
    require_memory(run_.control, on_host ? wanted : 0, on_host ? 0 : wanted);
    basis_ = kernel_basis(context_, matrix_, pivots_, columns_);
  }
  void outcome() {
    Base::outcome();
    run_.report["result"]["nullity"] = nullity();
  }
  void check() {
    Base::check();
    if (!checks()) return;
    std::string broken = check_rank(context_, a_, layout_, pivots_, witness_);
    if (broken.empty()) broken = check_kernel(context_, a_, layout_, basis_, pivots_, seed_ + 2);
    judge(run_, broken);
  }
  void write() {
    files_.output->template write<Word>(
        "kernel", nullity(), words_, basis_.layout.ranges(context_.rank()),
        row_source<B>(context_, basis_.rows(), 0, words_), bits_attributes(columns_));
    write_terrace_group();
  }
  std::string sentence() const {
    return fmt::format("rank {} of {} x {}, {} basis vectors, {:.3f} s{}", pivots_.rank(),
                       layout_.extent, columns_, nullity(), run_.seconds("solve"), certified(run_));
  }

 private:
  [[nodiscard]] Index nullity() const { return columns_ - pivots_.rank(); }
  [[nodiscard]] Index basis_bytes(Index rows, int ranks) const {
    return BitMatrix<B>::bytes(kernel_layout(rows, words_, ranks), words_) +
           2 * staging_bytes(round_up(words_, bit_row_alignment), rows);
  }

  BitMatrix<B> basis_;
};

// --- inverse -------------------------------------------------------------------------------------

template <class B>
class InvertBits : public EliminationJob<B> {
  using Base = EliminationJob<B>;
  using Base::a_, Base::checks, Base::columns_, Base::context_, Base::files_, Base::layout_,
      Base::matrix_, Base::pivots_, Base::run_, Base::seed_, Base::witness_, Base::words_,
      Base::write_rows, Base::write_terrace_group;

 public:
  InvertBits(Run& run, Context<B>& context, Files& files, const Gf2Options& o)
      : Base(run, context, files, o, "inverse", EchelonForm::inverse, [this](int ranks) {
          return staging_bytes(words_, bit_row_layout(files_.a.rows(), ranks).slots(0));
        }) {}

  void solve() {
    Base::solve();
    if (pivots_.first_zero_pivot < 0) order_inverse(context_, matrix_, pivots_);
  }
  void outcome() {
    Run& run = run_;
    const Index n = columns_, zero = pivots_.first_zero_pivot;
    if (zero >= 0) {
      run.report["result"]["first_zero_pivot"] = zero;
      run.outcome("singular",
                  fmt::format("the matrix is singular: column {} depends on the columns before it; "
                              "{}; it has no inverse",
                              zero, io::to_string(files_.a.location())));
    }
    run.report["result"]["rank"] = n;
    rate(run, double(n) * double(n) * double(n));
  }
  void check() {
    witness_ = {seed_, witness_of_inverse(context_, matrix_, pivots_, seed_), {}};
    if (checks()) judge(run_, check_inverse(context_, a_, layout_, witness_.x, seed_));
  }
  void write() {
    write_rows("inverse", columns_);
    write_terrace_group();
  }
  std::string sentence() const {
    const Run& run = run_;
    return fmt::format("inverse of {0} x {0}, {1:.3f} s, {2:.3g} bit-MAC/s{3}", columns_,
                       run.seconds("solve"), run.report["rate"]["value"].get<double>(),
                       certified(run));
  }
};

// --- what the commands call ----------------------------------------------------------------------

template <template <class> class J>
void run_job(Run& run, Files& files, const Gf2Options& o) {
  with_backend(run, elimination_hint(files.a.rows(), files.a.columns()),
               [&]<class B>(Context<B>& context) {
                 J<B> job(run, context, files, o);
                 conduct(run, context, job);
               });
}

void reduce(Run& run, const Gf2Options& o) {
  Files files(run, o, nullptr);
  run.settings["echelon"] = o.echelon;
  run_job<ReduceBits>(run, files, o);
}
void solve(Run& run, const Gf2Options& o) {
  Files files(run, o, "rhs");
  if (files.b->rows() != files.a.rows())
    fail_together(Exit::input,
                  fmt::format("the right-hand side has {} rows, the matrix {}; {}; they must agree",
                              files.b->rows(), files.a.rows(), io::to_string(files.b->location())));
  run_job<SolveBits>(run, files, o);
}
void kernel(Run& run, const Gf2Options& o) {
  Files files(run, o, nullptr);
  run_job<KernelBits>(run, files, o);
}
void inverse(Run& run, const Gf2Options& o) {
  Files files(run, o, nullptr);
  if (files.a.rows() != files.a.columns())
    fail_together(
        Exit::input,
        fmt::format("the matrix is {} x {}, not square; {}; only square matrices have an "
                    "inverse",
                    files.a.rows(), files.a.columns(), io::to_string(files.a.location())));
  run_job<InvertBits>(run, files, o);
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
