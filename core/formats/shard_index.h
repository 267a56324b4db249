#pragma once

// The index of a sharded checkpoint: which file has which tensor. Either an object with a
// `weight_map`, or the map itself. Pure; Error(kCorrupt) names `source`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/big_json.h"

namespace haul::core {

struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::uint32_t file = 0;  // index into files
  };
  std::vector<std::string> files;  // sorted, each once, relative to the index's folder
  std::vector<Entry> entries;      // in the order of the index
};

// Refuses an index without tensors and file names that leave the index's folder.
ShardIndex read_shard_index(simdjson::dom::element root, std::string_view source);

// Whether a document is the index of an offload folder rather than of shards: a map from tensors
// to objects.
bool is_offload_index(simdjson::dom::element root);

// A relative path without "..", so one that stays in its folder.
bool stays_in_folder(std::string_view name);

}  // namespace haul::core
