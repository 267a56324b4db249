#include "tokenizers/json_value.h"

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  simdjson::dom::object object;
  if (element_.get(object)) refuse("an object");
  simdjson::dom::element value;
  if (object[key].get(value) || value.is_null()) return std::nullopt;
  return JsonValue(value, fmt::format("{}.{}", place_, key));
}

JsonValue JsonValue::at(std::string_view key) const {
  auto value = find(key);
  if (!value) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: '{}' is missing", place_, key));
  }
  return *std::move(value);
}

std::vector<JsonValue> JsonValue::items() const {
  simdjson::dom::array array;
  if (element_.get(array)) refuse("an array");
  std::vector<JsonValue> values;
  for (const simdjson::dom::element item : array) {
    values.emplace_back(item, fmt::format("{}[{}]", place_, values.size()));
  }
  return values;
}

std::vector<std::pair<std::string_view, JsonValue>> JsonValue::members() const {
  simdjson::dom::object object;
  if (element_.get(object)) refuse("an object");
  std::vector<std::pair<std::string_view, JsonValue>> values;
  for (const auto field : object) {
    values.emplace_back(field.key, JsonValue(field.value, fmt::format("{}.{}", place_, field.key)));
  }
  return values;
}

std::string_view JsonValue::string() const {
  std::string_view text;
  if (element_.get(text)) refuse("a string");
  return text;
}

bool JsonValue::boolean() const {
  bool value = false;
  if (element_.get(value)) refuse("true or false");
  return value;
}

std::uint64_t JsonValue::unsigned_integer() const {
  std::uint64_t value = 0;
  if (element_.get(value)) refuse("a number from 0");
  return value;
}

std::uint32_t JsonValue::id() const {
  const std::uint64_t value = unsigned_integer();
  if (value >= 0xFFFFFFFF) refuse("an id below 4294967295");
  return static_cast<std::uint32_t>(value);
}

double JsonValue::number() const {
  double value = 0;
  if (element_.get(value)) refuse("a number");
  return value;
}

char32_t JsonValue::character() const {
  const std::string_view text = string();
  if (text.empty() || utf8_size(text[0]) != text.size()) refuse("one character");
  return utf8_point(text.data());
}

bool JsonValue::boolean_or(std::string_view key, bool otherwise) const {
  const auto value = find(key);
  return value ? value->boolean() : otherwise;
}

std::string JsonValue::string_or(std::string_view key, std::string_view otherwise) const {
  const auto value = find(key);
  return std::string(value ? value->string() : otherwise);
}

void JsonValue::refuse(std::string_view expected) const {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: expected {}", place_, expected));
}

}  // namespace haul::tokenizers
