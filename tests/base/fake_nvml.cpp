// Stands in for libnvidia-ml.so.1: one device, whose counter advances by 250 mJ a reading, and
// whose clock is 1980, 1480, 1980 ... MHz, the power limit holding it down at 1480.
#include <cstring>

namespace {
int started = 0;
unsigned long long millijoules = 1000;
int looks = 0;
}  // namespace

extern "C" {
int nvmlInit_v2() { return ++started, 0; }
int nvmlShutdown() { return --started, 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = &millijoules;
  return std::strcmp(uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef") == 0 ? 0 : 6;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy) {
  if (started != 1 || device != &millijoules) return 1;
  *energy = millijoules += 250;
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* megahertz) {
  if (started != 1 || device != &millijoules || type != 1) return 1;
  *megahertz = looks++ % 2 == 0 ? 1980 : 1480;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = looks % 2 == 0 ? 0x4 : 0;
  return 0;
}
}
