#include "core/hub/url.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxUrl = 16 * 1024;  // signed addresses are long

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw Error(ErrorKind::kCorrupt, fmt::format("the address '{}' {}", printable(text), why));
}

int default_port(std::string_view scheme) {
  return scheme == "https" ? 443 : 80;
}

void check_characters(std::string_view text) {
  if (text.size() > kMaxUrl) refuse(text, "is too long");
  const bool clean = std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f && c != '\\' && c != '"' && c != '<' && c != '>';
  });
  if (!clean) refuse(text, "holds characters that an address may not");
}

bool is_host(std::string_view host) {
  if (host.starts_with("[") && host.ends_with("]") && host.size() > 2) {
    return host.substr(1, host.size() - 2).find_first_not_of("0123456789abcdef:.") == host.npos;
  }
  return !host.empty() &&
         host.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_") == host.npos;
}

std::string without_fragment(std::string_view target) {
  return std::string(target.substr(0, target.find('#')));
}

}  // namespace

std::string Url::origin() const {
  if (port == default_port(scheme)) return fmt::format("{}://{}", scheme, host);
  return fmt::format("{}://{}:{}", scheme, host, port);
}

std::string Url::text() const {
  return origin() + target;
}

bool Url::same_origin(const Url& other) const {
  return scheme == other.scheme && host == other.host && port == other.port;
}

Url parse_url(std::string_view text) {
  check_characters(text);
  const std::size_t colon = text.find("://");
  if (colon == text.npos) refuse(text, "has no http:// or https://");
  Url url;
  url.scheme = text.substr(0, colon);
  std::transform(url.scheme.begin(), url.scheme.end(), url.scheme.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (url.scheme != "http" && url.scheme != "https") refuse(text, "is neither http nor https");

  const std::string_view rest = text.substr(colon + 3);
  const std::size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, end);
  if (authority.find('@') != authority.npos) refuse(text, "holds a user name");
  url.port = default_port(url.scheme);
  const std::size_t port = authority.rfind(':');
  if (port != authority.npos && authority.find(']', port) == authority.npos) {
    const std::string_view digits = authority.substr(port + 1);
    const auto [stop, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (code != std::errc{} || stop != digits.data() + digits.size() || url.port < 1 ||
        url.port > 65535) {
      refuse(text, "has no valid port");
    }
    authority = authority.substr(0, port);
  }
  url.host = authority;
  std::transform(url.host.begin(), url.host.end(), url.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (!is_host(url.host)) refuse(text, "has no valid host");
  url.target = without_fragment(rest.substr(end));
  if (!url.target.starts_with("/")) url.target.insert(0, "/");
  return url;
}

Url redirect_target(const Url& from, std::string_view location) {
  check_characters(location);
  Url to = from;
  if (location.starts_with("//")) {
    to = parse_url(fmt::format("{}:{}", from.scheme, location));
  } else if (location.starts_with("/")) {
    to.target = without_fragment(location);
  } else if (location.find("://") != location.npos &&
             location.find("://") < location.find_first_of("/?#")) {
    to = parse_url(location);
  } else if (const std::size_t colon = location.find(':');
             location.empty() || colon < location.find_first_of("/?#")) {
    refuse(location, "is neither http nor https");
  } else {
    const std::string_view path = std::string_view(from.target).substr(0, from.target.find('?'));
    to.target =
        without_fragment(fmt::format("{}{}", path.substr(0, path.rfind('/') + 1), location));
  }
  if (from.scheme == "https" && to.scheme != "https") {
    refuse(location, "leads from https to http; it was not followed");
  }
  return to;
}

}  // namespace haul::core
