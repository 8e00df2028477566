// What remains of the device interface where CUDA is not built.
#include "kernels/band_parts.hpp"
#include "kernels/bits_columns.hpp"
#include "kernels/bits_product.hpp"
#include "kernels/buffer.hpp"
#include "kernels/device_fault.hpp"
#include "kernels/error.hpp"
#include "kernels/ranges.hpp"
#include "kernels/resident_cg.hpp"
#include "kernels/stream.hpp"

namespace terrace {

int cuda_device_count() { return 0; }
DeviceInfo select_cuda_device(int) {
  throw Error(Exit::resources,
              "this terrace was built without CUDA; rebuild with -DTERRACE_CUDA=ON");
}
DeviceInfo describe_cuda_device(int) { return {}; }
DeviceInfo current_cuda_device() { return {}; }
std::string cuda_versions() { return {}; }
std::string cuda_libraries() { return {}; }
double seconds_between(const Event<Cuda>&, const Event<Cuda>&) { return 0; }
void begin_range(const char*) {}
void end_range() {}
void fail_on_device() { throw Error(Exit::resources, "this terrace was built without CUDA"); }

bool has_bit_tensor_cores() { return false; }
RowTexture::RowTexture(const Word*, Index) {}
RowTexture::~RowTexture() = default;
bool band_parts_available(Cuda) { return false; }
bool resident_cg_fits(Index) { return false; }
Index resident_cg_scratch(Index) { return 0; }

namespace detail {
bool pins() { return false; }
void* allocate_pinned(Index bytes) { return allocate(Cpu{}, bytes); }
void release_pinned(void* data) noexcept { release(Cpu{}, data); }
}  // namespace detail

}  // namespace terrace
