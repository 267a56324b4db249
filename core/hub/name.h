#pragma once

// Names that come from people and from the network: a model on the hub, a revision, a file in a
// repository, a commit, an etag. Whatever passes here is safe as a relative path and in a URL.
// Everything is pure and may be called from any thread.

#include <optional>
#include <string>
#include <string_view>

namespace haul::core {

struct HubName {
  std::string repository;  // "org/name" or "name"
  std::string revision;    // what followed '@'; empty when nothing did
};

// Reads "org/name", "name", "org/name@revision"; nothing when it cannot be a name on the hub.
std::optional<HubName> parse_hub_name(std::string_view text);

// The folder of a model in the cache: "models--org--name".
std::string cache_folder_name(std::string_view repository);

// Whether a name is relative and stays in its folder: no empty, "." or ".." part, no backslash, no
// control character, no part over 255 bytes.
bool is_safe_file_name(std::string_view name);
// Throws Error(kCorrupt) that shows the name, with what is not printable escaped.
void check_file_name(std::string_view name, std::string_view source);

bool is_commit(std::string_view text);  // 40 hexadecimal digits, lower case
bool is_sha256(std::string_view text);  // 64 of them

// An ETag header's value without W/ and quotes; nothing when it could not name a file.
std::optional<std::string> normalised_etag(std::string_view header);

// Percent-encodes what is not unreserved; with keep_slashes '/' stays.
std::string url_encoded(std::string_view text, bool keep_slashes);

// Text from the network, fit for a terminal: control characters escaped, cut at 200 bytes.
std::string printable(std::string_view text);

}  // namespace haul::core
