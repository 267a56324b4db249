#pragma once

// A model of each family that is small, but whose largest weights are read past the page cache.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <ATen/core/grad_mode.h>
#include <torch/utils.h>

#include "core/describe/describe.h"
#include "haul/torch/dispatch.h"
#include "models/families/model.h"

namespace haul::test {

struct SmallModel {
  const char* name;
  const char* config;
};

inline constexpr SmallModel kSmallModels[] = {
    {"gpt2", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 192,
      "n_layer": 4, "n_head": 4, "vocab_size": 3000, "n_positions": 128})"},
    {"bert", R"({"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 192,
      "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512,
      "vocab_size": 3000, "max_position_embeddings": 128})"},
    {"llama", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 3000,
      "max_position_embeddings": 128, "tie_word_embeddings": false})"},
    {"mistral", R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
      "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 3000,
      "max_position_embeddings": 128, "sliding_window": 20})"},
    {"qwen2", R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
      "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 3000,
      "max_position_embeddings": 128, "use_sliding_window": true, "sliding_window": 16,
      "max_window_layers": 2, "tie_word_embeddings": true})"},
    {"qwen3", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "head_dim": 32,
      "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 3000,
      "max_position_embeddings": 128, "tie_word_embeddings": true})"},
    {"t5", R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
      "d_model": 192, "d_kv": 48, "d_ff": 512, "num_layers": 3, "num_decoder_layers": 4,
      "num_heads": 4, "vocab_size": 3000, "decoder_start_token_id": 0})"},
    {"t5_gated", R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
      "d_model": 192, "d_kv": 48, "d_ff": 512, "num_layers": 3, "num_decoder_layers": 4,
      "num_heads": 4, "vocab_size": 3000, "decoder_start_token_id": 0,
      "feed_forward_proj": "gated-gelu"})"},
    {"bloom", R"({"architectures": ["BloomForCausalLM"], "model_type": "bloom",
      "hidden_size": 192, "n_layer": 4, "n_head": 4, "vocab_size": 3000})"},
};

// With weights that are always the same.
inline std::shared_ptr<models::Model> made_model(const std::string& text) {
  const core::Json json = core::parse_json(text, "config.json");
  const Description description = core::describe_config(json, "config.json");
  torch::manual_seed(3);
  auto model = models::make_model(core::ConfigReader(json, "config.json"), description);
  for (const auto& item : model->named_parameters()) {
    const at::NoGradGuard no_gradients;
    if (item.value().dim() > 1) {
      item.value().normal_(0, 0.05);
    } else {
      item.value().fill_(item.key().ends_with("bias") ? 0 : 1);
    }
  }
  return model;
}

inline void write_model(const std::filesystem::path& folder, const std::string& text) {
  save_model(ModelRef(*made_model(text)), folder);
  std::ofstream(folder / "config.json") << text;
}

}  // namespace haul::test
