#include "cli/env.h"

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <torch/version.h>

#include "cli/verb.h"
#include "runtime/tiers/gpu.h"

namespace haul::cli {

void add_env(CLI::App& app) {
  add_env(app, [](core::Json& json) {
    json["torch"] = TORCH_VERSION;
    json["torch_cpu"] = at::get_cpu_capability();
    json["cuda_part"] = runtime::built_for_gpus();
  });
}

}  // namespace haul::cli
