#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "runtime/generate/rehearsal.h"
#include "tests/support/small_models.h"

namespace haul::runtime {
namespace {

TEST(GpuRehearsal, RunsASmallModelOfEveryFamilyOfDecoders) {
  for (const test::SmallModel& model : test::kSmallModels) {
    const core::Json config = core::parse_json(model.config, "config.json");
    const Description description = core::describe_config(config, "config.json");
    const Dimensions& dimensions = *description.dimensions;
    if (!dimensions.causal || dimensions.encoder_layers > 0) continue;
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
      for (const bool replayed : {false, true}) {
        EXPECT_TRUE(rehearse(config, dimensions, {at::Device(at::kCUDA, 0), dtype, replayed, kGiB}))
            << model.name;
      }
    }
  }
}

}  // namespace
}  // namespace haul::runtime
