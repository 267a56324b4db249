#include "core/describe/config_reader.h"

#include <utility>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr std::int64_t kMaxLayers = 2'000;

const Json& empty_object() {
  static const Json empty = Json::object();
  return empty;
}

}  // namespace

ConfigReader::ConfigReader(const Json& json, std::string source)
    : json_(&json), source_(std::move(source)) {
  if (!json.is_object()) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: not a JSON object", source_));
  }
}

std::int64_t ConfigReader::size(Keys keys, std::int64_t missing) const {
  const Json* value = find(keys);
  return value == nullptr ? missing : bounded(*value, *keys.begin(), 1, kMaxSize);
}

std::int64_t ConfigReader::size_or_zero(Keys keys, std::int64_t missing) const {
  const Json* value = find(keys);
  return value == nullptr ? missing : bounded(*value, *keys.begin(), 0, kMaxSize);
}

std::optional<std::int64_t> ConfigReader::optional_size(Keys keys) const {
  const Json* value = find(keys);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return bounded(*value, *keys.begin(), 1, kMaxSize);
}

std::int64_t ConfigReader::layers(Keys keys, std::int64_t missing) const {
  const Json* value = find(keys);
  return value == nullptr ? missing : bounded(*value, *keys.begin(), 1, kMaxLayers);
}

bool ConfigReader::flag(std::string_view key, bool missing) const {
  const Json* value = find({key});
  if (value == nullptr) return missing;
  if (!value->is_boolean()) fail(key, "is neither true nor false");
  return value->get<bool>();
}

double ConfigReader::number(std::string_view key, double missing) const {
  const Json* value = find({key});
  if (value == nullptr || value->is_null()) return missing;
  if (!value->is_number()) fail(key, "is not a number");
  return value->get<double>();
}

std::string ConfigReader::text(std::string_view key, std::string_view missing) const {
  const Json* value = find({key});
  if (value == nullptr) return std::string(missing);
  if (!value->is_string()) fail(key, "is not a string");
  return value->get<std::string>();
}

std::int64_t ConfigReader::labels() const {
  const Json* names = find({"id2label"});
  if (names == nullptr || names->is_null()) return optional_size({"num_labels"}).value_or(2);
  if (!names->is_object() || names->empty()) fail("id2label", "is not a map of labels");
  return static_cast<std::int64_t>(names->size());
}

ConfigReader ConfigReader::section(std::string_view key) const {
  const Json* value = find({key});
  const bool missing = value == nullptr || value->is_null();
  if (!missing && !value->is_object()) fail(key, "is not an object");
  return {missing ? empty_object() : *value, fmt::format("{}: \"{}\"", source_, key)};
}

bool ConfigReader::has(std::string_view key) const {
  const Json* value = find({key});
  return value != nullptr && !value->is_null();
}

const Json* ConfigReader::find(Keys keys) const {
  for (const std::string_view key : keys) {
    const auto found = json_->find(std::string(key));
    if (found != json_->end()) return &*found;
  }
  return nullptr;
}

void ConfigReader::fail(std::string_view key, std::string_view why) const {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: \"{}\" {}", source_, key, why));
}

std::int64_t ConfigReader::bounded(const Json& value, std::string_view key, std::int64_t least,
                                   std::int64_t most) const {
  const bool whole = value.is_number_integer();
  const bool fits = whole && (value.is_number_unsigned()
                                  ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                  : value.get<std::int64_t>() <= most);
  if (!fits || value.get<std::int64_t>() < least) {
    fail(key, fmt::format("is {}, expected a whole number from {} to {}",
                          value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60),
                          least, most));
  }
  return value.get<std::int64_t>();
}

}  // namespace haul::core
