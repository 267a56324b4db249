#include "config.h"

#include <fstream>
#include <string>
#include <utility>

#include <haul/error.h>
#include <nlohmann/json.hpp>

using haul::Error;
using haul::ErrorKind;

ModelConfig read_config(const std::filesystem::path& file) try {
  std::ifstream stream(file);
  if (!stream) throw Error(ErrorKind::kNotFound, file.string() + ": cannot be read");
  const nlohmann::json json = nlohmann::json::parse(stream);
  const std::string activation = json.value("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    throw Error(ErrorKind::kUnsupported,
                file.string() + ": the activation '" + activation + "' is not GPT-2's gelu_new");
  }
  ModelConfig config;
  for (const auto& [key, value] :
       {std::pair{"n_layer", &config.gpt.n_layer}, std::pair{"n_head", &config.gpt.n_head},
        std::pair{"n_embd", &config.gpt.n_embd}, std::pair{"vocab_size", &config.gpt.vocab_size},
        std::pair{"n_positions", &config.gpt.n_positions}}) {
    *value = json.value(key, *value);
  }
  config.gpt.layer_norm_epsilon = json.value("layer_norm_epsilon", config.gpt.layer_norm_epsilon);
  const auto end = json.find("eos_token_id");
  if (end != json.end() && end->is_number_integer()) config.end_of_text = *end;
  return config;
} catch (const nlohmann::json::exception& error) {
  throw Error(ErrorKind::kCorrupt, file.string() + ": " + error.what());
}

void check(const GptConfig& config) {
  constexpr std::int64_t kMost = 1 << 20;
  for (const auto& [name, value] :
       {std::pair{"n_layer", config.n_layer}, std::pair{"n_head", config.n_head},
        std::pair{"n_embd", config.n_embd}, std::pair{"vocab_size", config.vocab_size},
        std::pair{"n_positions", config.n_positions}}) {
    if (value < 1 || value > kMost) {
      throw Error(ErrorKind::kUsage, std::string(name) + " is " + std::to_string(value) +
                                         ", not a number from 1 to " + std::to_string(kMost));
    }
  }
  if (config.n_embd % config.n_head != 0) {
    throw Error(ErrorKind::kUsage, "n_embd " + std::to_string(config.n_embd) +
                                       " is no multiple of n_head " +
                                       std::to_string(config.n_head));
  }
}
