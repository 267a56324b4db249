#pragma once

// What the hub's answers mean: errors by status and header, the model-info document, lengths and
// ranges. Everything is pure, takes hostile input and may be called from any thread.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hub/http.h"
#include "haul/bytes.h"

namespace haul::core {

// A file of a repository as the hub lists it.
struct HubFile {
  std::string name;
  std::optional<Bytes> size;
  // The content's name in the cache: the sha256 of a large file, git's sha1 of a small one; empty
  // when the listing does not tell.
  std::string etag;
};

struct ModelInfo {
  std::string commit;
  std::string library;  // "transformers", "timm"; empty when the hub does not know
  std::vector<HubFile> files;

  const HubFile* find(std::string_view name) const;
};

// Throws Error(kCorrupt) that names `source` for anything but a listing of files that stay in their
// folder, each once.
ModelInfo parse_model_info(std::string_view text, std::string_view source);

// What was asked for, to tell it in errors.
struct Asked {
  std::string endpoint;
  std::string repository;
  std::string revision;
  std::string file;  // empty for the model itself
  bool with_token = false;
};

// Throws the Error that a failed answer means; to be called for anything but success.
[[noreturn]] void throw_answer(const HttpAnswer& answer, const Asked& asked);

// Whether the same request may well succeed a little later.
bool is_passing(const HttpAnswer& answer);
// Retry-After in seconds; nothing when absent or a date.
std::optional<std::chrono::seconds> retry_after(const HttpAnswer& answer);

// A header that holds a count of bytes; nothing when absent or not a number.
std::optional<Bytes> length_header(const HttpAnswer& answer, std::string_view name);

struct ContentRange {
  Bytes first = 0;
  Bytes last = 0;
  std::optional<Bytes> total;
};
// "bytes 0-99/1000" or "bytes 0-99/*"; nothing for anything else or when last < first.
std::optional<ContentRange> parse_content_range(std::string_view text);

}  // namespace haul::core
