#include "kernels/base/assumed.hpp"

#include <optional>

namespace terrace {

namespace {
std::optional<AssumedDevice> assumed;
}  // namespace

void assume_device(const AssumedDevice& device) { assumed = device; }
const AssumedDevice* assumed_device() { return assumed ? &*assumed : nullptr; }

}  // namespace terrace
