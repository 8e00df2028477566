// What a CSR matrix needs before its first product. Floor: 12 bytes an entry and pass, from HBM; the
// search for asymmetries also gathers each entry's partner, mostly from L2.
#include <algorithm>

#include "kernels/cg/csr_setup.hpp"
#include "kernels/cg/cuda/coarsening.cuh"

namespace terrace::cg {
namespace {

using Count = unsigned long long;

__device__ Count* count_at(Index* at) { return reinterpret_cast<Count*>(at); }

/// Rows dealt to groups of `width` lanes; f(i, lane of the group).
template <int width, class F>
__device__ __forceinline__ void over_rows(Index rows, const F& f) {
  for (Index g = first_item() / width; g < rows; g += item_stride() / width)
    f(g, int(threadIdx.x) % width);
}

/// launch<width>(blocks), with lanes for the rows of m.
template <class Launch>
void with_lanes(const CsrRows<Cuda>& m, const Launch& launch) {
  constexpr coarsening::RowLanes lanes{.some_from = 4, .all_from = 25};
  coarsening::with_lanes<lanes>(m.rows(), m.column.size, launch);
}

__device__ __forceinline__ bool is_own(Index rows, std::int32_t column) {
  return column >= 0 && column < rows;
}

/// A[i, j], zero where nothing is stored.
__device__ __forceinline__ double stored(const CsrRows<Cuda>& m, Index i, std::int32_t j) {
  const Index end = m.start.data[i + 1], at = coarsening::first_from(m, m.start.data[i], end, j);
  return at < end && m.column.data[at] == j ? m.value.data[at] : 0.0;
}

__global__ void number_kernel(View<const Index, Cuda> from, std::int32_t* to, Index columns,
                              Index origin, CsrFaults* faults) {
  constexpr Index least = -(Index(1) << 31), most = (Index(1) << 31) - 1;
  for (Index k = first_item(); k < from.size; k += item_stride()) {
    const Index c = from.data[k];
    const bool out = c < 0 || c >= columns;
    const Index own = out ? 0 : c - origin;
    if (out) atomicAdd(count_at(&faults->outside), Count(1));
    if (own < least || own > most) atomicAdd(count_at(&faults->far), Count(1));
    to[k] = std::int32_t(own);
  }
}

template <int width>
__global__ void judge_kernel(CsrRows<Cuda> m, Index rows, CsrFaults* faults) {
  over_rows<width>(rows, [&](Index i, int lane) {
    const Index begin = m.start.data[i], end = m.start.data[i + 1];
    for (Index k = begin + lane; k < end; k += width) {
      if (k > begin && m.column.data[k] <= m.column.data[k - 1])
        atomicAdd(count_at(&faults->unsorted), Count(1));
      if (!isfinite(m.value.data[k])) atomicAdd(count_at(&faults->not_finite), Count(1));
    }
  });
}

__global__ void diagonal_kernel(CsrRows<Cuda> m, Index rows, double* diagonal) {
  for (Index i = first_item(); i < rows; i += item_stride())
    diagonal[i] = stored(m, i, std::int32_t(i));
}

template <int width>
__global__ void asymmetry_kernel(CsrRows<Cuda> m, Index rows, Index first, Index n,
                                 const double* diagonal, Index* worst) {
  over_rows<width>(rows, [&](Index i, int lane) {
    for (Index k = m.start.data[i] + lane; k < m.start.data[i + 1]; k += width) {
      const std::int32_t j = m.column.data[k];
      if (j == i || !is_own(rows, j)) continue;
      const double here = m.value.data[k], there = stored(m, j, std::int32_t(i));
      if (here == there) continue;
      const double scale = sqrt(fabs(diagonal[i])) * sqrt(fabs(diagonal[j]));
      if (!symmetric_pair(here, there, scale))
        atomicMin(reinterpret_cast<long long*>(worst),
                  (long long)((first + (i < j ? i : j)) * n + first + (i < j ? j : i)));
    }
  });
}

/// One thread per row: most have few entries.
__global__ void outer_asymmetry_kernel(CsrRows<Cuda> outer, Index rows,
                                       View<const Index, Cuda> column, Index first, Index n,
                                       const double* diagonal, CameEntries<Cuda> others,
                                       Index* worst) {
  for (Index k = first_item(); k < rows; k += item_stride()) {
    const Index own = outer.row.data[k], i = first + own;
    for (Index e = outer.start.data[k]; e < outer.start.data[k + 1]; ++e) {
      const Index j = column.data[e];
      const double here = outer.value.data[e], there = came(others, i, j);
      if (here == there) continue;
      const double scale = sqrt(fabs(diagonal[own])) * sqrt(fabs(diagonal[outer.column.data[e]]));
      if (!symmetric_pair(here, there, scale))
        atomicMin(reinterpret_cast<long long*>(worst), (long long)(i < j ? i * n + j : j * n + i));
    }
  }
}

/// One thread per sampled row.
__global__ void nearness_kernel(CsrRows<Cuda> m, Index rows, Index step, Index* near) {
  constexpr Index close = 16;
  Index all = 0, found = 0;
  for (Index i = 1 + first_item() * step; i < rows; i += item_stride() * step) {
    Index above = m.start.data[i - 1];
    const Index end = m.start.data[i], last = m.start.data[i + 1];
    for (Index k = end; k < last; ++k, ++all) {
      const Index c = m.column.data[k];
      while (above < end && m.column.data[above] < c - close) ++above;
      found += above < end && m.column.data[above] <= c + close;
    }
  }
  if (all > 0) atomicAdd(count_at(near), Count(all));
  if (found > 0) atomicAdd(count_at(near + 1), Count(found));
}

/// Entries of row i in columns below the first own row.
__device__ __forceinline__ Index left_of(const CsrRows<Cuda>& m, Index i) {
  const Index begin = m.start.data[i], end = m.start.data[i + 1];
  return begin < end && m.column.data[begin] < 0 ? coarsening::first_from(m, begin, end, 0) - begin
                                                 : 0;
}
/// Numbers of outer entries, and 1 where there are some; zeros behind them, in [rows].
__global__ void outer_counts_kernel(CsrRows<Cuda> m, Index rows, Index* outer, std::int32_t* has) {
  for (Index i = first_item(); i <= rows; i += item_stride()) {
    Index count = 0;
    if (i < rows) {
      const Index begin = m.start.data[i], end = m.start.data[i + 1];
      count = left_of(m, i);
      if (begin < end && m.column.data[end - 1] >= rows)
        count += end - coarsening::first_from(m, begin, end, rows);
    }
    outer[i] = count;
    has[i] = count > 0;
  }
}
/// Of these, added up, the rows' list.
__global__ void list_outer_kernel(CsrRows<Cuda> m, Index rows, const Index* outer,
                                  const std::int32_t* has, Index* inner_start, Index* row,
                                  Index* start) {
  for (Index i = first_item(); i <= rows; i += item_stride()) {
    inner_start[i] = m.start.data[i] - outer[i];
    const std::int32_t k = has[i];
    if (i == rows || outer[i + 1] > outer[i]) start[k] = outer[i];
    if (i < rows && outer[i + 1] > outer[i]) row[k] = i;
  }
}
/// A warp per row of the list.
__global__ void take_outer_kernel(CsrRows<Cuda> m, Index listed, const Index* row,
                                  const Index* start, std::int32_t* column, double* value) {
  over_rows<32>(listed, [&](Index k, int lane) {
    const Index i = row[k], left = left_of(m, i), to = start[k], count = start[k + 1] - to;
    for (Index e = lane; e < count; e += 32) {
      const Index from = e < left ? m.start.data[i] + e : m.start.data[i + 1] - count + e;
      column[to + e] = m.column.data[from];
      value[to + e] = m.value.data[from];
    }
  });
}
template <int width>
__global__ void inner_kernel(CsrRows<Cuda> m, Index from, Index rows, const Index* inner_start,
                             std::int32_t* column, double* value) {
  over_rows<width>(rows, [&](Index r, int lane) {
    const Index i = from + r, first = m.start.data[i] + left_of(m, i);
    const Index to = inner_start[i] - inner_start[from],
                count = inner_start[i + 1] - inner_start[i];
    for (Index e = lane; e < count; e += width) {
      column[to + e] = m.column.data[first + e];
      value[to + e] = m.value.data[first + e];
    }
  });
}

}  // namespace

void number_columns(const Stream<Cuda>& stream, View<const Index, Cuda> from,
                    View<std::int32_t, Cuda> to, Index columns, Index origin,
                    View<CsrFaults, Cuda> faults) {
  if (from.size == 0) return;
  number_kernel<<<blocks_for(from.size), block_threads, 0, native(stream)>>>(from, to.data, columns,
                                                                             origin, faults.data);
  check_launch();
}

void judge(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, View<CsrFaults, Cuda> faults) {
  with_lanes(m, [&]<int width>(unsigned blocks) {
    judge_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(m, m.rows(), faults.data);
  });
}

void find_diagonal(const Stream<Cuda>& stream, const CsrRows<Cuda>& m,
                   View<double, Cuda> diagonal) {
  if (m.rows() == 0) return;
  diagonal_kernel<<<blocks_for(m.rows()), block_threads, 0, native(stream)>>>(m, m.rows(),
                                                                              diagonal.data);
  check_launch();
}

void find_asymmetry(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, Index first, Index n,
                    View<const double, Cuda> diagonal, View<Index, Cuda> worst) {
  with_lanes(m, [&]<int width>(unsigned blocks) {
    asymmetry_kernel<width><<<blocks, block_threads, 0, native(stream)>>>(
        m, m.rows(), first, n, diagonal.data, worst.data);
  });
}

void find_outer_asymmetry(const Stream<Cuda>& stream, const CsrRows<Cuda>& outer,
                          View<const Index, Cuda> column, Index first, Index n,
                          const double* diagonal, const CameEntries<Cuda>& others,
                          View<Index, Cuda> worst) {
  coarsening::launch(stream, outer.rows(), outer_asymmetry_kernel, outer, outer.rows(), column,
                     first, n, diagonal, others, worst.data);
}

void sample_nearness(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, View<Index, Cuda> near) {
  constexpr Index samples = 4096;
  fill_zero(stream, near);
  if (m.rows() == 0) return;
  const Index step = std::max<Index>(1, m.rows() / samples);
  nearness_kernel<<<blocks_for(ceil_div(m.rows(), step)), block_threads, 0, native(stream)>>>(
      m, m.rows(), step, near.data);
  check_launch();
}

OuterRows<Cuda> copy_outer(const Stream<Cuda>& stream, const CsrRows<Cuda>& m,
                           View<Index, Cuda> inner_start) {
  const Index rows = m.rows();
  Scratch<Cuda> scratch;
  const auto outer = scratch.take<Index>(rows + 1);
  const auto has = scratch.take<std::int32_t>(rows + 1);
  coarsening::launch(stream, rows + 1, outer_counts_kernel, m, rows, outer.data, has.data);
  coarsening::sum_before(stream, outer, scratch);
  coarsening::sum_before(stream, has, scratch);
  const Index entries = coarsening::read_one(stream, outer.data + rows);
  const Index listed = coarsening::read_one(stream, has.data + rows);
  OuterRows<Cuda> taken{Buffer<Index, Cuda>(listed), Buffer<Index, Cuda>(listed + 1),
                        Buffer<std::int32_t, Cuda>(entries), Buffer<double, Cuda>(entries)};
  coarsening::launch(stream, rows + 1, list_outer_kernel, m, rows, outer.data, has.data,
                     inner_start.data, taken.row.data(), taken.start.data());
  coarsening::launch(stream, 32 * listed, take_outer_kernel, m, listed, taken.row.data(),
                     taken.start.data(), taken.column.data(), taken.value.data());
  stream.synchronize();
  return taken;
}

void pick_inner(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, Index from, Index rows,
                View<const Index, Cuda> inner_start, View<std::int32_t, Cuda> column,
                View<double, Cuda> value) {
  if (rows == 0) return;
  with_lanes(m, [&]<int width>(unsigned) {
    inner_kernel<width><<<blocks_for(rows * width), block_threads, 0, native(stream)>>>(
        m, from, rows, inner_start.data, column.data, value.data);
  });
}

TERRACE_PREPARED(cg);

}  // namespace terrace::cg
