#include "src/api/csr_rows.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "distrib/agree.hpp"

namespace terrace::api::cg {

std::vector<Index> row_starts(const Context::Inside& ranks, Index n, const Rows& rows) {
  const Control& control = ranks.control;
  ranks.require_alike({{"n", n}});
  const std::vector<Index> firsts = control.gather_all(rows.first);
  const std::vector<Index> counts = control.gather_all(rows.count);
  const Index dealt = control.reduce(rows.block, Reduce::max);
  Index next = 0;
  std::vector<Index> result;
  for (std::size_t r = 0; r < firsts.size(); ++r) {
    result.push_back(next);
    if (dealt != 0 || counts[r] < 0 || (counts[r] > 0 && firsts[r] != next)) next = n + 1;
    next += counts[r];
  }
  if (next != n)
    fail_together(Exit::usage,
                  fmt::format("the ranks' rows of the CSR matrix are not 0 to {} in the "
                              "order of the ranks; Rows; give such ranges",
                              n - 1));
  result.push_back(n);
  return result;
}

namespace {

/// By way of the host's memory: rows in any order, duplicates added.
template <class B>
std::unique_ptr<terrace::cg::CsrOperator<B>> from_slice(const terrace::Context<B>& on,
                                                        const std::vector<Index>& first,
                                                        const std::vector<Index>& start,
                                                        const Index* column, const double* value) {
  terrace::cg::CsrSlice slice;
  collectively(on.control, [&] {
    slice.start.assign(start.begin(), start.end());
    slice.column.resize(std::size_t(start.back()));
    slice.value.resize(std::size_t(start.back()));
    std::copy_n(column, start.back(), slice.column.begin());
    std::copy_n(value, start.back(), slice.value.begin());
  });
  return std::make_unique<terrace::cg::CsrOperator<B>>(on, first, std::move(slice));
}

template <class B>
std::unique_ptr<terrace::cg::CsrOperator<B>> from_rows(const terrace::Context<B>& on,
                                                       const std::vector<Index>& first,
                                                       const std::vector<Index>& start,
                                                       const Index* column, const double* value) {
  terrace::cg::CsrLoad<B> load(on, first, start);
  if (load.entries() > 0) {
    load.put_columns(on, 0, load.entries(), column);
    load.put_values(on, 0, load.entries(), value);
  }
  const terrace::cg::CsrFaults faults = load.faults(on);
  if (faults.outside > 0)
    fail_together(Exit::input,
                  "a column index outside the matrix; in the CSR rows; give zero-based "
                  "columns below n");
  if (faults.not_finite > 0)
    fail_together(Exit::input,
                  "NaN or Inf in the input; in the CSR values; only finite numbers are accepted");
  if (faults.unsorted > 0) return nullptr;
  return std::make_unique<terrace::cg::CsrOperator<B>>(on, std::move(load));
}

}  // namespace

template <class B>
CsrMade<B> csr_operator(const terrace::Context<B>& on, const std::vector<Index>& first,
                        const std::vector<Index>& start, const Index* column, const double* value) {
  CsrMade<B> made{from_rows(on, first, start, column, value), true};
  if (!made.a) made = {from_slice(on, first, start, column, value), false};
  return made;
}

#define TERRACE_INSTANTIATE(B)                                                            \
  template CsrMade<B> csr_operator(const terrace::Context<B>&, const std::vector<Index>&, \
                                   const std::vector<Index>&, const Index*, const double*);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::api::cg
