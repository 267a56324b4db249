#pragma once

// A device map by the nodes of a size table instead of names, for trees with very many modules.

#include <optional>
#include <string>
#include <vector>

#include "haul/device_map.h"

namespace haul::core {

// By node: the device of the entry that stands there.
using NodeMap = std::vector<std::optional<Device>>;

// ModuleSizes::name in one allocation.
std::string full_name(const ModuleSizes& sizes, ModuleSizes::Index node);

// Sorted by name.
DeviceMap named(const ModuleSizes& sizes, const NodeMap& map);
// As clean_device_map, in linear time. The root has no entry of its own.
NodeMap cleaned(const ModuleSizes& sizes, const NodeMap& map);

}  // namespace haul::core
