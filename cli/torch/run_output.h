#pragma once

// What `haul run` tells beside the words.

#include <string>

#include "core/base/json.h"
#include "haul/torch/model.h"

namespace haul::cli {

// {"text", "ids", "prompt_ids", "device_map", "stats"}.
core::Json to_json(const Generated& generated, const LoadedModel& model);

// {"load_s", "first_token_s", "tokens_per_s", "bytes_moved", "peak", "planned"}.
core::Json stats(const LoadedModel& model);

// One line of the same figures, for people; of work that was no generation, what it took.
std::string figures_line(const LoadedModel& model);
std::string figures_line(const LoadedModel& model, const std::string& work);

}  // namespace haul::cli
