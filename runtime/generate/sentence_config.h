#pragma once

// What a model's sentence-transformers files say about how its hidden states become one vector:
// modules.json, the pooling's config.json, sentence_bert_config.json and
// config_sentence_transformers.json.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace haul::runtime {

// In the order in which the vectors of several are put one after another.
enum class Pooling : std::uint8_t { kFirst, kMax, kMean, kMeanSqrt, kWeightedMean, kLast };

struct SentenceConfig {
  std::vector<Pooling> pooling = {Pooling::kMean};
  bool normalise = false;
  bool lower_case = false;                 // of the text, before it is tokenized
  std::optional<std::int64_t> max_tokens;  // longer texts are cut
  std::string prompt;                      // stands before each text
  std::string assumed;                     // what no file says, for people; empty: all is said
};

// Whether there is a modules.json that pools.
bool is_sentence_model(const std::filesystem::path& folder);

// Throws Error: kCorrupt that names the file and the key, kUnsupported for steps that haul does
// not know.
SentenceConfig read_sentence_config(const std::filesystem::path& folder);

}  // namespace haul::runtime
