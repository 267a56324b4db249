#pragma once

// A model that has a name on the hub: in the cache, or fetched into it.

#include <optional>
#include <string>
#include <vector>

#include "core/formats/model_files.h"
#include "core/hub/cache.h"
#include "core/hub/client.h"
#include "core/hub/download.h"
#include "core/hub/name.h"
#include "core/hub/resolve.h"

namespace haul::core {

struct SnapshotOptions {
  std::string revision;  // empty: what follows '@' in the name, or "main"
  std::vector<std::string> include;
  std::vector<std::string> exclude;
};

struct Snapshot {
  std::string repository;
  std::string revision;
  std::string commit;
  std::filesystem::path folder;
  std::vector<FetchedFile> files;
  std::vector<HubFile> skipped;  // second copies of the weights
};

class HubModel {
 public:
  // `revision` may repeat the name's; Error(kUsage) when both are given and differ.
  HubModel(HubSettings settings, const HubName& name, const std::string& revision);

  // From the cache where everything needed is there, else from the hub.
  ModelFiles resolve(Need need) const;

  // Asks the hub what the revision is now and fetches what is missing of it.
  Snapshot download(const SnapshotOptions& options) const;

 private:
  std::optional<ModelFiles> from_cache(Need need) const;
  ModelFiles from_hub(Need need) const;
  ModelInfo ask() const;
  [[noreturn]] void throw_offline() const;

  HubClient client_;
  std::string repository_;
  std::string revision_;
  ModelCache cache_;
};

// HubModel::download for a name as users write it, with the environment's settings.
Snapshot download_snapshot(const std::string& name, const SnapshotOptions& options);

}  // namespace haul::core
