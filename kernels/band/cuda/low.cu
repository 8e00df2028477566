// Roofline: the load reads 8 bytes and writes 2 per number of the band, HBM. Reached:
// jobs/results/band.md.
#include "kernels/band/cuda/low.cuh"
#include "kernels/base/assumed.hpp"

namespace terrace::band {
namespace {

using namespace device;
using namespace low;

constexpr unsigned long long kNone = ~0ull;

/// scale := 1 / sqrt(diagonal), 0 behind n; failed := the least one-based row without one.
__global__ void __launch_bounds__(256)
    scale_kernel(Index n, Index padded, const double* a, Index ld, double* scale,
                 unsigned long long* failed) {
  const Index i = Index(blockIdx.x) * 256 + threadIdx.x;
  if (i >= padded) return;
  double s = 0.0;
  if (i < n) {
    const double pivot = a[i * ld];
    const bool good = pivot >= 0x1p-1022 && pivot <= 0x1.fffffffffffffp1023;
    s = good ? 1.0 / sqrt(pivot) : 0.0;
    if (!good) atomicMin(failed, (unsigned long long)(i + 1));
  }
  scale[i] = s;
}

/// One tile a block: scaled, rounded and turned to rows.
__global__ void __launch_bounds__(256) load_kernel(Index n, Index reach, const double* a,
                                                   double shift, const double* scale, Factor f) {
  __shared__ __align__(16) __half tile[kTile];
  const Index k = blockIdx.x;
  const int d = int(blockIdx.y);
  const int r = int(threadIdx.x) % kW;
  const Index i = (k + d) * kW + r;
  const double row_scale = i < f.count * kW ? scale[i] : 0.0;
#pragma unroll
  for (int q = 0; q < kW / 4; ++q) {
    const int c = 4 * q + int(threadIdx.x) / kW;
    const Index j = k * kW + c, offset = i - j;
    double h = 0.0;
    if (i >= n || j >= n) {
      h = i == j ? 1.0 : 0.0;
    } else if (offset == 0) {
      h = 1.0 + shift;
    } else if (offset > 0 && offset <= reach) {
      h = a[j * (reach + 1) + offset] * row_scale * scale[j];
    }
    tile[place(r, c)] = __float2half_rn(float(h));
  }
  __syncthreads();
  const auto* const from = reinterpret_cast<const uint4*>(tile);
  auto* const to = reinterpret_cast<uint4*>(f.tile(k, d));
  for (int at = int(threadIdx.x); at < kTileBytes / 16; at += 256) to[at] = from[at];
}

/// One thread per number; a factored diagonal tile holds its inverse.
__global__ void __launch_bounds__(256) diagonal_kernel(Factor f, double* out) {
  const Index i = Index(blockIdx.x) * 256 + threadIdx.x, k = i / kW;
  if (k >= f.count) return;
  const int at = place(int(i % kW), int(i % kW));
  out[i] =
      1.0 / (double(__half2float(f.tile(k, 0)[at])) + double(__half2float(f.rest[k * kTile + at])));
}

/// One tile of the tail a block of 64 threads: row tile x, tile column y. A diagonal tile holds its
/// inverse D; thread c finds column c of D^-1.
__global__ void __launch_bounds__(kW)
    tail_kernel(Factor f, const double* scale, Index first, double* out) {
  __shared__ double inverse[kW][kW + 1];
  const int i = int(blockIdx.x), k = int(blockIdx.y), c = int(threadIdx.x);
  const Index tail = (f.count - first) * kW;
  double* const to = out + Index(i) * kW * tail + Index(k) * kW + c;
  const auto row_scale = [&](int r) { return scale[(first + i) * kW + r]; };
  if (i != k) {
    const bool inside = i > k && i - k <= f.reach_tiles;
    const __half* const tile = inside ? f.tile(first + k, i - k) : nullptr;
    for (int r = 0; r < kW; ++r)
      to[r * tail] = inside ? double(__half2float(tile[place(r, c)])) / row_scale(r) : 0.0;
    return;
  }
  const __half* const tile = f.tile(first + k, 0);
  const __half* const rest = f.rest + (first + k) * kTile;
  for (int r = 0; r < kW; ++r)
    inverse[r][c] =
        double(__half2float(tile[place(r, c)])) + double(__half2float(rest[place(r, c)]));
  __syncthreads();
  double column[kW];
  for (int r = 0; r < kW; ++r) {
    double sum = r == c ? 1.0 : 0.0;
    for (int q = c; q < r; ++q) sum -= inverse[r][q] * column[q];
    column[r] = r < c ? 0.0 : sum / inverse[r][r];
    to[r * tail] = column[r] / row_scale(r);
  }
}

__global__ void status_kernel(const unsigned long long* failed, Index* status) {
  *status = *failed == kNone ? 0 : Index(*failed);
}

}  // namespace

bool band_low_available(Cuda) {
  return current_cuda_device().compute_capability >= 90 && shared_bytes_of_block() >= 224 * 1024;
}

Index band_low_words(Cuda, BandShape s) { return Factor(s, nullptr).words(); }

void band_low_load(const Stream<Cuda>& stream, BandShape s, View<const double, Cuda> a,
                   double shift, View<double, Cuda> scale, View<Word, Cuda> low,
                   View<Index, Cuda> status, View<Word, Cuda> scratch) {
  const Factor f(s, low.data);
  if (s.width != kW || a.size < s.tiles() * s.tile() || scale.size < s.padded() ||
      low.size < f.words() || status.size < 1 || scratch.size < 1)
    throw Error(Exit::internal, "sizes of a load; kernels/band/cuda/low.cu");
  auto* const failed = reinterpret_cast<unsigned long long*>(scratch.data);
  check(cudaMemsetAsync(failed, 0xff, sizeof(Word), native(stream)));
  if (f.count > 0) {
    scale_kernel<<<unsigned(ceil_div(s.padded(), 256)), 256, 0, native(stream)>>>(
        s.n, s.padded(), a.data, s.column(), scale.data, failed);
    check_launch();
    load_kernel<<<dim3(unsigned(f.count), unsigned(f.reach_tiles + 1)), 256, 0, native(stream)>>>(
        s.n, s.reach, a.data, shift, scale.data, f);
    check_launch();
  }
  status_kernel<<<1, 1, 0, native(stream)>>>(failed, status.data);
  check_launch();
}

void band_low_diagonal(const Stream<Cuda>& stream, BandShape s, View<const Word, Cuda> low,
                       View<double, Cuda> out) {
  if (s.tiles() == 0) return;
  diagonal_kernel<<<unsigned(ceil_div(s.padded(), 256)), 256, 0, native(stream)>>>(
      Factor(s, low.data), out.data);
  check_launch();
}

void band_low_tail(const Stream<Cuda>& stream, BandShape s, View<const Word, Cuda> low,
                   View<const double, Cuda> scale, Index first, View<double, Cuda> out) {
  const Index tiles = s.tiles() - first;
  if (out.size < tiles * tiles * kW * kW || scale.size < s.padded())
    throw Error(Exit::internal, "sizes of a tail; kernels/band/cuda/low.cu");
  if (tiles == 0) return;
  tail_kernel<<<dim3(unsigned(tiles), unsigned(tiles)), kW, 0, native(stream)>>>(
      Factor(s, low.data), scale.data, first, out.data);
  check_launch();
}

}  // namespace terrace::band
