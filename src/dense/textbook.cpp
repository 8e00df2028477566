#include "src/dense/textbook.hpp"

#include <cmath>
#include <numeric>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"

namespace terrace::dense {

namespace {

const std::string one_rank =
    "the textbook method runs on one rank; --method textbook; start one rank, or leave the "
    "option out";

}  // namespace

TextbookPlan plan_textbook(Index n, textbook::Launch launch) {
  TextbookPlan plan;
  plan.n = n;
  plan.launch = launch;
  plan.rows = contiguous(n, 1);
  plan.bytes = 8 * (2 * n * n + 2 * n + 2);
  return plan;
}

void check_textbook_options(int ranks, bool is_textbook, Index block, const std::string& pivoting,
                            bool launch_given) {
  if (!is_textbook) {
    if (launch_given)
      fail_together(Exit::usage,
                    "only the textbook method has launch shapes; "
                    "--grid, --threads; add --method textbook or leave them out");
    return;
  }
  if (ranks > 1) fail_together(Exit::usage, one_rank);
  if (block != 0)
    fail_together(Exit::usage, "the textbook method has no blocks; --block; leave the option out");
  if (pivoting == "tournament")
    fail_together(Exit::usage,
                  "the textbook method has partial pivoting only; --pivoting; leave the option "
                  "out");
}

template <class B>
textbook::Launch launch_of(Index grid, Index threads) {
  textbook::Launch launch;
  if (std::is_same_v<B, Cpu> && (grid > 0 || threads > 0))
    fail_together(Exit::usage,
                  "the CPU backend has no launches; --grid, --threads; leave them "
                  "out, or use --backend cuda");
  if (grid > 0) launch.grid = int(grid);
  if (threads > 0) launch.threads = int(threads);
  return launch;
}

template <class B>
TextbookInverse<B>::TextbookInverse(Context<B>& context, const TextbookPlan& plan)
    : context_(context),
      plan_(plan),
      pivot_host_(std::size_t(plan.n)),
      pivot_row_host_(std::size_t(plan.n)),
      destination_(std::size_t(plan.n)) {
  if (context.size() != 1)
    fail_together(Exit::usage,
                  "the textbook method runs on one rank; --method textbook; start "
                  "one rank, or leave the option out");
  collectively(context.control, [&] {
    a_ = Buffer<double, B>(plan.n * plan.n);
    x_ = Buffer<double, B>(plan.n * plan.n);
    pivot_ = Buffer<double, B>(plan.n);
    pivot_row_ = Buffer<Index, B>(plan.n);
    info_ = Buffer<Index, B>(2);
  });
  std::iota(destination_.begin(), destination_.end(), Index(0));
}

template <class B>
EliminationOutcome TextbookInverse<B>::run(Progress& progress) {
  const Index n = plan_.n;
  const Stream<B>& lane = context_.ahead;
  const textbook::System<B> system{n,     a_.view(),   x_.view(), pivot_row_.view(), pivot_.view(),
                                   info_, plan_.launch};
  EliminationOutcome found;
  done_ = true;
  if (n == 0) return found;
  progress.begin("invert", double(2 * n));
  textbook::begin(lane, system);
  for (Index k = 0; k < n; ++k) {
    textbook::choose_pivot(lane, system, k);
    textbook::exchange_rows(lane, system, k);
    textbook::subtract_below(lane, system, k);
    textbook::clear_below(lane, system, k);
    progress.tick(double(k));
  }
  for (Index k = n - 1; k >= 0; --k) {
    textbook::subtract_above(lane, system, k);
    textbook::clear_above(lane, system, k);
    progress.tick(double(2 * n - k));
  }
  textbook::divide_inverse(lane, system);
  textbook::divide_matrix(lane, system);
  Index info[2];
  download(lane, info, info_.view());
  download(lane, pivot_host_.data(), pivot_.view());
  download(lane, pivot_row_host_.data(), pivot_row_.view());
  lane.synchronize();
  progress.end();
  found.bad_column = info[0];
  found.overflow = info[0] >= 0 ? info[1] == 2 : !std::isfinite(max_abs<B>(lane, n, n, x_, n));
  if (!found.good()) return found;
  for (Index k = 0; k < n; ++k) {
    const double pivot = pivot_host_[std::size_t(k)];
    found.log_abs_determinant += std::log(std::fabs(pivot));
    if ((pivot < 0) != (pivot_row_host_[std::size_t(k)] != k))
      found.determinant_sign = -found.determinant_sign;
  }
  return found;
}

#define TERRACE_TEXTBOOK(B)                             \
  template textbook::Launch launch_of<B>(Index, Index); \
  template class TextbookInverse<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_TEXTBOOK)
#undef TERRACE_TEXTBOOK

}  // namespace terrace::dense
