#pragma once

// A device map by the nodes of a size table instead of names, for trees with very many modules.

#include <optional>
#include <string>
#include <vector>

#include "haul/device_map.h"

namespace haul::core {

struct NodeEntry {
  ModuleSizes::Index node;
  Device device;
};
// In the order of the nodes; none stands below another.
using NodeMap = std::vector<NodeEntry>;

// ModuleSizes::name, quick for many nodes in order: neighbours share most of their path.
class Names {
 public:
  // `sizes` must outlive it.
  explicit Names(const ModuleSizes& sizes) : sizes_(sizes) {}

  std::string operator()(ModuleSizes::Index node);

 private:
  // Makes path_ that of a module.
  void enter(ModuleSizes::Index module);

  struct Step {
    ModuleSizes::Index module;
    std::size_t length;  // of the path before it
  };

  const ModuleSizes& sizes_;
  std::vector<Step> steps_;  // the modules on the path
  std::string path_;         // with a dot at its end
};

// Sorted by name; cleaned as clean_device_map does it, or as it is. In about linear time.
DeviceMap named(const ModuleSizes& sizes, const NodeMap& map, bool clean);

// The device of a node by the entry at or above it, or by those below where they agree.
std::optional<Device> device_at(const ModuleSizes& sizes, const NodeMap& map,
                                ModuleSizes::Index node);

}  // namespace haul::core
