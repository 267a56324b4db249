#include <algorithm>

#include <fmt/format.h>

#include "core/base/json.h"
#include "haul/device_map.h"
#include "haul/error.h"

namespace haul {
namespace {

using core::Json;

Budget entry(std::string_view device, std::string_view size) {
  try {
    return budget(parse_device(device), parse_bytes(size));
  } catch (Error& error) {
    error.add_context(fmt::format("max memory '{}={}'", device, size));
    throw;
  }
}

std::vector<Budget> from_json(std::string_view text) {
  std::vector<Budget> result;
  const Json json = core::parse_json(text, "max memory");
  for (const auto& [key, value] : json.items()) {
    if (value.is_string()) {
      result.push_back(entry(key, value.get<std::string>()));
    } else if (value.is_number_unsigned()) {
      result.push_back(entry(key, std::to_string(value.get<Bytes>())));
    } else {
      throw Error(ErrorKind::kUsage,
                  fmt::format("max memory for '{}' is {}, which is not a size", key, value.dump()),
                  "write a size like \"10GiB\" or a whole number of bytes");
    }
  }
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<Budget> from_list(std::string_view text) {
  std::vector<Budget> result;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trimmed(text.substr(0, comma));
    const std::size_t equals = item.find('=');
    if (equals == item.npos) {
      throw Error(ErrorKind::kUsage, fmt::format("max memory '{}' has no '='", item),
                  "write it as '0=10GiB,cpu=30GiB' or as a JSON object");
    }
    result.push_back(entry(trimmed(item.substr(0, equals)), trimmed(item.substr(equals + 1))));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return result;
}

}  // namespace

Budget budget(Device device, Bytes bytes) {
  if (bytes > kMaxBudget) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} bytes for device {} is too large", bytes, to_string(device)));
  }
  return {device, bytes * 8};
}

std::optional<Bits> budget_of(const MaxMemory& memory, Device device) {
  for (const Budget& item : memory) {
    if (item.device == device) return item.bits;
  }
  return std::nullopt;
}

MaxMemory get_max_memory(std::vector<Budget> budgets) {
  std::sort(budgets.begin(), budgets.end(),
            [](const Budget& a, const Budget& b) { return a.device < b.device; });
  for (std::size_t i = 1; i < budgets.size(); ++i) {
    if (budgets[i].device == budgets[i - 1].device) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("device {} is given twice", to_string(budgets[i].device)));
    }
  }
  return budgets;
}

MaxMemory parse_max_memory(std::string_view text) {
  text = trimmed(text);
  return get_max_memory(text.starts_with('{') ? from_json(text) : from_list(text));
}

MapMode parse_map_mode(std::string_view text) {
  for (const MapMode mode :
       {MapMode::kAuto, MapMode::kBalanced, MapMode::kBalancedLow0, MapMode::kSequential}) {
    if (text == to_string(mode)) return mode;
  }
  throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a way to make a device map", text),
              "use auto, balanced, balanced_low_0, sequential or a .json file");
}

std::string_view to_string(MapMode mode) {
  switch (mode) {
    case MapMode::kAuto:
      return "auto";
    case MapMode::kBalanced:
      return "balanced";
    case MapMode::kBalancedLow0:
      return "balanced_low_0";
    case MapMode::kSequential:
      return "sequential";
  }
  return {};
}

DeviceMap read_device_map(std::string_view json, std::string_view source) {
  const Json document = core::parse_json(json, source);
  if (!document.is_object()) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: a device map is a JSON object", source));
  }
  DeviceMap map;
  for (const auto& [name, value] : document.items()) {
    try {
      if (value.is_number_integer()) {
        map.emplace_back(name, parse_device(value.dump()));
      } else if (value.is_string()) {
        map.emplace_back(name, parse_device(value.get<std::string>()));
      } else {
        throw Error(ErrorKind::kUsage, fmt::format("{} is not a device", value.dump()));
      }
    } catch (const Error& error) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{}: entry '{}': {}", source, name, error.what()), error.hint());
    }
  }
  return sorted(std::move(map));
}

}  // namespace haul
