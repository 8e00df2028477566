// What remains of the device interface where CUDA is not built.
#include "kernels/cg/resident.hpp"

namespace terrace::cg {

bool resident_cg_fits(Index) { return false; }
Index resident_cg_scratch(Index) { return 0; }

}  // namespace terrace::cg
