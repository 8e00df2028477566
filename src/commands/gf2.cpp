// gf2 rref, rank, solve, kernel, inverse: options, phases, output.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "distrib/agree.hpp"
#include "src/commands/gf2_run.hpp"
#include "src/commands/verify.hpp"
#include "src/program/profile.hpp"
#include "src/program/reading.hpp"

namespace terrace::gf2 {

namespace {

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

template <class B>
class ReduceBits : public PhasedJob {
 public:
  ReduceBits(Run& run, Context<B>& context, Files& files, const Gf2Options& o, BitTask task)
      : run_(run),
        context_(context),
        files_(files),
        task_(task),
        plan_(plan_bits(context, files.a.rows(), files.a.columns(),
                        files.b ? files.b->columns() : 0,
                        {panel_wish(run.options, o.candidates), task, run.options.seed,
                         !run.options.no_check, o.transform},
                        measured_panels(context))),
        determinant_(o.determinant),
        a_(file_source(context, files.a, plan_.layout)),
        b_(files.b ? file_source(context, *files.b, plan_.layout) : BitSource<B>{}),
        memory_([this](const PanelPlan& panels, int ranks) {
          BitPlan with = plan_;
          with.panels = panels;
          return bits_memory<B>(with, ranks);
        }) {}

  [[nodiscard]] Work work() const override {
    const PanelPlan& panels = plan_.panels;
    BitWork w{machine_of(context_),
              task_ == BitTask::echelon ? "echelon"
              : task_ == BitTask::rank  ? "rank"
                                        : run_.command.substr(4),
              elimination_method<B>(panels),
              a_.rows,
              plan_.columns,
              plan_.right,
              panels.columns};
    w.k = panels.product.shape.k;
    w.stored = panels.product.stored;
    w.check = plan_.certify;
    w.output = !run_.options.output.empty() || run_.options.plan;
    return bit_work(w);
  }
  [[nodiscard]] PlanNeeds needs() const override {
    note_plan<B>(run_, plan_.panels, memory_);
    return plan_needs<B>(plan_.panels, memory_, run_.control.size());
  }
  void describe() override { describe_panels<B>(run_, plan_.panels, plan_.layout); }

  void read() override {
    found_.matrix = collectively(
        context_.control, [&] { return BitMatrix<B>(context_, plan_.layout, plan_.all_words()); });
    load_bits(context_, plan_, a_, b_, found_.matrix);
    if (plan_.certify && !plan_.panels.guard) keep_matrix();
  }
  void solve() override {
    kept_.begin();
    found_ = reduce_bits(context_, plan_, std::move(found_.matrix), run_.progress);
  }
  void outcome() override {
    nlohmann::json& result = run_.report["result"];
    if (const Index zero = found_.pivots.first_zero_pivot; zero >= 0) {
      result["first_zero_pivot"] = zero;
      run_.outcome("singular",
                   fmt::format("the matrix is singular: column {} depends on the columns before "
                               "it; {}; it has no inverse",
                               zero, io::to_string(files_.a.location())));
    }
    result["rank"] = rank();
    if (determinant_) result["determinant"] = determinant();
    rate(run_, found_.work);
    if (task_ == BitTask::kernel) result["nullity"] = nullity();
    if (task_ == BitTask::solve) result["consistent"] = found_.consistent;
    if (!found_.consistent)
      run_.outcome("inconsistent", "the system is inconsistent: no X has A X = B; " +
                                       io::to_string(files_.b->location()) +
                                       "; check the right-hand sides");
  }
  void expect(bool early) override {
    if (writes() && !(early && task_ == BitTask::kernel))  // whose size is the result
      files_.output->expect(result_bytes(), early);
  }
  void check() override {
    kept_.require_same(context_.control, io::to_string(files_.a.location()));
    const BitSource<B> again = kept_.holds() ? kept_source(kept_, plan_.layout, plan_.columns) : a_;
    const std::string broken = certify_bits(context_, plan_, again, b_, found_);
    if (plan_.certify) judge(run_, broken);
  }
  bool writes() const override { return files_.output.has_value(); }
  void write() override {
    io::Output& output = *files_.output;
    write_result(output);
    const bool form = task_ <= BitTask::rank;
    if (form) write_vector(output, run_.control, "pivots", found_.pivots.columns);
    // What `verify` needs: pivots, the rows that carried them, the witness words.
    output.group("terrace");
    write_vector(output, run_.control, "pivots", found_.pivots.columns);
    write_vector(output, run_.control, "pivot_rows", found_.pivots.rows);
    write_vector(output, run_.control, "witness", found_.witness.x);
    if (task_ == BitTask::rank) write_vector(output, run_.control, "span", found_.witness.y);
    output.group("");
    commit(output, run_, found_.witness);
  }
  [[nodiscard]] std::string problem() const override {
    std::string text = fmt::format("{} x {} bits", a_.rows, plan_.columns);
    if (task_ == BitTask::solve) text += ", " + counted(plan_.right, "right-hand side");
    return text;
  }
  [[nodiscard]] std::string answer() const override {
    const std::string of = fmt::format("rank {}", rank());
    switch (task_) {
      case BitTask::rref:
        return of + ", reduced row echelon form" + (plan_.transform ? ", T with T A = rref" : "");
      case BitTask::echelon:
        return of + ", row echelon form" + (plan_.transform ? ", T with T A = rref" : "");
      case BitTask::solve:
        return of + ", x";
      case BitTask::kernel:
        return of + ", " + counted(nullity(), "basis vector");
      case BitTask::inverse:
        return "inverse";
      default:
        return determinant_ ? fmt::format("determinant {}, {}", determinant(), of) : of;
    }
  }
  [[nodiscard]] std::string scalar() const override {
    if (determinant_) return fmt::format("{}", determinant());
    return task_ == BitTask::rank ? fmt::format("{}", rank()) : std::string();
  }

 private:
  /// A, as it lies in front of the other columns.
  void keep_matrix() {
    const Index words = plan_.words();
    const std::vector<Range> ranges = plan_.layout.ranges(context_.rank());
    const auto reread = [&](std::span<const Range> rows) { return files_.a.reread(rows); };
    const BitMemory m = memory_(plan_.panels, context_.size());
    // A basis is as large as it turns out, up to about the matrix, and is assembled beside itself.
    const Index basis = task_ == BitTask::kernel ? 2 * m.bytes : 0;
    if (!kept_.take(context_, reread, ranges, words, m.bytes + m.staging + basis)) return;
    kept_.copy_from(context_.bulk, found_.matrix.data.data(), found_.matrix.stride);
    kept_.seal(context_.bulk);
  }
  [[nodiscard]] Index rank() const { return found_.pivots.rank(); }
  [[nodiscard]] Index nullity() const { return plan_.columns - rank(); }
  [[nodiscard]] Index determinant() const { return rank() == plan_.columns ? 1 : 0; }
  /// Of the matrix that is written, about.
  [[nodiscard]] Index result_bytes() const {
    if (task_ == BitTask::solve) return 8 * plan_.columns * plan_.right_words();
    return task_ == BitTask::rank
               ? 0
               : 8 * plan_.words() * (task_ == BitTask::kernel ? nullity() : a_.rows);
  }
  void write_result(io::Output& output) {
    const auto rows = [&](const BitMatrix<B>& from, Index words) {
      return row_source<B>(context_, from.rows(), 0, words);
    };
    const Index words = plan_.words(), right = plan_.right_words();
    const io::Attributes of_a = bits_attributes(plan_.columns);
    if (task_ == BitTask::solve)
      output.write_scattered<Word>("x", plan_.columns, files_.b->is_vector() ? -1 : right,
                                   found_.x.destination, rows(found_.x.rows, right),
                                   bits_attributes(plan_.right));
    else if (task_ == BitTask::kernel)
      output.write<Word>("kernel", nullity(), words, found_.basis.layout.ranges(context_.rank()),
                         rows(found_.basis, words), of_a);
    else if (task_ != BitTask::rank)
      output.write_scattered<Word>(task_ == BitTask::inverse ? "inverse" : "rref", a_.rows, words,
                                   destination_of(found_), rows(found_.matrix, words), of_a);
    if (plan_.transform)
      output.write_scattered<Word>("transform", a_.rows, right, destination_of(found_),
                                   row_source<B>(context_, found_.matrix.rows(), words, right),
                                   bits_attributes(a_.rows));
  }

  Run& run_;
  Context<B>& context_;
  Files& files_;
  BitTask task_;
  BitPlan plan_;
  bool determinant_;
  BitSource<B> a_, b_;
  KeptInput<B> kept_;
  MemoryOf memory_;
  BitResult<B> found_;
};

void reduce(Run& run, const Gf2Options& o, BitTask task) {
  Files files(run, o, task == BitTask::solve ? "rhs" : nullptr);
  const Index rows = files.a.rows(), columns = files.a.columns();
  if (task == BitTask::rref || task == BitTask::rank) run.settings["echelon"] = o.echelon;
  if (task == BitTask::rref) run.settings["transform"] = o.transform;
  if (task == BitTask::rref && o.echelon) task = BitTask::echelon;
  if (files.b) require_rows(rows, *files.b);
  if ((task == BitTask::inverse || o.determinant) && rows != columns)
    fail_together(Exit::input,
                  fmt::format("the matrix is {} x {}, not square; {}; only a square matrix has {}",
                              rows, columns, io::to_string(files.a.location()),
                              o.determinant ? "a determinant" : "an inverse"));
  with_backend(run, elimination_hint(rows, columns), [&]<class B>(Context<B>& context) {
    ReduceBits<B> job(run, context, files, o, task);
    conduct(run, context, job);
  });
}

}  // namespace

void add_commands(CLI::App& app, Selected& selected) {
  CLI::App* family = app.add_subcommand("gf2", "Dense matrices over GF(2)");
  family->require_subcommand(1);
  auto options = std::make_shared<Gf2Options>();
  const auto add = [&](CommandFacts facts, auto action) {
    facts.obeys = solver_options + "--block --k " + facts.obeys;
    CLI::App* command =
        add_command(*family, selected, facts,
                    [options, action](Run& run, const CLI::App&) { action(run, *options); });
    command->add_option("A", options->a, "Bit matrix: FILE.h5[:/path]")->required();
    add_reading_options(*command, selected.options, {"bits", "dense", "csr", "csc", "coo"});
    return command;
  };
  const auto eliminate = [&](CommandFacts facts, auto action) {
    facts.obeys += "--method=tables,tensor,columns --tables=local,broadcast --panels=device,host";
    CLI::App* command = add(facts, action);
    command->add_option("--candidates", options->candidates, candidates_help)
        ->check(not_negative());
    return command;
  };
  const auto task = [](BitTask one) {
    return [one](Run& run, const Gf2Options& o) { reduce(run, o, one); };
  };
  CLI::App* rref = eliminate({"rref", "Reduced row echelon form",
                              "terrace gf2 rref bits.h5:/A -o reduced.h5", "", verify_rref},
                             task(BitTask::rref));
  rref->add_flag("--echelon", options->echelon, "Echelon form only");
  rref->add_flag("--transform", options->transform,
                 "Write T with T A = rref too, as dataset 'transform'");
  eliminate({"rank", "Rank", "terrace gf2 rank bits.h5:/A", "--may-print ", verify_rank},
            task(BitTask::rank));
  eliminate({"solve", "X with A X = B; free unknowns zero",
             "terrace gf2 solve bits.h5:/A --rhs :/b -o x.h5", "", verify_bit_solution},
            task(BitTask::solve))
      ->add_option("--rhs", options->b, "Right-hand sides: FILE.h5[:/path] or :/path")
      ->required();
  eliminate({"kernel", "Basis of {x : A x = 0}", "terrace gf2 kernel bits.h5:/A -o kernel.h5", "",
             verify_kernel},
            task(BitTask::kernel));
  eliminate({"inverse", "Inverse", "terrace gf2 inverse bits.h5:/A -o inverse.h5", "",
             verify_bit_inverse},
            task(BitTask::inverse));
  eliminate({"determinant", "Determinant of a square matrix: 0 or 1",
             "terrace gf2 determinant bits.h5:/A", "--may-print ", verify_rank},
            [](Run& run, Gf2Options o) {
              o.determinant = true;
              reduce(run, o, BitTask::rank);
            });
  CLI::App* product =
      add({"multiply", "Product A B", "terrace gf2 multiply bits.h5:/A :/B -o product.h5",
           "--method=tables,tensor", verify_product},
          multiply);
  product->add_option("B", options->b, "Second factor: FILE.h5[:/path] or :/path")->required();
  add_levels_option(*product, options->levels);
}

}  // namespace terrace::gf2
