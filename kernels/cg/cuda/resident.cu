// Conjugate gradients in one launch. Floor of n = 3,072 on an H200: the triangle once a step from
// registers and shared memory (1 us), two hand-overs through the second-level cache (1 us each).
// Measured there: 8.5 us an iteration, 7.2 at n = 1,000, 4.0 at n = 64; 20 to 30 us a launch.
#include "kernels/cg/cuda/resident.cuh"

#include <algorithm>

namespace terrace::cg {
namespace {

using namespace resident;

int side_of(Index n) { return int(ceil_div(n, Index(side))); }

int attribute(cudaDeviceAttr what) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&value, what, device));
  return value;
}

}  // namespace

bool resident_cg_fits(Index n) {
  if (n < 1 || n > Index(most_side) * side || cuda_device_count() == 0) return false;
  const int m = side_of(n);
  return attribute(cudaDevAttrMultiProcessorCount) * most_rows >= m * side &&
         attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= shared_bytes(m) + 512 &&
         attribute(cudaDevAttrCooperativeLaunch) != 0;
}

Index resident_cg_scratch(Index n) {
  const Index m = side_of(n);
  return 4 * side * pieces_of(int(m)) + 4 * side * m;
}

void resident_cg(const Stream<Cuda>& stream, const TriangleTiles<Cuda>& t,
                 View<const double, Cuda> inverse_diagonal, View<double, Cuda> p,
                 View<double, Cuda> x, View<double, Cuda> r, const CgRing<Cuda>& rows, Index first,
                 Index count, CgLimits limits, View<double, Cuda> scratch) {
  if (count <= 0) return;
  const int m = side_of(t.n), pieces = pieces_of(m);
  const int blocks = std::min(attribute(cudaDevAttrMultiProcessorCount), std::max(pieces, 2 * m));
  Arguments w{};
  w.a = t.a.data;
  w.start = t.start.data;
  w.n = int(t.n);
  w.m = m;
  w.per = (pieces + blocks - 1) / blocks;
  w.rows_each = (m * side + blocks - 1) / blocks;
  w.inverse_diagonal = inverse_diagonal.size > 0 ? inverse_diagonal.data : nullptr;
  w.p = p.data;
  w.x = x.data;
  w.r = r.data;
  w.rows = rows.rows.data;
  w.ring = rows.ring;
  w.stride = rows.stride;
  w.first = first;
  w.count = unsigned(count);
  w.limits = limits;
  w.row_parts = reinterpret_cast<Word*>(scratch.data);
  w.column_parts = w.row_parts + Index(2) * side * pieces;
  w.q = w.column_parts + Index(2) * side * pieces;
  const std::size_t parts = std::size_t(pieces) * 4 * side * sizeof(Word);
  check(cudaMemsetAsync(w.row_parts, 0, parts, native(stream)));
  check(cudaMemsetAsync(w.q, 0xff, std::size_t(m) * 4 * side * sizeof(Word), native(stream)));
  allow_shared(iterate_kernel, shared_bytes(m));
  void* arguments[] = {&w};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(iterate_kernel),
                                    dim3(unsigned(blocks)), dim3(threads), arguments,
                                    std::size_t(shared_bytes(m)), native(stream)));
}

}  // namespace terrace::cg
