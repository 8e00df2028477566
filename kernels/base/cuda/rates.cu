#include <algorithm>
#include <vector>

#include "kernels/base/buffer.hpp"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/random.hpp"
#include "kernels/base/rates.hpp"

namespace terrace {
namespace {

/// Seconds of the fastest of three calls after a warm-up, by events.
template <class Work>
double best_of_three(const Stream<Cuda>& stream, Work&& work) {
  work();
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const Event<Cuda> begin = stream.record();
    work();
    const Event<Cuda> end = stream.record();
    stream.synchronize();
    best = std::min(best, seconds_between(begin, end));
  }
  return best;
}

__global__ void fill_random(double* data, Index count, Word seed) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = random_uniform(seed, i, 0);
}

/// Reads all, writes only what cannot happen, so that the reads are not dropped.
__global__ void read_all(const double2* data, Index count, double* never) {
  const Index step = Index(gridDim.x) * blockDim.x;
  double sum = 0;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const double2 value = data[i];
    sum += value.x + value.y;
  }
  if (sum == 0x1.23456789abcdep+900) *never = sum;
}

}  // namespace

double dgemm_rate(const Stream<Cuda>& stream, Index n) {
  if (n == 0) n = 8192;
  const Buffer<double, Cuda> a(n * n), b(n * n), c(n * n);
  fill_random<<<1024, 256, 0, native(stream)>>>(a.data(), n * n, 1);
  fill_random<<<1024, 256, 0, native(stream)>>>(b.data(), n * n, 2);
  fill_random<<<1024, 256, 0, native(stream)>>>(c.data(), n * n, 3);
  check_launch();
  const double minus = -1, one = 1;
  const int size = static_cast<int>(n);
  const double seconds = best_of_three(stream, [&] {
    check(cublasDgemm(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, size, size, size, &minus, a.data(),
                      size, b.data(), size, &one, c.data(), size));
  });
  return 2e-9 * double(n) * double(n) * double(n) / seconds;
}

double read_rate(const Stream<Cuda>& stream, Index bytes) {
  const Index count = (bytes == 0 ? Index(1) << 31 : bytes) / Index(sizeof(double2));
  const Buffer<double, Cuda> data(count * 2);
  fill_random<<<1024, 256, 0, native(stream)>>>(data.data(), count * 2, 1);
  check_launch();
  const double seconds = best_of_three(stream, [&] {
    read_all<<<2048, 512, 0, native(stream)>>>(reinterpret_cast<const double2*>(data.data()), count,
                                               data.data());
    check_launch();
  });
  return 1e-9 * double(count) * double(sizeof(double2)) / seconds;
}

CopyRates copy_rates(const Stream<Cuda>& up, const Stream<Cuda>& down, Index bytes) {
  constexpr Index piece = Index(1) << 26, words = piece / Index(sizeof(double));
  if (bytes == 0) bytes = Index(1) << 31;
  const Index pieces = std::max<Index>(1, bytes / piece);
  const Buffer<double, Cuda> device(2 * words);
  constexpr Index places = 8;  // more than a host's caches
  const PinnedBuffer<double> there_from(places * words), back_to(places * words);
  std::fill_n(there_from.data(), there_from.size(), 1.0);
  fill_zero(up, device.view());
  up.synchronize();
  const double moved = 1e-9 * double(pieces * piece);
  CopyRates best;
  for (int round = 0; round < 4; ++round) {  // the first one warms up
    const Event<Cuda> begin = up.record();
    down.wait(begin);
    for (Index i = 0; i < pieces; ++i) {
      upload(up, device.view().slice(0, words), there_from.data() + i % places * words);
      download(down, back_to.data() + i % places * words, device.view().slice(words, words));
    }
    const Event<Cuda> arrived = up.record(), home = down.record();
    up.wait(home);
    const Event<Cuda> again = up.record();
    for (Index i = 0; i < pieces; ++i)
      upload(up, device.view().slice(0, words), there_from.data() + i % places * words);
    const Event<Cuda> alone = up.record();
    up.synchronize();
    if (round == 0) continue;
    best.to_device_alone = std::max(best.to_device_alone, moved / seconds_between(again, alone));
    // One and the same round: a rate of one way alone says nothing.
    const double there = moved / seconds_between(begin, arrived);
    const double back = moved / seconds_between(begin, home);
    if (std::min(there, back) > std::min(best.to_device, best.to_host)) {
      best.to_device = there;
      best.to_host = back;
    }
  }
  return best;
}

}  // namespace terrace
