// bench gf2 --product.
#include "distrib/agree.hpp"
#include "src/bench/gf2.hpp"

namespace terrace::gf2 {

template <class B>
void bench_product(Run& run, const Gf2Bench& o, Context<B>& context, Index n,
                   const Gf2Setting& setting) {
  Progress quiet(false, false);
  const ProductPlan plan = plan_product(context, n, n, n, panel_wish(run.options), o.levels, quiet);
  const auto seed = Word(run.options.seed);
  const auto a = random_source(context, {seed, n, false, n}, plan.layout);
  const auto b = random_source(context, {seed + 1, n, false, n}, plan.b_layout);
  const BitMemory wanted = product_memory<B>(plan, context.size());
  require_bench_memory<B>(run, wanted.bytes + wanted.staging,
                          2 * HostRows<B>::bytes(o, plan.layout, plan.a_words()) +
                              HostRows<B>::bytes(o, plan.b_layout, plan.b_words()));
  Factors<B> m = read_factors(context, plan, a, b);
  HostRows<B> a_host, b_host, c_host;
  collectively(context.control, [&] {
    a_host = HostRows<B>(o, m.a);
    b_host = HostRows<B>(o, m.b);
    c_host = HostRows<B>(o, m.c);
  });
  a_host.receive(context, m.a);
  b_host.receive(context, m.b);
  BenchRun line = bit_line(
      o, setting,
      {{"n", n}, {"form", "product"}, {"block", plan.how.panel}, {"levels", plan.how.levels}});
  line.work = double(n) * double(n) * double(n);
  line.measure = [&] {
    fill_zero(context.bulk, m.c.data.view());
    context.bulk.synchronize();
    return timed(context, setting.meter, [&] {
      a_host.send(context, m.a);
      b_host.send(context, m.b);
      multiply_bits(context, m.a, m.b, m.c, n, m.memory, quiet);
      c_host.receive(context, m.c);
    });
  };
  line.certificate = [&] {
    const std::string broken = certify_product(context, plan, a, b, m, seed + 2, quiet, {});
    return broken.empty() ? std::string("passed") : "failed: " + broken;
  };
  line.spoil = spoils_bits(context, m.c);
  bench_run(run, o.common, line);
}

#define TERRACE_INSTANTIATE(B) \
  template void bench_product(Run&, const Gf2Bench&, Context<B>&, Index, const Gf2Setting&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
