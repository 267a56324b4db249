#include "core/describe/gguf_model.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using test::expect_error;
using test::GgufBytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kTheta = 500000;
constexpr std::int64_t kHeadSize = 64;

// A Llama of 2 query heads and 1 key head of 4, over a hidden size of 8.
GgufBytes small_llama(const std::string& architecture = "llama") {
  GgufBytes file;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  file.text("general.architecture", architecture)
      .u32(key("block_count"), 1)
      .u32(key("context_length"), 128)
      .u32(key("embedding_length"), 8)
      .u32(key("feed_forward_length"), 16)
      .u32(key("attention.head_count"), 2)
      .u32(key("attention.head_count_kv"), 1)
      .f32(key("attention.layer_norm_rms_epsilon"), 0.5f)
      .f32(key("rope.freq_base"), 20000)
      .u32("tokenizer.ggml.eos_token_id", 2);
  file.floats("token_embd.weight", {8, 3}, std::vector<float>(24));
  return file;
}

Checkpoint open(const test::TemporaryFolder& folder, const GgufBytes& file) {
  return Checkpoint::open(folder.write("m.gguf", file.bytes()));
}

Json config_of(const GgufBytes& file) {
  const test::TemporaryFolder folder;
  return GgufModel(open(folder, file)).config();
}

StoredTensor named(std::string name, Shape shape) {
  StoredTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  return tensor;
}

std::vector<float> restored(const GgufPlace& place, const std::vector<float>& values) {
  std::vector<float> result(values.size());
  restore_layout(place, sizeof(float), std::as_bytes(std::span(values)),
                 std::as_writable_bytes(std::span(result)));
  return result;
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(GgufModel, MakesALlamaConfigOfTheMetadata) {
  EXPECT_EQ(config_of(small_llama()).dump(),
            R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":3,)"
            R"("hidden_size":8,"intermediate_size":16,"num_hidden_layers":1,)"
            R"("num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"hidden_act":"silu",)"
            R"("max_position_embeddings":128,"rms_norm_eps":0.5,"rope_theta":20000.0,)"
            R"("rope_scaling":null,"tie_word_embeddings":true,"eos_token_id":2,)"
            R"("attention_bias":false,"mlp_bias":false})");
}

TEST(GgufModel, TellsTiesAndBiasesByTheTensorsThatAreThere) {
  GgufBytes file = small_llama();
  file.floats("output.weight", {8, 3}, std::vector<float>(24));
  file.floats("blk.0.attn_q.bias", {8}, std::vector<float>(8));
  const Json config = config_of(file);
  EXPECT_EQ(config.at("tie_word_embeddings"), false);
  EXPECT_EQ(config.at("attention_bias"), true);
}

TEST(GgufModel, DescribesTheModelFromTheConfigThatItMakes) {
  const Json config = config_of(small_llama("qwen3"));
  const Description description = describe_config(config, "m.gguf");
  EXPECT_EQ(description.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(description.tied.size(), 1u);
}

TEST(GgufModel, NamesTensorsAsTransformersDoes) {
  const test::TemporaryFolder folder;
  const GgufModel model(open(folder, small_llama()));
  EXPECT_EQ(model.place(named("token_embd.weight", {3, 8}))->name, "model.embed_tokens.weight");
  EXPECT_EQ(model.place(named("blk.12.ffn_down.weight", {8, 16}))->name,
            "model.layers.12.mlp.down_proj.weight");
  EXPECT_EQ(model.place(named("blk.0.attn_v.bias", {4}))->name,
            "model.layers.0.self_attn.v_proj.bias");
  EXPECT_EQ(model.place(named("output.weight", {3, 8}))->name, "lm_head.weight");
  EXPECT_EQ(model.place(named("rope_freqs.weight", {2})), std::nullopt);
  expect_error(ErrorKind::kUnsupported,
               AllOf(HasSubstr("m.gguf"), HasSubstr("tensor 'blk.0.attn_sinks.weight'")),
               [&] { model.place(named("blk.0.attn_sinks.weight", {2})); });
}

TEST(GgufModel, PutsRotaryRowsBackHeadByHead) {
  const test::TemporaryFolder folder;
  const GgufModel model(open(folder, small_llama()));
  // Two heads of four: the file has 0 2 1 3 of each.
  const auto query = model.place(named("blk.0.attn_q.weight", {8, 1}));
  EXPECT_THAT(restored(*query, counted(8)), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  const auto key = model.place(named("blk.0.attn_k.weight", {4, 2}));
  EXPECT_THAT(restored(*key, counted(8)), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  const auto bias = model.place(named("blk.0.attn_k.bias", {4}));
  EXPECT_THAT(restored(*bias, counted(4)), ElementsAre(0, 2, 1, 3));
  const auto value = model.place(named("blk.0.attn_v.weight", {4, 1}));
  EXPECT_THAT(restored(*value, counted(4)), ElementsAre(0, 1, 2, 3));
}

TEST(GgufModel, LeavesTheRowsOfQwenAlone) {
  const test::TemporaryFolder folder;
  const GgufModel model(open(folder, small_llama("qwen2")));
  const auto query = model.place(named("blk.0.attn_q.weight", {8, 1}));
  EXPECT_EQ(query->layout, GgufLayout::kSame);
  EXPECT_EQ(restored(*query, counted(8)), counted(8));
}

TEST(GgufModel, RefusesRowsThatDoNotDivideAmongHeads) {
  const test::TemporaryFolder folder;
  const GgufModel model(open(folder, small_llama()));
  expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("'blk.0.attn_q.weight'"), HasSubstr("6 rows")),
               [&] {
                 model.place(named("blk.0.attn_q.weight", {6, 8}));
               });
}

TEST(GgufModel, RefusesMetadataThatMakesNoModel) {
  expect_error(ErrorKind::kCorrupt, HasSubstr("\"general.architecture\" is missing"),
               [&] { config_of(GgufBytes{}); });
  GgufBytes other;
  other.text("general.architecture", "mamba");
  expect_error(ErrorKind::kUnsupported, HasSubstr("\"mamba\""), [&] { config_of(other); });
  GgufBytes lacking;
  lacking.text("general.architecture", "llama");
  expect_error(ErrorKind::kCorrupt, HasSubstr("\"llama.embedding_length\" is missing"),
               [&] { config_of(lacking); });
  GgufBytes experts = small_llama();
  experts.u32("llama.expert_count", 8);
  expect_error(ErrorKind::kUnsupported, HasSubstr("experts"), [&] { config_of(experts); });
}

TEST(GgufModel, TakesAListOfEqualNumbersForOne) {
  const auto list = [](std::uint32_t a, std::uint32_t b) {
    GgufBytes file;
    file.text("general.architecture", "qwen2").u32("qwen2.block_count", 2);
    file.u32("qwen2.context_length", 1).u32("qwen2.embedding_length", 8);
    file.u32("qwen2.feed_forward_length", 8).f32("qwen2.attention.layer_norm_rms_epsilon", 1);
    file.entry("qwen2.attention.head_count", 9,
               GgufBytes::raw<std::uint32_t>(4) + GgufBytes::raw<std::uint64_t>(2) +
                   GgufBytes::raw(a) + GgufBytes::raw(b));
    file.floats("token_embd.weight", {8, 1}, std::vector<float>(8));
    return file;
  };
  EXPECT_EQ(config_of(list(4, 4)).at("num_attention_heads"), 4);
  expect_error(ErrorKind::kUnsupported, HasSubstr("differs between blocks"),
               [&] { config_of(list(4, 2)); });
}

// The factors by which Llama 3 stretches its frequencies, as a conversion writes them.
std::vector<float> llama3_factors(double factor, double low, double high) {
  std::vector<float> factors;
  for (int i = 0; i < kHeadSize / 2; ++i) {
    const double frequency = std::pow(double{kTheta}, -2.0 * i / kHeadSize);
    const double turns = 8192 * frequency / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

GgufBytes llama_with_factors(const std::vector<float>& factors) {
  GgufBytes file;
  file.text("general.architecture", "llama").u32("llama.block_count", 1);
  file.u32("llama.context_length", 131072).u32("llama.embedding_length", 128);
  file.u32("llama.feed_forward_length", 8).u32("llama.attention.head_count", 2);
  file.f32("llama.attention.layer_norm_rms_epsilon", 1).f32("llama.rope.freq_base", kTheta);
  file.floats("token_embd.weight", {128, 1}, std::vector<float>(128));
  file.floats("rope_freqs.weight", {factors.size()}, factors);
  return file;
}

TEST(GgufModel, RecoversTheScalingOfLlama3FromItsFactors) {
  const auto scaling = [](const std::vector<float>& factors) {
    return config_of(llama_with_factors(factors)).at("rope_scaling").dump();
  };
  EXPECT_EQ(scaling(llama3_factors(32, 1, 4)),
            R"({"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,)"
            R"("high_freq_factor":4.0,"original_max_position_embeddings":8192})");
  EXPECT_EQ(scaling(llama3_factors(8, 2, 16)),
            R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":2.0,)"
            R"("high_freq_factor":16.0,"original_max_position_embeddings":8192})");
  EXPECT_EQ(scaling(std::vector<float>(32, 1.0f)), "null");
}

TEST(GgufModel, RefusesFactorsOfAnotherKind) {
  std::vector<float> factors = llama3_factors(8, 1, 4);
  factors[3] = 5;
  expect_error(ErrorKind::kUnsupported, HasSubstr("'rope_freqs.weight'"),
               [&] { config_of(llama_with_factors(factors)); });
  factors.pop_back();
  expect_error(ErrorKind::kCorrupt, HasSubstr("expected 32 values"),
               [&] { config_of(llama_with_factors(factors)); });
  factors.assign(32, std::nanf(""));
  expect_error(ErrorKind::kUnsupported, HasSubstr("'rope_freqs.weight'"),
               [&] { config_of(llama_with_factors(factors)); });
}

TEST(GgufModel, ReadsLinearAndYarnScaling) {
  GgufBytes linear = small_llama();
  linear.text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(config_of(linear).at("rope_scaling").dump(), R"({"rope_type":"linear","factor":4.0})");
  GgufBytes yarn = small_llama();
  yarn.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 8);
  yarn.u32("llama.rope.scaling.original_context_length", 4096);
  EXPECT_EQ(config_of(yarn).at("rope_scaling").dump(),
            R"({"rope_type":"yarn","factor":8.0,"original_max_position_embeddings":4096})");
  GgufBytes other = small_llama();
  other.text("llama.rope.scaling.type", "longrope");
  expect_error(ErrorKind::kUnsupported, HasSubstr("longrope"), [&] { config_of(other); });
}

TEST(GgufModel, TransposesTheMatricesOfGpt2) {
  const test::TemporaryFolder folder;
  GgufBytes file;
  file.text("general.architecture", "gpt2").u32("gpt2.block_count", 1);
  file.u32("gpt2.context_length", 16).u32("gpt2.embedding_length", 2);
  file.u32("gpt2.feed_forward_length", 8).u32("gpt2.attention.head_count", 1);
  file.f32("gpt2.attention.layer_norm_epsilon", 1);
  file.floats("token_embd.weight", {2, 3}, std::vector<float>(6));
  const GgufModel model(open(folder, file));
  const auto matrix = model.place(named("blk.0.attn_qkv.weight", {3, 2}));
  EXPECT_EQ(matrix->name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(matrix->shape, (Shape{2, 3}));
  EXPECT_THAT(restored(*matrix, counted(6)), ElementsAre(0, 2, 4, 1, 3, 5));
  const auto large = model.place(named("blk.0.ffn_up.weight", {50, 70}));
  const auto values = restored(*large, counted(3500));
  EXPECT_EQ(values[50 * 69 + 3], 70 * 3 + 69);
  const auto bias = model.place(named("blk.0.attn_qkv.bias", {6}));
  EXPECT_EQ(restored(*bias, counted(6)), counted(6));
}

TEST(GgufModel, AlternatesTheHeadsOfBloomAgain) {
  const test::TemporaryFolder folder;
  GgufBytes file;
  file.text("general.architecture", "bloom").u32("bloom.block_count", 1);
  file.u32("bloom.embedding_length", 4).u32("bloom.attention.head_count", 2);
  file.f32("bloom.attention.layer_norm_epsilon", 1);
  file.floats("token_embd.weight", {4, 3}, std::vector<float>(12));
  const GgufModel model(open(folder, file));
  // Query rows 0-3, key rows 4-7, value rows 8-11, two heads of two each.
  const auto bias = model.place(named("blk.0.attn_qkv.bias", {12}));
  EXPECT_EQ(bias->name, "transformer.h.0.self_attention.query_key_value.bias");
  EXPECT_THAT(restored(*bias, counted(12)), ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11));
}

TEST(GgufModel, KnowsPlainAndGatedT5) {
  const test::TemporaryFolder folder;
  const auto t5 = [](bool gated) {
    GgufBytes file;
    file.text("general.architecture", "t5").u32("t5.block_count", 2);
    file.u32("t5.context_length", 512).u32("t5.embedding_length", 8);
    file.u32("t5.feed_forward_length", 8).u32("t5.attention.head_count", 2);
    file.u32("t5.attention.key_length", 4).u32("t5.attention.relative_buckets_count", 32);
    file.f32("t5.attention.layer_norm_epsilon", 1);
    file.floats("token_embd.weight", {8, 1}, std::vector<float>(8));
    if (gated) file.floats("enc.blk.0.ffn_gate.weight", {8, 1}, std::vector<float>(8));
    return file;
  };
  const GgufModel plain(open(folder, t5(false)));
  EXPECT_EQ(plain.config().at("feed_forward_proj"), "relu");
  EXPECT_EQ(plain.config().at("num_decoder_layers"), 2);
  EXPECT_EQ(plain.place(named("dec.blk.1.ffn_up.weight", {8, 8}))->name,
            "decoder.block.1.layer.2.DenseReluDense.wi.weight");
  const GgufModel gated(open(folder, t5(true)));
  EXPECT_EQ(gated.config().at("feed_forward_proj"), "gated-gelu");
  EXPECT_EQ(gated.place(named("enc.blk.1.ffn_up.weight", {8, 8}))->name,
            "encoder.block.1.layer.1.DenseReluDense.wi_1.weight");
}

}  // namespace
}  // namespace haul::core
