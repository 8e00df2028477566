// Both triangular solves of an incomplete Cholesky factor, each one launch without barriers: a row
// starts once the values it needs are there. A value is its own flag: y and x hold a NaN of a bit
// pattern that no computation leaves until they are written; the forward solve puts it back into x,
// the backward solve into y.
//
// Blocks take their pieces of rows in the order of the levels from a counter, so what a row waits
// for is held by blocks that run already. A row is summed by one thread in the order of its
// columns: the bits repeat. After "CapelliniSpTRSV" (Su et al., ICPP 2020).
#pragma once
#include "kernels/cuda/runtime.cuh"
#include "kernels/preconditioner.hpp"

namespace terrace {

constexpr long long unwritten = -1;  // a quiet NaN with all bits set

__device__ inline long long load_shared_value(const double* p) {
  long long v;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_shared_value(double* p, double value) {
  long long v = __double_as_longlong(value);
  if (v == unwritten) v = 0x7ff8000000000000ll;
  asm volatile("st.relaxed.gpu.global.s64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

struct SolveArguments {
  const Index* start;
  const std::int32_t* column;
  const double *value, *inverse;
  const std::int32_t* order;  ///< null: natural
  const double* from;         ///< r (forward, by order), y (backward)
  double* solution;           ///< y, x
  double* cleared;            ///< x, y: becomes unwritten
  double* z;                  ///< backward: the solution by order
  unsigned long long* ticket;
  Index rows, columns;
};

/// `threads` threads, one a (row, vector); `batch` entries are looked at together; a warp that
/// found nothing new waits `pause` ns.
template <int threads, int batch, int pause, bool backward>
__global__ void __launch_bounds__(threads)
    triangular_solve_kernel(SolveArguments a, const double* skip) {
  if (skip && *skip != 0) return;
  __shared__ unsigned long long mine;
  if (threadIdx.x == 0) {
    mine = atomicAdd(a.ticket, 1ull);
    if (mine == gridDim.x - 1) *a.ticket = 0;  // nobody asks again in this launch
  }
  __syncthreads();
  const Index block = backward ? Index(gridDim.x) - 1 - Index(mine) : Index(mine);
  const Index item = block * threads + threadIdx.x;
  const Index row = a.columns == 1 ? item : item / a.columns;
  const unsigned lanes = __ballot_sync(~0u, row < a.rows);
  if (row >= a.rows) return;
  const Index c = item - row * a.columns;
  const Index place = (a.order ? Index(a.order[row]) : row) * a.columns + c;
  double sum = a.from[backward ? item : place];
  const double inverse = a.inverse[row];
  const Index end = a.start[row / 32 + 1];
  Index e = a.start[row / 32] + row % 32;

  bool done = false;
  while (true) {
    bool moved = false;
    if (!done) {
      std::int32_t column[batch];
      long long bits[batch];
      double value[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const bool inside = e + 32 * k < end;
        column[k] = inside ? __ldg(a.column + e + 32 * k) : -1;
        value[k] = inside ? __ldg(a.value + e + 32 * k) : 0.0;
      }
#pragma unroll
      for (int k = 0; k < batch; ++k)
        bits[k] = column[k] >= 0
                      ? load_shared_value(a.solution + (a.columns == 1 ? Index(column[k])
                                                                       : column[k] * a.columns + c))
                      : unwritten;
      bool ready = true;
      int taken = 0;
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        ready = ready && (column[k] < 0 || bits[k] != unwritten);
        if (ready) {
          if (column[k] >= 0) sum -= value[k] * __longlong_as_double(bits[k]);
          ++taken;
        }
      }
      e += 32 * taken;
      moved = taken > 0;
      if (e >= end) {
        const double solved = sum * inverse;
        store_shared_value(a.solution + item, solved);
        a.cleared[item] = __longlong_as_double(unwritten);
        if (backward) a.z[place] = solved;
        done = true;
      }
    }
    if (__all_sync(lanes, done)) break;
    if (pause > 0 && !__any_sync(lanes, moved)) __nanosleep(pause);
  }
}

template <int threads, int batch, int pause>
void launch_triangular_solves(cudaStream_t lane, const FactorView<Cuda>& f, Index columns,
                              const double* r, double* z, const double* skip) {
  const Index rows = f.rows();
  const unsigned blocks = unsigned(ceil_div(rows * columns, Index(threads)));
  auto* const tickets = reinterpret_cast<unsigned long long*>(f.tickets.data);
  const std::int32_t* const order = f.order.size > 0 ? f.order.data : nullptr;
  const SolveArguments forward{f.lower.start.data,
                               f.lower.column.data,
                               f.lower.value.data,
                               f.inverse_diagonal.data,
                               order,
                               r,
                               f.y.data,
                               f.x.data,
                               nullptr,
                               tickets,
                               rows,
                               columns};
  SolveArguments back = forward;
  back.start = f.upper.start.data;
  back.column = f.upper.column.data;
  back.value = f.upper.value.data;
  back.from = f.y.data;
  back.solution = f.x.data;
  back.cleared = f.y.data;
  back.z = z;
  back.ticket = tickets + 1;
  triangular_solve_kernel<threads, batch, pause, false>
      <<<blocks, threads, 0, lane>>>(forward, skip);
  triangular_solve_kernel<threads, batch, pause, true><<<blocks, threads, 0, lane>>>(back, skip);
}

}  // namespace terrace
