#pragma once

// Any checkpoint to a safetensors folder that Transformers loads.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/checkpoint.h"
#include "haul/bytes.h"
#include "haul/dtype.h"

namespace haul::core {

struct ConvertOptions {
  // F16, BF16, F32 and F64 tensors become this type, one of the four; the others stay as they are.
  std::optional<Dtype> dtype;
  Bytes max_shard_size = 5'000'000'000;
};

struct ConvertResult {
  CheckpointFormat format = CheckpointFormat::kSafetensors;  // of the input
  std::size_t tensors = 0;
  Bytes bytes = 0;                 // of all tensors as written
  std::vector<std::string> files;  // in the output folder
  std::vector<std::string> notes;
};

// Writes `input` (what Checkpoint::open takes) to the folder `output`, with the configs and
// tokenizer files that lie beside it. Streams: memory stays below 100 MB more than the largest
// tensor. The folder appears at the end, whole; it must not exist before, or be empty. Every name
// is written with its own bytes, also where several share one storage, so no loader misses one.
// A GGUF file of a family that haul maps is written as Transformers has the model, with a config
// made of the metadata, whatever lies beside it; so is the tokenizer inside any GGUF file.
// Draws a progress bar on stderr.
ConvertResult convert(const std::filesystem::path& input, const std::filesystem::path& output,
                      const ConvertOptions& options);

}  // namespace haul::core
