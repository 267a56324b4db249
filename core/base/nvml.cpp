#include "core/base/nvml.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <memory>

namespace haul::core {
namespace {

// The few calls of libnvidia-ml that are needed, with its C types.
using Handle = void*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using Init = int (*)();
using Count = int (*)(unsigned*);
using ByIndex = int (*)(unsigned, Handle*);
using MemoryInfo = int (*)(Handle, Memory*);
using Text = int (*)(Handle, char*, unsigned);

// The library leaves threads behind, which would take signals that the process holds back for
// itself.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

std::string text_of(Text function, Handle handle) {
  std::array<char, 128> text{};
  if (function == nullptr || function(handle, text.data(), text.size()) != 0) return {};
  return text.data();
}

}  // namespace

std::vector<GpuMemory> nvml_gpus() {
  std::vector<GpuMemory> result;
  const SignalsHeld held;
  const std::unique_ptr<void, CloseLibrary> library(::dlopen("libnvidia-ml.so.1", RTLD_NOW));
  if (!library) return result;
  const auto init = symbol<Init>(library.get(), "nvmlInit_v2");
  const auto shutdown = symbol<Init>(library.get(), "nvmlShutdown");
  const auto count = symbol<Count>(library.get(), "nvmlDeviceGetCount_v2");
  const auto by_index = symbol<ByIndex>(library.get(), "nvmlDeviceGetHandleByIndex_v2");
  const auto memory_info = symbol<MemoryInfo>(library.get(), "nvmlDeviceGetMemoryInfo");
  if (!init || !shutdown || !count || !by_index || !memory_info || init() != 0) return result;
  unsigned devices = 0;
  if (count(&devices) != 0) devices = 0;
  for (unsigned i = 0; i < devices; ++i) {
    Handle handle = nullptr;
    Memory memory{};
    GpuMemory gpu;
    if (by_index(i, &handle) == 0 && memory_info(handle, &memory) == 0) {
      gpu.total = memory.total;
      gpu.free = memory.free;
      gpu.uuid = text_of(symbol<Text>(library.get(), "nvmlDeviceGetUUID"), handle);
      gpu.name = text_of(symbol<Text>(library.get(), "nvmlDeviceGetName"), handle);
    }
    // A GPU that does not answer keeps its number, with nothing free.
    result.push_back(std::move(gpu));
  }
  shutdown();
  return result;
}

}  // namespace haul::core
