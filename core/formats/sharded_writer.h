#pragma once

// A safetensors checkpoint in one file or in shards with an index, laid out as Transformers lays
// it out.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/formats/model_files.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_writer.h"
#include "haul/bytes.h"

namespace haul::core {

struct Shard {
  std::string file;                  // "model-00001-of-00005.safetensors", "model.safetensors"
  std::vector<std::size_t> tensors;  // in the order of their bytes: wide elements first
};

struct ShardPlan {
  std::vector<Shard> shards;
  Bytes total_size = 0;
};

// Fills shards in the given order up to `max_shard_size` bytes of tensors each; a tensor that is
// larger has a shard for itself. Pure.
ShardPlan plan_shards(const std::vector<HeaderTensor>& tensors, Bytes max_shard_size);

// model.safetensors.index.json of a plan with several shards.
std::string shard_index_text(const std::vector<HeaderTensor>& tensors, const ShardPlan& plan);

// Writes the files of a plan into an existing folder, the index last. For each tensor `fill` is
// called with its number and the writer that is to be given its bytes.
void write_shards(const std::filesystem::path& folder, const std::vector<HeaderTensor>& tensors,
                  const SafetensorsMetadata& metadata, const ShardPlan& plan,
                  const std::function<void(std::size_t, SafetensorsWriter&)>& fill);

}  // namespace haul::core
