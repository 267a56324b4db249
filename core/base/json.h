#pragma once

// JSON documents of modest size: configs, trees, plans. Key order is kept. Files with very many
// keys (shard indexes, safetensors headers, tokenizers) are read with simdjson where they are used,
// because this type looks keys up one by one.

#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

namespace haul::core {

using Json = nlohmann::ordered_json;

// Parses a whole document. Throws Error(kCorrupt) that names `source` and the byte, also for
// nesting deeper than 256, for more than 100,000 keys in one object and for a key given twice.
Json parse_json(std::string_view text, std::string_view source);

// Reads and parses a file of at most 64 MiB.
Json read_json(const std::filesystem::path& path);

}  // namespace haul::core
