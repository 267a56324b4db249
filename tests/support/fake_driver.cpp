// Stands for the GPU's driver where there is none: says what it is asked, and whether the process
// had its environment then.

#include <cstdio>
#include <cstdlib>

extern "C" {

int cuInit(unsigned /*flags*/) {
  std::printf("init %s\n", std::getenv("HAUL_FAKE_DRIVER"));
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = 40 + ordinal;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = nullptr;
  std::printf("context %d\n", device);
  return 0;
}
}
