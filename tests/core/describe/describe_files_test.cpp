#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "tests/core/formats/safetensors_text.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kT5 = R"({"architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5", "d_model": 2, "d_kv": 2, "num_heads": 1, "d_ff": 2, "num_layers": 1,
    "vocab_size": 3, "tie_word_embeddings": false})";

// A safetensors file of (3, 2) F16 tensors, each filled with its own byte.
std::string tables(const std::vector<std::pair<std::string, char>>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, fill] : tensors) {
    header +=
        fmt::format(R"({}"{}": {{"dtype": "F16", "shape": [3, 2], "data_offsets": [{}, {}]}})",
                    data.empty() ? "" : ", ", name, data.size(), data.size() + 12);
    data.append(12, fill);
  }
  return test::safetensors_file(header + "}", data);
}

ModelFiles model(const test::TemporaryFolder& folder, const char* config,
                 const std::string& checkpoint) {
  ModelFiles files;
  files.name = "model";
  files.folder = folder.path();
  files.config = folder.write("config.json", config);
  files.checkpoint = folder.write("model.safetensors", checkpoint);
  return files;
}

const ParameterSpec& head(const Description& description) {
  return description.root.children.back().parameters.front();
}

TEST(Describe, KeepsTiedWhatTheCheckpointHoldsOnce) {
  const test::TemporaryFolder folder;
  const auto described = describe(model(folder, kT5, tables({{"shared.weight", 'a'}})));
  EXPECT_THAT(described.description.tied,
              ElementsAre(ElementsAre("shared.weight", "encoder.embed_tokens.weight",
                                      "decoder.embed_tokens.weight", "lm_head.weight")));
  EXPECT_EQ(described.from, DescribedFrom::kConfig);
}

TEST(Describe, UntiesANameThatTheCheckpointHoldsWithValuesOfItsOwn) {
  const test::TemporaryFolder folder;
  const auto described =
      describe(model(folder, kT5, tables({{"lm_head.weight", 'b'}, {"shared.weight", 'a'}})));
  EXPECT_THAT(described.description.tied,
              ElementsAre(ElementsAre("shared.weight", "encoder.embed_tokens.weight",
                                      "decoder.embed_tokens.weight")));
}

TEST(Describe, KeepsTiedANameThatTheCheckpointHoldsTwiceAlike) {
  const test::TemporaryFolder folder;
  const auto described =
      describe(model(folder, kT5, tables({{"lm_head.weight", 'a'}, {"shared.weight", 'a'}})));
  EXPECT_EQ(described.description.tied.front().size(), 4U);
}

TEST(Describe, UntiesByTheHeadersOfACheckpointThatIsNotHere) {
  const test::TemporaryFolder folder;
  ModelFiles files = model(folder, kT5, "");
  files.checkpoint.clear();
  EXPECT_EQ(describe(files).description.tied.front().size(), 4U);
  files.remote_tensors = {{"shared.weight", Dtype::kF32, {3, 2}},
                          {"lm_head.weight", Dtype::kF32, {3, 2}}};
  EXPECT_EQ(describe(files).description.tied.front().size(), 3U);
}

TEST(Describe, FindsTiedNamesOfACheckpointOfTheBareModel) {
  const test::TemporaryFolder folder;
  constexpr const char* config = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
      "n_embd": 2, "n_head": 1, "n_layer": 1, "vocab_size": 3})";
  const auto tied = describe(model(folder, config, tables({{"wte.weight", 'a'}})));
  EXPECT_EQ(tied.description.tied.size(), 1U);
  const auto untied =
      describe(model(folder, config, tables({{"wte.weight", 'a'}, {"lm_head.weight", 'b'}})));
  EXPECT_TRUE(untied.description.tied.empty());
}

TEST(Describe, GivesTheStoredDtypeOnRequest) {
  const test::TemporaryFolder folder;
  const ModelFiles files =
      model(folder, kT5, tables({{"lm_head.weight", 'b'}, {"shared.weight", 'a'}}));
  EXPECT_EQ(head(describe(files).description).dtype, Dtype::kF32);
  DescribeOptions options;
  options.dtype = WeightDtype::kStored;
  EXPECT_EQ(head(describe(files, options).description).dtype, Dtype::kF16);
}

TEST(Describe, TakesAnUnknownArchitectureFromItsCheckpoint) {
  const test::TemporaryFolder folder;
  const auto described =
      describe(model(folder, R"({"architectures": ["FooForBar"], "model_type": "foo"})",
                     tables({{"layers.0.a.weight", 'a'}, {"layers.1.a.weight", 'b'}})));
  EXPECT_EQ(described.from, DescribedFrom::kCheckpoint);
  EXPECT_EQ(described.description.architecture, "FooForBar");
  EXPECT_THAT(described.description.no_split, ElementsAre("Block"));
  EXPECT_FALSE(described.description.dimensions.has_value());
}

TEST(Describe, TakesACheckpointWithoutAConfig) {
  const test::TemporaryFolder folder;
  ModelFiles files = model(folder, "{}", tables({{"w", 'a'}}));
  files.config.clear();
  const auto described = describe(files);
  EXPECT_EQ(described.from, DescribedFrom::kCheckpoint);
  EXPECT_EQ(described.description.root.parameters.front().dtype, Dtype::kF16);
}

TEST(Describe, TakesAGgufFileByItsMetadataWithTransformersNames) {
  const test::TemporaryFolder folder;
  test::GgufBytes file;
  file.text("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.context_length", 128)
      .u32("llama.embedding_length", 8)
      .u32("llama.feed_forward_length", 16)
      .u32("llama.attention.head_count", 2)
      .u32("llama.attention.head_count_kv", 1)
      .f32("llama.attention.layer_norm_rms_epsilon", 0.5f)
      .f32("llama.rope.freq_base", 20000);
  file.floats("token_embd.weight", {8, 3}, std::vector<float>(24));
  ModelFiles files;
  files.name = "m.gguf";
  files.checkpoint = folder.write("m.gguf", file.bytes());
  const auto described = describe(files);
  EXPECT_EQ(described.description.architecture, "LlamaForCausalLM");
  EXPECT_EQ(described.description.dimensions->layers, 1);
  EXPECT_EQ(described.description.tied.size(), 1U);
  EXPECT_EQ(described.from, DescribedFrom::kCheckpoint);
}

TEST(Describe, SaysWhatIsMissing) {
  ModelFiles files;
  files.name = "org/model";
  test::expect_error(ErrorKind::kNotFound, HasSubstr("org/model: neither"),
                     [&] { describe(files); });
}

TEST(NeedsHeaders, OnlyWhereTheConfigDoesNotTell) {
  const test::TemporaryFolder folder;
  ModelFiles files;
  EXPECT_TRUE(needs_headers(files));
  files.config = folder.write("bert.json", R"({"model_type": "bert"})");
  EXPECT_FALSE(needs_headers(files));
  files.config = folder.write("t5.json", kT5);
  EXPECT_TRUE(needs_headers(files));
  files.config = folder.write("foo.json", R"({"architectures": ["FooForBar"]})");
  EXPECT_TRUE(needs_headers(files));
}

}  // namespace
}  // namespace haul::core
