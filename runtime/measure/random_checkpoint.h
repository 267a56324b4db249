#pragma once

// A checkpoint of random weights for a config.json: what a benchmark runs when the real weights are
// not at hand. Speed does not depend on the values, and the same seed gives every program that
// reads the files the same ids.

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/json.h"
#include "haul/bytes.h"
#include "haul/description.h"

namespace haul::runtime {

struct RandomCheckpoint {
  Description description;
  Bytes weights = 0;  // of all, each tied one once
  Bytes read = 0;     // of those that are read whole for a token: all but a table of embeddings
};

// What a checkpoint for the config holds; errors call the config `source`. Throws
// Error(kUnsupported) for an architecture that haul does not know or that does not generate.
RandomCheckpoint random_checkpoint(const core::Json& config, const std::string& source);

// Writes config.json and shards into a folder, or finds there what an earlier call wrote for the
// same config. `on_bytes` hears how much is written. Throws Error(kUsage) for a folder that holds
// another model, Error(kResource) where the disk is full.
void write_checkpoint(const RandomCheckpoint& checkpoint, const core::Json& config,
                      const std::filesystem::path& folder,
                      const std::function<void(Bytes done, Bytes all)>& on_bytes);

}  // namespace haul::runtime
