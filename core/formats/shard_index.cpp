#include "core/formats/shard_index.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

[[noreturn]] void refuse(std::string_view source, const std::string& why) {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source, why));
}

object weight_map(element root, std::string_view source) {
  object map;
  if (root.get(map)) refuse(source, "a shard index is a JSON object");
  element inner;
  if (map["weight_map"].get(inner)) return map;
  // A flat index may have a tensor of that name.
  if (inner.is_string()) return map;
  if (inner.get(map)) refuse(source, "its weight_map is not a JSON object");
  return map;
}

}  // namespace

bool stays_in_folder(std::string_view name) {
  const std::filesystem::path path(name);
  if (name.empty() || name.find('\0') != name.npos || path.is_absolute()) return false;
  return std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

bool is_offload_index(element root) {
  object map;
  if (root.get(map) || map.begin() == map.end()) return false;
  if (map["weight_map"].is_object()) return false;
  return (*map.begin()).value.is_object();
}

ShardIndex read_shard_index(element root, std::string_view source) {
  ShardIndex index;
  std::vector<std::string_view> places;
  for (const auto field : weight_map(root, source)) {
    std::string_view file;
    if (field.value.get(file)) {
      refuse(source, fmt::format("tensor '{}': its file is not a string", field.key));
    }
    if (!stays_in_folder(file)) {
      refuse(source, fmt::format("tensor '{}': the file name '{}' leaves the index's folder",
                                 field.key, file));
    }
    index.entries.push_back({std::string(field.key), 0});
    places.push_back(file);
  }
  if (places.empty()) refuse(source, "it names no tensor");

  std::vector<std::string_view> files = places;
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto found = std::lower_bound(files.begin(), files.end(), places[i]);
    index.entries[i].file = static_cast<std::uint32_t>(found - files.begin());
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

}  // namespace haul::core
