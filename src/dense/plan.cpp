// Method, block, pivoting and memory of a dense elimination, chosen before anything is read.
#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/dense/low.hpp"
#include "kernels/dense/lu.hpp"
#include "kernels/dense/probes.hpp"
#include "src/dense/elimination.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

namespace {

/// GPUs; widths for more come from the model (jobs/results/scaling.md).
constexpr int most_measured = 4;
/// Rows of a panel that one cluster takes.
constexpr Index most_gathered = 32768;

template <class B>
Index default_block(Index n, int ranks, bool emulated, bool lu, bool gathered) {
  if constexpr (std::is_same_v<B, Cpu>)
    return n <= 128 ? 32 : n <= 512 ? 48 : n <= 1536 ? 72 : n <= 6000 ? 144 : 192;
  if (emulated) return n <= 49152 ? 2048 : 4096;
  if (ranks == 1 && lu)
    return n <= 1024 ? 64 : n <= 4096 ? 128 : n <= 12288 ? 256 : n <= 24576 ? 512 : 1024;
  if (ranks == 1)
    return n <= 1024    ? 64
           : n <= 4096  ? 128
           : n <= 12288 ? 256
           : n <= 24576 ? 1024
           : n <= 49152 ? 1536
                        : 2048;
  if (gathered) return ranks > most_measured ? 256 : n <= 24576 ? 512 : 1024;
  const Index block = n <= 1024 ? 64 : n <= 2560 ? 128 : n <= 24576 ? 256 : 1024;
  if (ranks <= most_measured) return block;
  const Index share = n / ranks;  // a rank's update no longer hides the panel
  return std::min<Index>(block, share < 1536 ? 128 : share < 8192 ? 256 : block);
}

}  // namespace

emulated::Shape shape_of_products(const EliminationPlan& plan, Index slots) {
  return {slots, std::min<Index>(plan.columns, 8192), plan.block, plan.moduli};
}

void check_moduli(int moduli, bool emulated) {
  if (!emulated && moduli != accurate_moduli)
    fail_together(Exit::usage,
                  "moduli are of emulated products; --moduli; add --precision emulated");
}

template <class B>
Index products_bytes(const EliminationPlan& plan, Index slots) {
  emulated::Shape shape = shape_of_products(plan, slots);
  shape.moduli = accurate_moduli;
  return emulated::workspace_bytes(B{}, shape);
}

template <class B>
EliminationPlan plan_elimination(int ranks, Index n, Index right, bool inverse, Index block,
                                 const std::string& pivoting, bool emulated, bool lu, Index room) {
  if (emulated && (std::is_same_v<B, Cpu> || !emulated::available(B{})))
    fail_together(Exit::usage,
                  "emulated products need a GPU of compute capability 9.0; --precision emulated; "
                  "leave the option out");
  EliminationPlan plan;
  plan.emulated = emulated;
  plan.n = n;
  plan.right = right;
  plan.room = std::max(right, room);
  plan.inverse = inverse;
  plan.lu = lu;
  const bool host = std::is_same_v<B, Cpu>;
  const bool can_gather = !host && ranks > 1 && n <= most_gathered;
  plan.pivoting = pivoting == "partial"                             ? Pivoting::partial
                  : pivoting == "tournament"                        ? Pivoting::tournament
                  : host || ranks == 1 || (can_gather && !emulated) ? Pivoting::partial
                                                                    : Pivoting::tournament;
  plan.gathered = can_gather && plan.pivoting == Pivoting::partial;
  plan.why_block = block > 0 ? "asked for"
                   : !host && ranks > most_measured
                       ? "fastest by the model for more GPUs than were measured"
                       : "fastest of the widths measured at this order";
  plan.block = std::min(block > 0 ? block : default_block<B>(n, ranks, emulated, lu, plan.gathered),
                        std::max<Index>(1, n));
  plan.why_pivoting = pivoting != "auto" ? "asked for"
                      : host             ? "one small exchange per column is cheap between hosts"
                      : ranks == 1       ? "all rows are on one device"
                      : plan.gathered    ? "one device takes all rows of a panel"
                                         : "one exchange per panel instead of one per column";
  // On the host a leaf of the tournament is a block of the layout: more rows than it may send on.
  const bool leaves = host && plan.pivoting == Pivoting::tournament;
  plan.rows = {n, plan.block * (leaves ? dense::leaf_blocks : 1), ranks};
  // cuBLAS is slow where a factor's rows are not 16 bytes apart: columns of zeros.
  plan.columns = host ? n + right : round_up(n + right, 8);
  plan.ld = round_up(std::max(plan.columns, n + plan.room), 16);
  if (plan.ld % 256 == 0) plan.ld += 16;  // rows of a power of two collide in the caches
  const Index slots = plan.rows.slots(0);
  const BufferSizes sizes = dense::sizes(B{}, slots, plan.rows.block, plan.block, ranks);
  const Index record = dense::record_size(plan.block);
  const Index records =
      plan.pivoting == Pivoting::partial ? record : sizes.leaves * plan.block * record;
  const Index doubles =
      (slots + 1) * plan.ld + 2 * sizes.panel + sizes.work + 2 * plan.block * plan.block +
      records * (ranks + 1) +
      (ranks > 1 || sizes.separate_y ? 2 : 1) * plan.block * plan.sent_columns() +
      ceil_div(n, plan.block) * (2 + 2 * plan.block) +
      (plan.gathered ? dense::sizes(B{}, n, 1, plan.block, 1).panel + 4 * n + 2 * slots : 0);
  if (emulated) plan.bytes = products_bytes<B>(plan, slots);
  plan.bytes += 8 * (doubles + 2 * slots + 3 * std::max(n, plan.block));
  if (lu) plan.bytes += 8 * (slots + list_size(plan.block));
  return plan;
}

template <class B>
void keep_lower(EliminationPlan& plan, bool low) {
  plan.keep = true;
  plan.low = low;
  plan.bytes += 8 * plan.block * plan.columns;
  if (low) plan.bytes += low_bytes(B{}, plan.rows.slots(0), plan.columns, plan.block);
}

double DensePlan::flops() const {
  const double order = double(n);
  if (method == "cramer") return 2.0 / 3 * std::pow(order, 3) * double(1 + n * rhs);
  if (inverse) return 2 * std::pow(order, 3);
  if (stored) return 2 * order * order * double(rhs);
  return order * order * (order * (lu ? 2.0 / 3 : 1.0) + 2 * double(rhs));
}

Index DensePlan::host_bytes() const { return mixed ? refine_bytes(n, rows.slots(0), right) : 0; }

template <class B>
void keep_doubles(EliminationPlan& plan) {
  keep_lower<B>(plan, true);
  plan.bytes += 8 * plan.rows.slots(0) * plan.n;
}

template <class B>
DensePlan plan_dense(int ranks, Index n, const DenseRequest& o) {
  DensePlan plan;
  plan.n = n;
  plan.inverse = o.inverse;
  plan.method = o.method;
  plan.factor = o.factor;
  plan.stored = o.stored;
  plan.rhs = plan.right = o.factor ? 1 : o.right;
  plan.exact_check = o.exact_check;
  plan.seed = o.seed;
  if (o.method == "textbook") {
    plan.launch = launch_of<B>(o.grid, o.threads);
    plan.bytes = plan_textbook(n, plan.launch).bytes;
    return plan;
  }
  if (o.method == "cramer") return plan;
  const bool lu = o.method == "lu" || (o.method.empty() && !o.inverse && !o.emulated);
  if (lu && o.emulated)
    fail_together(Exit::usage,
                  "LU has FP64 only; --precision emulated; leave it out, or use --method "
                  "gauss-jordan");
  plan.method = lu ? "lu" : "gauss-jordan";
  if (o.mixed && (!lu || o.factor || o.stored || o.guard))
    fail_together(
        Exit::usage,
        "mixed precision is for solutions by LU, without --guard; --precision mixed; leave "
        "it out");
  if (o.mixed && !emulated::available(B{}))
    fail_together(Exit::usage,
                  "mixed precision needs a GPU of compute capability 9.0, or --backend cpu; "
                  "--precision mixed; leave the option out");
  check_moduli(o.moduli, o.emulated);
  plan.mixed = o.mixed;
  plan.probes = n > 0 && !o.inverse && o.condition ? condition_probes : 0;
  static_cast<EliminationPlan&>(plan) =
      plan_elimination<B>(ranks, n, plan.rhs + plan.probes + (o.guard ? 1 : 0), o.inverse, o.block,
                          o.pivoting, o.emulated, lu, o.room);
  plan.moduli = o.moduli;
  if (o.factor) keep_lower<B>(plan, false);
  if (o.mixed && !std::is_same_v<B, Cpu> && ranks == 1 && plan.pivoting == Pivoting::partial) {
    plan.float_block = float_block(n, o.block);
    plan.bytes += float_elimination_bytes<B>({n, plan.float_block}, plan.right);
  } else if (o.mixed) {
    keep_doubles<B>(plan);
  }
  plan.guard = o.guard;
  if (o.exact_check) plan.bytes += exact_check_bytes(n, plan.rows.slots(0));
  // Measured on one and two H200: by LU even at n = 12,000, an inverse 8 % faster at 8,192. Mixed on
  // one loses a quarter at 8,192 and gains a tenth at 16,384; on two it loses from 16,384 to 32,768.
  if (o.mixed && !std::is_same_v<B, Cpu> && n <= (ranks > 1 ? 32768 : 12000))
    plan.note = "FP64 is faster at this order; leave --precision mixed out";
  else if (!std::is_same_v<B, Cpu> && ranks > 1 && n < (lu ? 12000 : 8192))
    plan.note = "one GPU is faster than several at this order; start one rank";
  return plan;
}

#define INSTANTIATE(B)                                                                             \
  template EliminationPlan plan_elimination<B>(int, Index, Index, bool, Index, const std::string&, \
                                               bool, bool, Index);                                 \
  template void keep_lower<B>(EliminationPlan&, bool);                                             \
  template Index products_bytes<B>(const EliminationPlan&, Index);                                 \
  template DensePlan plan_dense<B>(int, Index, const DenseRequest&);                               \
  template void keep_doubles<B>(EliminationPlan&);
TERRACE_FOR_EACH_BACKEND(INSTANTIATE)
#undef INSTANTIATE

}  // namespace terrace::dense
