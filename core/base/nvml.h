#pragma once

#include <vector>

#include "core/base/machine.h"

namespace haul::core {

// The GPUs that the driver's management library lists, by PCI bus; none where there is no driver.
std::vector<GpuMemory> nvml_gpus();

}  // namespace haul::core
