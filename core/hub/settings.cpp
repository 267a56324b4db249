#include "core/hub/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "core/base/file.h"
#include "core/base/user_folders.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPublicHub = "https://huggingface.co";
constexpr Bytes kMaxTokenFile = 16 * kKiB;

// Unset and empty are alike.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path cache_folder(const fs::path& home) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string folder = variable(name); !folder.empty()) return expand_path(folder);
  }
  return home / "hub";
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  const std::size_t end = text.find_last_not_of(kSpace);
  return end == text.npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

std::string token_from_file(const fs::path& home) {
  const std::string given = variable("HF_TOKEN_PATH");
  const fs::path path = given.empty() ? home / "token" : fs::path(expand_path(given));
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  return trimmed(read_file(path, kMaxTokenFile));
}

std::string find_token(const fs::path& home) {
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return {};
  std::string token = trimmed(variable("HF_TOKEN"));
  if (token.empty()) token = trimmed(variable("HUGGING_FACE_HUB_TOKEN"));
  if (token.empty()) token = token_from_file(home);
  // A line break would smuggle a header into every request.
  const bool plain =
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!plain) {
    throw Error(ErrorKind::kUsage, "the hub token holds characters that a token may not",
                "check HF_TOKEN or the token file");
  }
  return token;
}

std::chrono::seconds timeout(const char* name, std::chrono::seconds otherwise) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  int seconds = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (code != std::errc{} || stop != text.data() + text.size() || seconds < 1) {
    throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not a number of seconds", name, text));
  }
  return std::chrono::seconds(seconds);
}

Url find_endpoint() {
  const std::string given = variable("HF_ENDPOINT");
  try {
    Url url = parse_url(given.empty() ? kPublicHub : given);
    while (url.target.ends_with("/")) url.target.pop_back();
    return url;
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, fmt::format("HF_ENDPOINT: {}", error.what()));
  }
}

}  // namespace

HubSettings hub_settings_from_environment() {
  HubSettings settings;
  const fs::path home = hf_home();
  settings.endpoint = find_endpoint();
  settings.token = find_token(home);
  settings.offline = is_true(variable("HF_HUB_OFFLINE").empty() ? variable("TRANSFORMERS_OFFLINE")
                                                                : variable("HF_HUB_OFFLINE"));
  settings.cache = cache_folder(home);
  settings.connect_timeout = timeout("HF_HUB_ETAG_TIMEOUT", settings.connect_timeout);
  settings.stall_timeout = timeout("HF_HUB_DOWNLOAD_TIMEOUT", settings.stall_timeout);
  return settings;
}

}  // namespace haul::core
