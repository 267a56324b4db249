#include "core/describe/cut.h"

#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "core/describe/transformers_tensors.h"
#include "core/formats/safetensors_writer.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

Description described(const std::string& type, const std::string& more = "") {
  return describe_config(
      parse_json(R"({"model_type": ")" + type + R"(", "num_hidden_layers": 1, "n_layer": 1,
                 "hidden_size": 24, "n_embd": 24, "num_attention_heads": 6, "n_head": 6,
                 "intermediate_size": 36, "vocab_size": 10)" +
                     more + "}",
                 "config.json"),
      "config.json");
}

// Of the tensors that are cut: name, shape of a part.
std::map<std::string, Shape> parts_of(const CutModel& model) {
  std::map<std::string, Shape> result;
  for (const NamedTensor& tensor : all_tensors(model.description)) {
    if (model.cuts.contains(tensor.name)) result[tensor.name] = tensor.shape;
  }
  return result;
}

std::size_t cut_dimensions(const Description& whole, const CutModel& model, std::int64_t count) {
  const auto before = all_tensors(whole);
  const auto after = all_tensors(model.description);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (std::size_t d = 0; d < before[i].shape.size(); ++d) {
      if (before[i].shape[d] == after[i].shape[d]) continue;
      EXPECT_EQ(before[i].shape[d], after[i].shape[d] * count) << before[i].name;
      EXPECT_EQ(model.cuts.at(before[i].name).dim, d) << before[i].name;
      ++differ;
    }
  }
  return differ;
}

TEST(CutModel, GivesALlamaItsShareOfHeadsAndWidth) {
  const Description whole =
      described("llama", R"(, "num_key_value_heads": 3, "attention_bias": true)");
  const CutModel model = cut_model(whole, 3);
  EXPECT_THAT(parts_of(model),
              UnorderedElementsAre(std::pair("layers.0.self_attn.q_proj.weight", Shape{8, 24}),
                                   std::pair("layers.0.self_attn.q_proj.bias", Shape{8}),
                                   std::pair("layers.0.self_attn.k_proj.weight", Shape{4, 24}),
                                   std::pair("layers.0.self_attn.k_proj.bias", Shape{4}),
                                   std::pair("layers.0.self_attn.v_proj.weight", Shape{4, 24}),
                                   std::pair("layers.0.self_attn.v_proj.bias", Shape{4}),
                                   std::pair("layers.0.self_attn.o_proj.weight", Shape{24, 8}),
                                   std::pair("layers.0.mlp.gate_proj.weight", Shape{12, 24}),
                                   std::pair("layers.0.mlp.up_proj.weight", Shape{12, 24}),
                                   std::pair("layers.0.mlp.down_proj.weight", Shape{24, 12})));
  EXPECT_EQ(cut_dimensions(whole, model, 3), model.cuts.size());
  EXPECT_THAT(model.summed, ElementsAre("layers.0.self_attn.o_proj", "layers.0.mlp.down_proj"));
  const Dimensions& d = *model.description.dimensions;
  EXPECT_EQ(d.heads, 2);
  EXPECT_EQ(d.kv_heads, 1);
  EXPECT_EQ(d.intermediate, 12);
  EXPECT_EQ(d.hidden, 24);
  EXPECT_EQ(d.head_size, 4);
}

TEST(CutModel, CutsQueriesKeysAndValuesOfAGpt2EachByItself) {
  const Description whole = described("gpt2");
  const CutModel model = cut_model(whole, 2);
  EXPECT_THAT(parts_of(model),
              UnorderedElementsAre(std::pair("h.0.attn.c_attn.weight", Shape{24, 36}),
                                   std::pair("h.0.attn.c_attn.bias", Shape{36}),
                                   std::pair("h.0.attn.c_proj.weight", Shape{12, 24}),
                                   std::pair("h.0.mlp.c_fc.weight", Shape{24, 48}),
                                   std::pair("h.0.mlp.c_fc.bias", Shape{48}),
                                   std::pair("h.0.mlp.c_proj.weight", Shape{48, 24})));
  EXPECT_EQ(model.cuts.at("h.0.attn.c_attn.weight").groups, 3);
  EXPECT_EQ(model.cuts.at("h.0.attn.c_attn.bias").groups, 3);
  EXPECT_EQ(model.cuts.at("h.0.mlp.c_fc.weight").groups, 1);
  EXPECT_THAT(model.summed, ElementsAre("h.0.attn.c_proj", "h.0.mlp.c_proj"));
}

TEST(CutModel, KnowsTheOtherFamilies) {
  for (const char* const type : {"bert", "bloom", "mistral", "qwen2", "qwen3"}) {
    SCOPED_TRACE(type);
    const Description whole = described(type, R"(, "num_key_value_heads": 6)");
    const CutModel model = cut_model(whole, 6);
    EXPECT_EQ(model.summed.size(), 2U);
    EXPECT_EQ(cut_dimensions(whole, model, 6), model.cuts.size());
  }
}

TEST(CutModel, NamesHeadsAndProcessesThatDoNotDivide) {
  const auto expect_refused = [](const Description& whole, std::int64_t count,
                                 const testing::Matcher<const std::string&>& message) {
    test::expect_error(ErrorKind::kUsage, message, [&] { cut_model(whole, count); });
  };
  expect_refused(described("llama", R"(, "num_key_value_heads": 2)"), 3,
                 AllOf(HasSubstr("3 processes"), HasSubstr("6 heads"), HasSubstr("2 kv heads"),
                       HasSubstr("LlamaModel")));
  expect_refused(described("bert"), 5, AllOf(HasSubstr("5 processes"), HasSubstr("width of 36")));
  expect_refused(described("llama"), 0, HasSubstr("0 processes"));
}

TEST(CutModel, NamesAnArchitectureThatCannotBeCut) {
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("a T5Model cannot be shared"),
                     [] { cut_model(described("t5", R"(, "d_model": 24, "num_heads": 6)"), 2); });
}

// A tensor of numbers, its parts put side by side again.
class PartSinks : public testing::TestWithParam<TensorCut> {};
INSTANTIATE_TEST_SUITE_P(All, PartSinks,
                         testing::Values(TensorCut{0, 1}, TensorCut{1, 1}, TensorCut{1, 3},
                                         TensorCut{0, 2}, TensorCut{2, 1}, TensorCut{2, 5}));

TEST_P(PartSinks, KeepWhatBelongsToAPart) {
  const TensorCut cut = GetParam();
  const Shape shape{12, 18, 30};
  const std::uint64_t count = element_count(shape);
  std::vector<std::uint16_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::uint16_t>(i);
  const auto bytes = std::as_bytes(std::span(numbers));
  const std::uint64_t runs = runs_of(shape, cut);
  for (const std::int64_t processes : {1, 2, 3, 6}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
      for (std::int64_t index = 0; index < processes; ++index) {
        std::vector<std::byte> found;
        PartSink sink(bytes.size() / runs, {index, processes},
                      [&](std::span<const std::byte> some) {
                        found.insert(found.end(), some.begin(), some.end());
                      });
        for (std::size_t at = 0; at < bytes.size(); at += piece) {
          sink(bytes.subspan(at, std::min(piece, bytes.size() - at)));
        }
        std::vector<std::uint16_t> expected;
        const std::int64_t group = shape[cut.dim] / cut.groups;
        for (std::size_t i = 0; i < count; ++i) {
          std::int64_t at = static_cast<std::int64_t>(i);
          for (std::size_t d = 2; d > cut.dim; --d) at /= shape[d];
          at %= group;
          if (at / (group / processes) == index) expected.push_back(numbers[i]);
        }
        const auto wanted = std::as_bytes(std::span(expected));
        EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()))
            << index << " of " << processes << " in pieces of " << piece;
      }
    }
  }
}

// The part of the first tensor that a process has.
std::vector<float> part_of(const TransformersTensors& tensors, TensorCut cut, TensorPart part) {
  std::vector<float> found;
  tensors.stream_part(0, cut, part, [&](std::span<const std::byte> piece) {
    const auto* const values = reinterpret_cast<const float*>(piece.data());
    found.insert(found.end(), values, values + piece.size() / sizeof(float));
  });
  return found;
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  return numbers;
}

TEST(TransformersTensors, StreamThePartOfAProcess) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  SafetensorsWriter writer(path, {{"w", Dtype::kF32, {6, 4}}}, {});
  const std::vector<float> numbers = counted(24);
  writer.write(std::as_bytes(std::span(numbers)));
  writer.commit();
  const Checkpoint checkpoint = Checkpoint::open(path);
  const TransformersTensors tensors(checkpoint, std::nullopt);
  EXPECT_THAT(part_of(tensors, {0, 1}, {1, 3}), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(part_of(tensors, {0, 3}, {1, 2}),
              ElementsAre(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23));
  EXPECT_THAT(part_of(tensors, {1, 1}, {0, 4}), ElementsAre(0, 4, 8, 12, 16, 20));
  EXPECT_TRUE(tensors.reads_part_alone(0, {0, 1}));
  EXPECT_FALSE(tensors.reads_part_alone(0, {0, 3}));
  EXPECT_FALSE(tensors.reads_part_alone(0, {1, 1}));
}

// Heads whose rows a GGUF file holds in another order.
TEST(TransformersTensors, StreamTheHeadsOfAProcessInTheirOrder) {
  test::GgufBytes file;
  file.text("general.architecture", "llama");
  for (const auto& [key, value] :
       std::map<std::string, std::uint32_t>{{"block_count", 1},
                                            {"context_length", 128},
                                            {"embedding_length", 8},
                                            {"feed_forward_length", 16},
                                            {"attention.head_count", 2},
                                            {"attention.head_count_kv", 2}}) {
    file.u32("llama." + key, value);
  }
  file.f32("llama.attention.layer_norm_rms_epsilon", 0.5F);
  file.floats("blk.0.attn_q.weight", {8, 8}, counted(64));
  file.floats("token_embd.weight", {8, 3}, counted(24));
  const test::TemporaryFolder folder;
  const Checkpoint checkpoint = Checkpoint::open(folder.write("m.gguf", file.bytes()));
  const TransformersTensors tensors(checkpoint, std::nullopt);
  ASSERT_EQ(tensors.headers()[0].name, "model.layers.0.self_attn.q_proj.weight");
  const TensorCut rows{0, 1};
  EXPECT_TRUE(tensors.reads_part_alone(0, rows));
  const std::vector<float> whole = part_of(tensors, rows, {0, 1});
  EXPECT_NE(whole, counted(64));
  std::vector<float> joined = part_of(tensors, rows, {0, 2});
  EXPECT_EQ(joined.size(), 32U);
  const std::vector<float> second = part_of(tensors, rows, {1, 2});
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(joined, whole);
}

}  // namespace
}  // namespace haul::core
