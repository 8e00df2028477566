// terrace dense invert: blocked elimination in place, or the textbook's column by column.
#include <optional>
#include "distrib/agree.hpp"

#include "src/commands/dense_run.hpp"
#include "src/dense/textbook.hpp"

namespace terrace {

namespace {

/// A^-1, in place. Which solver, and --plan: below.
template <class B, class Solver>
class Invert : public EliminateDense<B, Solver> {
  using Base = EliminateDense<B, Solver>;

 public:
  Invert(Run& run, Context<B>& context, const io::DenseInput& a) : Base(run, context, a, 0) {}

  void write() {
    output_->template write_scattered<double>(
        "inverse", n_, n_, solver_->destination(),
        scaled(rows_of(context_, *solver_, 0, n_), powers_),
        {{"log_abs_determinant", found_.log_abs_determinant},
         {"determinant_sign", Index(found_.determinant_sign)}});
    output_->commit(run_.attributes());
  }
  [[nodiscard]] std::string sentence() const {
    return fmt::format("inverse    n {}, {:.3f} s, {:.1f} GFLOP/s, residual ratio {}", n_,
                       run_.seconds("solve"), run_.report["rate"]["value"].template get<double>(),
                       run_.report.value("residual", nlohmann::json("not checked")).dump());
  }

 protected:
  using Base::a_, Base::context_, Base::found_, Base::n_, Base::norm_a_, Base::output_,
      Base::powers_, Base::result_powers_, Base::run_, Base::solver_;

  void fill() override {
    InputSizes sizes(n_);
    load(context_, *solver_, 0, n_, reader(run_.control, a_), sizes);
    sizes.reduce(run_.control);
    result_powers_ = powers_ = matrix_powers(sizes);
    scale_solver(context_, *solver_, 0, powers_);
    norm_a_ =
        norms_of_rows<B>(context_, solver_->slots(), n_, solver_->data(), solver_->ld()).first;
  }

 private:
  double residual() override {
    const InverseResidual r =
        check_inverse(context_, *solver_, scaled(reader(run_.control, a_), powers_), 1.0);
    run_.report["result"]["residual_right"] = r.right;
    run_.report["result"]["residual_left"] = r.left;
    run_.report["result"]["residual_kind"] = r.kind;
    return r.right;
  }
  double norm_of_inverse() override { return norms_of_inverse(context_, *solver_).first; }
  [[nodiscard]] double flops() const override { return 2 * std::pow(double(n_), 3); }
};

template <class B>
class InvertBlocked : public Invert<B, GaussJordan<B>> {
  using Base = Invert<B, GaussJordan<B>>;
  using Base::context_, Base::n_, Base::run_, Base::solver_;

 public:
  InvertBlocked(Run& run, Context<B>& context, const io::DenseInput& a, const DenseOptions& o)
      : Base(run, context, a), pivoting_(o.pivoting), plan_(plan_dense<B>(run, n_, 0, true, o)) {
    note_plan<B>(run, plan_);
  }
  [[nodiscard]] Work work() const { return jordan_work(context_, plan_, !run_.options.no_check); }
  [[nodiscard]] PlanNeeds needs() const { return jordan_needs<B>(run_, plan_, pivoting_); }
  void describe() { describe_plan(run_, plan_); }
  void read() {
    solver_.emplace(context_, plan_);
    Base::fill();
  }

 private:
  std::string pivoting_;  ///< as asked for
  JordanPlan plan_;
};

template <class B>
class InvertByTextbook : public Invert<B, TextbookInverse<B>> {
  using Base = Invert<B, TextbookInverse<B>>;
  using Base::context_, Base::n_, Base::run_, Base::solver_;
  static constexpr bool host = std::is_same_v<B, Cpu>;

 public:
  InvertByTextbook(Run& run, Context<B>& context, const io::DenseInput& a, const DenseOptions& o)
      : Base(run, context, a), plan_(plan_textbook(n_, launch_of<B>(o.grid, o.threads))) {
    run.report["n"] = n_;
    run.report["method"] = "textbook";
    run.report["block"] = 0;
    run.report["pivoting"] = "partial";
    run.report["memory_per_rank"] = plan_.bytes;
    if (host) return;
    run.report["grid"] = plan_.launch.grid;
    run.report["threads"] = plan_.launch.threads;
  }
  [[nodiscard]] Work work() const {
    DenseWork work{machine_of(context_), "textbook", n_};
    work.check = !run_.options.no_check;
    return dense_work(work);
  }
  [[nodiscard]] PlanNeeds needs() const {
    PlanNeeds needs;
    needs.any_ranks = false;
    needs.memory = [this](int) { return staged_memory<B>(n_ * n_, plan_.bytes); };
    needs.alternatives.push_back({"without --method textbook", [this] {
                                    return jordan_memory<B>(plan_jordan<B>(
                                        run_.control.size(), n_, 0, true, 0, "auto", false));
                                  }});
    return needs;
  }
  void describe() {
    run_.say("method     textbook (asked for): column by column, partial pivoting, rows exchanged");
    run_.say(host ? std::string("launches   none: one thread of the host")
                  : fmt::format("launches   {0} x {0} blocks of {1} x {1} threads",
                                plan_.launch.grid, plan_.launch.threads));
    run_.report["result"]["plan"] = {{"bytes_per_rank", plan_.bytes}, {"method", "textbook"}};
  }
  void read() {
    solver_.emplace(context_, plan_);
    Base::fill();
  }

 private:
  TextbookPlan plan_;
};

}  // namespace

void check_invert_options(const Run& run, const DenseOptions& options) {
  if (run.options.method == "textbook" && run.options.precision != "fp64")
    fail_together(Exit::usage,
                  "the textbook's method knows FP64 only; --precision; leave the option out");
  check_textbook_options(run.control.size(), run.options.method == "textbook", run.options.block,
                         options.pivoting, options.grid > 0 || options.threads > 0);
}

void invert_dense(Run& run, const io::DenseInput& a, const DenseOptions& options) {
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (run.options.method == "textbook") {
      InvertByTextbook<B> job(run, context, a, options);
      conduct(run, context, job);
    } else {
      InvertBlocked<B> job(run, context, a, options);
      conduct(run, context, job);
    }
  });
}

}  // namespace terrace
