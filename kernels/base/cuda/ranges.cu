// NVTX ranges; nvtx3 is a part of the toolkit, headers alone.
#include "kernels/base/ranges.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
namespace terrace {
void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }
}  // namespace terrace
#else
namespace terrace {
void begin_range(const char*) {}
void end_range() {}
}  // namespace terrace
#endif
