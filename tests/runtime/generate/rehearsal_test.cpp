#include "runtime/generate/rehearsal.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "tests/support/small_models.h"

namespace haul::runtime {
namespace {

TEST(Rehearsal, RunsASmallModelOfEveryFamilyOfDecoders) {
  int decoders = 0;
  for (const test::SmallModel& model : test::kSmallModels) {
    const core::Json config = core::parse_json(model.config, "config.json");
    const Description description = core::describe_config(config, "config.json");
    const Dimensions& dimensions = *description.dimensions;
    if (!dimensions.causal || dimensions.encoder_layers > 0) continue;
    ++decoders;
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
      EXPECT_TRUE(rehearse(config, dimensions, {at::kCPU, dtype, false, kGiB})) << model.name;
    }
  }
  EXPECT_EQ(decoders, 6);
}

TEST(Rehearsal, LeavesTheRandomNumbersToOthers) {
  const core::Json config = core::parse_json(test::kSmallModels[2].config, "config.json");
  const Description description = core::describe_config(config, "config.json");
  torch::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  torch::manual_seed(5);
  rehearse(config, *description.dimensions, {at::kCPU, Dtype::kF32, false, kGiB});
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

TEST(Rehearsal, TakesNoMoreThanItsRoom) {
  const core::Json config = core::parse_json(test::kSmallModels[2].config, "config.json");
  const Description description = core::describe_config(config, "config.json");
  // Its weights share the memory of the largest, which leads from 288 numbers to 576.
  const Bytes largest = 288 * 576 * 4;
  const auto rehearses_in = [&](Bytes room) {
    return rehearse(config, *description.dimensions, {at::kCPU, Dtype::kF32, false, room});
  };
  EXPECT_TRUE(rehearses_in(largest));
  EXPECT_FALSE(rehearses_in(largest - 1));
}

// A table of positions has no row beyond its end.
TEST(Rehearsal, KeepsToThePositionsThatThereAre) {
  core::Json config = core::parse_json(R"({"architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4})",
                                       "config.json");
  for (const std::int64_t positions : {1, 2, 9, 16}) {
    config["n_positions"] = positions;
    const Description description = core::describe_config(config, "config.json");
    EXPECT_EQ(rehearse(config, *description.dimensions, {at::kCPU, Dtype::kF32, false, kGiB}),
              positions > 1);
  }
}

}  // namespace
}  // namespace haul::runtime
