#include "kernels/cg/csr_setup.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

constexpr Index row_grain = 4096, entry_grain = 1 << 16;

void add(Index& total, Index some) {
  if (some != 0) std::atomic_ref(total) += some;
}

bool is_own(const CsrRows<Cpu>& m, std::int32_t column) { return column >= 0 && column < m.rows(); }

/// best = min(best, mine), from several threads.
void lower(Index& best, Index mine) {
  std::atomic_ref shared(best);
  for (Index seen = shared; mine < seen && !shared.compare_exchange_weak(seen, mine);) {
  }
}

/// A[i, j], zero where nothing is stored.
double stored(const CsrRows<Cpu>& m, Index i, std::int32_t j) {
  const std::int32_t* const base = m.column.data;
  const std::int32_t* const end = base + m.start.data[i + 1];
  const std::int32_t* const at = std::lower_bound(base + m.start.data[i], end, j);
  return at != end && *at == j ? m.value.data[at - base] : 0.0;
}

}  // namespace

void number_columns(const Stream<Cpu>& stream, View<const Index, Cpu> from,
                    View<std::int32_t, Cpu> to, Index columns, Index origin,
                    View<CsrFaults, Cpu> faults) {
  stream.run([=] {
    constexpr Index least = std::numeric_limits<std::int32_t>::min(),
                    most = std::numeric_limits<std::int32_t>::max();
    parallel_ranges(from.size, entry_grain, [&](Index begin, Index end) {
      Index outside = 0, far = 0;
      for (Index k = begin; k < end; ++k) {
        const Index c = from.data[k];
        const bool out = c < 0 || c >= columns;
        const Index own = out ? 0 : c - origin;
        outside += out;
        far += own < least || own > most;
        to.data[k] = std::int32_t(own);
      }
      add(faults.data->outside, outside);
      add(faults.data->far, far);
    });
  });
}

void judge(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, View<CsrFaults, Cpu> faults) {
  stream.run([=] {
    parallel_ranges(m.rows(), row_grain, [&](Index begin, Index end) {
      Index unsorted = 0, not_finite = 0;
      for (Index i = begin; i < end; ++i)
        for (Index k = m.start.data[i]; k < m.start.data[i + 1]; ++k) {
          unsorted += k > m.start.data[i] && m.column.data[k] <= m.column.data[k - 1];
          not_finite += !std::isfinite(m.value.data[k]);
        }
      add(faults.data->unsorted, unsorted);
      add(faults.data->not_finite, not_finite);
    });
  });
}

void find_diagonal(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, View<double, Cpu> diagonal) {
  stream.run([=] {
    parallel_ranges(m.rows(), row_grain, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) diagonal.data[i] = stored(m, i, std::int32_t(i));
    });
  });
}

void find_asymmetry(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, Index first, Index n,
                    View<const double, Cpu> diagonal, View<Index, Cpu> worst) {
  stream.run([=] {
    parallel_ranges(m.rows(), row_grain, [&](Index begin, Index end) {
      Index mine = std::numeric_limits<Index>::max();
      for (Index i = begin; i < end; ++i)
        for (Index k = m.start.data[i]; k < m.start.data[i + 1]; ++k) {
          const std::int32_t j = m.column.data[k];
          if (j == i || !is_own(m, j)) continue;
          const double scale =
              std::sqrt(std::fabs(diagonal.data[i])) * std::sqrt(std::fabs(diagonal.data[j]));
          if (!symmetric_pair(m.value.data[k], stored(m, j, std::int32_t(i)), scale))
            mine =
                std::min(mine, (first + std::min<Index>(i, j)) * n + first + std::max<Index>(i, j));
        }
      lower(worst.data[0], mine);
    });
  });
}

void find_outer_asymmetry(const Stream<Cpu>& stream, const CsrRows<Cpu>& outer,
                          View<const Index, Cpu> column, Index first, Index n,
                          const double* diagonal, const CameEntries<Cpu>& others,
                          View<Index, Cpu> worst) {
  stream.run([=] {
    parallel_ranges(outer.rows(), row_grain, [&](Index begin, Index end) {
      Index mine = std::numeric_limits<Index>::max();
      for (Index k = begin; k < end; ++k) {
        const Index own = outer.row.data[k], i = first + own;
        for (Index e = outer.start.data[k]; e < outer.start.data[k + 1]; ++e) {
          const Index j = column.data[e];
          const double scale = std::sqrt(std::fabs(diagonal[own])) *
                               std::sqrt(std::fabs(diagonal[outer.column.data[e]]));
          if (!symmetric_pair(outer.value.data[e], came(others, i, j), scale))
            mine = std::min(mine, std::min(i, j) * n + std::max(i, j));
        }
      }
      lower(worst.data[0], mine);
    });
  });
}

void sample_nearness(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, View<Index, Cpu> near) {
  stream.run([=] {
    constexpr Index samples = 4096, close = 16;
    const Index step = std::max<Index>(1, m.rows() / samples);
    near.data[0] = near.data[1] = 0;
    for (Index i = 1; i < m.rows(); i += step) {
      const std::int32_t* above = m.column.data + m.start.data[i - 1];
      const std::int32_t* const end = m.column.data + m.start.data[i];
      for (Index k = m.start.data[i]; k < m.start.data[i + 1]; ++k) {
        const Index c = m.column.data[k];
        while (above != end && *above < c - close) ++above;
        near.data[0] += 1;
        near.data[1] += above != end && *above <= c + close;
      }
    }
  });
}

OuterRows<Cpu> copy_outer(const Stream<Cpu>& stream, const CsrRows<Cpu>& m,
                          View<Index, Cpu> inner_start) {
  stream.synchronize();
  const Index rows = m.rows();
  parallel_ranges(rows, row_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      inner_start.data[i + 1] =
          std::count_if(m.column.data + m.start.data[i], m.column.data + m.start.data[i + 1],
                        [&](std::int32_t c) { return !is_own(m, c); });
  });
  std::vector<Index> row, start{0};
  inner_start.data[0] = 0;
  for (Index i = 0; i < rows; ++i) {
    if (const Index outer = inner_start.data[i + 1]; outer > 0) {
      row.push_back(i);
      start.push_back(start.back() + outer);
    }
    inner_start.data[i + 1] = m.start.data[i + 1] - start.back();
  }
  const auto listed = Index(row.size());
  OuterRows<Cpu> taken{Buffer<Index, Cpu>(listed), Buffer<Index, Cpu>(listed + 1),
                       Buffer<std::int32_t, Cpu>(start.back()), Buffer<double, Cpu>(start.back())};
  std::copy(row.begin(), row.end(), taken.row.data());
  std::copy(start.begin(), start.end(), taken.start.data());
  for (std::size_t k = 0; k < row.size(); ++k) {
    Index to = start[k];
    for (Index e = m.start.data[row[k]]; e < m.start.data[row[k] + 1]; ++e) {
      if (is_own(m, m.column.data[e])) continue;
      taken.column.data()[to] = m.column.data[e];
      taken.value.data()[to++] = m.value.data[e];
    }
  }
  return taken;
}

void pick_inner(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, Index from, Index rows,
                View<const Index, Cpu> inner_start, View<std::int32_t, Cpu> column,
                View<double, Cpu> value) {
  stream.run([=] {
    parallel_ranges(rows, row_grain, [&](Index begin, Index end) {
      for (Index i = from + begin; i < from + end; ++i) {
        Index at = inner_start.data[i] - inner_start.data[from];
        for (Index k = m.start.data[i]; k < m.start.data[i + 1]; ++k)
          if (is_own(m, m.column.data[k])) {
            column.data[at] = m.column.data[k];
            value.data[at++] = m.value.data[k];
          }
      }
    });
  });
}

}  // namespace terrace::cg
