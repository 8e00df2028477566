// A device that is not here: what --plan --gpu plans for.
#pragma once
#include "kernels/base/stream.hpp"

namespace terrace {

struct AssumedDevice {
  DeviceInfo info;         ///< free_bytes: what a rank finds free there
  Index shared_bytes = 0;  ///< shared memory that one block may take
  Index host_bytes = 0;    ///< memory of its host
};
/// From here on this process only plans, and for such a device: what describes the device, or
/// chooses by it, goes by this one, and streams are of none. Nothing may be launched or allocated
/// on it. Before anything has asked for a device.
void assume_device(const AssumedDevice& device);
/// Null: none is assumed.
const AssumedDevice* assumed_device();

/// Shared memory that one block may take on the assumed device, or the one in use.
Index shared_bytes_of_block();

}  // namespace terrace
