#pragma once

// The few URLs that the hub uses: http or https, a host, a path with its query. Stricter than the
// standard, so that no other program can read a host out of the text than the one read here. Pure;
// may be called from any thread.

#include <string>
#include <string_view>

namespace haul::core {

struct Url {
  std::string scheme;        // "http" or "https"
  std::string host;          // lower case; an IPv6 address keeps its brackets
  int port = 0;              // never 0 after parsing
  std::string target = "/";  // path and query, without fragment

  std::string text() const;
  // "https://host" with the port when it is not the scheme's own.
  std::string origin() const;
  bool same_origin(const Url& other) const;
};

// Throws Error(kCorrupt) for any other scheme, user names, spaces, backslashes, control characters.
Url parse_url(std::string_view text);

// Where a Location header leads. Throws Error(kCorrupt) as above and when it leads from https to
// http.
Url redirect_target(const Url& from, std::string_view location);

}  // namespace haul::core
