#include "runtime/generate/sentence_config.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/describe/config_reader.h"
#include "haul/error.h"

namespace haul::runtime {
namespace {

namespace fs = std::filesystem;

// The key that older files have for it, and the word of newer ones.
struct PoolingName {
  Pooling pooling;
  const char* key;
  const char* word;
};
constexpr std::array<PoolingName, 6> kPoolings{{
    {Pooling::kFirst, "pooling_mode_cls_token", "cls"},
    {Pooling::kMax, "pooling_mode_max_tokens", "max"},
    {Pooling::kMean, "pooling_mode_mean_tokens", "mean"},
    {Pooling::kMeanSqrt, "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
    {Pooling::kWeightedMean, "pooling_mode_weightedmean_tokens", "weightedmean"},
    {Pooling::kLast, "pooling_mode_lasttoken", "lasttoken"},
}};

struct Step {
  std::string type;  // "Pooling"
  std::string path;  // of its folder
};

// An empty object where there is no such file.
core::Json read_object(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return core::Json::object();
  return core::read_json(file);
}

std::vector<Step> read_steps(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  const core::Json modules = core::read_json(file);
  std::vector<Step> steps;
  const auto fail = [&](const char* why) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", file.string(), why));
  };
  if (!modules.is_array()) fail("is not an array");
  for (const core::Json& module : modules) {
    const core::ConfigReader reader(module, file.string());
    const std::string type = reader.text("type", "");
    std::string path = reader.text("path", "");
    if (path.find('/') != path.npos || path == "..") fail("a module lies in another folder");
    steps.push_back({type.substr(type.rfind('.') + 1), std::move(path)});
  }
  return steps;
}

std::vector<Pooling> read_pooling(const core::ConfigReader& config) {
  std::vector<Pooling> result;
  if (config.has("pooling_mode")) {
    const std::string word = config.text("pooling_mode", "");
    for (const PoolingName& name : kPoolings) {
      if (word == name.word) result.push_back(name.pooling);
    }
    if (result.empty()) {
      throw Error(ErrorKind::kUnsupported, fmt::format("haul knows no pooling '{}'", word));
    }
    return result;
  }
  for (const PoolingName& name : kPoolings) {
    if (config.flag(name.key, false)) result.push_back(name.pooling);
  }
  if (result.empty()) config.fail("pooling_mode_mean_tokens", "is not set, and no other mode is");
  return result;
}

void take_pooling(const fs::path& folder, SentenceConfig* result) {
  const fs::path file = folder / "config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) {
    result->assumed = fmt::format("there is no {}: the mean of all tokens is taken", file.string());
    return;
  }
  const core::Json json = read_object(file);
  const core::ConfigReader config(json, file.string());
  result->pooling = read_pooling(config);
  if (!config.flag("include_prompt", true) && !result->prompt.empty()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: haul cannot leave the prompt out of the pooling", file.string()));
  }
}

// The prompt that all texts get unless another is asked for.
std::string default_prompt(const fs::path& folder) {
  const fs::path file = folder / "config_sentence_transformers.json";
  const core::Json json = read_object(file);
  const core::ConfigReader config(json, file.string());
  if (!config.has("default_prompt_name")) return {};
  return config.section("prompts").text(config.text("default_prompt_name", ""), "");
}

}  // namespace

bool is_sentence_model(const fs::path& folder) {
  for (const Step& step : read_steps(folder)) {
    if (step.type == "Pooling") return true;
  }
  return false;
}

SentenceConfig read_sentence_config(const fs::path& folder) {
  SentenceConfig result;
  result.prompt = default_prompt(folder);
  const fs::path file = folder / "sentence_bert_config.json";
  const core::Json json = read_object(file);
  const core::ConfigReader config(json, file.string());
  result.max_tokens = config.optional_size({"max_seq_length"});
  result.lower_case = config.flag("do_lower_case", false);
  const std::vector<Step> steps = read_steps(folder);
  if (steps.empty()) {
    result.assumed =
        fmt::format("{}: there is no modules.json: the mean of all tokens is taken, not normalised",
                    folder.string());
  }
  for (const Step& step : steps) {
    if (step.type == "Pooling") {
      take_pooling(folder / step.path, &result);
    } else if (step.type == "Normalize") {
      result.normalise = true;
    } else if (step.type != "Transformer") {
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("{}: haul cannot do the step '{}'",
                              (folder / "modules.json").string(), step.type),
                  "known are Transformer, Pooling and Normalize");
    }
  }
  return result;
}

}  // namespace haul::runtime
