#pragma once

// The tensors of a model on the hub, read from its safetensors' headers alone: a few kilobytes of
// each file by range requests.

#include <string>
#include <vector>

#include "core/formats/model_files.h"
#include "core/hub/cache.h"
#include "core/hub/client.h"

namespace haul::core {

// Empty when the repository holds no safetensors in its top folder. A sharded model's index is
// fetched into the cache and names the shards. Throws as downloads do.
std::vector<HeaderTensor> fetch_headers(const HubClient& client, const ModelCache& cache,
                                        const std::string& repository, const ModelInfo& info);

}  // namespace haul::core
