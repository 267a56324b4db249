#pragma once

// Accelerate's planner for callers that have the table of sizes already. `sizes` is the
// description's table for the options' dtypes.

#include <optional>

#include "core/place/node_map.h"
#include "haul/device_map.h"

namespace haul::core {

InferredMap infer_auto_device_map(const Description& description, const ModuleSizes& sizes,
                                  const MaxMemory& memory, const MapOptions& options);

// The map alone; nothing where the peer would fail, or split a module with saved buffers.
std::optional<NodeMap> infer_node_map(const Description& description, const ModuleSizes& sizes,
                                      const MaxMemory& memory, const MapOptions& options);

BalancedMemory get_balanced_memory(const Description& description, const ModuleSizes& sizes,
                                   const MaxMemory& memory, const MapOptions& options,
                                   const BalanceOptions& balance);

}  // namespace haul::core
