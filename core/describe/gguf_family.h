#pragma once

// What a family's GGUF file (llama_gguf.cpp, …) tells: the names of its tensors on both sides, the
// layouts that the conversion changed, and its config from the metadata.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/describe/gguf_source.h"

namespace haul::core {

// What the conversion to GGUF did to the elements of a tensor.
enum class GgufLayout {
  kSame,
  kRotaryQuery,  // in each head, the halves that rotate together were interleaved row by row
  kRotaryKey,    // the same, by the number of key heads
  kJoinedHeads,  // the rows of query, key and value, once alternating by head, lie one by one
  kTransposed,   // a matrix was transposed; vectors are as they were
};

// Names without ".weight" or ".bias"; # stands for the block's number. An empty second name: the
// tensor is no weight of the model.
struct GgufName {
  std::string_view gguf;
  std::string_view transformers;
  GgufLayout layout = GgufLayout::kSame;
};

struct GgufFacts {
  Json config;
  std::vector<GgufName> names;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;
};

struct GgufFamily {
  std::string_view architecture;  // the value of general.architecture
  GgufFacts (*read)(const GgufSource& source);
};

// Null for an architecture that no family has.
const GgufFamily* find_gguf_family(std::string_view architecture);

}  // namespace haul::core
