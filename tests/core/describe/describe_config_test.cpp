#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Description described(const char* config, const DescribeOptions& options = {}) {
  return describe_config(parse_json(config, "config.json"), "config.json", options);
}

// Parameters, each tied group once.
std::uint64_t parameters(const Description& description) {
  std::uint64_t count = 0;
  for (const NamedTensor& tensor : all_tensors(description)) {
    bool counted = !tensor.is_buffer;
    for (const auto& group : description.tied) {
      for (std::size_t i = 1; i < group.size(); ++i) counted = counted && tensor.name != group[i];
    }
    if (counted) count += element_count(tensor.shape);
  }
  return count;
}

const NamedTensor& find(const std::vector<NamedTensor>& tensors, std::string_view name) {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

DescribeOptions bare() {
  DescribeOptions options;
  options.base_model = true;
  return options;
}

constexpr const char* kBertBaseCased =
    R"({"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 28996})";
constexpr const char* kLlama8B = R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
    "rope_theta": 500000.0, "rope_scaling": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16"})";

TEST(DescribeConfig, CountsTheBareBertBaseCased) {
  const Description bert = described(kBertBaseCased, bare());
  EXPECT_EQ(parameters(bert), 108'310'272U);
  EXPECT_EQ(bert.architecture, "BertModel");
  EXPECT_THAT(bert.no_split, ElementsAre("BertEmbeddings", "BertLayer"));
  Bytes embeddings = 0;
  Bytes total = 0;
  for (const NamedTensor& tensor : all_tensors(bert)) {
    const Bytes bytes = byte_count(tensor.dtype, tensor.shape);
    total += bytes;
    if (tensor.name.starts_with("embeddings.")) embeddings += bytes;
  }
  EXPECT_EQ(embeddings, 90'669'056U);
  EXPECT_EQ(total, 433'249'280U);
}

TEST(DescribeConfig, CountsGpt2OnceForItsTiedTable) {
  const Description gpt2 =
      described(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})");
  EXPECT_EQ(parameters(gpt2), 124'439'808U);
  EXPECT_THAT(gpt2.tied, ElementsAre(ElementsAre("transformer.wte.weight", "lm_head.weight")));
}

TEST(DescribeConfig, CountsLlama8B) {
  const Description llama = described(kLlama8B);
  EXPECT_EQ(parameters(llama), 8'030'261'248U);
  EXPECT_TRUE(llama.tied.empty());
  EXPECT_EQ(llama.dimensions->layers, 32);
  EXPECT_EQ(llama.dimensions->kv_heads, 8);
  EXPECT_EQ(llama.dimensions->head_size, 128);
  EXPECT_EQ(llama.dimensions->max_positions, 8192);
  EXPECT_TRUE(llama.dimensions->causal);
  EXPECT_TRUE(llama.dimensions->gated_mlp);
}

TEST(DescribeConfig, CountsTimmsResNet50) {
  const Description resnet = described(R"({"architecture": "resnet50", "num_classes": 1000})");
  EXPECT_EQ(parameters(resnet), 25'557'032U);
  Bytes total = 0;
  for (const NamedTensor& tensor : all_tensors(resnet)) {
    total += byte_count(tensor.dtype, tensor.shape);
  }
  EXPECT_EQ(total, 102'441'032U);
  EXPECT_EQ(resnet.root.class_name, "ResNet");
}

TEST(DescribeConfig, SizesADecoderLayerOfIdefics80B) {
  const Description idefics = described(R"({"architectures": ["IdeficsForVisionText2Text"],
      "model_type": "idefics", "hidden_size": 8192, "intermediate_size": 22016,
      "num_hidden_layers": 80, "num_attention_heads": 64, "cross_layer_interval": 4})");
  Bytes layer = 0;
  for (const NamedTensor& tensor : all_tensors(idefics)) {
    if (tensor.name.starts_with("model.layers.79."))
      layer += byte_count(tensor.dtype, tensor.shape);
  }
  EXPECT_EQ(layer, 3'238'068'736U);
}

TEST(DescribeConfig, GivesWeightsTheConfigsDtypeWhenAskedForTheStoredOne) {
  DescribeOptions options;
  EXPECT_EQ(find(all_tensors(described(kLlama8B, options)), "lm_head.weight").dtype, Dtype::kF32);
  options.dtype = WeightDtype::kStored;
  const auto tensors = all_tensors(described(kLlama8B, options));
  EXPECT_EQ(find(tensors, "lm_head.weight").dtype, Dtype::kBF16);
  EXPECT_EQ(find(tensors, "model.rotary_emb.inv_freq").dtype, Dtype::kF32);
}

TEST(DescribeConfig, NamesWhichLayersUseASlidingWindow) {
  const Description mistral =
      described(R"({"model_type": "mistral", "num_hidden_layers": 3, "sliding_window": 512})");
  EXPECT_EQ(mistral.dimensions->sliding_window, 512);
  EXPECT_EQ(mistral.dimensions->windowed_layers, 3);
  const Description full =
      described(R"({"model_type": "mistral", "num_hidden_layers": 3, "sliding_window": null})");
  EXPECT_EQ(full.dimensions->sliding_window, 0);
  EXPECT_EQ(full.dimensions->windowed_layers, 0);
  const Description qwen = described(R"({"model_type": "qwen2", "num_hidden_layers": 4,
      "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 3})");
  EXPECT_EQ(qwen.dimensions->sliding_window, 64);
  EXPECT_EQ(qwen.dimensions->windowed_layers, 1);
  const Description listed = described(R"({"model_type": "qwen3", "num_hidden_layers": 3,
      "use_sliding_window": true, "sliding_window": 64,
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]})");
  EXPECT_EQ(listed.dimensions->windowed_layers, 2);
}

TEST(DescribeConfig, SeparatesTheLayersOfAnEncoderDecoder) {
  const Description t5 = described(R"({"architectures": ["T5ForConditionalGeneration"],
      "model_type": "t5", "num_layers": 3, "num_decoder_layers": 5})");
  EXPECT_EQ(t5.dimensions->encoder_layers, 3);
  EXPECT_EQ(t5.dimensions->layers, 5);
  EXPECT_TRUE(t5.dimensions->score_bias);
  const Description encoder =
      described(R"({"architectures": ["T5EncoderModel"], "model_type": "t5", "num_layers": 3})");
  EXPECT_EQ(encoder.dimensions->encoder_layers, 0);
  EXPECT_EQ(encoder.dimensions->layers, 3);
  EXPECT_FALSE(encoder.dimensions->causal);
}

TEST(DescribeConfig, TakesTheBareModelOfAConfigWithoutArchitectures) {
  EXPECT_EQ(described(R"({"model_type": "gpt2", "n_layer": 1})").root.class_name, "GPT2Model");
  EXPECT_EQ(described(R"({"model_type": "bert", "architectures": []})").architecture, "BertModel");
}

TEST(DescribeConfig, KnowsTheOldNameOfT5WithItsHead) {
  const Description t5 = described(R"({"architectures": ["T5WithLMHeadModel"], "model_type": "t5",
      "num_layers": 1})");
  EXPECT_EQ(t5.root.class_name, "T5ForConditionalGeneration");
  EXPECT_EQ(t5.tied.front().back(), "lm_head.weight");
}

TEST(DescribeConfig, RefusesLayersThatDiffer) {
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("\"per_layer_config\""), [] {
    described(R"({"model_type": "llama", "per_layer_config": {"0": {"hidden_size": 8}}})");
  });
}

TEST(DescribeConfig, NamesAnArchitectureThatItDoesNotKnow) {
  test::expect_error(ErrorKind::kUnsupported,
                     AllOf(HasSubstr("config.json"), HasSubstr("\"FooForBar\"")),
                     [] { described(R"({"architectures": ["FooForBar"], "model_type": "foo"})"); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("\"foo\""),
                     [] { described(R"({"model_type": "foo"})", bare()); });
}

TEST(DescribeConfig, SaysThatAConfigNamesNoArchitecture) {
  for (const DescribeOptions& options : {DescribeOptions{}, bare()}) {
    test::expect_error(ErrorKind::kUnsupported, HasSubstr("names no architecture"),
                       [&] { described("{}", options); });
  }
}

TEST(DescribeConfig, RefusesSizesThatNoMachineCouldHold) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("more than 2^56 elements"), [] {
    described(R"({"model_type": "llama", "num_attention_heads": 2147483648,
        "hidden_size": 2147483648, "head_dim": 2147483648})");
  });
}

TEST(DescribeConfig, RefusesHeadsThatDoNotDivideTheWidth) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"n_embd\""),
                     [] { described(R"({"model_type": "gpt2", "n_embd": 10, "n_head": 3})"); });
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"num_attention_heads\""), [] {
    described(R"({"model_type": "llama", "hidden_size": 10, "num_attention_heads": 20})");
  });
}

TEST(DescribeConfig, RefusesValuesOfTheWrongKindByTheirKey) {
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"hidden_act\" is not a string"),
                     [] { described(R"({"model_type": "bert", "hidden_act": 3})"); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("\"frobnicate\""),
                     [] { described(R"({"model_type": "bert", "hidden_act": "frobnicate"})"); });
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"architectures\""),
                     [] { described(R"({"model_type": "bert", "architectures": "BertModel"})"); });
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("\"layer_types\""), [] {
    described(R"({"model_type": "qwen2", "use_sliding_window": true, "layer_types": ["a"]})");
  });
}

}  // namespace
}  // namespace haul::core
