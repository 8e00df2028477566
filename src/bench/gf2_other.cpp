// bench gf2 --product and --inverse.
#include "distrib/agree.hpp"
#include "src/bench/gf2.hpp"
#include "src/program/profile.hpp"

namespace terrace {

template <class B>
void bench_product(Run& run, const Gf2Bench& o, Context<B>& context, Index n,
                   const Gf2Setting& setting) {
  const BlockCyclic layout = bit_row_layout(n, context.size());
  const BlockCyclic b_layout = factor_layout(n, context.size());
  const auto seed = Word(run.options.seed);
  const auto a = random_source(context, {seed, n, false, n}, layout);
  const auto b = random_source(context, {seed + 1, n, false, n}, b_layout);
  const Index words = a.words(), stride = round_up(words, bit_row_alignment);
  const Index beside = 2 * BitMatrix<B>::bytes(layout, words) +
                       BitMatrix<B>::bytes(b_layout, words) + staging_bytes(words, layout.slots(0));
  constexpr bool on_host = std::is_same_v<B, Cpu>;
  const MultiplyPlan plan = plan_multiply<B>(
      context.size(), layout.slots(0), n, stride,
      multiply_wish(run.control, panel_wish(run.options), o.levels), [&](Index more) {
        const Index all = beside + more;
        return memory_shortage(run.control, on_host ? all : 0, on_host ? 0 : all).empty();
      });
  require_bench_memory<B>(
      run, beside + multiply_bytes<B>(context.size(), layout.slots(0), n, stride, plan),
      2 * HostRows<B>::bytes(o, layout, words) + HostRows<B>::bytes(o, b_layout, words));
  BitMatrix<B> left, right, product;
  HostRows<B> left_host, right_host, product_host;
  auto memory = collectively(context.control, [&] {
    left = BitMatrix<B>(context, layout, words);
    right = BitMatrix<B>(context, b_layout, words);
    product = BitMatrix<B>(context, layout, words);
    left_host = HostRows<B>(o, left);
    right_host = HostRows<B>(o, right);
    product_host = HostRows<B>(o, product);
    return MultiplyMemory<B>(context, left.slots(), n, stride, plan);
  });
  load(context, a, left);
  load(context, b, right);
  left_host.receive(context, left);
  right_host.receive(context, right);
  Progress quiet(false, false);
  BenchRun line;
  line.sizes = {{"n", n}, {"form", "product"}, {"block", plan.panel}, {"levels", plan.levels}};
  if (o.transfers) line.sizes["transfers"] = "pinned";
  line.who = "terrace";
  line.work = double(n) * double(n) * double(n);
  line.unit = "bit-MAC/s";
  line.bound_name = setting.bound.first;
  line.bound = setting.bound.second;
  line.meter = setting.meter;
  line.measure = [&] {
    fill_zero(context.bulk, product.data.view());
    context.bulk.synchronize();
    return timed(context, setting.meter, [&] {
      left_host.send(context, left);
      right_host.send(context, right);
      multiply_bits(context, left, right, product, n, memory, quiet);
      product_host.receive(context, product);
    });
  };
  line.certificate = [&] {
    const std::string broken = check_product(context, a, layout, b, b_layout, product, n, seed + 2);
    return broken.empty() ? std::string("passed") : "failed: " + broken;
  };
  line.spoil = spoils_bits(context, product);
  bench_run(run, o.common, line);
}

/// The first of the seeds from `--seed` on that gives a regular matrix is measured.
template <class B>
void bench_inverse(Run& run, const Gf2Bench& o, Context<B>& context, Index n,
                   const Gf2Setting& setting) {
  const PanelPlan plan =
      plan_panels(context, panel_wish(run.options, o.candidates), n, measured_panels(context));
  const BlockCyclic layout = bit_row_layout(n, context.size());
  const Index words = ceil_div(n, 64), stride = round_up(words, bit_row_alignment);
  const Index bytes = BitMatrix<B>::bytes(layout, words) + echelon_bytes<B>(layout, stride, plan) +
                      staging_bytes(words, layout.slots(0));
  require_bench_memory<B>(run, bytes, HostRows<B>::bytes(o, layout, words));
  BitMatrix<B> matrix;
  const auto host = collectively(context.control, [&] {
    matrix = BitMatrix<B>(context, layout, words);
    return HostRows<B>(o, matrix);
  });
  Progress quiet(false, false);
  Pivots pivots;
  auto seed = Word(run.options.seed);
  const auto source = [&] { return random_source(context, {seed, n, false, n}, layout); };
  const auto invert = [&](const StageTimes<B>& stages) {
    load(context, source(), matrix);
    host.take(context, matrix);
    return timed(context, setting.meter, [&] {
      host.send(context, matrix);
      pivots = reduce_to_echelon(context, matrix, n, EchelonForm::inverse, plan, quiet, stages);
      if (pivots.first_zero_pivot < 0) order_inverse(context, matrix, pivots);
      host.receive(context, matrix);
    });
  };
  while (invert({}), pivots.first_zero_pivot >= 0) ++seed;
  BenchRun line;
  line.sizes = {{"n", n}, {"form", "inverse"}, {"block", plan.columns}};
  if (o.transfers) line.sizes["transfers"] = "pinned";
  line.who = "terrace";
  line.work = double(n) * double(n) * double(n);
  line.unit = "bit-MAC/s";
  line.bound_name = setting.bound.first;
  line.bound = setting.bound.second;
  line.meter = setting.meter;
  line.measure = [&] { return invert({}); };
  line.stages = [&] {
    const auto stages = StageTimes<B>::on();
    invert(stages);
    return stage_report(run.control, stages.seconds(), n);
  };
  line.certificate = [&] {
    const Word witness = witness_seed(run.options.seed);
    const std::string broken = check_inverse(
        context, source(), layout, witness_of_inverse(context, matrix, pivots, witness), witness);
    return broken.empty() ? std::string("passed") : "failed: " + broken;
  };
  line.spoil = spoils_bits(context, matrix);
  bench_run(run, o.common, line);
}

#define TERRACE_INSTANTIATE(B)                                                               \
  template void bench_product(Run&, const Gf2Bench&, Context<B>&, Index, const Gf2Setting&); \
  template void bench_inverse(Run&, const Gf2Bench&, Context<B>&, Index, const Gf2Setting&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
