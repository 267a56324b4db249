#include "core/formats/checkpoint.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/big_json.h"
#include "core/formats/checkpoint_builder.h"
#include "core/formats/find_checkpoint.h"
#include "core/formats/offload_folder.h"
#include "core/formats/shard_index.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

// How many names a message lists before it says how many more there are.
constexpr std::size_t kListed = 20;

std::string listed(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kListed);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// By the file's ending where it is one of ours, else by its first bytes.
CheckpointFormat format_of(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".safetensors") return CheckpointFormat::kSafetensors;
  if (ending == ".gguf") return CheckpointFormat::kGguf;
  const MappedFile file(path);
  const std::string_view text = file.text();
  if (text.starts_with("GGUF")) return CheckpointFormat::kGguf;
  if (ending == ".bin" || ending == ".pt" || ending == ".pth" || text.starts_with("PK\x03\x04")) {
    return CheckpointFormat::kTorchZip;
  }
  if (text.size() > 8 && text[8] == '{') return CheckpointFormat::kSafetensors;
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: not a checkpoint that haul knows", path.string()),
              "it reads .safetensors, .bin, .pt, .pth, .gguf and .index.json files");
}

void add_file(CheckpointBuilder& builder, CheckpointFormat format, const fs::path& path) {
  switch (format) {
    case CheckpointFormat::kSafetensors:
      return add_safetensors(builder, path);
    case CheckpointFormat::kTorchZip:
      return add_torch_zip(builder, path);
    case CheckpointFormat::kGguf:
      return add_gguf(builder, path);
    case CheckpointFormat::kOffloadFolder:
      break;
  }
  throw Error(ErrorKind::kUnsupported, fmt::format("{}: not a weight file", path.string()));
}

void refuse_missing_files(const ShardIndex& index, const fs::path& path) {
  std::vector<std::string> missing;
  for (const std::string& file : index.files) {
    std::error_code ignored;
    if (!fs::exists(path.parent_path() / file, ignored)) missing.push_back(file);
  }
  if (missing.empty()) return;
  throw Error(ErrorKind::kNotFound,
              fmt::format("{}: {} of its {} shards are missing: {}", path.string(), missing.size(),
                          index.files.size(), fmt::join(missing, ", ")),
              "fetch the missing files into the index's folder");
}

// Every tensor of the index must be in a shard; one that is only in a shard is read all the same.
void compare_with_index(CheckpointBuilder& builder, const ShardIndex& index, const fs::path& path) {
  std::unordered_set<std::string_view> stored;
  for (const StoredTensor& tensor : builder.tensors()) stored.insert(tensor.name);
  std::unordered_set<std::string_view> named;
  std::vector<std::string> absent;
  for (const ShardIndex::Entry& entry : index.entries) {
    named.insert(entry.tensor);
    if (stored.contains(entry.tensor)) continue;
    absent.push_back(fmt::format("'{}' ({})", entry.tensor, index.files[entry.file]));
  }
  if (!absent.empty()) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: {} tensors of the index are in no shard: {}", path.string(),
                            absent.size(), listed(absent)),
                "index and shards may be of different versions: fetch them again");
  }
  std::vector<std::string> extra;
  for (const StoredTensor& tensor : builder.tensors()) {
    if (!named.contains(tensor.name)) extra.push_back("'" + tensor.name + "'");
  }
  if (extra.empty()) return;
  builder.note(fmt::format("{}: {} tensors of the shards are not in the index, and are read: {}",
                           path.string(), extra.size(), listed(extra)));
}

Checkpoint open_index(const fs::path& path, std::vector<std::string> notes) {
  const MappedFile file(path);
  const BigJson document(file.text(), path.string());
  const bool offloaded = is_offload_index(document.root());
  ShardIndex index;
  CheckpointFormat format = CheckpointFormat::kOffloadFolder;
  if (!offloaded) {
    index = read_shard_index(document.root(), path.string());
    refuse_missing_files(index, path);
    format = format_of(path.parent_path() / index.files.front());
  }
  CheckpointBuilder builder(format);
  for (std::string& note : notes) builder.note(std::move(note));
  if (offloaded) {
    add_offload_folder(builder, path, document.root());
  } else {
    for (const std::string& shard : index.files) {
      const fs::path shard_path = path.parent_path() / shard;
      add_file(builder, format_of(shard_path), shard_path);
    }
    compare_with_index(builder, index, path);
  }
  return std::move(builder).build();
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path) {
  CheckpointPlace place = find_checkpoint(path);
  if (place.path.extension() == ".json") return open_index(place.path, std::move(place.notes));
  const CheckpointFormat format = format_of(place.path);
  CheckpointBuilder builder(format);
  for (std::string& note : place.notes) builder.note(std::move(note));
  add_file(builder, format, place.path);
  return std::move(builder).build();
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> Checkpoint::bytes(const StoredTensor& tensor) const {
  return files_[tensor.file].bytes().subspan(tensor.offset, tensor.size);
}

Bytes Checkpoint::stored_bytes() const {
  std::vector<std::map<Bytes, Bytes>> ends(files_.size());  // begin to furthest end, per file
  for (const StoredTensor& tensor : tensors_) {
    Bytes& end = ends[tensor.file][tensor.offset];
    end = std::max(end, tensor.offset + tensor.size);
  }
  Bytes total = 0;
  for (const auto& in_file : ends) {
    Bytes covered = 0;
    for (const auto& [begin, end] : in_file) {
      if (end <= covered) continue;
      total += end - std::max(begin, covered);
      covered = end;
    }
  }
  return total;
}

}  // namespace haul::core
