// gf2 multiply: options, phases, output.
#include "distrib/agree.hpp"
#include "src/commands/gf2_run.hpp"
#include "src/frame/guard.hpp"

namespace terrace::gf2_command {

namespace {

template <class B>
class Multiply {
 public:
  Multiply(Run& run, Context<B>& context, Files& files, const Gf2Options& o)
      : run_(run),
        context_(context),
        files_(files),
        rows_(files.a.rows()),
        inner_(files.a.columns()),
        columns_(files.b->columns()),
        layout_(bit_row_layout(rows_, run.control.size())),
        b_layout_(factor_layout(inner_, run.control.size())),
        a_(file_source(context, files.a, layout_)),
        b_(file_source(context, *files.b, b_layout_)),
        stride_(round_up(std::max<Index>(1, b_.words()), bit_row_alignment)) {
    require_bit_method_on<B>(panel_wish(run.options));
    const int ranks = run.control.size();
    plan_ = plan_multiply<B>(
        ranks, layout_.slots(0), inner_, stride_,
        multiply_wish(run.control, panel_wish(run.options), o.levels), [&](Index more) {
          const BitMemory m = matrices(ranks);
          const auto [host, device] = memory_needed<B>(m.bytes + more, m.staging);
          return memory_shortage(run.control, host, device).empty();
        });
    adopt_multiply_plan(run.progress, plan_);
    run.report["levels"] = plan_.levels;
    run.report["levels_reason"] = plan_.reason;
    panels_ = {plan_.panel, plan_.method};
    memory_ = [this](const PanelPlan&, int with) {
      BitMemory m = matrices(with);
      m.bytes +=
          multiply_bytes<B>(with, bit_row_layout(rows_, with).slots(0), inner_, stride_, plan_);
      return m;
    };
  }
  Multiply(const Multiply&) = delete;
  Multiply& operator=(const Multiply&) = delete;

  [[nodiscard]] Work work() const {
    return bit_product_work({machine_of(context_), elimination_method<B>(panels_), rows_, inner_,
                             columns_, plan_.method.shape.k, plan_.levels, !run_.options.no_check});
  }
  [[nodiscard]] PlanNeeds needs() const {
    note_plan<B>(run_, panels_, memory_);
    return plan_needs<B>(panels_, memory_, run_.control.size());
  }
  void describe() {
    describe_panels<B>(run_, panels_, layout_);
    run_.say(fmt::format("Strassen levels: {} ({})", plan_.levels, plan_.reason));
  }
  void read() {
    collectively(context_.control, [&] {
      product_memory_.emplace(context_, layout_.slots(context_.rank()), inner_, stride_, plan_);
      left_ = BitMatrix<B>(context_, layout_, a_.words());
      right_ = BitMatrix<B>(context_, b_layout_, b_.words());
      product_ = BitMatrix<B>(context_, layout_, b_.words());
    });
    load(context_, a_, left_);
    load(context_, b_, right_);
  }
  void solve() {
    flip(1, left_);
    multiply_bits(context_, left_, right_, product_, inner_, *product_memory_, run_.progress);
    flip(2, product_);
  }
  void outcome() { rate(run_, double(rows_) * double(inner_) * double(columns_)); }
  void check() {
    if (run_.options.no_check) return;
    const std::string broken = certificate();
    if (!broken.empty() && run_.options.guard) multiply_again();
    judge(run_, broken);
  }
  void write() {
    files_.output->write<Word>("product", rows_, b_.words(), layout_.ranges(context_.rank()),
                               row_source<B>(context_, product_.rows(), 0, b_.words()),
                               bits_attributes(columns_));
    commit(*files_.output, run_, witness_);
  }
  [[nodiscard]] std::string sentence() const {
    return fmt::format("product {} x {} x {}, {:.3f} s, {:.3g} bit-MAC/s{}", rows_, inner_,
                       columns_, run_.seconds("solve"), run_.report["rate"]["value"].get<double>(),
                       certified(run_));
  }

 private:
  /// A, B and C, without what the product takes.
  [[nodiscard]] BitMemory matrices(int ranks) const {
    const BlockCyclic slices = bit_row_layout(rows_, ranks), dealt = factor_layout(inner_, ranks);
    return {BitMatrix<B>::bytes(slices, a_.words()) + BitMatrix<B>::bytes(slices, b_.words()) +
                BitMatrix<B>::bytes(dealt, b_.words()),
            staging_bytes(std::max(a_.words(), b_.words()), slices.slots(0))};
  }
  [[nodiscard]] std::string certificate() {
    return check_product(context_, a_, layout_, b_, b_layout_, product_, columns_, witness_.seed);
  }
  /// With --guard: ends the job where the certificate holds this time.
  void multiply_again() {
    run_.say("--guard: the certificate does not hold; all is done once more");
    load(context_, a_, left_);
    load(context_, b_, right_);
    fill_zero(context_.bulk, product_.data.view());
    context_.bulk.synchronize();
    multiply_bits(context_, left_, right_, product_, inner_, *product_memory_, run_.progress);
    run_.require_same_inputs();
    if (certificate().empty())
      confirmed_fault(run_.control,
                      "the certificate did not hold, but does with the factors read and "
                      "multiplied once more");
  }
  void flip(Index step, const BitMatrix<B>& m) {
    flip_for_tests(context_.ahead, context_.rank(), step, m.data.data(), 8 * m.data.size());
  }

  Run& run_;
  Context<B>& context_;
  Files& files_;
  Index rows_, inner_, columns_;
  BlockCyclic layout_, b_layout_;
  BitSource<B> a_, b_;
  Index stride_;
  MultiplyPlan plan_;
  PanelPlan panels_;
  MemoryOf memory_;
  std::optional<MultiplyMemory<B>> product_memory_;
  BitMatrix<B> left_, right_, product_;
  Witness witness_{witness_seed(run_.options.seed), {}, {}};
};

}  // namespace

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
    Multiply<B> job(run, context, files, o);
    conduct(run, context, job);
  });
}

}  // namespace terrace::gf2_command
