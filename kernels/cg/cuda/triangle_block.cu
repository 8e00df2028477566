// Packed tiles times up to 16 vectors on CUDA. Floor of n = 65,536 on an H200: 17.2 GB from HBM,
// 3.8 ms; the sums of the units add 5 % of traffic. Measured: 4.2 ms for up to 8 vectors, 4.8 ms
// for 16, where the power limit takes the clock from 1.98 to 1.6 GHz (29 TFLOP/s beside 3.6 TB/s).
#include "kernels/cg/cuda/triangle_block.cuh"

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/triangle_block.hpp"

namespace terrace::cg {
namespace {

using namespace triangle_block;
using triangle::UnitShape;

template <int k, int stages>
void launch(const Stream<Cuda>& stream, const Arguments& w, const double* p, double* q,
            Index columns, int multiprocessors) {
  const auto blocks = unsigned(ceil_div(w.padded * k / 2, Index(threads)));
  const auto kernel = multiply_kernel<k, stages>;
  constexpr int bytes = shared_bytes<k, stages>;
  allow_shared(kernel, bytes);
  arrange_kernel<k><<<blocks, threads, 0, native(stream)>>>(w, p, int(columns));
  kernel<<<unsigned(multiprocessors), threads, bytes, native(stream)>>>(w);
  finish_kernel<k><<<blocks, threads, 0, native(stream)>>>(w, q, int(columns));
  check_launch();
}

}  // namespace

UnitShape triangle::unit_shape(Cuda, Index n, Index tile_rows) {
  const Index tiles = tile_rows * UnitShape::across_all(n);  // twice as many as there are
  if (tiles >= 131072) return {8, 16};
  if (tiles >= 65536) return {4, 16};
  if (tiles >= 8192) return {2, 8};
  return {1, 4};
}

void multiply_block(const Stream<Cuda>& stream, const TriangleTiles<Cuda>& t,
                    View<const double, Cuda> p, View<double, Cuda> q, Index columns,
                    View<double, Cuda> scratch, const double* skip) {
  if (t.n <= 0) return;
  const Index padded = triangle::padded(t.n), rows = t.row.size;
  const Index k = triangle::stored_columns(Cuda{}, columns);
  const UnitShape shape = triangle::unit_shape(Cuda{}, t.n, rows);
  Arguments w{};
  w.a = t.a.data;
  w.row = t.row.data;
  w.start = t.start.data;
  w.rows = int(rows);
  w.padded = padded;
  w.down = int(shape.down);
  w.across = int(shape.across);
  w.groups = int(shape.groups(rows));
  w.chunks = int(shape.chunks(t.n));
  w.vectors = scratch.data;
  w.row_sums = w.vectors + padded * k;
  w.column_sums = w.row_sums + rows * w.chunks * triangle::height * k;
  w.next = reinterpret_cast<unsigned*>(w.column_sums + w.groups * padded * k);
  w.skip = skip;
  int device = 0, multiprocessors = 0, shared = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const bool deep = shared >= 220 * 1024;  // room for three steps, as on the H100 and after
  if (k == 8)
    deep ? launch<8, 3>(stream, w, p.data, q.data, columns, multiprocessors)
         : launch<8, 2>(stream, w, p.data, q.data, columns, multiprocessors);
  else
    deep ? launch<16, 3>(stream, w, p.data, q.data, columns, multiprocessors)
         : launch<16, 2>(stream, w, p.data, q.data, columns, multiprocessors);
}

}  // namespace terrace::cg
