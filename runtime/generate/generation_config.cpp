#include "runtime/generate/generation_config.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::runtime {
namespace {

constexpr std::int64_t kUsualTopK = 50;  // where a file asks for sampling and does not say

class Reader {
 public:
  Reader(const core::Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  double number(const char* key, double missing) const {
    const core::Json* const value = find(key);
    if (value == nullptr) return missing;
    if (!value->is_number()) fail(key, "is not a number");
    return value->get<double>();
  }
  std::optional<std::int64_t> count(const char* key, std::int64_t least) const {
    const core::Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || value->get<std::int64_t>() < least) {
      fail(key, least == 0 ? "is not a count" : "is not a count of at least one");
    }
    return value->get<std::int64_t>();
  }
  std::vector<TokenId> ids(const char* key) const {
    const core::Json* const value = find(key);
    std::vector<TokenId> result;
    if (value == nullptr) return result;
    const auto add = [&](const core::Json& id) {
      // "None" in the configs of some conversions.
      if (id.is_number_integer() && !id.is_number_unsigned() && id.get<std::int64_t>() == -1)
        return;
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

  EarlyStopping early_stopping() const {
    constexpr const char* kKey = "early_stopping";
    const core::Json* const value = find(kKey);
    if (value == nullptr) return EarlyStopping::kNo;
    if (*value == "never") return EarlyStopping::kNever;
    if (!value->is_boolean()) fail(kKey, "is neither true, false nor \"never\"");
    return value->get<bool>() ? EarlyStopping::kYes : EarlyStopping::kNo;
  }

  [[noreturn]] void fail(const char* key, const char* why) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: '{}' {}", source_, key, why));
  }

 private:
  const core::Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  const core::Json& json_;
  std::string source_;
};

void read_ids(const Reader& reader, GenerationConfig* config) {
  if (const auto ids = reader.ids("eos_token_id"); !ids.empty()) config->stop_tokens = ids;
  if (const auto id = reader.id("pad_token_id")) config->padding = id;
  if (const auto id = reader.id("decoder_start_token_id")) config->decoder_start = id;
}

// What makes no sense of it: the setting and why. Nothing where it is fine.
struct Objection {
  const char* key;
  const char* why;
};
std::optional<Objection> objection(const Sampling& sampling) {
  // Written so that NaN is objected to.
  if (!(sampling.repetition_penalty > 0)) return Objection{"repetition_penalty", "is not above 0"};
  if (sampling.greedy) return std::nullopt;
  if (!(sampling.temperature > 0)) return Objection{"temperature", "is below 0"};
  if (sampling.top_k < 0) return Objection{"top_k", "is below 0"};
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return Objection{"top_p", "is not above 0 and at most 1"};
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return Objection{"min_p", "is not between 0 and 1"};
  }
  return std::nullopt;
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
  result.max_new_tokens = reader.count("max_new_tokens", 1);
  result.max_length = reader.count("max_length", 1);
  Sampling& sampling = result.sampling;
  sampling.greedy = !reader.flag("do_sample");
  sampling.temperature = reader.number("temperature", 1);
  sampling.top_k = reader.count("top_k", 0).value_or(kUsualTopK);
  sampling.top_p = reader.number("top_p", 1);
  sampling.min_p = reader.number("min_p", 0);
  sampling.repetition_penalty = reader.number("repetition_penalty", 1);
  if (sampling.temperature == 0) sampling.greedy = true;
  if (const auto bad = objection(sampling)) reader.fail(bad->key, bad->why);
  result.beams = {reader.count("num_beams", 1).value_or(1), reader.number("length_penalty", 1),
                  reader.early_stopping()};
  if (const std::int64_t results = reader.count("num_return_sequences", 1).value_or(1);
      results > 1) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: 'num_return_sequences' asks for {} results, and haul gives one",
                            file.string(), results),
                "set it to 1");
  }
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
  if (options.temperature) {
    result.temperature = *options.temperature;
    result.greedy = result.temperature == 0;
  }
  if (options.top_k) result.top_k = *options.top_k;
  if (options.top_p) result.top_p = *options.top_p;
  if (options.min_p) result.min_p = *options.min_p;
  if (options.repetition_penalty) result.repetition_penalty = *options.repetition_penalty;
  if (const auto bad = objection(result)) {
    throw Error(ErrorKind::kUsage, fmt::format("{} {}", bad->key, bad->why));
  }
  result.seed = options.seed;
  return result;
}

BeamSettings beams_for(const GenerationConfig& config, const GenerateOptions& options) {
  BeamSettings result = config.beams;
  if (options.num_beams) result.count = *options.num_beams;
  if (options.length_penalty) result.length_penalty = *options.length_penalty;
  if (options.early_stopping) result.early_stopping = *options.early_stopping;
  if (result.count < 1) throw Error(ErrorKind::kUsage, "num_beams is below 1");
  if (!std::isfinite(result.length_penalty)) {
    throw Error(ErrorKind::kUsage, "length_penalty is not a number");
  }
  return result;
}

}  // namespace haul::runtime
