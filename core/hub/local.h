#pragma once

// Models that lie on the disk: which of a folder's files are its config and its weights.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/model_files.h"

namespace haul::core {

// Whether the name ends like a checkpoint: .safetensors, .bin, .pt, .pth, .gguf or .index.json.
bool is_checkpoint_name(std::string_view name);

// The files of a folder. `checkpoint` stays empty when there are no weights, or only some shards
// of them (Checkpoint::open on the folder then names the missing ones). A lone .gguf is the
// checkpoint itself and carries its own config; several of them are an Error(kUsage) that lists
// them.
ModelFiles files_in_folder(const std::filesystem::path& folder);

// The model at a path, or nothing when nothing is there. A config.json stands for itself alone:
// weights beside it are not taken. A checkpoint brings the config.json beside it, but a .gguf,
// which carries its own, does not.
std::optional<ModelFiles> find_local_model(const std::string& path);

}  // namespace haul::core
