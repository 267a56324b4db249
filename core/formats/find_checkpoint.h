#pragma once

// Which file of a folder is its checkpoint.

#include <filesystem>
#include <string>
#include <vector>

namespace haul::core {

struct CheckpointPlace {
  std::filesystem::path path;      // a weight file, or an index that ends in .json
  std::vector<std::string> notes;  // what was passed over, for the user
};

// A file is itself. In a folder: model.safetensors, pytorch_model.bin, the one file that ends in
// .index.json, the index.json of an offload folder, the one file that ends in .gguf (or the first
// of its parts), in this order; safetensors win over pickles, whole or sharded, with a note. Throws
// Error(kNotFound) when there is none and Error(kUsage), with the list, when several are equally
// good.
CheckpointPlace find_checkpoint(const std::filesystem::path& path);

}  // namespace haul::core
