#pragma once

// The header of a safetensors file: 8 bytes of length, that much JSON, and the tensors' bytes right
// behind it. Pure functions over bytes; Error(kCorrupt) names `source` and the tensor.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul::core {

inline constexpr Bytes kSafetensorsMaxHeader = 100'000'000;
inline constexpr Bytes kSafetensorsPrefix = 8;

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  Bytes offset = 0;  // in the file
  Bytes size = 0;
};

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;           // __metadata__
};

// The JSON's length from the first 8 bytes of a file. `file_size` is the whole file's.
Bytes safetensors_header_size(std::span<const std::byte> prefix, Bytes file_size,
                              std::string_view source);

// Reads the JSON between the length and the data. The tensors must cover the rest of the file
// without holes or overlaps, each with exactly the bytes that its dtype and shape need.
SafetensorsHeader parse_safetensors_header(std::string_view json, Bytes file_size,
                                           std::string_view source);

// Both steps on a whole file's bytes.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, std::string_view source);

}  // namespace haul::core
