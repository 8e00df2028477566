// terrace dense invert: blocked elimination in place, or the textbook's column by column.
#include "src/commands/dense_run.hpp"
#include "src/textbook.hpp"

namespace terrace {

namespace {

/// Reads A into the solver, inverts, checks, writes.
template <class B, class Solver>
void invert_by(Run& run, Context<B>& context, const io::DenseInput& a, Solver& solver,
               io::Output& output) {
  const Index n = a.rows();
  Powers powers;
  double norm_a = 0;
  const auto fill = [&] {
    InputSizes sizes(n);
    load(context, solver, 0, n, reader(run.control, a), sizes);
    sizes.reduce(run.control);
    powers = matrix_powers(sizes);
    scale_solver(context, solver, 0, powers);
    norm_a = norms_of_rows<B>(context, solver.slots(), n, solver.data(), solver.ld()).first;
  };
  run.phase("read", fill);
  JordanOutcome found;
  run.phase("solve", [&] { found = run_solver(run, solver, fill); });
  run.rate(2e-9 * std::pow(double(n), 3) / run.seconds("solve"), "GFLOP/s");
  const auto settled = [&] { return !found.good() || settle(context, solver, 0, powers); };
  if (!settled()) found.overflow = true;
  require_regular(run, found);
  note_determinant(run, found, powers);
  run.phase("check", [&] {
    note_condition(run, n,
                   n == 0 ? 1.0 : safe_reciprocal(norm_a, norms_of_inverse(context, solver).first),
                   a.location());
    if (run.options.no_check) return;
    const auto residual = [&] {
      const InverseResidual r =
          check_inverse(context, solver, scaled(reader(run.control, a), powers), 1.0);
      run.report["result"]["residual_right"] = r.right;
      run.report["result"]["residual_left"] = r.left;
      run.report["result"]["residual_kind"] = r.kind;
      return r.right;
    };
    judge_residual(run, residual(), [&] {
      fill();
      found = run_solver(run, solver, fill);
      return found.good() && settled() ? residual() : INFINITY;
    });
  });
  run.phase("write", [&] {
    output.write_scattered<double>("inverse", n, n, solver.destination(),
                                   scaled(rows_of(context, solver, 0, n), powers),
                                   {{"log_abs_determinant", found.log_abs_determinant},
                                    {"determinant_sign", Index(found.determinant_sign)}});
    output.commit(run.attributes());
  });
  run.say(fmt::format("inverse    n {}, {:.3f} s, {:.1f} GFLOP/s, residual ratio {}", n,
                      run.seconds("solve"), run.report["rate"]["value"].get<double>(),
                      run.report.value("residual", nlohmann::json("not checked")).dump()));
}

template <class B>
void invert_blocked(Run& run, Context<B>& context, const io::DenseInput& a,
                    const DenseOptions& options) {
  const Index n = a.rows();
  const JordanPlan plan = plan_dense<B>(run, n, 0, true, options);
  describe<B>(run, plan);
  if (run.options.plan) return say_plan<B>(run, context, plan, options.pivoting);
  io::Output output(run.control, run.options.output, run.options.force);
  require_plan_memory<B>(run, n * n, plan.bytes);
  GaussJordan<B> solver(context, plan);
  invert_by(run, context, a, solver, output);
}

template <class B>
void invert_by_textbook(Run& run, Context<B>& context, const io::DenseInput& a,
                        const DenseOptions& options) {
  constexpr bool host = std::is_same_v<B, Cpu>;
  const textbook::Launch launch = launch_of<B>(options.grid, options.threads);
  const TextbookPlan plan = plan_textbook(a.rows(), launch);
  run.report["n"] = plan.n;
  run.report["method"] = "textbook";
  run.report["block"] = 0;
  run.report["pivoting"] = "partial";
  run.report["memory_per_rank"] = plan.bytes;
  if (!host) {
    run.report["grid"] = launch.grid;
    run.report["threads"] = launch.threads;
  }
  if (run.options.plan) {
    run.say("method     textbook (asked for): column by column, partial pivoting, rows exchanged");
    run.say(host ? std::string("launches   none: one thread of the host")
                 : fmt::format("launches   {0} x {0} blocks of {1} x {1} threads", launch.grid,
                               launch.threads));
    run.report["result"]["plan"] = {{"bytes_per_rank", plan.bytes}, {"method", "textbook"}};
    PlanNeeds needs;
    needs.any_ranks = false;
    needs.memory = [&](int) {
      const Index staging = std::min<Index>(dense_staging_bytes, 8 * plan.n * plan.n + (1 << 20));
      return host ? RankMemory{plan.bytes + staging, 0} : RankMemory{staging, plan.bytes};
    };
    needs.alternatives.push_back({"without --method textbook", [&] {
                                    return jordan_memory<B>(plan_jordan<B>(
                                        run.control.size(), plan.n, 0, true, 0, "auto", false));
                                  }});
    DenseWork work{machine_of(context), "textbook", plan.n};
    work.check = !run.options.no_check;
    conclude_plan(run, context, dense_work(work), needs);
    return;
  }
  io::Output output(run.control, run.options.output, run.options.force);
  require_plan_memory<B>(run, plan.n * plan.n, plan.bytes);
  TextbookInverse<B> solver(context, plan);
  invert_by(run, context, a, solver, output);
}

}  // namespace

void check_invert_options(const Run& run, const DenseOptions& options) {
  if (run.options.method == "textbook" && run.options.precision != "fp64")
    fail_together(Exit::usage,
                  "the textbook's method knows FP64 only; --precision; leave the option out");
  check_textbook_options(run, run.options.method == "textbook", run.options.block, options.pivoting,
                         options.grid > 0 || options.threads > 0);
}

void invert_dense(Run& run, const io::DenseInput& a, const DenseOptions& options) {
  with_backend(run, [&]<class B>(Context<B>& context) {
    if (run.options.method == "textbook") {
      invert_by_textbook(run, context, a, options);
    } else {
      invert_blocked(run, context, a, options);
    }
  });
}

}  // namespace terrace
