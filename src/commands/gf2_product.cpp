// gf2 multiply: options, phases, output.
#include "distrib/agree.hpp"
#include "src/commands/gf2_run.hpp"

namespace terrace::gf2 {

namespace {

template <class B>
class MultiplyBits : public PhasedJob {
 public:
  MultiplyBits(Run& run, Context<B>& context, Files& files, const Gf2Options& o)
      : run_(run),
        context_(context),
        files_(files),
        plan_(plan_product(context, files.a.rows(), files.a.columns(), files.b->columns(),
                           panel_wish(run.options), o.levels, run.progress)),
        a_(file_source(context, files.a, plan_.layout)),
        b_(file_source(context, *files.b, plan_.b_layout)),
        panels_{plan_.how.panel, plan_.how.method},
        memory_([this](const PanelPlan&, int ranks) { return product_memory<B>(plan_, ranks); }) {
    run.report["levels"] = plan_.how.levels;
    run.report["levels_reason"] = plan_.how.reason;
  }

  [[nodiscard]] Work work() const override {
    return bit_product_work({machine_of(context_), elimination_method<B>(panels_), a_.rows,
                             plan_.inner, plan_.columns, panels_.product.shape.k, plan_.how.levels,
                             !run_.options.no_check});
  }
  [[nodiscard]] PlanNeeds needs() const override {
    note_plan<B>(run_, panels_, memory_);
    return plan_needs<B>(panels_, memory_, run_.control.size());
  }
  void describe() override {
    describe_panels<B>(run_, panels_, plan_.layout);
    run_.say(fmt::format("Strassen levels: {} ({})", plan_.how.levels, plan_.how.reason));
  }
  void read() override { factors_.emplace(read_factors(context_, plan_, a_, b_)); }
  void solve() override {
    multiply_bits(context_, factors_->a, factors_->b, factors_->c, plan_.inner, factors_->memory,
                  run_.progress);
  }
  void outcome() override {
    rate(run_, double(a_.rows) * double(plan_.inner) * double(plan_.columns));
  }
  void check() override {
    if (run_.options.no_check) return;
    const AgainHooks again{
        [&] {
          run_.say(
              "--guard: the certificate does not hold; the matrix is read and multiplied again");
        },
        [&] { run_.require_same_inputs(); }};
    judge(run_,
          certify_product(context_, plan_, a_, b_, *factors_, witness_.seed, run_.progress, again));
  }
  void write() override {
    const Index words = plan_.b_words();
    files_.output->write<Word>("product", a_.rows, words, plan_.layout.ranges(context_.rank()),
                               row_source<B>(context_, factors_->c.rows(), 0, words),
                               bits_attributes(plan_.columns));
    commit(*files_.output, run_, witness_);
  }
  [[nodiscard]] std::string problem() const override {
    return fmt::format("{} x {} times {} x {} bits", a_.rows, plan_.inner, plan_.inner,
                       plan_.columns);
  }
  [[nodiscard]] std::string answer() const override { return "product"; }

 private:
  Run& run_;
  Context<B>& context_;
  Files& files_;
  ProductPlan plan_;
  BitSource<B> a_, b_;
  PanelPlan panels_;
  MemoryOf memory_;
  std::optional<Factors<B>> factors_;
  Witness witness_{witness_seed(run_.options.seed), {}, {}};
};

}  // namespace

void multiply(Run& run, const Gf2Options& o) {
  if (run.options.guard && run.options.no_check)
    fail_together(Exit::usage,
                  "--guard of gf2 multiply needs the certificate at the end; --no-check; leave "
                  "one of them out");
  Files files(run, o, "rhs");
  const Index rows = files.a.rows(), inner = files.a.columns(), columns = files.b->columns();
  if (files.b->rows() != inner)
    fail_together(
        Exit::input,
        fmt::format("the shapes do not match: {} x {} times {} x {}; {}; the first factor needs as "
                    "many columns as the second has rows",
                    rows, inner, files.b->rows(), columns, io::to_string(files.b->location())));
  with_backend(run, product_hint(rows, inner, columns), [&]<class B>(Context<B>& context) {
    MultiplyBits<B> job(run, context, files, o);
    conduct(run, context, job);
  });
}

}  // namespace terrace::gf2
