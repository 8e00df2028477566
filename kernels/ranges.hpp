// Named ranges for profilers (NVTX: Nsight Systems); nothing without CUDA or nvtx3. Cheap: no
// profiler, no work.
#pragma once

namespace terrace {

void begin_range(const char* name);
void end_range();

/// A range of the calling thread from here to the end of the scope.
class Range {
 public:
  explicit Range(const char* name) { begin_range(name); }
  ~Range() { end_range(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace terrace
