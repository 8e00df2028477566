// gf2 multiply: options, phases, output.
#include "src/commands/gf2_run.hpp"

namespace terrace::gf2_command {

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
    const Work work = bit_product_work({machine_of(context), elimination_method<B>(panels), rows,
                                        inner, columns, plan.method.shape.k, plan.method.stored,
                                        plan.levels, !run.options.no_check});
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
        run.require_same_inputs();
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

}  // namespace terrace::gf2_command
