#include "cli/torch/wake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace haul::cli {
namespace {

pthread_t waker;
bool wakes = false;

// By the driver's own functions: the runtime's would hold up torch's libraries, which tell it about
// their kernels meanwhile. It finds the context here.
void* wake(void* /*unused*/) {
  // The C library, which is initialised first, sets it: nothing may be opened before.
  while (__atomic_load_n(&environ, __ATOMIC_ACQUIRE) == nullptr) ::usleep(100);
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return nullptr;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto retain =
      reinterpret_cast<int (*)(void**, int)>(::dlsym(driver, "cuDevicePrimaryCtxRetain"));
  int gpu = 0;
  void* context = nullptr;
  // What fails here fails again, and is told, where it matters.
  if (init != nullptr && get != nullptr && retain != nullptr && init(0) == 0 && get(&gpu, 0) == 0) {
    retain(&context, gpu);
  }
  return nullptr;
}

bool starts_with(std::string_view word, std::string_view start) {
  return word.substr(0, start.size()) == start;
}

// Whether the process will surely use the first GPU. Others find out in time.
bool uses_first_gpu(int argc, char** argv, char** environment) {
  constexpr std::array kUnsure = {"-h",
                                  "--help",
                                  "--device-map",
                                  "--device_map",
                                  "--plan",
                                  "--pipeline",
                                  "--tensor-parallel",
                                  "--tensor_parallel",
                                  "--num-processes",
                                  "--num_processes"};
  if (argc < 3 || argv[1] != std::string_view("run")) return false;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    if (starts_with(*variable, "LOCAL_RANK=")) return false;
  }
  for (int i = 2; i < argc; ++i) {
    for (const char* const flag : kUnsure) {
      if (starts_with(argv[i], flag)) return false;
    }
    const std::string_view word = argv[i];
    if (!starts_with(word, "--max-memory") && !starts_with(word, "--max_memory")) continue;
    const bool apart = word.find('=') == std::string_view::npos && i + 1 < argc;
    const std::string_view budgets = apart ? argv[i + 1] : word;
    if (budgets.find("0=") == std::string_view::npos) return false;
  }
  return true;
}

void begin(int argc, char** argv, char** environment) {
  if (!uses_first_gpu(argc, argv, environment)) return;
  wakes = ::pthread_create(&waker, nullptr, wake, nullptr) == 0;
}

// Called before any library's constructors, of which torch's register some thousand operators.
__attribute__((section(".preinit_array"), used)) void (*at_start)(int, char**, char**) = begin;

}  // namespace

void wait_until_awake() {
  if (wakes) ::pthread_join(waker, nullptr);
  wakes = false;
}

}  // namespace haul::cli
