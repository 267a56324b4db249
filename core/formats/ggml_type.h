#pragma once

// The tensor types of GGUF files: their numbers, names and blocks.

#include <cstdint>
#include <string_view>

#include "core/formats/checkpoint.h"

namespace haul::core {

struct GgmlType {
  std::uint32_t id = 0;  // as in the file
  std::string_view name;
  bool readable = false;             // the rest is set only where haul reads the type
  std::uint32_t block_elements = 0;  // 1 for plain types
  std::uint32_t block_bytes = 0;
  Dtype dtype = Dtype::kF32;
  Coding coding = Coding::kPlain;
};

// Null for a number that no known version of the format gives out.
const GgmlType* find_ggml_type(std::uint32_t id);

// The type of a quantised coding; REQUIRES: not kPlain.
const GgmlType& ggml_type(Coding coding);

}  // namespace haul::core
