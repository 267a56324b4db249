#pragma once

// A config file as a tree of texts: what a scalar means is decided by the one who asks for it, so
// that a part nobody asks for is written back as it was read. Any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace haul::core {

struct ConfigValue {
  enum class Kind { kScalar, kList, kMap };
  Kind kind = Kind::kScalar;
  std::string key;                 // in a map
  std::string text;                // of a scalar, without its quotes
  bool plain = false;              // a scalar without quotes: it may be a number, true, null
  std::vector<ConfigValue> items;  // of a list or a map, in the order of the file
  int line = 0;                    // from 1; 0 where it is not known
};

// YAML 1.1 as the peer reads it. Throws Error(kCorrupt) that names `source` and the line for what
// is no YAML, for more than one document, aliases, anchors, tags, a key given twice or that is no
// text or too long, nesting deeper than 32, and text that is not UTF-8 or longer than 256 KiB.
ConfigValue parse_yaml(std::string_view text, std::string_view source);
// The same of a JSON document.
ConfigValue parse_json_config(std::string_view text, std::string_view source);

// Maps and lists in blocks, keys in their order; both end with a line break.
std::string write_yaml(const ConfigValue& value);
std::string write_json(const ConfigValue& value);

// A scalar's meaning by YAML 1.1. Nothing for a value of another type.
bool is_null(const ConfigValue& value);
std::optional<bool> as_bool(const ConfigValue& value);
std::optional<long long> as_integer(const ConfigValue& value);

ConfigValue text_value(std::string text);  // quoted where it would be read as something else
ConfigValue bool_value(bool value);
ConfigValue integer_value(long long value);

}  // namespace haul::core
