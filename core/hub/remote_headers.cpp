#include "core/hub/remote_headers.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "core/base/big_json.h"
#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "core/formats/shard_index.h"
#include "core/hub/download.h"
#include "core/hub/name.h"
#include "core/hub/parallel.h"
#include "core/hub/selection.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr Bytes kMaxIndex = 256 * kMiB;
constexpr Bytes kFirstPiece = 64 * kKiB;  // most shards' headers fit
constexpr std::size_t kAtOnce = 8;

std::vector<HubFile> shards_of_index(const HubClient& client, const ModelCache& cache,
                                     const std::string& repository, const ModelInfo& info,
                                     const HubFile& entry) {
  const FetchedFile index = fetch_files(client, cache, repository, info.commit, {entry}).front();
  const std::string source = fmt::format("{}/{}", repository, kIndexName);
  const BigJson document(read_file(index.path, kMaxIndex), source);
  std::vector<HubFile> shards;
  for (const std::string& name : read_shard_index(document.root(), source).files) {
    const HubFile* shard = info.find(name);
    if (shard == nullptr) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{}: names the shard '{}', which the repository does not have",
                              source, printable(name)));
    }
    shards.push_back(*shard);
  }
  return shards;
}

std::vector<HeaderTensor> read_remote_header(const HubClient& client, const std::string& repository,
                                             const std::string& commit, HubFile file) {
  const Asked asked = client.asked(repository, commit, file.name);
  const std::string source = fmt::format("{}/{}", repository, file.name);
  complete_entry(client, asked, &file);
  if (!file.size) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: the hub does not tell its size", source));
  }
  const Url url = client.file_url(repository, commit, file.name);
  std::string bytes;
  if (const Bytes piece = std::min(kFirstPiece, *file.size); piece > 0) {
    bytes = client.range(url, 0, piece - 1, asked);
  }
  const auto prefix =
      std::as_bytes(std::span(bytes)).first(std::min(kSafetensorsPrefix, Bytes{bytes.size()}));
  const Bytes length = safetensors_header_size(prefix, *file.size, source);
  const Bytes end = kSafetensorsPrefix + length;
  if (bytes.size() < end) bytes += client.range(url, bytes.size(), end - 1, asked);
  if (bytes.size() < end) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: the header has {} bytes, {} came", source,
                                                 length, bytes.size() - kSafetensorsPrefix));
  }
  const std::string_view json = std::string_view(bytes).substr(kSafetensorsPrefix, length);
  std::vector<HeaderTensor> tensors;
  for (SafetensorsEntry& entry : parse_safetensors_header(json, *file.size, source).tensors) {
    tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape)});
  }
  return tensors;
}

}  // namespace

std::vector<HeaderTensor> fetch_headers(const HubClient& client, const ModelCache& cache,
                                        const std::string& repository, const ModelInfo& info) {
  const HubFile* index =
      info.find("model.safetensors") == nullptr ? info.find(kIndexName) : nullptr;
  const std::vector<HubFile> files = index == nullptr
                                         ? top_safetensors(info.files)
                                         : shards_of_index(client, cache, repository, info, *index);
  std::vector<std::vector<HeaderTensor>> parts(files.size());
  run_parallel(files.size(), kAtOnce, [&](std::size_t i, const std::atomic<bool>&) {
    parts[i] = read_remote_header(client, repository, info.commit, files[i]);
  });
  std::vector<HeaderTensor> tensors;
  for (std::vector<HeaderTensor>& part : parts) {
    std::move(part.begin(), part.end(), std::back_inserter(tensors));
  }
  std::unordered_set<std::string_view> names;
  for (const HeaderTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: the tensor '{}' is in two files",
                                                   repository, printable(tensor.name)));
    }
  }
  return tensors;
}

}  // namespace haul::core
