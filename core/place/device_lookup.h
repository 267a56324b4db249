#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>

#include "haul/device_map.h"

namespace haul::core {

// Finds a name's device by its longest prefix in a map, which must outlive it.
class DeviceLookup {
 public:
  explicit DeviceLookup(const DeviceMap& map) {
    for (const auto& [name, device] : map) devices_.emplace(name, device);
  }

  std::optional<Device> operator()(std::string_view name) const {
    for (;;) {
      if (const auto found = devices_.find(name); found != devices_.end()) return found->second;
      if (name.empty()) return std::nullopt;
      const std::size_t dot = name.rfind('.');
      name = dot == name.npos ? std::string_view{} : name.substr(0, dot);
    }
  }

 private:
  std::unordered_map<std::string_view, Device> devices_;
};

}  // namespace haul::core
