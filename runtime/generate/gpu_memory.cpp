#include "runtime/generate/gpu_memory.h"

#include <algorithm>
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
