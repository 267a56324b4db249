#pragma once

// What a model's files say about how it is to be asked: generation_config.json and, where that is
// silent, config.json.

#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/json.h"
#include "haul/torch/model.h"
#include "runtime/generate/beams.h"
#include "runtime/generate/sampler.h"

namespace haul::runtime {

struct GenerationConfig {
  std::vector<TokenId> stop_tokens;
  std::optional<TokenId> padding;
  std::optional<TokenId> decoder_start;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  // prompt included
  Sampling sampling;                       // greedy unless the file says otherwise
  BeamSettings beams;
};

// `file` may be missing. Throws Error(kCorrupt) that names the file and the key, and
// Error(kUnsupported) for one that asks for several results.
GenerationConfig read_generation_config(const core::Json& model_config,
                                        const std::filesystem::path& file);

// With what the caller asks for. They throw Error(kUsage) that names what makes no sense.
Sampling sampling_for(const GenerationConfig& config, const GenerateOptions& options);
BeamSettings beams_for(const GenerationConfig& config, const GenerateOptions& options);

}  // namespace haul::runtime
