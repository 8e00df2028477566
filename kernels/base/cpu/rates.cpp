#include "kernels/base/rates.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/base/buffer.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"

namespace terrace {
namespace {

/// Seconds of the fastest of three calls after a warm-up.
template <class Work>
double best_of_three(Work&& work) {
  work();
  double best = 1e300;
  for (int i = 0; i < 3; ++i) best = std::min(best, seconds_of(work));
  return best;
}

}  // namespace

double dgemm_rate(const Stream<Cpu>& stream, Index n) {
  stream.synchronize();
  if (n == 0) n = 2048;
  const Buffer<double, Cpu> a(n * n), b(n * n), c(n * n);
  parallel_ranges(n * n, 1 << 16, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      a.data()[i] = random_uniform(1, i, 0);
      b.data()[i] = random_uniform(2, i, 0);
      c.data()[i] = 0;
    }
  });
  openblas_set_num_threads(thread_count());
  const int size = static_cast<int>(n);
  const double seconds = best_of_three([&] {
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, size, size, size, -1.0, a.data(), size,
                b.data(), size, 1.0, c.data(), size);
  });
  openblas_set_num_threads(1);
  return 2e-9 * double(n) * double(n) * double(n) / seconds;
}

double read_rate(const Stream<Cpu>& stream, Index bytes) {
  stream.synchronize();
  const Index count = (bytes == 0 ? Index(1) << 28 : bytes) / Index(sizeof(double));
  const Buffer<double, Cpu> data(count);
  const Index grain = 1 << 16;
  parallel_ranges(count, grain, [&](Index from, Index to) {
    std::fill(data.data() + from, data.data() + to, 1.0);
  });
  std::vector<double> sums(std::size_t(ceil_div(count, grain)));
  const double seconds = best_of_three([&] {
    parallel_ranges(count, grain, [&](Index from, Index to) {
      double sum[16] = {};
      Index i = from;
      for (; i + 16 <= to; i += 16)
        for (Index k = 0; k < 16; ++k) sum[k] += data.data()[i + k];
      for (Index k = 1; k < 16; ++k) sum[0] += sum[k];
      sums[std::size_t(from / grain)] = sum[0];
    });
  });
  return 1e-9 * double(count) * double(sizeof(double)) / seconds;
}

CopyRates copy_rates(const Stream<Cpu>& up, const Stream<Cpu>& down, Index bytes) {
  if (bytes == 0) bytes = Index(1) << 26;
  const Index count = ceil_div(bytes, Index(sizeof(double)));
  const Buffer<double, Cpu> host(2 * count), device(2 * count);
  std::fill_n(host.data(), host.size(), 1.0);
  std::fill_n(device.data(), device.size(), 2.0);
  const auto both = [&](bool back) {
    upload(up, device.view().slice(0, count), host.data());
    if (back) download(down, host.data() + count, device.view().slice(count, count));
    up.synchronize();
    down.synchronize();
  };
  const auto rate = [&](bool back) {
    return 1e-9 * double(count) * double(sizeof(double)) / best_of_three([&] { both(back); });
  };
  const double together = rate(true);
  return {together, together, rate(false)};
}

}  // namespace terrace
