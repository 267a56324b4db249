#pragma once

// How the hub is reached and where its files are kept, as huggingface_hub's environment variables
// say.

#include <chrono>
#include <filesystem>
#include <string>

#include "core/hub/url.h"

namespace haul::core {

struct HubSettings {
  Url endpoint;                 // HF_ENDPOINT, or the public hub
  std::string token;            // HF_TOKEN, or the token file; may be empty
  bool offline = false;         // HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
  std::filesystem::path cache;  // HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, or below HF_HOME
  // How long a connection may take (HF_HUB_ETAG_TIMEOUT) and a transfer stand still
  // (HF_HUB_DOWNLOAD_TIMEOUT).
  std::chrono::seconds connect_timeout{10};
  std::chrono::seconds stall_timeout{10};
  // A request that fails for a passing reason is tried this often, after waits that double.
  int attempts = 5;
  std::chrono::milliseconds first_wait{1000};
};

// Reads the environment: not while another thread changes it. Throws Error(kUsage) for an endpoint,
// a token or a timeout that cannot be one.
HubSettings hub_settings_from_environment();

}  // namespace haul::core
