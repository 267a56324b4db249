#include "cli/torch/wake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/torch/early_memory.h"

namespace haul::cli {
namespace {

pthread_t waker;
bool wakes = false;
const char* model = nullptr;
// Of a model that is loaded at once, as it is stored. None: what the machine has, which is not
// known here.
std::string_view budgets;

// By the driver's own functions: the runtime's would hold up torch's libraries, which tell it about
// their kernels meanwhile. It finds the context here.
void* wake(void* /*unused*/) {
  // The C library, which is initialised first, sets it: nothing may be opened before.
  while (__atomic_load_n(&environ, __ATOMIC_ACQUIRE) == nullptr) ::usleep(100);
  if (!budgets.empty()) {
    const MemoryWanted wanted = memory_wanted(model, budgets);
    if (wanted.in_ram > 0) begin_to_bring(wanted);
  }
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

// Flags may be written with underscores.
bool is_flag(std::string_view word, std::string_view flag) {
  return word.size() >= flag.size() &&
         std::equal(flag.begin(), flag.end(), word.begin(),
                    [](char a, char b) { return a == b || (a == '-' && b == '_'); });
}

// Whether budgets give the first GPU anything.
bool serve_first_gpu(std::string_view given) {
  while (!given.empty()) {
    const BudgetText budget = take_budget(&given);
    if (budget.device == "0" && budget.size.find_first_of("123456789") != budget.size.npos) {
      return true;
    }
  }
  return false;
}

// Whether the process will surely use the first GPU, and with which budgets. Others find out in
// time.
bool uses_first_gpu(int argc, char** argv, char** environment) {
  constexpr std::array kUnsure = {"-h",
                                  "--help",
                                  "--device-map",
                                  "--plan",
                                  "--pipeline",
                                  "--tensor-parallel",
                                  "--num-processes"};
  constexpr std::array kLaunched = {
      "LOCAL_RANK=", "OMPI_COMM_WORLD_LOCAL_RANK=", "MV2_COMM_WORLD_LOCAL_RANK=",
      "MPI_LOCALRANKID=", "SLURM_PROCID="};
  if (argc < 3 || argv[1] != std::string_view("run")) return false;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    for (const char* const name : kLaunched) {
      if (std::string_view(*variable).starts_with(name)) return false;
    }
  }
  for (int i = 2; i < argc; ++i) {
    for (const char* const flag : kUnsure) {
      if (is_flag(argv[i], flag)) return false;
    }
    const std::string_view word = argv[i];
    if (!is_flag(word, "--max-memory")) continue;
    const std::size_t sign = word.find('=');
    const bool apart = sign == std::string_view::npos;
    if (apart && i + 1 == argc) return false;
    budgets = apart ? argv[i + 1] : word.substr(sign + 1);
    if (!serve_first_gpu(budgets)) return false;
  }
  return true;
}

// Not after a prompt has come through a pipe.
bool loads_at_once(int argc, char** argv) {
  constexpr std::array kPrompts = {"--prompt", "--ids", "--chat", "--file"};
  bool has_prompt = false;
  for (int i = 3; i < argc; ++i) {
    if (is_flag(argv[i], "--dtype")) return false;
    has_prompt |= std::any_of(kPrompts.begin(), kPrompts.end(),
                              [&](const char* flag) { return is_flag(argv[i], flag); });
  }
  return has_prompt;
}

void begin(int argc, char** argv, char** environment) {
  if (!uses_first_gpu(argc, argv, environment)) return;
  if (!loads_at_once(argc, argv)) budgets = {};
  model = argv[2];
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
