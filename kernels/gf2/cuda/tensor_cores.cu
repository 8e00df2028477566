// Whether a device has what BitProduct and wide panels work with.
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {

bool has_bit_tensor_cores() {
#ifdef TERRACE_SM90A
  static OncePerDevice<bool> once;
  const bool has = once(
      [] { return cuda_device_count() > 0 && current_cuda_device().compute_capability == 90; });
  return has;
#else
  return false;
#endif
}

}  // namespace terrace::gf2
