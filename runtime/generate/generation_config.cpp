#include "runtime/generate/generation_config.h"

#include <limits>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::runtime {
namespace {

constexpr std::int64_t kUsualTopK = 50;  // where a file asks for sampling and does not say

class Reader {
 public:
  Reader(const core::Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  std::optional<double> number(const char* key) const {
    const core::Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) fail(key, "is not a number");
    return value->get<double>();
  }
  std::optional<std::int64_t> count(const char* key) const {
    const core::Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || value->get<std::int64_t>() < 0) {
      fail(key, "is not a count");
    }
    return value->get<std::int64_t>();
  }
  std::vector<TokenId> ids(const char* key) const {
    const core::Json* const value = find(key);
    std::vector<TokenId> result;
    if (value == nullptr) return result;
    const auto add = [&](const core::Json& id) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() > std::numeric_limits<TokenId>::max()) {
        fail(key, "is not a token id");
      }
      result.push_back(id.get<TokenId>());
    };
    if (value->is_array()) {
      for (const core::Json& id : *value) add(id);
    } else {
      add(*value);
    }
    return result;
  }
  std::optional<TokenId> id(const char* key) const {
    const std::vector<TokenId> found = ids(key);
    return found.empty() ? std::nullopt : std::optional(found.front());
  }
  bool flag(const char* key) const {
    const core::Json* const value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail(key, "is neither true nor false");
    return value->get<bool>();
  }

 private:
  const core::Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void fail(const char* key, const char* why) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: '{}' {}", source_, key, why));
  }

  const core::Json& json_;
  std::string source_;
};

void read_ids(const Reader& reader, GenerationConfig* config) {
  if (const auto ids = reader.ids("eos_token_id"); !ids.empty()) config->stop_tokens = ids;
  if (const auto id = reader.id("pad_token_id")) config->padding = id;
  if (const auto id = reader.id("decoder_start_token_id")) config->decoder_start = id;
}

}  // namespace

GenerationConfig read_generation_config(const core::Json& model_config,
                                        const std::filesystem::path& file) {
  GenerationConfig result;
  read_ids(Reader(model_config, "config.json"), &result);
  if (!std::filesystem::exists(file)) return result;
  const core::Json json = core::read_json(file);
  if (!json.is_object()) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: is not an object", file.string()));
  }
  const Reader reader(json, file.string());
  read_ids(reader, &result);
  result.max_new_tokens = reader.count("max_new_tokens");
  result.max_length = reader.count("max_length");
  Sampling& sampling = result.sampling;
  sampling.greedy = !reader.flag("do_sample");
  sampling.temperature = reader.number("temperature").value_or(1);
  sampling.top_k = reader.count("top_k").value_or(kUsualTopK);
  sampling.top_p = reader.number("top_p").value_or(1);
  sampling.min_p = reader.number("min_p").value_or(0);
  sampling.repetition_penalty = reader.number("repetition_penalty").value_or(1);
  if (sampling.temperature <= 0) sampling.greedy = true;
  return result;
}

Sampling sampling_for(const GenerationConfig& config, const GenerateOptions& options) {
  Sampling result = config.sampling;
  const bool asked = options.temperature || options.top_k || options.top_p || options.min_p;
  if (asked && result.greedy) {
    const double penalty = result.repetition_penalty;
    result = {};
    result.greedy = false;
    result.repetition_penalty = penalty;
  }
  const auto check = [](bool good, const char* what) {
    if (!good) throw Error(ErrorKind::kUsage, what);
  };
  if (options.temperature) {
    check(*options.temperature >= 0, "a temperature is 0 or more");
    result.temperature = *options.temperature;
    result.greedy = result.temperature == 0;
  }
  if (options.top_k) result.top_k = *options.top_k;
  if (options.top_p) result.top_p = *options.top_p;
  if (options.min_p) result.min_p = *options.min_p;
  if (options.repetition_penalty) result.repetition_penalty = *options.repetition_penalty;
  check(result.top_k >= 0, "top_k is 0 or more");
  check(result.top_p > 0 && result.top_p <= 1, "top_p is more than 0 and at most 1");
  check(result.min_p >= 0 && result.min_p <= 1, "min_p is between 0 and 1");
  check(result.repetition_penalty > 0, "a repetition penalty is more than 0");
  result.seed = options.seed;
  return result;
}

}  // namespace haul::runtime
