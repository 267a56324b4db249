#include "core/hub/local.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/base/big_json.h"
#include "core/base/file.h"
#include "core/formats/find_checkpoint.h"
#include "core/formats/shard_index.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kMaxIndex = 256 * kMiB;
constexpr std::array<std::string_view, 6> kCheckpointEndings{
    ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json"};

// Whether every shard that an index names lies beside it.
bool shards_present(const fs::path& path) {
  const BigJson document(read_file(path, kMaxIndex), path.string());
  if (is_offload_index(document.root())) return true;
  const ShardIndex index = read_shard_index(document.root(), path.string());
  return std::all_of(index.files.begin(), index.files.end(), [&](const std::string& shard) {
    std::error_code ignored;
    return fs::is_regular_file(path.parent_path() / shard, ignored);
  });
}

// The folder's checkpoint, or nothing when there is none or it is not whole.
std::optional<fs::path> whole_checkpoint(const fs::path& folder) {
  try {
    const fs::path path = find_checkpoint(folder).path;
    if (path.extension() == ".json" && !shards_present(path)) return std::nullopt;
    return path;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound) throw;
    return std::nullopt;
  }
}

// What a config tells of the library that reads it; timm's has no model_type.
std::string library_of(const fs::path& config) {
  const Json document = read_json(config);
  if (!document.is_object()) return {};
  if (document.contains("model_type") || document.contains("architectures")) return "transformers";
  if (document.contains("architecture") && document.contains("num_classes")) return "timm";
  return {};
}

void take_config(const fs::path& path, ModelFiles* files) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  files->config = path;
  files->library = library_of(path);
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  return std::any_of(kCheckpointEndings.begin(), kCheckpointEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

ModelFiles files_in_folder(const fs::path& folder) {
  ModelFiles files;
  files.folder = folder;
  take_config(folder / "config.json", &files);
  if (const auto checkpoint = whole_checkpoint(folder)) {
    const bool gguf = checkpoint->extension() == ".gguf";
    files.checkpoint = gguf ? *checkpoint : folder;
    if (gguf) files.config.clear();
  }
  return files;
}

std::optional<ModelFiles> find_local_model(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status)) return std::nullopt;
  ModelFiles files;
  if (fs::is_directory(status)) {
    files = files_in_folder(path);
    if (files.config.empty() && files.checkpoint.empty()) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("{}: the folder holds neither a config.json nor weights", path),
                  "name a model's folder, its config.json or a checkpoint file");
    }
  } else {
    const fs::path file(path);
    files.folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (is_checkpoint_name(path)) {
      files.checkpoint = file;
      if (!path.ends_with(".gguf")) take_config(files.folder / "config.json", &files);
    } else if (path.ends_with(".json")) {
      take_config(file, &files);
    } else {
      throw Error(
          ErrorKind::kUnsupported, fmt::format("{}: not a kind of file that holds a model", path),
          "a model is a folder, a config.json, or a .safetensors, .bin, .pt, .pth, .gguf or "
          ".index.json file");
    }
  }
  files.name = path;
  return files;
}

}  // namespace haul::core
