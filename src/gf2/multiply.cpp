#include "src/gf2/multiply.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/guard.hpp"

namespace terrace::gf2 {

namespace {

constexpr Index block_rows = 4096;  // of B: one broadcast
// Inner rows of a leaf's step; on an H200 16,384 are 16 % faster than 4,096 at n = 32,768 (the sums
// are read and written less often), on the CPU they make no difference.
template <class B>
constexpr Index leaf_panel = std::is_same_v<B, Cuda> ? 16384 : 4096;

/// Rows of B in a gathered panel: with levels, enough to halve so often; without, few, so that the
/// broadcasts hide behind the products.
Index gathered_rows(int ranks, Index inner, int levels, Index panel, Index leaf) {
  if (ranks == 1) return inner;
  if (levels == 0) return std::min(inner, round_up(std::max(panel, block_rows), 512));
  const Index panels = std::max<Index>(1, inner / (leaf << levels));
  return std::min(inner, round_up(ceil_div(inner, panels), block_rows));
}

}  // namespace

BlockCyclic factor_layout(Index rows, int ranks) {
  return {rows, ranks == 1 ? std::max<Index>(64, round_up(rows, 64)) : block_rows, ranks};
}

template <class B>
MultiplyPlan plan_multiply(int ranks, Index rows, Index inner, Index words, MultiplyWish wish,
                           const std::function<bool(Index bytes)>& fits) {
  MultiplyPlan plan;
  plan.panel = wish.panel > 0 ? round_up(wish.panel, 64) : leaf_panel<B>;
  plan.method = wish.method;
  const Index leaf = strassen_leaf_of<B>(wish.threads);
  const auto take = [&](int levels) {
    plan.levels = levels;
    plan.gathered = gathered_rows(ranks, inner, levels, plan.panel, leaf);
  };
  const std::string sides = fmt::format("{} x {} x {} (padded) per rank", rows, inner, 64 * words);
  if (wish.levels >= 0) {
    const int most = int(std::min<Index>(wish.levels, most_strassen_levels));
    take(admitted_levels(rows, inner, words, most));
    plan.reason = plan.levels < wish.levels
                      ? fmt::format("{} wanted, {} admits no more", wish.levels, sides)
                      : "wanted";
    return plan;
  }
  const int best =
      admitted_levels(rows, inner, words, strassen_levels(rows, inner, 64 * words, leaf));
  take(best);
  while (plan.levels > 0 && !fits(multiply_bytes<B>(ranks, rows, inner, words, plan)))
    take(plan.levels - 1);
  while (wish.panel == 0 && plan.panel > block_rows &&
         !fits(multiply_bytes<B>(ranks, rows, inner, words, plan))) {
    plan.panel /= 2;
    take(plan.levels);
  }
  if (plan.levels < best)
    plan.reason = fmt::format("memory holds the temporaries of no more; {} would do with {} levels",
                              sides, best);
  else if (best > 0)
    plan.reason = fmt::format("{} halves so often to sides of {} or more", sides, leaf);
  else
    plan.reason = fmt::format("a level pays from sides of {}, here {}", 2 * leaf, sides);
  return plan;
}

template <class B>
Index multiply_bytes(int ranks, Index rows, Index inner, Index words, const MultiplyPlan& plan) {
  const Index buffers = ranks == 1 ? 0 : plan.gathered < inner ? 2 : 1;
  return buffers * plan.gathered * words * Index(sizeof(Word)) +
         BitStrassen<B>::bytes(rows, plan.gathered, words, plan.levels, plan.panel, plan.method);
}

template <class B>
MultiplyMemory<B>::MultiplyMemory(const Context<B>& context, Index rows, Index inner, Index words,
                                  const MultiplyPlan& how)
    : plan(how), product(rows, how.gathered, words, how.levels, how.panel, how.method) {
  if (context.size() == 1) return;
  received[0] = Buffer<Word, B>(plan.gathered * words);
  if (plan.gathered < inner) received[1] = Buffer<Word, B>(plan.gathered * words);
}

namespace {

/// Rows of B [first, first + rows) into `to` on all ranks, on `ahead`. Afterwards wait(n) makes
/// `bulk` wait for the first n of them.
template <class B>
class Gathering {
 public:
  Gathering(const Context<B>& context, const BitMatrix<B>& b, Index first, Index rows, Word* to)
      : bulk_(context.bulk) {
    const Stream<B>& ahead = context.ahead;
    for (Index i = first; i < first + rows;) {
      const Index end = std::min(first + rows, (i / b.layout.block + 1) * b.layout.block);
      const View<Word, B> piece{to + (i - first) * b.stride, (end - i) * b.stride};
      const int owner = b.layout.owner(i);
      if (owner == context.rank())
        copy(ahead, piece, b.data.view().slice(b.layout.slot(i) * b.stride, piece.size));
      context.comm.broadcast(ahead, owner, piece);
      pieces_.push_back({end - first, ahead.record()});
      i = end;
    }
  }
  void wait(Index rows) {
    while (waited_ < rows) {
      waited_ = pieces_[next_].rows;
      if (waited_ >= rows) bulk_.wait(pieces_[next_].there);
      ++next_;
    }
  }

 private:
  struct Piece {
    Index rows;  // there once `there` has passed
    Event<B> there;
  };
  const Stream<B>& bulk_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;
  Index waited_ = 0;
};

/// Where a product stands: C has the products of inner rows [0, first), and those of `step` steps
/// of the panel that begins there.
struct StepPlace {
  Index first = 0, step = 0;
};

template <class B>
void archive_product(const Context<B>& context, Archive& archive, const BitMatrix<B>& c,
                     MultiplyMemory<B>& memory, Index inner, StepPlace& at) {
  MultiplyPlan& plan = memory.plan;
  Index ranks = context.size(), gathered = plan.gathered, panel = plan.panel;
  int levels = plan.levels;
  archive.value("first", at.first);
  archive.value("inside", at.step);
  archive.value("ranks", ranks);
  archive.value("gathered", gathered);
  archive.value("panel", panel);
  archive.value("levels", levels);
  if (at.step > 0 && (ranks != context.size() || gathered != plan.gathered || panel != plan.panel ||
                      levels != plan.levels))
    fail_together(Exit::input,
                  fmt::format("the checkpoint is inside a panel of {} ranks with {} levels and "
                              "panels of {}; --restart; start the same number of ranks with the "
                              "same --levels and --block",
                              ranks, levels, panel));
  archive.rows(context.bulk, "product", c.layout.extent, c.stride, c.layout.ranges(context.rank()),
               c.data.data(), c.stride);
  const Index rows = std::min(plan.gathered, inner - at.first);
  if (at.step == 0 || memory.product.levels(c.slots(), rows, c.stride) == 0 ||
      !BitStrassen<B>::sums_count(at.step))
    return;
  const BitRows<Word, B> sums = memory.product.sums(c.slots(), rows, c.stride);
  Index all = 0, before = 0;  // of the lower halves of the ranks' rows
  for (int rank = 0; rank < context.size(); ++rank) {
    const Index count = c.layout.slots(rank) - c.layout.slots(rank) / 2;
    if (rank < context.rank()) before += count;
    all += count;
  }
  const Range own{before, sums.count};
  archive.rows(context.bulk, "sums", all, sums.stride, {&own, 1}, sums.data, sums.stride);
}

/// From --levels, --block and --method. Collective.
MultiplyWish multiply_wish(const Control& control, const PanelWish& o, Index levels) {
  if (o.tables == "broadcast")
    fail_together(Exit::usage, "products broadcast rows, not tables; --tables; use local");
  if (!o.panels.empty())
    fail_together(Exit::usage, "products have no pivots to choose; --panels; leave it out");
  if (o.method == "columns")
    fail_together(Exit::usage,
                  "products do no elimination; --method columns; use tables or tensor");
  return {levels,
          o.block,
          {wants_bit_tables(o), false, {o.k}},
          int(control.reduce(Index(thread_count()), Reduce::max))};
}

/// A, B and C, without what the product takes.
template <class B>
BitMemory factors_memory(const ProductPlan& plan, int ranks) {
  const BlockCyclic slices = bit_row_layout(plan.layout.extent, ranks);
  const Index a = plan.a_words(), b = plan.b_words();
  return {BitMatrix<B>::bytes(slices, a) + BitMatrix<B>::bytes(slices, b) +
              BitMatrix<B>::bytes(factor_layout(plan.inner, ranks), b),
          staging_bytes(std::max(a, b), slices.slots(0))};
}

}  // namespace

template <class B>
ProductPlan plan_product(const Context<B>& context, Index rows, Index inner, Index columns,
                         const PanelWish& wish, Index levels, const Progress& progress) {
  require_bit_method_on<B>(wish);
  const int ranks = context.size();
  ProductPlan plan{inner,      columns, bit_row_layout(rows, ranks), factor_layout(inner, ranks),
                   wish.guard, {}};
  plan.how = plan_multiply<B>(ranks, plan.layout.slots(0), inner, plan.stride(),
                              multiply_wish(context.control, wish, levels), [&](Index more) {
                                BitMemory m = factors_memory<B>(plan, ranks);
                                m.bytes += more;
                                const auto [host, device] = host_and_device<B>(m);
                                return memory_shortage(context.control, host, device).empty();
                              });
  const Checkpoints* const from = progress.checkpoints;
  if (from == nullptr || from->value("inside", 0) == 0) return plan;
  plan.how.gathered = from->value("gathered", plan.how.gathered);
  plan.how.panel = from->value("panel", plan.how.panel);
  plan.how.levels = int(from->value("levels", plan.how.levels));
  plan.how.reason = "as the interrupted run had it";
  return plan;
}

template <class B>
BitMemory product_memory(const ProductPlan& plan, int ranks) {
  BitMemory m = factors_memory<B>(plan, ranks);
  m.bytes += multiply_bytes<B>(ranks, bit_row_layout(plan.layout.extent, ranks).slots(0),
                               plan.inner, plan.stride(), plan.how);
  return m;
}

template <class B>
Factors<B> read_factors(const Context<B>& context, const ProductPlan& plan, const BitSource<B>& a,
                        const BitSource<B>& b) {
  auto factors = collectively(context.control, [&] {
    MultiplyMemory<B> memory(context, plan.layout.slots(context.rank()), plan.inner, plan.stride(),
                             plan.how);
    return Factors<B>{BitMatrix<B>(context, plan.layout, plan.a_words()),
                      BitMatrix<B>(context, plan.b_layout, plan.b_words()),
                      BitMatrix<B>(context, plan.layout, plan.b_words()), std::move(memory)};
  });
  load(context, a, factors.a);
  load(context, b, factors.b);
  return factors;
}

template <class B>
void multiply_bits(Context<B>& context, const BitMatrix<B>& a, const BitMatrix<B>& b,
                   const BitMatrix<B>& c, Index inner, MultiplyMemory<B>& memory,
                   Progress& progress) {
  const Index gathered = std::max<Index>(1, memory.plan.gathered), stride = b.stride;
  const Stream<B>&ahead = context.ahead, &bulk = context.bulk;
  const bool alone = context.size() == 1;
  Checkpoints* const checkpoints = progress.checkpoints;
  StepPlace at;
  const auto state = [&](Archive& archive) {
    archive_product(context, archive, c, memory, inner, at);
  };
  if (checkpoints) (void)checkpoints->resume(state);
  // Inner rows [0, first), and `step` of the next panel's `steps`, are enqueued.
  const auto stop = [&](Index first, Index rows, Index step, Index steps) {
    if (!checkpoints->due()) return;
    ahead.synchronize();
    bulk.synchronize();
    const StepPlace place = at;
    at = {first, step};
    checkpoints->save(std::max<Index>(1, first + rows * step / steps), inner, state);
    at = place;
  };
  // `step` counts the factor, then the product.
  const auto flip = [&](Index step, const BitMatrix<B>& m) {
    flip_for_tests(ahead, context.rank(), step, m.data.data(), 8 * m.data.size());
  };
  flip(1, a);
  progress.begin("multiplying", double(inner));
  Event<B> read[2] = {bulk.record(), bulk.record()};  // when a buffer may be written again
  for (Index k = 0; at.first < inner; ++k) {
    const Index first = at.first, rows = std::min(gathered, inner - first);
    BitRows<const Word, B> panel{b.data.data() + first * stride, stride, rows, nullptr};
    std::optional<Gathering<B>> gathering;
    if (!alone) {
      panel.data = memory.received[k % 2].data();
      ahead.wait(read[k % 2]);
      gathering.emplace(context, b, first, rows, memory.received[k % 2].data());
    }
    typename BitStrassen<B>::Hooks hooks{
        [&](Index need) {
          if (gathering) gathering->wait(need);
        },
        [&](double part) { progress.tick(double(first) + part * double(rows), k); }, at.step,
        nullptr};
    if (checkpoints) {
      const BitStrassen<B>& product = memory.product;
      const Index steps = product.steps(c.slots(), rows, stride), step_rows = product.step_rows();
      const bool leaf = product.levels(c.slots(), rows, stride) == 0;
      // The host keeps to the device, so that it hears of time and signals when it should.
      if (!alone) read[k % 2].synchronize();
      if (alone || context.control.reduce(Index(leaf), Reduce::max) == 0)
        hooks.between = [&, leaf, steps, step_rows](Index done) {
          bulk.synchronize();
          if (!leaf)
            stop(first, rows, done, steps);
          else if ((first + done * step_rows) % 512 == 0)  // as good as a panel's end
            stop(first + done * step_rows, 0, 0, 1);
        };
    }
    // C += A[:, panel] B[panel, :]
    memory.product.add(bulk, {a.data.data() + first / 64, a.stride, a.slots(), nullptr}, panel,
                       c.rows(), stride, hooks);
    read[k % 2] = bulk.record();
    at = {first + rows, 0};
    if (checkpoints && at.first < inner) stop(at.first, 0, 0, 1);
  }
  ahead.synchronize();
  bulk.synchronize();
  progress.end();
  flip(2, c);
}

template <class B>
std::string check_product(const Context<B>& context, const BitSource<B>& a, BlockCyclic a_layout,
                          const BitSource<B>& b, BlockCyclic b_layout, const BitMatrix<B>& c,
                          Index columns, Word seed) {
  const std::vector<Word> z = random_words(seed, columns);
  const auto mine = multiply_again(context, b, b_layout, z);
  std::vector<Word> bz(std::size_t(b.rows), 0);
  for (Index slot = 0; slot < Index(mine.size()); ++slot)
    bz[std::size_t(b_layout.global(slot, context.rank()))] = mine[std::size_t(slot)];
  context.control.reduce(bz, Reduce::bit_xor);
  auto difference = multiply_again(context, a, a_layout, bz);
  const auto cz = multiply_rows<B>(context, c.rows(), 0, z);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] ^= cz[i];
  if (!all_zero(context.control, difference)) return "A B Z differs from C Z";
  return {};
}

template <class B>
std::string certify_product(Context<B>& context, const ProductPlan& plan, const BitSource<B>& a,
                            const BitSource<B>& b, Factors<B>& factors, Word seed,
                            Progress& progress, const AgainHooks& again) {
  const auto check = [&] {
    return check_product(context, a, plan.layout, b, plan.b_layout, factors.c, plan.columns, seed);
  };
  std::string broken = check();
  if (broken.empty() || !plan.guard) return broken;
  again.begin();
  load(context, a, factors.a);
  load(context, b, factors.b);
  fill_zero(context.bulk, factors.c.data.view());
  context.bulk.synchronize();
  multiply_bits(context, factors.a, factors.b, factors.c, plan.inner, factors.memory, progress);
  again.end();
  if (check().empty())
    confirmed_fault(context.control,
                    "the certificate did not hold, but does with the factors read and "
                    "multiplied again");
  return broken;
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template MultiplyPlan plan_multiply<B>(int, Index, Index, Index, MultiplyWish,                   \
                                         const std::function<bool(Index)>&);                       \
  template Index multiply_bytes<B>(int, Index, Index, Index, const MultiplyPlan&);                 \
  template struct MultiplyMemory<B>;                                                               \
  template void multiply_bits(Context<B>&, const BitMatrix<B>&, const BitMatrix<B>&,               \
                              const BitMatrix<B>&, Index, MultiplyMemory<B>&, Progress&);          \
  template std::string check_product(const Context<B>&, const BitSource<B>&, BlockCyclic,          \
                                     const BitSource<B>&, BlockCyclic, const BitMatrix<B>&, Index, \
                                     Word);                                                        \
  template ProductPlan plan_product(const Context<B>&, Index, Index, Index, const PanelWish&,      \
                                    Index, const Progress&);                                       \
  template BitMemory product_memory<B>(const ProductPlan&, int);                                   \
  template Factors<B> read_factors(const Context<B>&, const ProductPlan&, const BitSource<B>&,     \
                                   const BitSource<B>&);                                           \
  template std::string certify_product(Context<B>&, const ProductPlan&, const BitSource<B>&,       \
                                       const BitSource<B>&, Factors<B>&, Word, Progress&,          \
                                       const AgainHooks&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
