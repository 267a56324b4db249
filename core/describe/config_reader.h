#pragma once

// Typed, bounded reads of a config.json. Every failure is Error(kCorrupt) that names the file and
// the key, so no value that a family receives can make its tree explode. A read takes the names
// that the model's config class knows for one value, the one that wins first; a missing key gives
// the default of that class. Holds references: the JSON must outlive the reader.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace haul::core {

class ConfigReader {
 public:
  using Keys = std::initializer_list<std::string_view>;

  // `json` must be an object.
  ConfigReader(const Json& json, std::string source);

  // 1 to 2^31.
  std::int64_t size(Keys keys, std::int64_t missing) const;
  // 0 to 2^31.
  std::int64_t size_or_zero(Keys keys, std::int64_t missing) const;
  // As size; nothing when the key is missing or null.
  std::optional<std::int64_t> optional_size(Keys keys) const;
  // How often a block is repeated: 1 to 2,000.
  std::int64_t layers(Keys keys, std::int64_t missing) const;
  bool flag(std::string_view key, bool missing) const;
  double number(std::string_view key, double missing) const;
  std::string text(std::string_view key, std::string_view missing) const;
  // The classes of a classification head: the length of id2label, else num_labels, else 2.
  std::int64_t labels() const;
  // A nested object, or an empty reader when it is missing or null.
  ConfigReader section(std::string_view key) const;

  // Whether the key is there and not null.
  bool has(std::string_view key) const;
  // The first of the keys that is there, null included; nullptr when none is.
  const Json* find(Keys keys) const;
  [[noreturn]] void fail(std::string_view key, std::string_view why) const;

 private:
  std::int64_t bounded(const Json& value, std::string_view key, std::int64_t least,
                       std::int64_t most) const;

  const Json* json_;
  std::string source_;
};

}  // namespace haul::core
