// Both triangular solves of an incomplete Cholesky factor, each one launch without barriers: a row
// is solved once the values it needs are there. A value is its own flag: y and x hold a NaN of a
// bit pattern that no computation leaves until they are written; the forward solve puts it back
// into x, the backward solve into y.
//
// Warps take 32 rows at a time from a counter, in the order of the levels, so what a row waits for
// is held by a warp that runs already. There are few warps: those far ahead only poll. A row is
// summed by one thread in the order of its columns: the bits repeat. After "CapelliniSpTRSV" (Su et
// al., ICPP 2020).
#pragma once
#include <algorithm>

#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/preconditioner.hpp"

namespace terrace::cg {

constexpr int solve_threads = 64;  // of a block; its warps work apart

struct SolveArguments {
  const Index* start;
  const std::int32_t* column;
  const double *value, *inverse;
  const std::int32_t* order;
  const double* from;  ///< r (forward, by order), y (backward)
  Word* solution;      ///< y, x: bare numbers
  double* cleared;     ///< x, y: becomes device::nothing
  double* z;           ///< backward: the solution by order
  unsigned long long* ticket;
  Index rows, columns;
};

__device__ inline void fetch_soon(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/// The next task of a warp, none left where it is `tasks` or more.
__device__ __forceinline__ unsigned long long next_task(unsigned long long* ticket,
                                                        unsigned long long tasks,
                                                        unsigned long long warps, int lane) {
  unsigned long long task = 0;
  if (lane == 0) {
    task = atomicAdd(ticket, 1ull);
    if (task == tasks + warps - 1) *ticket = 0;  // every warp has asked in vain
  }
  return __shfl_sync(~0u, task, 0);
}

/// One thread a (row, vector). `batch` entries of a row are waited for together, at best all.
template <int batch, bool backward>
__global__ void __launch_bounds__(solve_threads)
    triangular_solve_kernel(SolveArguments a, const double* skip) {
  if (skip && *skip != 0) return;
  const int lane = int(threadIdx.x % 32);
  const unsigned long long tasks = (a.rows * a.columns + 31) / 32;
  const unsigned long long warps = (unsigned long long)(gridDim.x) * (solve_threads / 32);
  while (true) {
    const unsigned long long task = next_task(a.ticket, tasks, warps, lane);
    if (task >= tasks) return;
    const Index item = Index(backward ? tasks - 1 - task : task) * 32 + lane;
    const Index row = a.columns == 1 ? item : item / a.columns;
    bool done = row >= a.rows;
    Index c = 0, place = 0, e = 0, end = 0;
    double sum = 0, inverse = 0;
    if (!done) {
      c = item - row * a.columns;
      place = Index(a.order[row]) * a.columns + c;
      sum = a.from[backward ? item : place];
      inverse = a.inverse[row];
      e = a.start[row / 32] + row % 32;
      end = a.start[row / 32 + 1];
    }
    const Word* place_of[batch];  // null: the value is known
    double value[batch], x[batch];
    bool fresh = true;
    while (true) {
      if (!done) {
        if (fresh) {
#pragma unroll
          for (int k = 0; k < batch; ++k) {
            const bool inside = e + 32 * k < end;
            const std::int32_t column = inside ? __ldg(a.column + e + 32 * k) : -1;
            value[k] = column >= 0 ? __ldg(a.value + e + 32 * k) : 0.0;
            x[k] = 0;
            place_of[k] =
                column < 0 ? nullptr
                           : a.solution + (a.columns == 1 ? Index(column) : column * a.columns + c);
          }
          fresh = false;
          if (e + 32 * batch < end) {
#pragma unroll
            for (int k = batch; k < 2 * batch; ++k)
              if (e + 32 * k < end) {
                fetch_soon(a.column + e + 32 * k);
                fetch_soon(a.value + e + 32 * k);
              }
          }
        }
        bool waiting = false;
        Word bits[batch];
#pragma unroll
        for (int k = 0; k < batch; ++k)
          bits[k] = place_of[k] ? device::look(place_of[k]) : device::nothing;
#pragma unroll
        for (int k = 0; k < batch; ++k) {
          if (bits[k] != device::nothing) {
            x[k] = __longlong_as_double((long long)(bits[k]));
            place_of[k] = nullptr;
          }
          waiting = waiting || place_of[k];
        }
        if (!waiting) {
#pragma unroll
          for (int k = 0; k < batch; ++k) sum -= value[k] * x[k];
          e += 32 * batch;
          fresh = true;
          if (e >= end) {
            const double solved = sum * inverse;
            device::send_bare(a.solution + item, solved);
            a.cleared[item] = __longlong_as_double((long long)(device::nothing));
            if (backward) a.z[place] = solved;
            done = true;
          }
        }
      }
      if (__all_sync(~0u, done)) break;
    }
  }
}

/// `ahead`: rows that may be waiting, in units of the rows of an average level.
template <int batch>
void launch_triangular_solves(cudaStream_t lane, const FactorView<Cuda>& f, Index columns,
                              const double* r, double* z, const double* skip, Index ahead,
                              Index most_blocks) {
  const Index rows = f.rows(), levels = std::max<Index>(1, f.level.size - 1);
  const Index wanted = ceil_div(ahead * columns * ceil_div(rows, levels), Index(solve_threads));
  const Index useful = ceil_div(rows * columns, Index(solve_threads));
  const auto blocks = unsigned(std::clamp<Index>(wanted, 1, std::min(useful, most_blocks)));
  auto* const tickets = reinterpret_cast<unsigned long long*>(f.tickets.data);
  SolveArguments forward{};
  forward.start = f.lower.start.data;
  forward.column = f.lower.column.data;
  forward.value = f.lower.value.data;
  forward.inverse = f.inverse_diagonal.data;
  forward.order = f.order.data;
  forward.from = r;
  forward.solution = reinterpret_cast<Word*>(f.y.data);
  forward.cleared = f.x.data;
  forward.ticket = tickets;
  forward.rows = rows;
  forward.columns = columns;
  SolveArguments back = forward;
  back.start = f.upper.start.data;
  back.column = f.upper.column.data;
  back.value = f.upper.value.data;
  back.from = f.y.data;
  back.solution = reinterpret_cast<Word*>(f.x.data);
  back.cleared = f.y.data;
  back.z = z;
  back.ticket = tickets + 1;
  triangular_solve_kernel<batch, false><<<blocks, solve_threads, 0, lane>>>(forward, skip);
  triangular_solve_kernel<batch, true><<<blocks, solve_threads, 0, lane>>>(back, skip);
}

}  // namespace terrace::cg
