#pragma once

// A device map by the nodes of a size table instead of names, for trees with very many modules.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "haul/device_map.h"

namespace haul::core {

struct NodeEntry {
  ModuleSizes::Index node;
  Device device;
};
// In the order of the nodes; none stands below another.
using NodeMap = std::vector<NodeEntry>;

// A name that grows and shrinks at its end.
class Path {
 public:
  std::size_t length() const { return length_; }
  std::string_view text() const { return std::string_view(room_).substr(0, length_); }
  void add(std::string_view part) {
    const std::size_t end = length_ + part.size();
    if (end >= room_.size()) room_.resize(2 * end + 1);  // a dot has room too
    char* to = room_.data() + length_;
    for (const char c : part) *to++ = c;  // parts are short
    length_ = end;
  }
  // Behind a part.
  void add_dot() { room_[length_++] = '.'; }
  void cut(std::size_t length) { length_ = length; }

 private:
  std::string room_;
  std::size_t length_ = 0;
};

// ModuleSizes::name, quick for many nodes in order: neighbours share most of their path.
class Names {
 public:
  // `sizes` must outlive it.
  explicit Names(const ModuleSizes& sizes) : sizes_(sizes) {}

  std::string operator()(ModuleSizes::Index node);

 private:
  // Makes path_ that of a module.
  void enter(ModuleSizes::Index module);

  const ModuleSizes& sizes_;
  ModuleSizes::Index module_ = ModuleSizes::kRoot;
  Path path_;  // of that module, with a dot at its end; the root's is empty
};

// By node: where its name stands in a device map, or kNoPlace. Empty: unknown.
using NamePlaces = std::vector<std::uint32_t>;
inline constexpr std::uint32_t kNoPlace = std::numeric_limits<std::uint32_t>::max();

// Sorted by name; cleaned as clean_device_map does it, or as it is. In about linear time. `places`
// become those of the result; unknown where it is one entry or was sorted by whole names.
DeviceMap named(const ModuleSizes& sizes, const NodeMap& map, bool clean,
                NamePlaces* places = nullptr);

// The device of a node by the entry at or above it, or by those below where they agree.
std::optional<Device> device_at(const ModuleSizes& sizes, const NodeMap& map,
                                ModuleSizes::Index node);

}  // namespace haul::core
