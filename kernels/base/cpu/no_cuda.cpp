// What remains of the device interface where CUDA is not built.
#include <cstdlib>

#include "kernels/base/buffer.hpp"
#include "kernels/base/callers.hpp"
#include "kernels/base/device_fault.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/kept_memory.hpp"
#include "kernels/base/preparations.hpp"
#include "kernels/base/ranges.hpp"
#include "kernels/base/reserve.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {

int cuda_device_count() { return 0; }
int current_device() { return -1; }
void set_current_device(int) {}
int device_of(const void*) { return -1; }
void wait_for_caller(void*) {}
DeviceInfo select_cuda_device(int) {
  throw Error(Exit::resources,
              "this terrace was built without CUDA; rebuild with -DTERRACE_CUDA=ON");
}
DeviceInfo describe_cuda_device(int) { return {}; }
DeviceInfo current_cuda_device() { return {}; }
void see_one_device() {}
void prepare_device(bool, bool) {}
void prepare_products() {}
void prepare_kernels(const std::vector<const char*>&) {}
void end_preparations() {}
void settle_device() noexcept {}
std::string cuda_build_version() { return {}; }
std::string cuda_versions() { return {}; }
std::string cuda_libraries() { return {}; }
double seconds_between(const Event<Cuda>&, const Event<Cuda>&) { return 0; }
void begin_range(const char*) {}
void end_range() {}
void fail_on_device() { throw Error(Exit::resources, "this terrace was built without CUDA"); }

namespace detail {
bool pins() { return false; }
void* allocate_pinned(Index bytes) { return allocate(Cpu{}, bytes); }
void release_pinned(void* data) noexcept { release(Cpu{}, data); }
void free_block(Kind, void* data) noexcept { std::free(data); }
NewBlock allocate_reserve(Index) noexcept { return {}; }
}  // namespace detail

}  // namespace terrace
