// Bytes of datasets that this process has read and written, counted as they lie in memory.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace::io {

struct Volume {
  Index read = 0, written = 0;
};
Volume volume();
void count_volume(Index read, Index written);

}  // namespace terrace::io
