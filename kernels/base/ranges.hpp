// Named ranges for profilers (NVTX: Nsight Systems); nothing without CUDA or nvtx3. Cheap: no
// profiler, no work.
#pragma once

namespace terrace {

void begin_range(const char* name);
void end_range();

/// A range of the calling thread from here to the end of the scope.
class ProfileRange {
 public:
  explicit ProfileRange(const char* name) { begin_range(name); }
  ~ProfileRange() { end_range(); }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace terrace
