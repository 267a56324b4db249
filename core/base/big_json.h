#pragma once

// JSON documents with very many keys (shard indexes, safetensors headers, tokenizers, large module
// trees), read with simdjson: about a byte a cycle, lookups by iteration, keys in document order.

#include <memory>
#include <string_view>

#include <simdjson.h>

namespace haul::core {

class BigJson {
 public:
  // Parses a whole document. Throws Error(kCorrupt) that names `source`, also for nesting deeper
  // than 256 and for a key given twice in one object.
  BigJson(std::string_view text, std::string_view source);

  // Valid as long as this object, moved or not.
  simdjson::dom::element root() const { return root_; }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

}  // namespace haul::core
