#include "core/describe/gguf_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {

GgufSource::GgufSource(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint),
      name_(checkpoint.files().front().path().string()),
      reader_(checkpoint.metadata(), name_),
      architecture_(reader_.text("general.architecture", "")) {
  if (architecture_.empty()) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: \"general.architecture\" is missing", name_));
  }
}

void GgufSource::missing(std::string_view key) const {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: \"{}\" is missing", name_, full(key)));
}

std::optional<std::int64_t> GgufSource::optional_size(std::string_view key) const {
  const std::string name = full(key);
  const Json* value = reader_.find({name});
  if (value == nullptr || !value->is_array()) return reader_.optional_size({name});
  const bool equal =
      !value->empty() &&
      std::all_of(value->begin(), value->end(), [&](const Json& v) { return v == value->front(); });
  if (!equal) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: \"{}\" differs between blocks", name_, name));
  }
  const Json single = {{name, value->front()}};
  return ConfigReader(single, name_).optional_size({name});
}

std::int64_t GgufSource::size(std::string_view key) const {
  const auto value = optional_size(key);
  if (!value) missing(key);
  return *value;
}

std::optional<double> GgufSource::optional_number(std::string_view key) const {
  const std::string name = full(key);
  if (reader_.find({name}) == nullptr) return std::nullopt;
  return reader_.number(name, 0);
}

double GgufSource::number(std::string_view key) const {
  const auto value = optional_number(key);
  if (!value) missing(key);
  return *value;
}

std::string GgufSource::text(std::string_view key, std::string_view missing) const {
  return reader_.text(full(key), missing);
}

std::int64_t GgufSource::rows(std::string_view tensor) const {
  const StoredTensor* found = checkpoint_->find(tensor);
  if (found == nullptr || found->shape.empty()) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}' is {}", name_, tensor,
                                                 found == nullptr ? "missing" : "a scalar"));
  }
  return found->shape.front();
}

void GgufSource::add_token_ids(Json* config) const {
  constexpr std::pair<std::string_view, std::string_view> kIds[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token_id"},
      {"tokenizer.ggml.eos_token_id", "eos_token_id"},
      {"tokenizer.ggml.padding_token_id", "pad_token_id"},
  };
  for (const auto& [from, to] : kIds) {
    const Json* value = reader_.find({from});
    if (value != nullptr && value->is_number_integer()) (*config)[std::string(to)] = *value;
  }
}

}  // namespace haul::core
