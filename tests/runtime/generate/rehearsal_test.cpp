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
      EXPECT_NO_THROW(rehearse(config, dimensions, at::kCPU, dtype)) << model.name;
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
  rehearse(config, *description.dimensions, at::kCPU, Dtype::kF32);
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

}  // namespace
}  // namespace haul::runtime
