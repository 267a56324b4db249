// write_tiny_gpt FOLDER: a GPT of random weights, in many shards, under the names that
// examples/mingpt gives them, with config.json and tokenizer.json.

#include <cstdio>
#include <fstream>
#include <random>
#include <span>
#include <vector>

#include "core/formats/sharded_writer.h"
#include "haul/error.h"
#include "tests/support/small_tokenizers.h"

namespace {

constexpr int kLayers = 3;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kVocabulary = 269;  // of byte_level_model()
constexpr std::int64_t kPositions = 24;    // fewer than the tests generate: the context slides
constexpr haul::Bytes kShard = 20'000;

std::vector<haul::core::HeaderTensor> tensors() {
  std::vector<haul::core::HeaderTensor> all;
  const auto add = [&](const std::string& name, haul::Shape shape) {
    all.push_back({name, haul::Dtype::kF32, std::move(shape)});
  };
  const auto add_norm = [&](const std::string& name) {
    add(name + ".weight", {kHidden});
    add(name + ".bias", {kHidden});
  };
  const auto add_linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  add("transformer.wte.weight", {kVocabulary, kHidden});
  add("transformer.wpe.weight", {kPositions, kHidden});
  for (int i = 0; i < kLayers; ++i) {
    const std::string block = fmt::format("transformer.h.{}.", i);
    add_norm(block + "ln_1");
    add_linear(block + "attn.c_attn", kHidden, 3 * kHidden);
    add_linear(block + "attn.c_proj", kHidden, kHidden);
    add_norm(block + "ln_2");
    add_linear(block + "mlp.c_fc", kHidden, 4 * kHidden);
    add_linear(block + "mlp.c_proj", 4 * kHidden, kHidden);
  }
  add_norm("transformer.ln_f");
  add("lm_head.weight", {kVocabulary, kHidden});
  return all;
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.5F);
  const std::vector<haul::core::HeaderTensor> headers = tensors();
  haul::core::write_shards(
      folder, headers, {{"format", "pt"}}, haul::core::plan_shards(headers, kShard),
      [&](std::size_t i, haul::core::SafetensorsWriter& writer) {
        std::vector<float> values(haul::core::safetensors_size(headers[i]) / sizeof(float));
        const bool scales = headers[i].shape.size() == 1 && headers[i].name.ends_with("weight");
        for (float& value : values) value = normal(generator) + (scales ? 1.0F : 0.0F);
        writer.write(std::as_bytes(std::span(values)));
      });
  write(folder / "config.json",
        fmt::format(R"({{"n_layer": {}, "n_head": 4, "n_embd": {}, "vocab_size": {},
                         "n_positions": {}}})",
                    kLayers, kHidden, kVocabulary, kPositions));
  write(folder / "tokenizer.json",
        haul::test::byte_level_tokenizer(
            R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})"));
  return 0;
} catch (const haul::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
