// write_tiny_chat FOLDER: a Llama of random weights with a tokenizer and a chat template, whose
// answers are short.

#include <filesystem>
#include <fstream>

#include <torch/utils.h>

#include "core/describe/describe.h"
#include "haul/torch/dispatch.h"
#include "models/families/model.h"
#include "tests/support/small_tokenizers.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  const std::string config = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 280, "max_position_embeddings": 512,
    "tie_word_embeddings": false, "dtype": "float32"})";
  const haul::core::Json json = haul::core::parse_json(config, "config.json");
  torch::manual_seed(5);
  const auto model = haul::models::make_model(haul::core::ConfigReader(json, "config.json"),
                                              haul::core::describe_config(json, "config.json"));
  haul::save_model(haul::ModelRef(*model), folder, 10'000'000);
  std::ofstream(folder / "config.json") << config;
  std::ofstream(folder / "generation_config.json") << R"({"max_new_tokens": 12})";
  std::ofstream(folder / "tokenizer.json") << haul::test::byte_level_tokenizer(
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})");
  std::ofstream(folder / "tokenizer_config.json") << R"({"chat_template":
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "})";
}
