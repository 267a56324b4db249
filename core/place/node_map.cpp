#include "core/place/node_map.h"

namespace haul::core {
namespace {

using Index = ModuleSizes::Index;

// The entries below a node: how many, up to two, and their device where they agree.
struct Below {
  int count = 0;
  bool agree = true;
  Device device;

  void add(int entries, bool same, Device other) {
    if (entries == 0) return;
    if (count == 0) device = other;
    agree = agree && same && device == other;
    count = count + entries > 1 ? 2 : 1;
  }
};

}  // namespace

DeviceMap named(const ModuleSizes& sizes, const NodeMap& map) {
  DeviceMap result;
  for (Index i = 0; i < map.size(); ++i) {
    if (map[i]) result.emplace_back(sizes.name(i), *map[i]);
  }
  return sorted(std::move(result));
}

DeviceMap cleaned(const ModuleSizes& sizes, const NodeMap& map) {
  std::vector<Below> below(map.size());
  for (Index i = static_cast<Index>(map.size()); --i > 0;) {
    Below& parent = below[sizes[i].parent];
    parent.add(below[i].count, below[i].agree, below[i].device);
    if (map[i]) parent.add(1, true, *map[i]);
  }
  DeviceMap result;
  for (Index i = 0; i < map.size();) {
    if (below[i].count > 1 && below[i].agree) {
      result.emplace_back(sizes.name(i), below[i].device);
      i = sizes[i].end;
      continue;
    }
    if (map[i]) result.emplace_back(sizes.name(i), *map[i]);
    ++i;
  }
  return sorted(std::move(result));
}

}  // namespace haul::core
