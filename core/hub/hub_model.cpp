#include "core/hub/hub_model.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/hub/local.h"
#include "core/hub/remote_headers.h"
#include "core/hub/selection.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr const char* kConfig = "config.json";
constexpr std::array<const char*, 7> kTokenizers{
    "tokenizer.json",          "tokenizer.model",      "vocab.txt", "vocab.json", "spiece.model",
    "sentencepiece.bpe.model", "tokenizer_config.json"};

std::string chosen_revision(const HubName& name, const std::string& revision) {
  if (!revision.empty() && !is_safe_file_name(revision)) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a revision", printable(revision)),
                "name a branch, a tag or a commit");
  }
  if (!name.revision.empty() && !revision.empty() && name.revision != revision) {
    throw Error(ErrorKind::kUsage, fmt::format("{}: two revisions are asked for: '{}' and '{}'",
                                               name.repository, name.revision, revision));
  }
  if (!revision.empty()) return revision;
  return name.revision.empty() ? "main" : name.revision;
}

}  // namespace

HubModel::HubModel(HubSettings settings, const HubName& name, const std::string& revision)
    : client_(std::move(settings)),
      repository_(name.repository),
      revision_(chosen_revision(name, revision)),
      cache_(client_.settings().cache, repository_) {}

ModelFiles HubModel::resolve(Need need) const {
  std::optional<ModelFiles> cached = from_cache(need);
  const auto commit = cache_.commit_of(revision_);
  const auto has = [&](const char* file) { return cache_.find(*commit, file).has_value(); };
  if (cached) {
    const bool config = !cached->config.empty() || cached->checkpoint.extension() == ".gguf" ||
                        cache_.known_absent(*commit, kConfig);
    const bool tokenizer = need != Need::kAll || cached->checkpoint.extension() == ".gguf" ||
                           std::any_of(kTokenizers.begin(), kTokenizers.end(), has);
    if ((config && tokenizer) || client_.settings().offline) return *std::move(cached);
  }
  if (client_.settings().offline) throw_offline();
  try {
    return from_hub(need);
  } catch (const Error& error) {
    // The weights are here; only what goes with them could not be looked for.
    if (!cached || error.kind() != ErrorKind::kResource) throw;
    return *std::move(cached);
  }
}

std::optional<ModelFiles> HubModel::from_cache(Need need) const {
  const auto commit = cache_.commit_of(revision_);
  std::error_code ignored;
  if (!commit || !std::filesystem::is_directory(cache_.snapshot(*commit), ignored)) {
    return std::nullopt;
  }
  ModelFiles files = files_in_folder(cache_.snapshot(*commit));
  const bool enough = need == Need::kConfigOnly
                          ? !files.config.empty() || !files.checkpoint.empty() ||
                                cache_.known_absent(*commit, kConfig)
                          : !files.checkpoint.empty();
  if (!enough) return std::nullopt;
  return files;
}

ModelInfo HubModel::ask() const {
  ModelInfo info = client_.model_info(repository_, revision_);
  if (is_commit(revision_) && info.commit != revision_) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: asked for the commit {}, the hub answers {}",
                                                 repository_, revision_, info.commit));
  }
  cache_.remember_commit(revision_, info.commit);
  return info;
}

ModelFiles HubModel::from_hub(Need need) const {
  const ModelInfo info = ask();
  std::vector<HubFile> wanted;
  if (need == Need::kAll) {
    wanted = select_for_run(info.files, repository_);
  } else if (const HubFile* config = info.find(kConfig)) {
    wanted = {*config};
  }
  if (info.find(kConfig) == nullptr) cache_.remember_absent(info.commit, kConfig);
  fetch_files(client_, cache_, repository_, info.commit, wanted);

  const std::filesystem::path folder = cache_.snapshot(info.commit);
  std::error_code ignored;
  ModelFiles files;
  if (std::filesystem::is_directory(folder, ignored)) files = files_in_folder(folder);
  files.folder = folder;
  if (!info.library.empty()) files.library = info.library;
  if (need == Need::kHeaders && files.checkpoint.empty()) {
    files.remote_tensors = fetch_headers(client_, cache_, repository_, info);
  }
  if (need == Need::kAll && files.checkpoint.empty()) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: the repository holds no weights that haul reads", repository_),
                "haul reads model.safetensors, pytorch_model.bin, their shards, and GGUF");
  }
  return files;
}

Snapshot HubModel::download(const SnapshotOptions& options) const {
  if (client_.settings().offline) throw_offline();
  const ModelInfo info = ask();
  Selection selection = select_for_download(info.files, options.include, options.exclude);
  if (selection.files.empty()) {
    throw Error(
        ErrorKind::kNotFound,
        fmt::format("{}: none of its {} files is asked for", repository_, info.files.size()),
        "patterns match whole names, like '*.safetensors' or 'config.json'");
  }
  return {repository_,
          revision_,
          info.commit,
          cache_.snapshot(info.commit),
          fetch_files(client_, cache_, repository_, info.commit, selection.files),
          std::move(selection.skipped)};
}

void HubModel::throw_offline() const {
  throw Error(
      ErrorKind::kResource,
      fmt::format("{}: not in the cache ({}) as far as needed, and HF_HUB_OFFLINE is set",
                  repository_, client_.settings().cache.string()),
      fmt::format("unset HF_HUB_OFFLINE, or run 'haul download {}' where there is a network",
                  repository_));
}

Snapshot download_snapshot(const std::string& name, const SnapshotOptions& options) {
  const auto parsed = parse_hub_name(name);
  if (!parsed) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a name on the hub", printable(name)),
                "names look like org/name, name or org/name@revision");
  }
  return HubModel(hub_settings_from_environment(), *parsed, options.revision).download(options);
}

}  // namespace haul::core
