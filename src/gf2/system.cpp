#include "src/gf2/system.hpp"

#include <algorithm>

#include "distrib/agree.hpp"

namespace terrace::gf2 {

namespace {

/// Of a basis of `rows` vectors, on the fullest rank, while it is assembled.
template <class B>
Index basis_bytes(const BitPlan& plan, Index rows, int ranks) {
  const Index words = plan.words();
  return BitMatrix<B>::bytes(kernel_layout(rows, words, ranks), words) +
         2 * staging_bytes(round_up(words, bit_row_alignment), rows);
}

/// What a rank takes on the backend besides the elimination.
template <class B>
Index bytes_beside(const BitPlan& plan, const BlockCyclic& rows) {
  if (plan.task == BitTask::solve) {
    const Index x_rows = ceil_div(plan.columns, Index(rows.ranks)) + rows.slots(0);
    return 8 * std::min(x_rows, plan.columns) * round_up(plan.right_words(), bit_row_alignment);
  }
  // At least columns - rows basis vectors.
  if (plan.task == BitTask::kernel)
    return basis_bytes<B>(plan, std::max<Index>(0, plan.columns - rows.extent), rows.ranks);
  return plan.task == BitTask::inverse ? staging_bytes(plan.words(), rows.slots(0)) : 0;
}

/// Multiply-adds: every row is updated by each panel's pivots, or half of those that become pivots.
double work_of(const BitPlan& plan, const Pivots& pivots) {
  const double n = double(plan.columns);
  if (plan.task == BitTask::inverse) return n * n * n;
  const double half = plan.form() == EchelonForm::echelon ? 0.5 : 0.0;
  const double rows = double(plan.layout.extent) - half * double(pivots.rank());
  double sum = 0;
  for (const auto& panel : pivots.panels)
    sum += double(panel.count) * rows * 64.0 * double(plan.witness_word() - panel.word);
  return sum;
}

}  // namespace

EchelonForm BitPlan::form() const {
  if (task == BitTask::inverse) return EchelonForm::inverse;
  return task == BitTask::echelon || task == BitTask::rank ? EchelonForm::echelon
                                                           : EchelonForm::reduced;
}

template <class B>
BitPlan plan_bits(const Context<B>& context, Index rows, Index columns, Index right,
                  const BitRequest& request, const PanelMeasurements& measured) {
  BitPlan plan{request.task,
               request.certify,
               bit_row_layout(rows, context.size()),
               columns,
               right,
               plan_panels(context, request, std::min(rows, columns), measured),
               request.transform};
  if (request.transform) plan.right = rows;
  plan.panels.witness = witness_seed(request.seed);
  return plan;
}

template <class B>
BitMemory bits_memory(const BitPlan& plan, int ranks) {
  const BlockCyclic rows = bit_row_layout(plan.layout.extent, ranks);
  const Index all = plan.all_words();
  return {BitMatrix<B>::bytes(rows, all) +
              echelon_bytes<B>(rows, round_up(all, bit_row_alignment), plan.panels) +
              bytes_beside<B>(plan, rows),
          staging_bytes(std::max(plan.words(), plan.right_words()), rows.slots(0))};
}

template <class B>
void load_bits(const Context<B>& context, const BitPlan& plan, const BitSource<B>& a,
               const BitSource<B>& b, const BitMatrix<B>& matrix) {
  load(context, a, matrix);
  if (b.read) load(context, b, matrix, plan.words());
  if (plan.transform) load(context, identity_source(context, plan.layout), matrix, plan.words());
  put_witness(context, matrix, plan.witness_word(), plan.panels.witness);
}

template <class B>
BitResult<B> reduce_bits(Context<B>& context, const BitPlan& plan, BitMatrix<B> matrix,
                         Progress& progress, const StageTimes<B>& stages) {
  BitResult<B> r;
  r.matrix = std::move(matrix);
  r.pivots = reduce_to_echelon(context, r.matrix, plan.columns, plan.form(), plan.panels, progress,
                               stages);
  r.work = work_of(plan, r.pivots);
  if (plan.task == BitTask::inverse && r.pivots.first_zero_pivot < 0) {
    order_inverse(context, r.matrix, r.pivots);
  } else if (plan.task == BitTask::solve) {
    const Index word = plan.words(), words = plan.right_words();
    r.consistent = consistent(context, r.matrix, r.pivots, word, words);
    if (r.consistent)
      r.x = solution_of_reduced(context, r.matrix, r.pivots, plan.columns, word, words);
  } else if (plan.task == BitTask::kernel) {
    const Index wanted = basis_bytes<B>(plan, plan.columns - r.pivots.rank(), context.size());
    constexpr bool on_host = std::is_same_v<B, Cpu>;
    require_memory(context.control, on_host ? wanted : 0, on_host ? 0 : wanted);
    r.basis = kernel_basis(context, r.matrix, r.pivots, plan.columns);
  }
  return r;
}

template <class B>
std::vector<Index> destination_of(const BitResult<B>& result) {
  const Pivots& pivots = result.pivots;
  const BlockCyclic& layout = result.matrix.layout;
  // Of all rows: pivot rows by their pivots, then the others as they are.
  std::vector<Index> place(std::size_t(layout.extent), Index(-1));
  for (Index q = 0; q < pivots.rank(); ++q) place[std::size_t(pivots.rows[std::size_t(q)])] = q;
  Index next = pivots.rank();
  for (Index& row : place)
    if (row < 0) row = next++;
  const int rank = result.matrix.rank;
  std::vector<Index> destination;
  destination.reserve(std::size_t(layout.slots(rank)));
  for (Index slot = 0; slot < layout.slots(rank); ++slot)
    destination.push_back(place[std::size_t(layout.global(slot, rank))]);
  return destination;
}

template <class B>
std::string certify_bits(const Context<B>& context, const BitPlan& plan, const BitSource<B>& a,
                         const BitSource<B>& b, BitResult<B>& r) {
  const Word seed = plan.panels.witness;
  if (plan.task == BitTask::inverse)
    r.witness = {seed, witness_of_inverse(context, r.matrix, r.pivots, seed), {}};
  else
    r.witness = (plan.form() == EchelonForm::echelon
                     ? witness_of_echelon<B>
                     : witness_of_reduced<B>)(context, r.matrix, plan.columns, plan.witness_word(),
                                              r.pivots, seed);
  if (!plan.certify) return {};
  if (plan.task == BitTask::inverse)
    return check_inverse(context, a, plan.layout, r.witness.x, seed);
  if (plan.task == BitTask::solve) return check_solution(context, a, b, plan.layout, r.x, seed + 2);
  std::string broken = check_rank(context, a, plan.layout, r.pivots, r.witness);
  if (broken.empty() && plan.transform)
    broken = check_transform(context, a, r.matrix, r.pivots, plan.words(), seed + 2);
  if (broken.empty() && plan.task == BitTask::kernel)
    broken = check_kernel(context, a, plan.layout, r.basis, r.pivots, seed + 2);
  return broken;
}

#define TERRACE_INSTANTIATE(B)                                                              \
  template BitPlan plan_bits(const Context<B>&, Index, Index, Index, const BitRequest&,     \
                             const PanelMeasurements&);                                     \
  template BitMemory bits_memory<B>(const BitPlan&, int);                                   \
  template void load_bits(const Context<B>&, const BitPlan&, const BitSource<B>&,           \
                          const BitSource<B>&, const BitMatrix<B>&);                        \
  template BitResult<B> reduce_bits(Context<B>&, const BitPlan&, BitMatrix<B>, Progress&,   \
                                    const StageTimes<B>&);                                  \
  template std::vector<Index> destination_of(const BitResult<B>&);                          \
  template std::string certify_bits(const Context<B>&, const BitPlan&, const BitSource<B>&, \
                                    const BitSource<B>&, BitResult<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
