// A device that fails, for tests of what happens then.
#pragma once

namespace terrace {

/// Runs a kernel that writes where it may not, and throws Error(fault) as any check of a CUDA call
/// does; the device is of no use to this process afterwards.
void fail_on_device();

}  // namespace terrace
