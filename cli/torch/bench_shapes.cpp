#include "cli/torch/bench_shapes.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/file.h"
#include "haul/bytes.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxConfig = 1 * kMiB;

core::Json llama(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                 std::int64_t heads, std::int64_t kv_heads, std::int64_t vocabulary, bool tied) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", vocabulary},
          {"hidden_size", hidden},
          {"intermediate_size", intermediate},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"max_position_embeddings", 8192},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"tie_word_embeddings", tied},
          {"torch_dtype", "bfloat16"}};
}

// As their authors published them.
const std::vector<std::pair<std::string, core::Json>>& shapes() {
  static const std::vector<std::pair<std::string, core::Json>> all{
      {"llama-8b", llama(4096, 14336, 32, 32, 8, 128256, false)},
      {"llama-1b", llama(2048, 8192, 16, 32, 8, 128256, true)},
      {"llama-135m", llama(576, 1536, 30, 9, 3, 49152, true)},
      {"gpt2-xl",
       {{"architectures", {"GPT2LMHeadModel"}},
        {"model_type", "gpt2"},
        {"vocab_size", 50257},
        {"n_positions", 1024},
        {"n_embd", 1600},
        {"n_layer", 48},
        {"n_head", 25},
        {"torch_dtype", "float32"}}},
  };
  return all;
}

}  // namespace

std::vector<std::string> bench_shapes() {
  std::vector<std::string> names;
  for (const auto& [name, config] : shapes()) names.push_back(name);
  return names;
}

core::Json bench_config(const std::string& shape) {
  core::Json config;
  for (const auto& [name, known] : shapes()) {
    if (name == shape) config = known;
  }
  if (config.is_null()) {
    if (!std::filesystem::is_regular_file(shape)) {
      throw Error(
          ErrorKind::kUsage, fmt::format("'{}' is no shape and no config file", shape),
          fmt::format("use {}, or the path of a config.json", fmt::join(bench_shapes(), ", ")));
    }
    config = core::parse_json(core::read_file(shape, kMaxConfig), shape);
    if (!config.is_object()) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: is no JSON object", shape));
    }
  }
  // Random weights say nothing: no token of theirs is an end.
  for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    config[key] = nullptr;
  }
  return config;
}

}  // namespace haul::cli
