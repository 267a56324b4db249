#pragma once

// What a model's config.json says, as far as this model needs it.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "model.h"

struct ModelConfig {
  GptConfig gpt;
  std::optional<std::int64_t> end_of_text;  // the id of the token that ends a text
};

// Keys that the file lacks keep their defaults. Throws haul::Error(kCorrupt) for values that make
// no sense and haul::Error(kUnsupported) for a model that computes something else.
ModelConfig read_config(const std::filesystem::path& file);

// Throws haul::Error(kUsage) unless the numbers can be those of a model.
void check(const GptConfig& config);
