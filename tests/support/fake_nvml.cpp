// Stands for the library by which a GPU's driver tells of its GPUs: one of 24 GiB, with 20 free,
// and one that does not answer.

#include <cstdio>

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  static int device;
  *handle = &device;
  return index == 0 ? 0 : 15;  // lost
}
int nvmlDeviceGetMemoryInfo(void* /*device*/, Memory* memory) {
  *memory = {24ULL << 30, 20ULL << 30, 4ULL << 30};
  return 0;
}
int nvmlDeviceGetName(void* /*device*/, char* name, unsigned length) {
  std::snprintf(name, length, "Some GPU");
  return 0;
}
int nvmlDeviceGetUUID(void* /*device*/, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-1234");
  return 0;
}
}
