#pragma once

// A value inside a tokenizer's JSON, with its place in the document for messages. All reading
// throws Error(kCorrupt) that names the place and what was expected there.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/big_json.h"

namespace haul::tokenizers {

class JsonValue {
 public:
  // `place` begins with the file's name.
  JsonValue(simdjson::dom::element element, std::string place)
      : element_(element), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  simdjson::dom::element element() const { return element_; }
  bool is_null() const { return element_.is_null(); }
  bool is_string() const { return element_.is_string(); }
  bool is_object() const { return element_.is_object(); }
  bool is_array() const { return element_.is_array(); }

  // A member of an object; nothing when it is missing or null.
  std::optional<JsonValue> find(std::string_view key) const;
  JsonValue at(std::string_view key) const;
  std::vector<JsonValue> items() const;
  // Keys and values of an object, in order.
  std::vector<std::pair<std::string_view, JsonValue>> members() const;

  std::string_view string() const;
  bool boolean() const;
  std::uint64_t unsigned_integer() const;
  std::uint32_t id() const;  // below 2^32 - 1
  double number() const;
  char32_t character() const;  // a string of one

  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  simdjson::dom::element element_;
  std::string place_;
};

}  // namespace haul::tokenizers
