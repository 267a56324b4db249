#include "runtime/generate/gpu_memory.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "runtime/tiers/gpu.h"

namespace haul::runtime {
namespace {

std::string planned(const PlanDevice& device) {
  return fmt::format(
      "planned were {}{}: weights {}, KV cache {}, activations {}, slots {}, the driver's {}",
      format_bytes(device.used()),
      device.budget ? fmt::format(" of {}", format_bytes(*device.budget)) : "",
      format_bytes(device.weights + device.margins), format_bytes(device.kv),
      format_bytes(device.activations), format_bytes(device.slots), format_bytes(device.context));
}

}  // namespace

// By its words: a library, or a thread whose failure another one throws, has no type for it.
bool is_lack_of_memory(std::string_view what) {
  constexpr std::array<std::string_view, 5> kWords = {
      "out of memory",                                  // CUDA, torch
      "ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED",  // CUDA's libraries
      "cannot allocate", "do not fit"};                 // slabs, ledgers
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view words) {
    return what.find(words) != std::string_view::npos;
  });
}

void tell_lack_of_memory(const LoadedModel::State& state, std::string_view what) {
  std::string message =
      fmt::format("{}: not enough memory: {}", state.name, what.substr(0, what.find('\n')));
  for (const Gpu& gpu : gpus()) {
    const auto found =
        std::find_if(state.plan.devices.begin(), state.plan.devices.end(),
                     [&](const PlanDevice& one) { return one.device == haul::gpu(gpu.index); });
    if (found == state.plan.devices.end()) continue;
    message += fmt::format("\n  GPU {}: {}; it has {} of {} free", gpu.index, planned(*found),
                           format_bytes(gpu.free), format_bytes(gpu.total));
  }
  throw Error(ErrorKind::kResource, message,
              "another program may hold memory of the GPU; or ask for less: --max-memory, a "
              "smaller --batch, a shorter --context");
}

}  // namespace haul::runtime
