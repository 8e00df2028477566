// Conjugate gradients of a small CSR system in one launch. Floor of 27 points on 47^3 on an H200, an
// iteration: 20,500 entries a multiprocessor, 18 bytes of its shared memory each at 128 a clock (1.5
// us), two hand-overs through the second-level cache (0.7 us each), 15 KB of others' z a block from
// there (0.4 us): 3.3 us. Measured: 13.8 us.
#include "kernels/cg/cuda/resident_csr.cuh"

#include <algorithm>

#include "kernels/base/assumed.hpp"

namespace terrace::cg {
namespace {

using namespace resident_csr;

// Entries beyond shared memory come from the second-level cache: 10 bytes of each.
constexpr Index most_entries = 6'000'000;
constexpr Index least_weight = 4096;  // of a share: fewer blocks hand over faster
constexpr Index static_bytes = 2048;  // of shared memory, and more

int attribute_of(cudaDeviceAttr what) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&value, what, device));
  return value;
}
Index dynamic_bytes() {
  static OncePerDevice<Index> once;
  const Index bytes = once([] { return shared_bytes_of_block() / 128 * 128 - static_bytes; });
  return bytes;
}
Index marks_bytes(Index n) { return 8 * ceil_div(n, Index(32)); }

/// Lanes for rows of such a mean length.
int width_for(Index rows, Index entries) {
  const Index mean = entries / std::max<Index>(1, rows);
  return mean > 128 ? 32 : mean > 64 ? 16 : mean > 40 ? 8 : mean > 12 ? 4 : mean > 3 ? 2 : 1;
}

}  // namespace

ResidentSize resident_csr_size(Cuda, Index rows, Index entries) {
  if (rows < 1 || entries > most_entries || cuda_device_count() == 0) return {};
  const AssumedDevice* const assumed = assumed_device();
  if (!assumed && attribute_of(cudaDevAttrCooperativeLaunch) == 0) return {};
  ResidentSize size;
  const Index weight = entries + row_weight * rows;
  const Index processors =
      assumed ? assumed->info.multiprocessors : attribute_of(cudaDevAttrMultiProcessorCount);
  const Index most = std::min<Index>(threads, processors);
  size.shares = std::clamp<Index>(weight / least_weight, 1, most);
  const Index bytes = dynamic_bytes();
  if (rows > size.shares * threads * items || marks_bytes(rows) > bytes) return {};
  size.room = std::min({rows, bytes / 8, Index(1) << 16});
  size.places = entries;
  size.bounds = 4 * (size.shares + 1);
  size.scratch = 8 * size.shares + 4 * rows;
  return size;
}

void deal_shares(const Stream<Cuda>& stream, const ResidentCsr<Cuda>& m) {
  const Index n = m.a.rows();
  allow_shared(deal_kernel, int(marks_bytes(n)));
  deal_kernel<<<unsigned(m.size.shares), dealers, std::size_t(marks_bytes(n)), native(stream)>>>(
      m.a, n, int(m.size.room), m.list.data, m.place.data, m.bounds.data);
  check_launch();
}

bool resident_csr_fits(Cuda, const ResidentSize& size, const std::vector<Index>& bounds) {
  const auto number = [&](Index what, Index s) {
    return bounds[std::size_t(what * (size.shares + 1) + s)];
  };
  const Index rows = number(0, size.shares);
  const Index longest_row = 64 * width_for(rows, size.places);
  for (Index s = 0; s < size.shares; ++s) {
    const Index own = number(0, s + 1) - number(0, s), length = number(1, s);
    if (own > threads * items || length > size.room || number(3, s) > longest_row ||
        kept_entries(dynamic_bytes(), length, own) < 0)
      return false;
  }
  return true;
}

void resident_cg(const Stream<Cuda>& stream, const ResidentCsr<Cuda>& m,
                 View<const double, Cuda> inverse_diagonal, View<double, Cuda> p,
                 View<double, Cuda> x, View<double, Cuda> r, const CgRing<Cuda>& rows, Index first,
                 Index count, CgLimits limits, View<double, Cuda> scratch) {
  if (count <= 0) return;
  Arguments w{};
  w.start = m.a.start.data;
  w.value = m.a.value.data;
  w.place = m.place.data;
  w.list = m.list.data;
  w.bounds = m.bounds.data;
  w.n = m.a.rows();
  w.shares = int(m.size.shares);
  w.room = int(m.size.room);
  w.width = width_for(w.n, m.size.places);
  w.bytes = int(dynamic_bytes());
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
  w.sums = reinterpret_cast<Word*>(scratch.data);
  w.z = w.sums + 8 * m.size.shares;
  check(cudaMemsetAsync(w.sums, 0, std::size_t(m.size.shares) * 8 * sizeof(Word), native(stream)));
  check(cudaMemsetAsync(w.z, 0xff, std::size_t(w.n) * 4 * sizeof(Word), native(stream)));
  allow_shared(iterate_kernel, w.bytes);
  void* arguments[] = {&w};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(iterate_kernel),
                                    dim3(unsigned(m.size.shares)), dim3(threads), arguments,
                                    std::size_t(w.bytes), native(stream)));
}

}  // namespace terrace::cg
