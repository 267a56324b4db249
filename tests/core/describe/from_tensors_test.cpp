#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> child_names(const ModuleSpec& module) {
  std::vector<std::string> names;
  for (const ModuleSpec& child : module.children) names.push_back(child.name);
  return names;
}

const ModuleSpec& child(const ModuleSpec& module, std::string_view name) {
  for (const ModuleSpec& candidate : module.children) {
    if (candidate.name == name) return candidate;
  }
  throw std::runtime_error("no module " + std::string(name));
}

Description described(std::vector<HeaderTensor> tensors) {
  return describe_tensors(tensors, "model.safetensors");
}

TEST(DescribeTensors, MakesATreeOfTheNamesWithNumbersInOrder) {
  const Description model = described({
      {"h.10.attn.weight", Dtype::kBF16, {4, 4}},
      {"h.2.attn.weight", Dtype::kBF16, {4, 4}},
      {"h.2.attn.bias", Dtype::kBF16, {4}},
      {"embed.weight", Dtype::kBF16, {8, 4}},
      {"scale", Dtype::kF32, {}},
  });
  EXPECT_THAT(child_names(model.root), ElementsAre("h", "embed"));
  EXPECT_THAT(child_names(child(model.root, "h")), ElementsAre("2", "10"));
  const ModuleSpec& attention = child(child(child(model.root, "h"), "2"), "attn");
  ASSERT_EQ(attention.parameters.size(), 2U);
  EXPECT_EQ(attention.parameters[0].name, "weight");
  EXPECT_EQ(attention.parameters[0].dtype, Dtype::kBF16);
  EXPECT_EQ(attention.parameters[1].shape, Shape{4});
  EXPECT_EQ(model.root.parameters[0].name, "scale");
}

TEST(DescribeTensors, TakesTheOutermostNumberedRepeatsAsBlocks) {
  const Description model = described({
      {"layers.0.experts.0.up.weight", Dtype::kF32, {2, 2}},
      {"layers.0.experts.1.up.weight", Dtype::kF32, {2, 2}},
      {"layers.1.experts.0.up.weight", Dtype::kF32, {2, 2}},
      {"layers.1.experts.1.up.weight", Dtype::kF32, {2, 2}},
      {"head.0.weight", Dtype::kF32, {2, 2}},
      {"head.2.weight", Dtype::kF32, {2, 2}},
  });
  EXPECT_THAT(model.no_split, ElementsAre("Block"));
  const ModuleSpec& layers = child(model.root, "layers");
  EXPECT_EQ(layers.class_name, "ModuleList");
  EXPECT_EQ(child(layers, "0").class_name, "Block");
  EXPECT_EQ(child(layers, "1").class_name, "Block");
  EXPECT_EQ(child(child(child(layers, "0"), "experts"), "1").class_name, "Module");
  // Numbered leaves are layers of a sequence, not blocks.
  EXPECT_EQ(child(child(model.root, "head"), "2").class_name, "Layer");
}

TEST(DescribeTensors, HasNoBlocksWithoutRepeats) {
  EXPECT_THAT(described({{"a.b.weight", Dtype::kF32, {2}}}).no_split, IsEmpty());
}

TEST(DescribeTensors, KeepsIntegersAndRunningStatisticsAsBuffers) {
  const Description model = described({
      {"bn.weight", Dtype::kF32, {2}},
      {"bn.running_mean", Dtype::kF32, {2}},
      {"bn.num_batches_tracked", Dtype::kI64, {}},
  });
  const ModuleSpec& norm = child(model.root, "bn");
  EXPECT_EQ(norm.parameters.size(), 1U);
  ASSERT_EQ(norm.buffers.size(), 2U);
  EXPECT_TRUE(norm.buffers[0].persistent);
}

TEST(DescribeTensors, RefusesNamesThatMakeNoTree) {
  const auto refused = [](std::vector<HeaderTensor> tensors, const char* why) {
    test::expect_error(ErrorKind::kCorrupt,
                       testing::AllOf(HasSubstr("model.safetensors"), HasSubstr(why)),
                       [&] { described(std::move(tensors)); });
  };
  refused({{"", Dtype::kF32, {}}}, "has an empty part");
  refused({{"a..b", Dtype::kF32, {}}}, "'a..b' has an empty part");
  refused({{"a.", Dtype::kF32, {}}}, "has an empty part");
  refused({{"a", Dtype::kF32, {}}, {"a", Dtype::kF32, {}}}, "'a' is named twice");
  std::string deep = "w";
  for (int i = 0; i < 100'000; ++i) deep += ".w";
  refused({{deep, Dtype::kF32, {}}}, "has over 64 parts");
  refused({{"a", Dtype::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}}}, "2^56");
}

}  // namespace
}  // namespace haul::core
