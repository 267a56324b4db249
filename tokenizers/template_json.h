#pragma once

// JSON into values, and values into JSON as Python's json.dumps writes it.

#include <optional>
#include <string>

#include "core/base/json.h"
#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

// Text that is not well-formed UTF-8 gets U+FFFD in its place.
Value from_json(const core::Json& json, Budget& budget);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  std::optional<std::string> indent;  // of one level; nothing: all on one line
  std::string item = ", ";
  std::string key = ": ";
};

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace haul::tokenizers::jinja
