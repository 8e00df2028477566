// What remains of the device interface where CUDA is not built.
#include "kernels/band/parts.hpp"

namespace terrace::band {

bool band_parts_available(Cuda) { return false; }

}  // namespace terrace::band
