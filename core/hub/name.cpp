#include "core/hub/name.h"

#include <algorithm>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxName = 96;
constexpr std::size_t kMaxPart = 255;
constexpr std::size_t kMaxPath = 1024;
constexpr std::size_t kMaxShown = 200;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_hex(std::string_view text, std::size_t length) {
  return text.size() == length && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool is_name_part(std::string_view part) {
  const auto outer = [](char c) { return is_alphanumeric(c) || c == '_'; };
  return !part.empty() && outer(part.front()) && outer(part.back()) &&
         std::all_of(part.begin(), part.end(),
                     [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_repository(std::string_view text) {
  if (text.size() > kMaxName || text.ends_with(".git")) return false;
  if (text.find("--") != text.npos || text.find("..") != text.npos) return false;
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return is_name_part(text);
  return is_name_part(text.substr(0, slash)) && is_name_part(text.substr(slash + 1));
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
  HubName name;
  const std::size_t at = text.find('@');
  name.repository = text.substr(0, at);
  if (!is_repository(name.repository)) return std::nullopt;
  if (at != text.npos) {
    name.revision = text.substr(at + 1);
    if (!is_safe_file_name(name.revision)) return std::nullopt;
  }
  return name;
}

std::string cache_folder_name(std::string_view repository) {
  std::string folder = "models--";
  for (const char c : repository) {
    if (c == '/') {
      folder += "--";
    } else {
      folder += c;
    }
  }
  return folder;
}

bool is_safe_file_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxPath) return false;
  const bool clean = std::none_of(name.begin(), name.end(), [](char c) {
    return c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!clean) return false;
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPart) return false;
    if (slash == name.npos) return true;
    name.remove_prefix(slash + 1);
  }
}

void check_file_name(std::string_view name, std::string_view source) {
  if (is_safe_file_name(name)) return;
  throw Error(ErrorKind::kCorrupt,
              fmt::format("{}: names a file '{}' that would not stay in its folder", source,
                          printable(name)),
              "nothing was fetched; do not trust this repository");
}

bool is_commit(std::string_view text) {
  return is_hex(text, 40);
}

bool is_sha256(std::string_view text) {
  return is_hex(text, 64);
}

std::optional<std::string> normalised_etag(std::string_view header) {
  if (header.starts_with("W/")) header.remove_prefix(2);
  if (header.size() >= 2 && header.front() == '"' && header.back() == '"') {
    header = header.substr(1, header.size() - 2);
  }
  const bool plain = std::all_of(header.begin(), header.end(), [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
  });
  if (header.empty() || header.size() > 128 || header.front() == '.' || !plain) return std::nullopt;
  return std::string(header);
}

std::string url_encoded(std::string_view text, bool keep_slashes) {
  std::string result;
  for (const char c : text) {
    if (is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '~' ||
        (keep_slashes && c == '/')) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  if (text.size() > kMaxShown) result += "…";
  return result;
}

}  // namespace haul::core
