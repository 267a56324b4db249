#include "core/hub/local.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <vector>

#include "core/base/big_json.h"
#include "core/base/file.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kMaxIndex = 256 * kMiB;
constexpr std::array<std::string_view, 6> kCheckpointEndings{
    ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json"};
// Files that end like weights and hold something else.
constexpr std::array<std::string_view, 5> kNotWeights{
    "training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.pt", "scheduler.pt"};

std::vector<std::string> weight_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    const bool other = std::find(kNotWeights.begin(), kNotWeights.end(), name) != kNotWeights.end();
    // Files under construction begin with a dot.
    if (is_checkpoint_name(name) && !name.starts_with(".") && !other && fs::exists(it->path())) {
      names.push_back(name);
    }
  }
  if (code) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot read the folder: {}", folder.string(), code.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether every shard that an index names lies beside it.
bool shards_present(const fs::path& index) {
  const std::string text = read_file(index, kMaxIndex);
  const BigJson document(text, index.string());
  simdjson::dom::object map;
  if (document.root()["weight_map"].get(map)) {
    if (document.root().get(map)) return false;
  }
  std::set<std::string_view> shards;
  for (const auto field : map) {
    std::string_view shard;
    if (!field.value.get(shard)) shards.insert(shard);
  }
  return std::all_of(shards.begin(), shards.end(), [&](std::string_view shard) {
    return fs::exists(index.parent_path() / shard);
  });
}

bool has_weights(const fs::path& folder, const std::vector<std::string>& names) {
  bool whole = false;
  bool loose_shards = false;
  bool shards_missing = false;
  for (const std::string& name : names) {
    if (name.ends_with(".gguf")) continue;
    if (name.ends_with(".index.json")) {
      if (shards_present(folder / name)) return true;
      shards_missing = true;
    } else if (name.find("-of-") != name.npos) {
      loose_shards = true;
    } else {
      whole = true;
    }
  }
  return whole || (loose_shards && !shards_missing);
}

bool is_offload_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "index.json", ignored) &&
         !fs::is_regular_file(folder / "config.json", ignored);
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
  const std::vector<std::string> names = weight_files(folder);
  if (has_weights(folder, names) || (names.empty() && is_offload_folder(folder))) {
    files.checkpoint = folder;
    return files;
  }
  std::vector<std::string> ggufs;
  std::copy_if(names.begin(), names.end(), std::back_inserter(ggufs),
               [](const std::string& name) { return name.ends_with(".gguf"); });
  if (ggufs.size() > 1) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: holds {} GGUF files: {}", folder.string(), ggufs.size(),
                            fmt::join(ggufs, ", ")),
                "name one of the files");
  }
  if (ggufs.size() == 1) {
    files.checkpoint = folder / ggufs.front();
    files.config.clear();
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
