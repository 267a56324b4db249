#include "haul/device_map.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "core/place/device_lookup.h"
#include "haul/error.h"

namespace haul {
namespace {

using core::DeviceLookup;

// Entries of a map by the parts of their names.
struct Trie {
  std::map<std::string, std::unique_ptr<Trie>, std::less<>> children;
  std::optional<Device> device;

  // What lies strictly below: how many entries, and their device where they agree.
  std::size_t below = 0;
  std::optional<Device> common;

  Trie& at(std::string_view path) {
    Trie* node = this;
    while (!path.empty()) {
      const std::size_t dot = std::min(path.find('.'), path.size());
      auto& child = node->children[std::string(path.substr(0, dot))];
      if (!child) child = std::make_unique<Trie>();
      node = child.get();
      path.remove_prefix(std::min(dot + 1, path.size()));
    }
    return *node;
  }

  void count() {
    bool agree = true;
    const auto meet = [&](std::optional<Device> other) {
      if (below == 0) common = other;
      if (other != common || !other) agree = false;
    };
    for (auto& [segment, child] : children) {
      child->count();
      if (child->device) {
        meet(child->device);
        ++below;
      }
      if (child->below > 0) {
        meet(child->common);
        below += child->below;
      }
    }
    if (!agree) common.reset();
  }

  void collect(const std::string& path, DeviceMap* out) {
    if (below > 1 && common) {
      out->emplace_back(path, *common);
      return;
    }
    if (device) out->emplace_back(path, *device);
    for (auto& [segment, child] : children) {
      child->collect(path.empty() ? segment : path + "." + segment, out);
    }
  }
};

void collect_modules(const ModuleSpec& module, const std::string& path,
                     std::unordered_set<std::string>* out) {
  for (const ModuleSpec& child : module.children) {
    std::string name = path.empty() ? child.name : path + "." + child.name;
    collect_modules(child, name, out);
    out->insert(std::move(name));
  }
}

}  // namespace

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpuDevice;
  if (text == "disk") return kDiskDevice;
  if (text == "mps") return {DeviceKind::kMps, 0};
  if (text == "cuda") return gpu(0);
  std::string_view digits = text;
  if (digits.starts_with("cuda:")) digits.remove_prefix(5);
  int index = 0;
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (code != std::errc{} || stop != digits.data() + digits.size() || index < 0 ||
      digits.starts_with('-')) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a device", text),
                "a device is an accelerator's number (0, 1, …), mps, cpu or disk");
  }
  return gpu(index);
}

std::string to_string(Device device) {
  switch (device.kind) {
    case DeviceKind::kGpu:
      return std::to_string(device.index);
    case DeviceKind::kMps:
      return "mps";
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kDisk:
      return "disk";
  }
  return {};
}

DeviceMap sorted(DeviceMap map) {
  std::sort(map.begin(), map.end());
  return map;
}

DeviceMap clean_device_map(const DeviceMap& map) {
  Trie root;
  for (const auto& [name, device] : map) root.at(name).device = device;
  root.count();
  // The whole model's own entry counts among those below it.
  if (root.device) {
    if (root.below == 0) return map;
    if (root.common != root.device) root.common.reset();
    if (root.common) return {{"", *root.device}};
  }
  DeviceMap result;
  root.collect("", &result);
  return sorted(std::move(result));
}

std::optional<Device> device_of(const DeviceMap& map, std::string_view name) {
  return DeviceLookup(map)(name);
}

std::vector<std::vector<std::string>> find_tied_parameters(const Description& description) {
  std::vector<std::vector<std::string>> groups;
  std::unordered_map<std::string_view, std::size_t> group_of;
  for (const auto& group : description.tied) {
    std::vector<std::string> names = group;
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() > 1) groups.push_back(std::move(names));
  }
  if (groups.size() < 2) return groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : groups[g]) group_of.emplace(name, g);
  }
  std::vector<std::vector<std::string>> ordered;
  std::vector<bool> taken(groups.size());
  for (const NamedTensor& tensor : all_tensors(description)) {
    const auto found = group_of.find(tensor.name);
    if (found == group_of.end() || taken[found->second]) continue;
    taken[found->second] = true;
    ordered.push_back(groups[found->second]);
  }
  return ordered;
}

DeviceMapCheck check_device_map(const Description& description, const DeviceMap& map) {
  const DeviceLookup lookup(map);
  DeviceMapCheck result;
  std::unordered_set<std::string> modules;
  collect_modules(description.root, "", &modules);
  for (const auto& [name, device] : map) {
    if (!name.empty() && !modules.contains(name)) result.unknown_keys.push_back(name);
  }
  for (const NamedTensor& tensor : all_tensors(description)) {
    if (tensor.persistent && !lookup(tensor.name)) result.uncovered.push_back(tensor.name);
  }
  for (const auto& group : find_tied_parameters(description)) {
    const std::optional<Device> first = lookup(group.front());
    const bool together = std::all_of(group.begin(), group.end(), [&](const std::string& name) {
      const auto device = lookup(name);
      return device && device == first;
    });
    if (!together) result.split_ties.push_back(group);
  }
  return result;
}

}  // namespace haul
